"""Which slices of a slot's objects are in the archive, and which may leave it.

Slices are merged in memory, where searches want few, once they are written. A merged one stands on
the slices that the archive has of it, its parts, until it is full and merged no more. So each
object is written twice in its life, however often it is merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sirocco.index.store.slices import SealedSlice
from sirocco.protocol.contract.effects import State

Span = tuple[int, int]

# A slice of more parts is written anew: each is a file to read when the slot moves.
PARTS_MAX = 32


def slice_prefix(slot: int) -> str:
    """What the names of all slices of a slot begin with."""
    return f"slices/{slot:05}/"


def slice_name(slot: int, span: Span) -> str:
    """The name of a slice in the archive: its slot, and the first and last of its objects."""
    return f"{slice_prefix(slot)}{span[0]:016}-{span[1]:016}"


def slice_names(slot: int, state: State) -> list[str]:
    """The slices that a state stands on."""
    if "slices" not in state:
        return []
    return [slice_name(slot, (int(first), int(last))) for first, last in state["slices"]]


def span_of(slice_: SealedSlice) -> Span:
    """The stretch of the slot's objects that a slice holds."""
    return slice_.first_seq, slice_.last_seq


def arrivals_of(slice_: SealedSlice) -> Span:
    """The least and the greatest arrival in a slice, epoch ms."""
    return slice_.arrival_first_ms, slice_.arrival_last_ms


