"""Frequent terms of a slot's stored objects (SSTD 3.1: CTQ and STQ)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.ragged import take_ragged
from sirocco.index.store.active_slice import ActiveView
from sirocco.index.store.frequent_terms import count_frequent
from sirocco.index.store.store import StoreView
from sirocco.index.store.store_condition import ALL_TIME, ANY_OBJECT, Bounds, Condition
from sirocco.index.store.store_search import Hits, scan_range
from sirocco.index.store.term_names import TermNames
from sirocco.index.store.term_tally import TermTally
from sirocco.kernels.base.sorting import sorted_distinct

__all__ = ["NO_COUNTS", "TermCounts", "count_terms", "named_counts", "sources_of", "top_terms"]

_NO_ROWS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class TermCounts:
    """Number of objects with each term.

    Attributes:
        hashes: u8[t], wire hashes, ascending.
        counts: i8[t], at least 1.
        hits: returns where the texts are: slices that contain the terms, and of active slices the
            counted rows.
    """

    hashes: NDArray[np.uint64]
    counts: NDArray[np.int64]
    hits: Callable[[], Iterable[Hits]]

    def __len__(self) -> int:
        return len(self.hashes)


NO_COUNTS = TermCounts(np.empty(0, np.uint64), np.empty(0, np.int64), tuple)


def count_terms(
    view: StoreView,
    condition: Condition = ANY_OBJECT,
    bounds: Bounds = ALL_TIME,
    *,
    k: int | None = None,
) -> TermCounts:
    """Counts the terms of the objects that satisfy a condition, each object once for each term.

    Args:
        view: view of the store.
        condition: region, text and filter.
        bounds: part of the slot's objects.
        k: limit to the k most frequent and all ties with the last of them; None for all terms.
    """
    if k is not None and (frequent := count_frequent(view, condition, bounds, k)) is not None:
        return TermCounts(*frequent, partial(sources_of, (view,), condition, bounds))
    tally = TermTally()
    tally.add(scan_range(view, condition, bounds))
    if not tally.hits:
        return NO_COUNTS
    hits = tally.hits
    counts = tally.all() if k is None else tally.most_frequent(k)[0]
    return TermCounts(*counts, lambda: hits)


def top_terms(found: TermCounts, k: int, names: TermNames) -> list[tuple[str, int]]:
    """Returns the k most frequent terms, ties by code point.

    Args:
        found: the counts.
        k: at least 1.
        names: finds the texts of terms.
    """
    if len(found) > k:
        # All ties with the k-th are included: their texts decide.
        least = np.partition(found.counts, len(found) - k)[len(found) - k]
        kept = np.flatnonzero(found.counts >= least)
        found = TermCounts(found.hashes[kept], found.counts[kept], found.hits)
    pairs = zip(named_counts(found, names), found.counts.tolist(), strict=True)
    return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))[:k]


def named_counts(found: TermCounts, names: TermNames) -> list[str]:
    """Returns the texts of the counted terms, in their order."""
    return names.of(found.hashes, found.hits(), _rows_with)


def sources_of(views: Iterable[StoreView], condition: Condition, bounds: Bounds) -> Iterator[Hits]:
    """Yields where the texts of counted terms are: any row of a sealed slice leads to its terms."""
    for view in views:
        for slice_ in reversed(view.sealed):
            yield Hits(slice_, _NO_ROWS)
        alone = StoreView((), view.active, view.next_seq, view.table[:0])
        yield from scan_range(alone, condition, bounds)


def _rows_with(hits: Hits, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Returns rows that contain any of the terms, one per term, unordered.

    Of a sealed slice any rows, found by its posting lists; of an active one rows of the hits.
    """
    source = hits.source
    if isinstance(source, ActiveView):
        offsets, places = take_ragged(source.term_offsets[: source.rows + 1], hits.rows)
        terms = source.terms[places]
        order = np.argsort(terms, kind="stable")
        held = order[_places_of(hashes, terms[order])]
        return sorted_distinct(hits.rows[np.searchsorted(offsets, held, side="right") - 1])
    numbers = _places_of(hashes, source.vocabulary)
    return sorted_distinct(source.postings[source.posting_offsets[numbers]].astype(np.int64))


def _places_of(hashes: NDArray[np.uint64], ascending: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Returns the first place of each of the terms that is among the others, of no other term."""
    if not len(ascending):
        return _NO_ROWS
    found = np.minimum(np.searchsorted(ascending, hashes), len(ascending) - 1)
    held: NDArray[np.int64] = found[ascending[found] == hashes]
    return held
