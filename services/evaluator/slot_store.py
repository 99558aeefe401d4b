"""Searches in the store of a slot: from questions to functions of the index."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.store import terms_search
from sirocco.index.store.frequent_terms import list_frequent
from sirocco.index.store.gathering import row_bytes
from sirocco.index.store.slices import SealedSlice
from sirocco.index.store.store import StoreView, slice_table
from sirocco.index.store.store_condition import Bounds, Condition
from sirocco.index.store.store_search import Hits, gather, scan_range
from sirocco.index.store.term_names import TermNames
from sirocco.index.store.term_tally import Counts, TermTally
from sirocco.model.geometry import Circle
from sirocco.model.query import KnnQuery
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing
from sirocco.protocol.contract.columns import NO_EVENTS
from sirocco.protocol.contract.messages import NO_OBJECTS
from sirocco.protocol.contract.positions import Reached
from sirocco.protocol.evaluator.reports.history_answers import events_of
from sirocco.protocol.evaluator.slot.stored_past import StoredPast
from sirocco.protocol.search.messages import Ranking
from sirocco.services.evaluator.answers.slot_interface import (
    Counted,
    FoundRows,
    SlotSearch,
    Wanted,
)
from sirocco.services.evaluator.archive_search import ArchivedSlices

_NOTHING = FoundRows(NO_OBJECTS, NO_EVENTS, np.empty(0))


class HoldsStore(Protocol):
    """The required side of an owned slot."""

    reached: Reached
    map_version: int
    past: StoredPast
    settled: tuple[int, int]

    @property
    def least_version(self) -> int:
        """The oldest map by which any later object is routed; 0 while it is not known."""


@dataclass(frozen=True, slots=True)
class StoredSlot:
    """An owned slot, for searches."""

    slot: HoldsStore
    archived: ArchivedSlices
    hashing: TermHashing = WIRE_TERMS
    epoch: int = 0

    @property
    def reached(self) -> Reached:
        """Positions that the slot has reached in each intake partition."""
        return self.slot.reached

    def search(self) -> StoredSearch:
        """Returns a search of what is stored now."""
        # First the version, last the archive: an object that is stored or evicted meanwhile
        # may be reported without need, but is never missing.
        least_version = self.slot.least_version
        settled_version, settled_seq = self.slot.settled
        view, manifest = self.slot.past.store.view(), self.slot.past.manifest
        return StoredSearch(
            view,
            manifest.earliest_ms,
            lambda bounds: manifest.overlapping(
                bounds.arrival_from_ms, bounds.arrival_to_ms, view.first_seq
            ),
            self.archived,
            self.slot.map_version,
            self.hashing,
            self.epoch,
            least_version,
            lambda version: manifest.archived_upto_ms(
                settled_seq if settled_version >= version else None
            ),
        )


class ReadsSlices(Protocol):
    """The required side of what reads slices outside memory."""

    def load(self, name: str) -> SealedSlice:
        """Returns a slice."""

    def may_hold(
        self, name: str, condition: Condition, boxes: NDArray[np.float64] | None = None
    ) -> bool:
        """Whether a slice may hold objects that satisfy a condition inside some boxes."""


class StoredSearch:
    """Answers from a view of a store, and from slices that have left memory.

    Args:
        view: the slices in memory.
        earliest_ms: earliest arrival still stored; None while nothing was dropped for good.
        archived: bounds → names of the slices outside memory that may have arrivals within them.
        reader: of slices outside memory.
        map_version: the newest map version by which any record that the slot has processed was
            routed.
        hashing: numbers the terms of the store.
        epoch: of the slot's grant.
        least_version: the oldest map by which any later object is routed; 0 while it is not known.
        former_upto_ms: map version → the greatest arrival outside memory of objects that older maps
            may have routed; None without any.
    """

    def __init__(
        self,
        view: StoreView,
        earliest_ms: int | None = None,
        archived: Callable[[Bounds], Sequence[str]] | None = None,
        reader: ReadsSlices | None = None,
        map_version: int = 0,
        hashing: TermHashing = WIRE_TERMS,
        epoch: int = 0,
        least_version: int = 0,
        former_upto_ms: Callable[[int], int | None] = lambda _: None,
    ) -> None:
        self.earliest_ms = earliest_ms
        self.epoch = epoch
        self.least_version = least_version
        self.former_upto_ms = former_upto_ms
        self.map_version = map_version
        self._view = view
        self._archived = archived
        self._reader = reader
        self._hashing = hashing

    def within(self, wanted: Wanted, bytes_wanted: Callable[[], int]) -> Iterator[FoundRows]:
        """See `SlotSearch`."""
        held: list[Hits] = []
        rows, room = 0, 0
        unmeasured_rows = wanted.limits.unmeasured_rows
        for hits in scan_range(self._reaching(wanted), wanted.condition, wanted.bounds):
            rows += len(hits)
            if rows <= unmeasured_rows:
                # Measuring them would take as long as finding them.
                held.append(hits)
                continue
            if not room:
                room = bytes_wanted() - sum(int(_row_bytes(one).sum()) for one in held)
            ends, begin = np.cumsum(_row_bytes(hits)), 0
            while begin < len(hits):
                before = int(ends[begin - 1]) if begin else 0
                # Up to and including the row that fills it.
                end = min(len(hits), int(np.searchsorted(ends, before + room)) + 1)
                held.append(Hits(hits.source, hits.rows[begin:end]))
                room -= int(ends[end - 1]) - before
                begin = end
                if room <= 0:
                    yield _gathered(held)
                    held, room = [], bytes_wanted()
        if held:
            yield _gathered(held)

    @property
    def view(self) -> StoreView:
        """See `SlotSearch`."""
        return self._view

    def points(self) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """See `SlotSearch`."""
        active = self._view.active
        yield active.lon[: active.rows], active.lat[: active.rows]
        for slice_ in self._view.sealed:
            yield slice_.lon, slice_.lat

    def is_in_memory(self, bounds: Bounds) -> bool:
        """See `SlotSearch`."""
        return self._archived is None or not self._archived(bounds)

    def outside(self, wanted: Wanted, radius_m: float | None) -> StoreView | None:
        """See `SlotSearch`."""
        if self.is_in_memory(wanted.bounds):
            return None
        query, boxes = wanted.query, None
        if isinstance(query, KnnQuery) and radius_m is not None:
            boxes = Circle(query.lon, query.lat, radius_m).boxes()
        slices = tuple(self._outside(wanted, boxes))
        if not slices:
            return None
        nothing = self._view.active.first(0)
        return StoreView(slices, nothing, self._view.first_seq, slice_table(slices))

    def tally_terms(self, wanted: Wanted, tally: TermTally) -> None:
        """See `SlotSearch`."""
        tally.add(scan_range(self._reaching(wanted), wanted.condition, wanted.bounds))

    def named(self, tally: TermTally, counts: Counts) -> Counted:
        """See `SlotSearch`."""
        hits = tally.hits
        found = terms_search.TermCounts(*counts, lambda: hits)
        return _Counted(found, self._hashing, tally.count_of)

    def frequent_terms(
        self, wanted: Wanted, k: int, others: Sequence[SlotSearch]
    ) -> Counted | None:
        """See `SlotSearch`."""
        stored = [self, *(other for other in others if isinstance(other, StoredSearch))]
        views = [one._reaching(wanted) for one in stored]
        condition, bounds = wanted.condition, wanted.bounds
        found = list_frequent(views, condition, bounds, k)
        if found is None:
            return None
        hits = partial(terms_search.sources_of, views, condition, bounds)
        counts = terms_search.TermCounts(found.hashes, found.counts, hits)
        return _Counted(counts, self._hashing, found.count_of)

    def ranked(
        self, wanted: Wanted, others: Sequence[SlotSearch]
    ) -> Generator[None, None, tuple[FoundRows, Ranking]]:
        """See `SlotSearch`."""
        assert wanted.ranking is not None
        views = [self._reaching(wanted), *(other.view for other in others)]
        found = yield from wanted.ranking.in_turns(views, wanted.now_ms, wanted.bounds)
        rows, lengths = _NOTHING, np.empty(0, np.uint32)
        if found.candidates is not None:
            rows = replace(_rows(found.candidates), distances_m=found.distances_m)
            lengths = found.candidates.lengths.astype(np.uint32)
        return rows, Ranking(
            found.objects_total,
            found.tokens_total,
            found.holders.astype(np.uint64),
            lengths,
            found.frequencies,
        )

    def _reaching(self, wanted: Wanted) -> StoreView:
        """Returns the view, with the slices outside memory that may hold what is wanted."""
        older = self._outside(wanted)
        return self._view.with_older(older) if older else self._view

    def _outside(
        self, wanted: Wanted, boxes: NDArray[np.float64] | None = None
    ) -> list[SealedSlice]:
        reader = self._reader
        if self._archived is None or reader is None:
            return []
        # A ranked query has no words in its condition: objects without its keywords count as well,
        # in the statistics.
        return [
            reader.load(name)
            for name in self._archived(wanted.bounds)
            if reader.may_hold(name, wanted.condition, boxes)
        ]


class _Names(threading.local):
    """Cache of term texts, one per thread of the pool."""

    def __init__(self) -> None:
        self._names = TermNames()

    def of(self, hashing: TermHashing) -> TermNames:
        """Returns the names of terms that `hashing` numbers; a process has one."""
        if self._names.hashing is not hashing:
            self._names = TermNames(hashing)
        return self._names


_names = _Names()


class _Counted:
    """Counted terms of a store."""

    def __init__(
        self,
        found: terms_search.TermCounts,
        hashing: TermHashing,
        count_of: Callable[[NDArray[np.uint64]], NDArray[np.int64]],
    ) -> None:
        self._found = found
        self._hashing = hashing
        self._count_of = count_of

    @property
    def hashes(self) -> NDArray[np.uint64]:
        """See `Counted`."""
        return self._found.hashes

    @property
    def counts(self) -> NDArray[np.int64]:
        """See `Counted`."""
        return self._found.counts

    def count_of(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """See `Counted`."""
        return self._count_of(hashes)

    def texts(self, hashes: NDArray[np.uint64]) -> list[str]:
        """See `Counted`."""
        rows = np.searchsorted(self._found.hashes, hashes)
        some = replace(self._found, hashes=hashes, counts=self._found.counts[rows])
        return terms_search.named_counts(some, _names.of(self._hashing))


def _row_bytes(hits: Hits) -> NDArray[np.int64]:
    return row_bytes(hits.source, hits.rows)


def _gathered(hits: list[Hits]) -> FoundRows:
    stored = gather(hits, terms=False)
    return _NOTHING if stored is None else _rows(stored)


def _rows(stored: StoredRows) -> FoundRows:
    return FoundRows(stored.objects, events_of(stored))
