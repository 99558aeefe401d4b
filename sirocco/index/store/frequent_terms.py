"""The most frequent terms of a region, from the counts that slices keep for nodes of their trees.

SSTD 6.1 adds up tables of all terms. Here only terms that are frequent somewhere in a slice have
sums (`node_counts`); a bound limits the count of any other. Terms that may still be among the k
most frequent are looked up in posting lists, so the answer is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from sirocco.index.store.node_counts import FREQUENT, node_counts
from sirocco.index.store.slices import SealedSlice
from sirocco.index.store.store import StoreView
from sirocco.index.store.store_condition import Bounds, Condition
from sirocco.index.store.store_search import scan_range
from sirocco.index.store.term_tally import TermTally
from sirocco.kernels.store.terms_count import count_sealed, hold_terms

__all__ = ["FrequentTerms", "count_frequent", "list_frequent"]

# In longer lists, the last terms are hardly more frequent than uncounted ones.
_K_MAX = FREQUENT // 4

Counts = tuple[NDArray[np.uint64], NDArray[np.int64]]


def count_frequent(view: StoreView, condition: Condition, bounds: Bounds, k: int) -> Counts | None:
    """Finds the k most frequent terms and all ties with the last of them.

    Returns:
        u8[t], wire hashes, ascending, and i8[t], objects with each; None if counting all terms is
        faster, or the only way because a text or a filter selects single objects.
    """
    found = list_frequent((view,), condition, bounds, k)
    return None if found is None else (found.hashes, found.counts)


def list_frequent(
    views: Sequence[StoreView], condition: Condition, bounds: Bounds, k: int
) -> FrequentTerms | None:
    """Does the same for several stores together; any other term can be counted afterwards."""
    if k > _K_MAX or condition.conjunctions or not condition.is_exact:
        return None
    bounds = condition.within(bounds)
    sealed = tuple(chain.from_iterable(view.sealed for view in views))
    nodes = [_nodes_row(slice_, bounds) for slice_ in sealed]
    if not any(row[0] for row in nodes):
        return None
    listed = _Listed(views, sealed, condition, bounds, np.array(nodes, np.int64))
    most = listed.most_frequent(k)
    return None if most is None else FrequentTerms(*most, listed)


class FrequentTerms:
    """The most frequent terms of some stores, as they were when they were listed.

    Attributes:
        hashes: u8[t], ascending.
        counts: i8[t], objects with each.
    """

    def __init__(
        self, hashes: NDArray[np.uint64], counts: NDArray[np.int64], listed: _Listed
    ) -> None:
        self.hashes = hashes
        self.counts = counts
        self._listed = listed

    def count_of(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Returns i8[m], how many objects hold each of some terms (u8[m])."""
        return self._listed.count_of(hashes)


def _nodes_row(slice_: SealedSlice, bounds: Bounds) -> tuple[int, int, int, int]:
    # Node counts cover all rows, whatever their arrival.
    is_within = (
        slice_.arrival_first_ms >= bounds.arrival_from_ms
        and slice_.arrival_last_ms <= bounds.arrival_to_ms
        and slice_.last_seq < bounds.seq_before
    )
    counts = node_counts(slice_) if is_within else None
    return (0, 0, 0, 0) if counts is None else counts.row


class _Listed:
    """The listed terms of the slices.

    Attributes:
        hashes: u8[t], ascending.
        counts: i8[t], in the slices that list the term.
        open: i8[t], maximum number of further objects with it in other slices.
        rest: `open` of a term that no slice lists.
    """

    def __init__(
        self,
        views: Sequence[StoreView],
        sealed: Sequence[SealedSlice],
        condition: Condition,
        bounds: Bounds,
        nodes: NDArray[np.int64],
    ) -> None:
        self._table = np.concatenate([view.table for view in views])
        # The table holds their addresses.
        self._sealed = sealed
        self._condition, self._nodes = condition, nodes
        sizes = [len(slice_.vocabulary) for slice_ in sealed]
        # Untouched memory costs nothing.
        hashes = np.empty(sum(sizes), np.uint64)
        counts, weights = np.empty(len(hashes), np.int64), np.empty(len(hashes), np.int64)
        begins, self._bounds = np.empty(len(sizes) + 1, np.int64), np.empty(len(sizes), np.int64)
        count_sealed(
            self._table, nodes, condition.words, condition.values, condition.quads,
            bounds.arrival_from_ms, bounds.arrival_to_ms, bounds.seq_before,
            np.zeros(max(sizes), np.int32), np.empty(max(sizes) + 1, np.int64),
            hashes, counts, weights, begins, self._bounds,
        )  # fmt: skip
        end = int(begins[-1])
        active_hashes, active_counts = _active_counts(views, condition, bounds)
        nothing = np.zeros(len(active_hashes), np.int64)
        hashes = np.concatenate([hashes[:end], active_hashes])
        order = np.argsort(hashes, kind="stable")
        hashes = hashes[order]
        firsts = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]])[: len(hashes)])
        self.hashes = hashes[firsts]
        self.rest = int(self._bounds.sum())
        if not len(firsts):
            self.counts = self.open = np.empty(0, np.int64)
            return
        self.counts = np.add.reduceat(np.append(counts[:end], active_counts)[order], firsts)
        self.open = self.rest - np.add.reduceat(np.append(weights[:end], nothing)[order], firsts)

    def most_frequent(self, k: int) -> Counts | None:
        """See `count_frequent`."""
        # With fewer than k, any other term may be one of the most frequent.
        least = _kth(self.counts, k) if len(self.counts) >= k else 1
        if self.rest >= max(1, least):
            return None
        kept = np.flatnonzero(self.counts + self.open >= least)
        hashes, counts, is_open = self.hashes[kept], self.counts[kept], self.open[kept] > 0
        counts[is_open] += self._unlisted(hashes[is_open])
        is_frequent = counts >= _kth(counts, k)
        return hashes[is_frequent], counts[is_frequent]

    def count_of(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """See `FrequentTerms`."""
        counts = self._unlisted(hashes)
        if len(self.hashes):
            places = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
            counts += np.where(self.hashes[places] == hashes, self.counts[places], 0)
        return counts

    def _unlisted(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Returns i8[m], the objects with each term in slices that have not listed it."""
        # Slices without a bound for other terms have listed all of theirs.
        partly = np.flatnonzero(self._bounds)
        found = np.zeros(len(hashes), np.int64)
        hold_terms(
            self._table[partly], self._nodes[partly], self._condition.words,
            self._condition.values, self._condition.quads, hashes, found,
        )  # fmt: skip
        return found


def _kth(counts: NDArray[np.int64], k: int) -> int:
    """Returns the k-th greatest value, or the least if there are fewer."""
    if not len(counts):
        return 0
    place = max(0, len(counts) - k)
    return int(np.partition(counts, place)[place])


def _active_counts(views: Sequence[StoreView], condition: Condition, bounds: Bounds) -> Counts:
    tally = TermTally()
    for view in views:
        alone = StoreView((), view.active, view.next_seq, view.table[:0])
        tally.add(scan_range(alone, condition, bounds))
    return tally.all()
