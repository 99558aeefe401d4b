"""Which owned slots may answer a search, so that answers are complete.

The promise is in docs/explanation/guarantees.md.

A slot that was taken over starts from a checkpoint and reads on. Until it has read what its log
held at the take-over it would answer less than its former owner, without notice. So it counts as
absent, and the merger asks again. With a position token a slot must also have reached the token.
Only a slot that was seen to have reached it may answer: one that arrives later may be behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from sirocco.protocol.contract.positions import Reached, position_of


class SlotProgress(Protocol):
    """A slot that can be compared with a position token."""

    @property
    def reached(self) -> Reached:
        """How far each intake partition has been taken."""


class SlotReadiness(Protocol):
    """A slot that may be searched or not."""

    @property
    def is_catching_up(self) -> bool:
        """Whether its log held more at the take-over than it has read."""


OwnedSlot = TypeVar("OwnedSlot", bound=SlotReadiness)
TokenSlot = TypeVar("TokenSlot", bound=SlotProgress)


def searchable(slots: Mapping[int, OwnedSlot], number: int) -> OwnedSlot | None:
    """Returns an owned slot that may be searched now; None if there is none."""
    slot = slots.get(number)
    return None if slot is None or slot.is_catching_up else slot


class TokenCheck(Generic[TokenSlot]):
    """The slots of a search that have reached its position token.

    Args:
        here: number → slot that may be searched now, None where there is none.
        numbers: of the search.
        token: intake partition → offset of the last record that must have been taken.
    """

    def __init__(
        self,
        here: Callable[[int], TokenSlot | None],
        numbers: Sequence[int],
        token: Mapping[int, int],
    ) -> None:
        self._here = here
        self._numbers = numbers
        self._wanted = {partition: position_of(offset + 1) for partition, offset in token.items()}
        self._seen: dict[int, TokenSlot] = {}

    def check(self) -> bool:
        """Whether all slots here have reached the token; asked between two steps."""
        here = {number: self._here(number) for number in self._numbers}
        # A slot that arrives after this check starts from a checkpoint, and may be far behind.
        self._seen = {number: slot for number, slot in here.items() if slot is not None}
        return all(
            slot.reached.positions.get(partition, 0) >= position
            for slot in self._seen.values()
            for partition, position in self._wanted.items()
        )

    def slot(self, number: int) -> TokenSlot | None:
        """Returns a slot that had reached the token; None if it is absent.

        A slot that was lost and came back since is another one; the one seen has stopped reading.
        """
        seen = self._seen.get(number)
        return seen if seen == self._here(number) else None
