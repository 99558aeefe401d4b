"""Frequent terms of a window that slides: counted on from step to step (SSTD 6).

SSTD's groups keep a table of all terms that queries share. Here each query keeps what fits into
some kilobytes: the terms that were the most frequent, counted one by one, and bounds of all others
(`kernels.terms_kept`). A step adds the objects that entered the window and takes away those that
left it. While no other term can be as frequent as the k-th, the answer is exact. Where one might,
the terms below that bound, which are few, are counted one by one in the whole window.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sirocco.index.slices import SealedSlice
from sirocco.index.store import StoreView
from sirocco.index.store_condition import ALL_TIME, Bounds, Condition
from sirocco.index.store_search import scan_range
from sirocco.index.terms_search import TermCounts, count_terms
from sirocco.kernels.slice_table import COUNTS
from sirocco.kernels.terms_kept import (
    BUCKET_BITS,
    BUCKET_TERMS,
    BUCKETS,
    count_hot,
    move_counts,
)

Counts = tuple[NDArray[np.uint64], NDArray[np.int64]]

__all__ = ["K_MAX", "NOTHING_GONE", "Gone", "KeptTerms"]

_SHIFT = np.uint64(64 - BUCKET_BITS)

# Of longer lists the last terms are hardly more frequent than those that share a counter.
K_MAX = 32
# Terms that are counted one by one: those that may come among the first k before all is counted
# anew, and the most frequent of the others, which would spoil the bounds.
_KEPT_PER_K = 4
_KEPT_MIN = 64
# Of a window that is counted for the first time the terms of so many buckets, those with most, are
# looked at one by one: the k-th of them bounds what else may be among the first k.
_FIRST_BUCKETS = 48
# Terms for which there is room when buckets are looked at; most often they are fewer.
_ROOM = 1 << 11
# Counters have 32 bits, and all terms of a store might be of one bucket.
_COUNT_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Gone:
    """What left a store.

    Attributes:
        slices: how many.
        latest_ms: the greatest arrival in them.
    """

    slices: int = 0
    latest_ms: int = -(1 << 63)

    def and_slice(self, slice_: SealedSlice) -> Gone:
        """Returns this with one more slice."""
        return Gone(self.slices + 1, max(self.latest_ms, slice_.arrival_last_ms))


NOTHING_GONE = Gone()


class KeptTerms:
    """What one standing query keeps of its window. For regions alone, without text or filter."""

    __slots__ = ("_bounds", "_counts", "_gone", "_k", "_kept", "_others")

    def __init__(self, k: int) -> None:
        """Keeps nothing yet.

        Args:
            k: how many terms are asked for, at most `K_MAX`.
        """
        self._k = k
        self._gone = NOTHING_GONE
        self._bounds = ALL_TIME
        self._kept: NDArray[np.uint64] = np.empty(0, np.uint64)
        self._counts: NDArray[np.int32] = np.empty(0, np.int32)
        self._others: NDArray[np.int32] = np.empty(0, np.int32)

    @property
    def bytes_total(self) -> int:
        """Memory of the counts."""
        return self._kept.nbytes + self._counts.nbytes + self._others.nbytes

    def count(
        self, view: StoreView, condition: Condition, bounds: Bounds, gone: Gone
    ) -> TermCounts:
        """Finds the k most frequent terms and all that tie with the last of them.

        Args:
            view: of the store. Since the last call it may have got objects that arrived behind
                the bounds of then, no others.
            condition: the same each time.
            bounds: of arrivals alone.
            gone: what left the store so far.
        """
        if not _is_countable(view):
            self._forget()
            return count_terms(view, condition, bounds, k=self._k)
        window = _Window(view, condition, condition.within(bounds))
        hashes, counts = self._slide(window, gone)
        return TermCounts(hashes, counts, partial(scan_range, view, condition, bounds))

    def _slide(self, window: _Window, gone: Gone) -> Counts:
        last, bounds = self._bounds, window.bounds
        can_go_on = self._can_go_on(bounds, gone)
        self._bounds, self._gone = bounds, gone
        if can_go_on:
            entered = last.arrival_upto_ms + 1, bounds.arrival_upto_ms, 1
            left = last.arrival_from_ms, bounds.arrival_from_ms - 1, -1
            bound = window.move([entered, left], self._kept, self._counts, self._others)
            least = _least(self._counts, self._k)
            if bound < least:
                return self._frequent(self._kept, self._counts, least)
            return self._settle(window, self._others >= least)
        self._forget()
        self._others = np.zeros(BUCKETS, np.int32)
        window.move([window.span], self._kept, self._counts, self._others)
        hot = np.zeros(BUCKETS, np.bool_)
        hot[np.argpartition(self._others, BUCKETS - _FIRST_BUCKETS)[-_FIRST_BUCKETS:]] = True
        return self._settle(window, hot)

    def _can_go_on(self, bounds: Bounds, gone: Gone) -> bool:
        """Whether the window is the last one moved on, and what it moved over is all there."""
        last = self._bounds
        return (
            len(self._others) > 0
            and last.arrival_from_ms <= bounds.arrival_from_ms <= last.arrival_upto_ms
            and last.arrival_upto_ms <= bounds.arrival_upto_ms
            and (gone.slices == self._gone.slices or gone.latest_ms < last.arrival_from_ms)
        )

    def _settle(self, window: _Window, hot: NDArray[np.bool_]) -> Counts:
        """Counts the terms of hot buckets, until no others can be as frequent as the k-th."""
        hashes, counts, others = self._kept, self._counts, self._others
        while hot.any():
            found, found_counts = window.count_hot(hot)
            known = ~hot[hashes >> _SHIFT]
            hashes = np.concatenate([hashes[known], found])
            counts = np.concatenate([counts[known], found_counts])
            # All of them are known now.
            others[hot] = 0
            least = _least(counts, self._k)
            hot = others >= least
        self._keep(hashes, counts)
        return self._frequent(hashes, counts, least)

    def _keep(self, hashes: NDArray[np.uint64], counts: NDArray[np.int32]) -> None:
        """Goes on with the most frequent terms, as many of each bucket as it can count."""
        buckets = (hashes >> _SHIFT).astype(np.int64)
        order = np.lexsort((-counts, buckets))
        ordered = buckets[order]
        ranks = np.arange(len(order)) - np.searchsorted(ordered, ordered)
        order = order[ranks < BUCKET_TERMS]
        wanted = max(_KEPT_MIN, _KEPT_PER_K * self._k)
        order = order[np.argsort(-counts[order], kind="stable")[:wanted]]
        is_kept = np.zeros(len(hashes), np.bool_)
        is_kept[order] = True
        rest = np.bincount(buckets[~is_kept], counts[~is_kept], BUCKETS)
        self._others += rest.astype(np.int32)
        ascending = order[np.argsort(hashes[order])]
        self._kept, self._counts = hashes[ascending], counts[ascending]

    @staticmethod
    def _frequent(hashes: NDArray[np.uint64], counts: NDArray[np.int32], least: int) -> Counts:
        rows = np.flatnonzero(counts >= least)
        return hashes[rows], counts[rows].astype(np.int64)

    def _forget(self) -> None:
        self._kept = np.empty(0, np.uint64)
        self._counts = np.empty(0, np.int32)
        self._others = np.empty(0, np.int32)


class _Window:
    """The objects of a region that arrived within bounds."""

    def __init__(self, view: StoreView, condition: Condition, bounds: Bounds) -> None:
        active = view.active
        self.bounds = bounds
        self.span = bounds.arrival_from_ms, bounds.arrival_upto_ms, 1
        self._columns = (
            view.table, active.lon, active.lat, active.arrivals_ms, active.term_offsets,
            active.terms, active.rows, condition.words, condition.values, condition.quads,
        )  # fmt: skip

    def move(
        self,
        spans: list[tuple[int, int, int]],
        kept: NDArray[np.uint64],
        counts: NDArray[np.int32],
        others: NDArray[np.int32],
    ) -> int:
        """See `move_counts`; spans may be empty."""
        wanted = [span for span in spans if span[0] <= span[1]]
        if not wanted:
            return int(others.max())
        return int(move_counts(np.array(wanted), *self._columns, kept, counts, others))

    def count_hot(self, hot: NDArray[np.bool_]) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
        """Counts the terms of some buckets, each once an object."""
        spans, room = np.array([self.span]), _ROOM
        while True:
            found, counts = np.empty(room, np.uint64), np.zeros(room, np.int32)
            total = count_hot(spans, *self._columns, hot.view(np.uint8), found, counts)
            if 2 * total < room:
                rows = np.flatnonzero(counts)
                return found[rows], counts[rows]
            room *= 8


def _least(counts: NDArray[np.int32], k: int) -> int:
    """Returns the k-th greatest count; 1, which all terms have, where there are fewer."""
    if len(counts) < k:
        return 1
    return max(1, int(np.partition(counts, len(counts) - k)[len(counts) - k]))


def _is_countable(view: StoreView) -> bool:
    terms = int(view.table[:, COUNTS + 1].sum()) + int(view.active.term_offsets[view.active.rows])
    return terms <= _COUNT_MAX