@dataclass(slots=True)
class Shelf:
    """The archived slices of one slot.

    Attributes:
        slot: its number.
        archived: spans that the archive has for certain, with their `arrivals_of`.
        gone: those of them that are in memory no more and in no larger slice, the past that only
            the archive knows.
        saved_seq: the archive has all objects up to this one that are in slices; -1 before any.
        earliest_ms: from when on arrivals are kept, in memory or here; None while nothing was lost.
    """

    slot: int
    archived: dict[Span, Span] = field(default_factory=dict)
    gone: dict[Span, Span] = field(default_factory=dict)
    saved_seq: int = -1
    earliest_ms: int | None = None
    # Name of a checkpoint on its way → what it stands on. Names sort as offsets do.
    _saving: dict[str, dict[Span, Span]] = field(default_factory=dict)
    # What those stand on that are kept: the newest one that counts, and the one before it.
    _former: frozenset[Span] = frozenset()
    _newest: frozenset[Span] = frozenset()
    # The newest one is another's: nobody here knows what that stands on.
    _is_anothers: bool = False

    @property
    def is_saving(self) -> bool:
        """Whether a checkpoint is on its way to the archive."""
        return bool(self._saving)

    def restored(self, state: State, slices: Iterable[SealedSlice]) -> None:
        """Takes what a checkpoint stands on."""
        rows = state["gone_slices"].tolist()
        self.gone = {(first, last): (from_ms, upto_ms) for first, last, from_ms, upto_ms in rows}
        self.archived = {span_of(each): arrivals_of(each) for each in slices}
        self._newest = frozenset(self.archived)
        self.saved_seq = max((last for _, last in self._newest), default=-1)
        self.archived |= self.gone
        self.earliest_ms = next(iter(state["earliest_ms"].tolist()), None)

    def state(self) -> dict[str, NDArray[np.int64]]:
        """For a checkpoint."""
        rows = [(*span, *arrivals) for span, arrivals in sorted(self.gone.items())]
        earliest = [] if self.earliest_ms is None else [self.earliest_ms]
        return {
            "gone_slices": np.array(rows, np.int64).reshape(-1, 4),
            "earliest_ms": np.array(earliest, np.int64),
        }

    def parts(self, span: Span) -> list[Span]:
        """The archived slices that hold just these objects, in order; none where it lacks some."""
        if span in self.archived:
            return [span]
        behind: dict[int, int] = {}
        for first, last in self.archived:
            if span[0] <= first and last <= span[1]:
                behind[first] = max(last, behind.get(first, last))
        parts: list[Span] = []
        at = span[0]
        while at in behind:
            parts.append((at, behind[at]))
            at = behind[at] + 1
        return parts if at == span[1] + 1 else []

    def saving(
        self, name: str, slices: Sequence[SealedSlice], full_rows: int
    ) -> tuple[list[Span], list[tuple[str, SealedSlice]]]:
        """Notes what a checkpoint stands on.

        Args:
            name: of the checkpoint.
            slices: what is in memory.
            full_rows: slices of so many rows are written as they are, whatever the archive has.

        Returns:
            The spans that it stands on, and the slices that it has to bring along.
        """
        stands: dict[Span, Span] = {}
        brought: list[tuple[str, SealedSlice]] = []
        for each in slices:
            span = span_of(each)
            parts = self.parts(span)
            is_settled = span in self.archived or len(each) < full_rows
            if parts and is_settled and len(parts) <= PARTS_MAX:
                stands |= {part: self.archived[part] for part in parts}
                continue
            stands[span] = arrivals_of(each)
            brought.append((slice_name(self.slot, span), each))
        self._saving[name] = stands
        return list(stands), brought

    def durable(self, name: str) -> list[str]:
        """A checkpoint counts as the newest; returns names of slices that nobody will load."""
        stands = self._written(name)
        if stands is None:
            # Of a former owner, which has written it long after it lost the slot.
            self._is_anothers = True
            return []
        self._former, self._newest = self._newest, stands
        if self._is_anothers:
            # The newest but one is kept as well, and may stand on any of them.
            self._is_anothers = False
            return []
        needed = self._newest | self._former | self.gone.keys()
        needed = needed.union(*self._saving.values())
        stale = sorted(self.archived.keys() - needed)
        for span in stale:
            del self.archived[span]
        return [slice_name(self.slot, span) for span in stale]

    def in_vain(self, name: str) -> None:
        """A checkpoint is written and does not count, since another is farther."""
        self._written(name)

    def _written(self, name: str) -> frozenset[Span] | None:
        """Notes that the archive has what a checkpoint stands on; None if it is another's."""
        stands = self._saving.pop(name, None)
        if stands is None:
            return None
        for earlier in [each for each in self._saving if each < name]:
            del self._saving[earlier]
        self.archived |= stands
        self.saved_seq = max((last for _, last in stands), default=self.saved_seq)
        return frozenset(stands)

    def left(self, slice_: SealedSlice) -> None:
        """A slice has left memory; whether it can still be searched depends on the archive."""
        parts = self.parts(span_of(slice_))
        self.gone |= {part: self.archived[part] for part in parts}
        if not parts:
            self._lost(slice_.arrival_last_ms)

    def forget(self, before_ms: int) -> list[str]:
        """Gives up slices all of whose objects arrived before a time; returns their names."""
        old = [span for span, (_, upto_ms) in self.gone.items() if upto_ms < before_ms]
        for span in old:
            self._lost(self.gone.pop(span)[1])
            self.archived.pop(span, None)
        return [slice_name(self.slot, span) for span in old]

    @property
    def first_name(self) -> str | None:
        """The first slice that anybody will load; None where there is none, or nobody knows."""
        spans = self.archived.keys() | set().union(*self._saving.values())
        is_known = bool(spans) and not self._is_anothers
        return slice_name(self.slot, min(spans)) if is_known else None

    def reaching(self, from_ms: int, upto_ms: int, before_seq: int) -> list[str]:
        """The slices outside memory that may hold arrivals within these bounds, inclusive.

        Args:
            from_ms, upto_ms: epoch ms.
            before_seq: first object of the view that is searched beside: a slice that has left
                memory since is still in it.
        """
        # A search asks from another thread: the items of one moment.
        return [
            slice_name(self.slot, span)
            for span, (first_ms, last_ms) in sorted(self.gone.copy().items())
            if first_ms <= upto_ms and last_ms >= from_ms and span[1] < before_seq
        ]

    def _lost(self, last_ms: int) -> None:
        self.earliest_ms = max(self.earliest_ms or last_ms + 1, last_ms + 1)
