"""Which owned slots a search may be answered from: what keeps an answer whole.

The promise is in docs/explanation/guarantees.md.

A slot that was taken over comes from a checkpoint and reads on. Until it has read what its log held
when it came it would answer less than its former owner did, in silence: it counts as not here, and
the merger asks again. With a position token a slot has to have come as far as the token besides,
and only a slot that was seen to have come that far may answer: one that comes later may be behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from sirocco.protocol.contract.positions import Reached, position_of


class HasReached(Protocol):
    """What decides of a slot whether it has come as far as a token."""

    @property
    def reached(self) -> Reached:
        """How far each intake partition has been taken."""


class MayBeBehind(Protocol):
    """What decides of a slot whether it may be searched."""

    @property
    def is_behind(self) -> bool:
        """Whether its log held more when it came here than it has read."""


OwnedSlot = TypeVar("OwnedSlot", bound=MayBeBehind)
AskedSlot = TypeVar("AskedSlot", bound=HasReached)


def searchable(slots: Mapping[int, OwnedSlot], number: int) -> OwnedSlot | None:
    """An owned slot that may be searched now; None as if it were not here."""
    slot = slots.get(number)
    return None if slot is None or slot.is_behind else slot


class Arrived(Generic[AskedSlot]):
    """The slots of a question that have come as far as its position token.

    Args:
        here: number → slot that may be searched now, None where there is none.
        numbers: of the question.
        token: intake partition → offset of the last record that has to have been taken.
    """

    def __init__(
        self,
        here: Callable[[int], AskedSlot | None],
        numbers: Sequence[int],
        token: Mapping[int, int],
    ) -> None:
        self._here = here
        self._numbers = numbers
        self._wanted = {partition: position_of(offset + 1) for partition, offset in token.items()}
        self._seen: dict[int, AskedSlot] = {}

    def look(self) -> bool:
        """Whether all have come that far that are here; asked between two steps."""
        here = {number: self._here(number) for number in self._numbers}
        # A slot that comes after this look comes from a checkpoint, and may be far behind.
        self._seen = {number: slot for number, slot in here.items() if slot is not None}
        return all(
            slot.reached.positions.get(partition, 0) >= position
            for slot in self._seen.values()
            for partition, position in self._wanted.items()
        )

    def slot(self, number: int) -> AskedSlot | None:
        """A slot that had come that far; None as if it were not here.

        One that was lost and has come again since is another: what was seen has stood still.
        """
        seen = self._seen.get(number)
        return seen if seen == self._here(number) else None
