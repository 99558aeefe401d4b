"""Frequent terms of a sliding window, updated from step to step (SSTD 6).

SSTD's groups keep a table of all terms that queries share. Here each query keeps some kilobytes:
the most frequent terms, counted individually, and bounds of all others. A step adds the objects
that entered the window and subtracts those that left it. While no other term can be as frequent as
the k-th, the answer is exact. If one might be, the whole window is counted: the terms that any
query counts individually (`term_codes`), and those others that the bound does not exclude, which
are few.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sirocco.index.store.slices import SealedSlice
from sirocco.index.store.store import StoreView
from sirocco.index.store.store_condition import ALL_TIME, Bounds, Condition
from sirocco.index.store.term_codes import TermCodes
from sirocco.index.store.terms_search import TermCounts, count_terms, sources_of
from sirocco.kernels.store.sliding_term_counts import BUCKETS, count_hot, move_counts, tally_terms

Counts = tuple[NDArray[np.uint64], NDArray[np.int64]]

__all__ = ["K_MAX", "NOTHING_FORGOTTEN", "ForgottenSlices", "SlidingTermCounts"]

# In longer lists, the last terms are hardly more frequent than terms that share a counter.
K_MAX = 32
# Terms counted individually: those that may become one of the first k before the next full count,
# and the most frequent of the others, which would spoil the bounds.
_KEPT_PER_K = 4
_KEPT_MIN = 64
# At most this many buckets, the fullest ones, have their terms counted individually together: the
# k-th of these terms bounds the rest.
_HOT_BUCKETS = 48
# Initial capacity for terms when buckets are counted; usually they are fewer.
_ROOM = 1 << 11
# Counters have 32 bits, and all terms of a store may be in one bucket.
_COUNT_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class ForgottenSlices:
    """Slices that have left a store.

    Attributes:
        slices: number of slices.
        latest_ms: the greatest arrival in them.
    """

    slices: int = 0
    latest_ms: int = -(1 << 63)

    def and_slice(self, slice_: SealedSlice) -> ForgottenSlices:
        """Returns this with one more slice."""
        return ForgottenSlices(self.slices + 1, max(self.latest_ms, slice_.arrival_last_ms))


NOTHING_FORGOTTEN = ForgottenSlices()


class SlidingTermCounts:
    """A standing query's counts of its window. Only for regions, without text or filter.

    Attributes:
        is_slid: whether the last count looked at what entered and left the window alone.
    """

    __slots__ = ("_bounds", "_codes", "_counts", "_forgotten", "_k", "_kept", "_others", "is_slid")

    def __init__(self, k: int, codes: TermCodes | None = None) -> None:
        """Starts without counts.

        Args:
            k: number of requested terms, at most `K_MAX`.
            codes: numbering of the store, shared by its queries. None for a single query.
        """
        self._k = k
        self._codes = TermCodes() if codes is None else codes
        self.is_slid = False
        self._forgotten = NOTHING_FORGOTTEN
        self._bounds = ALL_TIME
        # Numbers in `_codes`.
        self._kept: NDArray[np.uint16] = np.empty(0, np.uint16)
        self._counts: NDArray[np.int32] = np.empty(0, np.int32)
        self._others: NDArray[np.int32] = np.empty(0, np.int32)

    @property
    def bytes_total(self) -> int:
        """Memory of the counts."""
        return self._kept.nbytes + self._counts.nbytes + self._others.nbytes

    def count(
        self, view: StoreView, condition: Condition, bounds: Bounds, forgotten: ForgottenSlices
    ) -> TermCounts:
        """Finds the k most frequent terms and all ties with the last of them.

        Args:
            view: view of the store. Since the last call, only objects after the former bounds may
                have arrived.
            condition: the same each time.
            bounds: bounds of arrivals only.
            forgotten: slices that have left the store so far.
        """
        self.is_slid = False
        window = _Window(view, condition, condition.within(bounds), self._codes)
        if window.terms_max > _COUNT_MAX:
            self.forget()
            return count_terms(view, condition, bounds, k=self._k)
        hashes, counts = self._slide(window, forgotten)
        return TermCounts(hashes, counts, partial(sources_of, (view,), condition, bounds))

    def forget(self) -> None:
        """Starts afresh with the next window, and releases the numbers of its terms."""
        self._codes.release(self._kept)
        self._kept = np.empty(0, np.uint16)
        self._counts = np.empty(0, np.int32)
        self._others = np.empty(0, np.int32)

    def _slide(self, window: _Window, forgotten: ForgottenSlices) -> Counts:
        last, bounds = self._bounds, window.bounds
        can_slide = self._can_slide(bounds, forgotten)
        self._bounds, self._forgotten = bounds, forgotten
        if can_slide:
            entered = last.arrival_to_ms + 1, bounds.arrival_to_ms, 1
            left = last.arrival_from_ms, bounds.arrival_from_ms - 1, -1
            bound = window.move([entered, left], self._kept, self._counts, self._others)
            least = _least(self._counts, self._k)
            if bound < least:
                self.is_slid = True
                rows = np.flatnonzero(self._counts >= least)
                return self._codes.hashes(self._kept[rows]), self._counts[rows].astype(np.int64)
        return self._recount(window)

    def _can_slide(self, bounds: Bounds, forgotten: ForgottenSlices) -> bool:
        """Whether the window only moved forward, and all that it passed is still here."""
        last = self._bounds
        return (
            len(self._others) > 0
            and last.arrival_from_ms <= bounds.arrival_from_ms <= last.arrival_to_ms
            and last.arrival_to_ms <= bounds.arrival_to_ms
            and (
                forgotten.slices == self._forgotten.slices
                or forgotten.latest_ms < last.arrival_from_ms
            )
        )

    def _recount(self, window: _Window) -> Counts:
        """Counts the whole window, until no other term can be as frequent as the k-th."""
        codes, counts, others = window.tally()
        hashes = self._codes.hashes(codes.astype(np.uint16))
        least = _least(counts, self._k)
        while (hot := _hottest(others, least)).any():
            found, found_counts = window.count_hot(hot)
            hashes = np.concatenate([hashes, found])
            codes = np.concatenate([codes, np.full(len(found), -1)])
            counts = np.concatenate([counts, found_counts])
            # All of them are counted now.
            others[hot] = 0
            least = _least(counts, self._k)
        self._keep(hashes, codes, counts, others)
        rows = np.flatnonzero(counts >= least)
        return hashes[rows], counts[rows].astype(np.int64)

    def _keep(
        self,
        hashes: NDArray[np.uint64],
        codes: NDArray[np.int64],
        counts: NDArray[np.int32],
        others: NDArray[np.int32],
    ) -> None:
        """Continues with the most frequent terms; the others are counted by bucket."""
        wanted = max(_KEPT_MIN, _KEPT_PER_K * self._k)
        order = np.argsort(-counts, kind="stable")[:wanted]
        chosen = codes[order]
        has_number = self._codes.use(hashes[order], chosen)
        is_unnumbered = np.ones(len(hashes), np.bool_)
        is_unnumbered[order[has_number]] = False
        rest = np.bincount(
            self._codes.bucket_of(hashes[is_unnumbered]), counts[is_unnumbered], BUCKETS
        )
        self._codes.release(self._kept)
        self._kept = chosen[has_number].astype(np.uint16)
        self._counts = counts[order[has_number]]
        self._others = others + rest.astype(np.int32)


class _Window:
    """The objects of a region that arrived within bounds.

    Attributes:
        terms_max: upper bound of any term's count.
    """

    def __init__(
        self, view: StoreView, condition: Condition, bounds: Bounds, codes: TermCodes
    ) -> None:
        active = view.active
        coded = codes.coded(view)
        self.bounds = bounds
        self.span = bounds.arrival_from_ms, bounds.arrival_to_ms, 1
        self.terms_max = coded.terms_total + int(active.term_offsets[active.rows])
        self._codes = codes
        self._columns = (
            view.table, coded.addresses, active.lon, active.lat, active.arrivals_ms,
            active.term_offsets, active.terms, active.rows, condition.words, condition.values,
            condition.quads, codes.table_hashes, codes.table_codes, *codes.secret,
        )  # fmt: skip

    def move(
        self,
        spans: list[tuple[int, int, int]],
        kept: NDArray[np.uint16],
        counts: NDArray[np.int32],
        others: NDArray[np.int32],
    ) -> int:
        """See `move_counts`; spans may be empty."""
        wanted = [span for span in spans if span[0] <= span[1]]
        if not wanted:
            return int(others.max())
        codes = self._codes
        return int(
            move_counts(
                np.array(wanted),
                *self._columns,
                codes.tallies,
                codes.buckets,
                kept,
                counts,
                others,
            )
        )

    def tally(self) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]:
        """Counts everything; returns the numbered terms, their counts, and those of buckets."""
        tallies = self._codes.tallies
        tally_terms(np.array([self.span]), *self._columns, tallies)
        codes = BUCKETS + np.flatnonzero(tallies[BUCKETS:])
        counts, others = tallies[codes], tallies[:BUCKETS].copy()
        tallies[:] = 0
        return codes, counts, others

    def count_hot(self, hot: NDArray[np.bool_]) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
        """Counts the unnumbered terms of some buckets, once per object."""
        spans, room = np.array([self.span]), _ROOM
        is_hot = np.zeros(BUCKETS + len(self._codes.buckets), np.uint8)
        is_hot[:BUCKETS] = hot
        while True:
            found, counts = np.empty(room, np.uint64), np.zeros(room, np.int32)
            total = count_hot(spans, *self._columns, is_hot, found, counts)
            if 2 * total < room:
                rows = np.flatnonzero(counts)
                rows = rows[np.argsort(found[rows])]
                return found[rows], counts[rows]
            room *= 8


def _hottest(others: NDArray[np.int32], least: int) -> NDArray[np.bool_]:
    """Returns bool[BUCKETS], the fullest buckets among those that may reach the k-th count."""
    hot = others >= least
    if np.count_nonzero(hot) > _HOT_BUCKETS:
        hot[:] = False
        hot[np.argpartition(others, BUCKETS - _HOT_BUCKETS)[-_HOT_BUCKETS:]] = True
    return hot


def _least(counts: NDArray[np.int32], k: int) -> int:
    """Returns the k-th greatest count; 1, the minimum of any term, if there are fewer."""
    if len(counts) < k:
        return 1
    return max(1, int(np.partition(counts, len(counts) - k)[len(counts) - k]))
