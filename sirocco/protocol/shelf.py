"""Which slices of a slot's objects are in the archive, and which may leave it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sirocco.index.slices import SealedSlice
from sirocco.protocol.effects import State

Span = tuple[int, int]


def slice_name(slot: int, span: Span) -> str:
    """The name of a slice in the archive: its slot, and the first and last of its objects."""
    return f"slices/{slot:05}/{span[0]:016}-{span[1]:016}"


def slice_names(slot: int, state: State) -> list[str]:
    """The slices that a state stands on."""
    if "slices" not in state:
        return []
    return [slice_name(slot, (int(first), int(last))) for first, last in state["slices"]]


def span_of(slice_: SealedSlice) -> Span:
    """The stretch of the slot's objects that a slice holds."""
    return slice_.first_seq, slice_.last_seq


@dataclass(slots=True)
class Shelf:
    """The archived slices of one slot.

    Attributes:
        slot: its number.
        archived: spans that the archive has for certain.
        gone: spans of `archived` that are in memory no more and in no larger slice, the past that
            only the archive knows, with their least and greatest arrival, epoch ms.
        earliest_ms: from when on arrivals are kept, in memory or here; None while nothing was lost.
    """

    slot: int
    archived: set[Span] = field(default_factory=set)
    gone: dict[Span, Span] = field(default_factory=dict)
    earliest_ms: int | None = None
    _saving: dict[int, frozenset[Span]] = field(default_factory=dict)
    _former: frozenset[Span] = frozenset()
    _newest: frozenset[Span] = frozenset()

    def restored(self, state: State, slices: Iterable[SealedSlice]) -> None:
        """Takes what a checkpoint stands on."""
        self.archived = {span_of(each) for each in slices}
        self._newest = frozenset(self.archived)
        rows = state["gone_slices"].tolist()
        self.gone = {(first, last): (from_ms, upto_ms) for first, last, from_ms, upto_ms in rows}
        self.archived |= self.gone.keys()
        self.earliest_ms = next(iter(state["earliest_ms"].tolist()), None)

    def state(self) -> dict[str, NDArray[np.int64]]:
        """For a checkpoint."""
        rows = [(*span, *arrivals) for span, arrivals in sorted(self.gone.items())]
        earliest = [] if self.earliest_ms is None else [self.earliest_ms]
        return {
            "gone_slices": np.array(rows, np.int64).reshape(-1, 4),
            "earliest_ms": np.array(earliest, np.int64),
        }

    def saving(self, offset: int, slices: Sequence[SealedSlice]) -> list[tuple[str, SealedSlice]]:
        """Notes what the checkpoint at an offset stands on; returns what it has to bring along."""
        self._saving[offset] = frozenset(span_of(each) for each in slices)
        return [
            (slice_name(self.slot, span_of(each)), each)
            for each in slices
            if span_of(each) not in self.archived
        ]

    def durable(self, offset: int) -> list[str]:
        """The checkpoint at an offset is safe; returns names that nobody will load any more."""
        spans = self._saving.pop(offset, None)
        if spans is None:
            return []
        for earlier in [at for at in self._saving if at < offset]:
            del self._saving[earlier]
        self.archived |= spans
        # The newest checkpoint but one is kept, and with it what it stands on.
        self._former, self._newest = self._newest, spans
        under_way = frozenset[Span]().union(*self._saving.values())
        stale = self.archived - self._newest - self._former - self.gone.keys() - under_way
        self.archived -= stale
        return [slice_name(self.slot, span) for span in sorted(stale)]

    def left(self, slice_: SealedSlice) -> None:
        """A slice has left memory; whether it can still be searched depends on the archive."""
        if span_of(slice_) in self.archived:
            self.gone[span_of(slice_)] = slice_.arrival_first_ms, slice_.arrival_last_ms
        else:
            self._lost(slice_.arrival_last_ms)

    def forget(self, before_ms: int) -> list[str]:
        """Gives up slices all of whose objects arrived before a time; returns their names."""
        old = [span for span, (_, upto_ms) in self.gone.items() if upto_ms < before_ms]
        for span in old:
            self._lost(self.gone.pop(span)[1])
            self.archived.discard(span)
        return [slice_name(self.slot, span) for span in old]

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
