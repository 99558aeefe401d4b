"""A slot's part of a ranked query (Pastri 3: TkSKQ), so that mergers can rank exactly.

The score combines a textual part (BM25), which needs counts over all slots, with a spatial and a
temporal part, which are known here. For any counts, BM25 grows with the frequency of each keyword
and falls with the length of the text. So an object worse than k others in all of these cannot be
among the k best, and without it the greatest BM25 is still known.

Distances are rounded to 1 mm first: the radius and the score both use the rounded value.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.store.active_slice import ActiveView
from sirocco.index.store.gathering import gather_rows
from sirocco.index.store.slices import SealedSlice, address_of
from sirocco.index.store.store import StoreView
from sirocco.index.store.store_condition import ALL_TIME, Bounds, Condition, condition_of
from sirocco.index.store.store_search import filtered_rows
from sirocco.kernels.base.hash_placement import secret
from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.kernels.store.ranked_prune import FLOATS, KEYS, REFS
from sirocco.kernels.store.ranked_scan import (
    SCRATCH_WORDS,
    find_keywords,
    rank_active,
    rank_sealed,
    sift_candidates,
    summarise_rows,
)
from sirocco.kernels.store.ranked_state import (
    BITS,
    CANDIDATES,
    OBJECTS,
    PRUNES,
    TOKENS,
    contenders_of,
    name_groups,
)
from sirocco.model.query import HALF_LIVES_AHEAD_MAX, RankedQuery
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing

__all__ = ["RankedPart", "RankedSearch"]

# Numbers in heaps, 1 MiB: enough for 48 combinations of keywords and 8 lengths each with k = 300.
_HEAPS_MAX = 1 << 17
_GROUPS_MORE = 48
_STEPS_MAX = 8
# Candidates compared with each other at once: about a millisecond.
_CANDIDATES_MAX = 4_096
_NEVER_SHORT = (1 << 63) - 1
# What is done before others get their turn, see `rank_sealed`: 1 to 20 ms.
WORK = 100_000
# Name of what is derived from a slice.
_ROW_BOUNDS = "row_bounds"


@dataclass(frozen=True, slots=True, eq=False)
class RankedPart:
    """The result of one or several slots; m keywords in the query's order, c candidates.

    Attributes:
        objects_total: objects of the window within the radius.
        tokens_total: sum of their lengths.
        holders: i8[m], number of them with each keyword.
        candidates: c rows, the objects that may be among the k best; None for none.
        distances_m: f8[c], rounded to 1 mm.
        frequencies: u2[c, m], occurrences of each keyword in each.
    """

    objects_total: int
    tokens_total: int
    holders: NDArray[np.int64]
    candidates: StoredRows | None
    distances_m: NDArray[np.float64]
    frequencies: NDArray[np.uint16]


class RankedSearch:
    """A ranked query, prepared for views.

    The attribute filter decides which objects are ranked; the counts for BM25 are over all objects
    of the window within the radius.

    Attributes:
        near: the circle.
    """

    def __init__(self, query: RankedQuery, hashing: TermHashing = WIRE_TERMS) -> None:
        """Compiles a query for stores whose terms are numbered by `hashing`."""
        self._query = query
        self._hashes = hashing.numbers(query.keywords)
        self.near: Condition = condition_of(replace(query, where=None, ttl_ms=None))

    @property
    def nothing(self) -> RankedPart:
        """Returns the result for a window without objects."""
        keywords = len(self._hashes)
        holders, frequencies = np.zeros(keywords, np.int64), np.empty((0, keywords), np.uint16)
        return RankedPart(0, 0, holders, None, np.empty(0), frequencies)

    def search(self, view: StoreView, now_ms: int, bounds: Bounds = ALL_TIME) -> RankedPart:
        """Searches a view; ages count from `now_ms`."""
        return self.search_of((view,), now_ms, bounds)

    def search_of(
        self, views: Sequence[StoreView], now_ms: int, bounds: Bounds = ALL_TIME
    ) -> RankedPart:
        """Searches the views of several stores, at least one, as if they were one.

        What is found in one of them excludes candidates of the others.
        """
        turns = self.in_turns(views, now_ms, bounds)
        while True:
            try:
                next(turns)
            except StopIteration as end:
                found: RankedPart = end.value
                return found

    def in_turns(
        self,
        views: Sequence[StoreView],
        now_ms: int,
        bounds: Bounds = ALL_TIME,
        work: int = WORK,
    ) -> Generator[None, None, RankedPart]:
        """As `search_of`; yields when it has done some work, so that others get their turn."""
        scan = _Scan(self._query, self._hashes, views, now_ms)
        yield from scan.read(self.near, bounds, work)
        return scan.part()


class _Scan:
    """One search: its kernel state (see `kernels.store.ranked_state`)."""

    def __init__(
        self,
        query: RankedQuery,
        hashes: NDArray[np.uint64],
        views: Sequence[StoreView],
        now_ms: int,
    ) -> None:
        m, k, weights = len(hashes), query.k, query.weights
        self._query, self._hashes = query, hashes
        self._sealed = tuple(chain.from_iterable(view.sealed for view in views))
        self._active = tuple(view.active for view in views)
        self._sources: tuple[SealedSlice | ActiveView, ...] = (*self._sealed, *self._active)
        self._table = np.concatenate([view.table for view in views])
        self._numbers = np.empty((len(self._sealed), m), np.int64)
        postings = find_keywords(self._table, hashes, self._numbers)
        is_known_equal = weights.space == 0 and weights.time == 0
        figures = np.array(
            [
                *(query.lon, query.lat, query.radius_m, weights.space, weights.time),
                *(query.half_life_ms, now_ms, is_known_equal, weights.text, HALF_LIVES_AHEAD_MAX),
            ],
            np.float64,
        )
        steps = min(max(_HEAPS_MAX // (m * k), 1), _STEPS_MAX)
        groups = m + min(max(_HEAPS_MAX // (steps * k) - m, 1), _GROUPS_MORE)
        signatures, codes = np.zeros(groups * m, np.uint32), np.zeros(groups, np.uint64)
        signatures[: m * m : m + 1] = 1
        name_groups(signatures, m, codes)
        bits, plain = self._keyword_bits()
        # Untouched memory costs nothing.
        room = postings + sum(map(len, self._active)) + 1
        self._keys = np.empty(KEYS * room, np.uint64)
        self._refs = np.empty(REFS * room, np.int64)
        self._floats = np.empty(FLOATS * room)
        self._often = np.empty(m * room, np.uint16)
        # The search only holds their addresses.
        self._kept = (
            figures, self._length_steps(steps), np.full((groups + 1) * steps * k, -np.inf),
            np.full((groups + 1) * steps, -np.inf), signatures, codes,
            np.full(groups, _NEVER_SHORT), plain, bits, self._keys, self._refs, self._floats,
            self._often,
        )  # fmt: skip
        limit, prunes = max(_CANDIDATES_MAX, 4 * k), query.where is None
        self._search = np.array(
            [
                *(0, limit, m, 0, 0, m, k, prunes, steps, groups, room),
                *np.array(secret()).view(np.int64).tolist(),
                *map(address_of, self._kept),
            ],
            np.int64,
        )
        self._holders = np.zeros(m, np.int64)

    def _keyword_bits(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Returns the bit of each keyword, and the groups of single keywords by their bits."""
        m = len(self._hashes)
        bits = np.full(m, BITS - 1)
        own = np.arange(m)
        if m > BITS:
            # Objects with a keyword that shares a bit are checked one by one: the rarest keywords
            # share it.
            own = np.argsort(-self._frequencies_in_largest())[: BITS - 1]
        bits[own] = np.arange(len(own))
        plain = np.full(1 << BITS, -1, np.int64)
        plain[1 << bits[own]] = own
        return (1 << bits).astype(np.uint8), plain

    def _frequencies_in_largest(self) -> NDArray[np.int64]:
        sealed = self._sealed
        if not sealed:
            return np.zeros(len(self._hashes), np.int64)
        number = max(range(len(sealed)), key=lambda i: len(sealed[i]))
        numbers = self._numbers[number]
        counts = np.diff(sealed[number].posting_offsets.astype(np.int64))
        return np.where(numbers < 0, 0, np.append(counts, 0)[numbers])

    def _length_steps(self, count: int) -> NDArray[np.int64]:
        """Returns i8[count], lengths from 1 to three times the mean, evenly in logarithm."""
        if self._sealed:
            largest = max(self._sealed, key=len)
            objects, tokens = len(largest), int(largest.block_lengths[-1])
        else:
            objects = sum(map(len, self._active))
            tokens = sum(int(active.lengths[: active.rows].sum()) for active in self._active)
        mean = max(1.0, tokens / max(1, objects))
        if count == 1:
            return np.array([mean], np.int64)
        steps = [1]
        for _ in range(count - 1):
            steps.append(max(steps[-1] + 1, int(steps[-1] * (3 * mean) ** (1 / (count - 1)))))
        return np.array(steps, np.int64)

    def read(self, near: Condition, bounds: Bounds, work: int) -> Iterator[None]:
        """Reads everything within the bounds, in pieces; `near` is the query's circle."""
        sealed = self._sealed
        for number, active in enumerate(self._active, len(sealed)):
            rows = min(active.rows, bounds.seq_before - active.first_seq)
            if rows > 0:
                rank_active(
                    active.lon, active.lat, active.arrivals_ms, active.lengths,
                    active.term_offsets, active.terms, active.counts, active.ids, active.sessions,
                    active.numbers, rows, near.words, near.values, self._hashes,
                    bounds.arrival_from_ms, bounds.arrival_to_ms, number, self._holders,
                    self._search,
                )  # fmt: skip
        if not sealed:
            return
        extras = [
            _row_bounds(slice_).addresses if _may_hold(slice_, bounds) else (0, 0)
            for slice_ in sealed
        ]
        addresses = np.array(extras, np.int64)
        scratch = np.zeros(SCRATCH_WORDS + 3 * len(self._hashes), np.int64)
        place = np.array([len(sealed) - 1, 0, work], np.int64)
        while True:
            rank_sealed(
                self._table, addresses, self._numbers, near.words, near.values, near.quads,
                self._hashes, bounds.arrival_from_ms, bounds.arrival_to_ms, bounds.seq_before,
                scratch, self._holders, self._search, place,
            )  # fmt: skip
            if place[0] < 0:
                return
            yield
            place[2] = work

    def part(self) -> RankedPart:
        """Returns the result, without excluded candidates and without the candidates' terms."""
        if self._query.where is not None:
            self._filter()
            self._search[PRUNES] = True
            sift_candidates(True, self._search)
        sift_candidates(False, self._search)
        count, m = contenders_of(self._search), len(self._hashes)
        numbers, rows = self._references(count)
        # Slice by slice, each in row order: neighbours in memory are read together.
        order = np.lexsort((rows, numbers))
        candidates = None
        if count:
            candidates = gather_rows(self._sources, numbers[order], rows[order], terms=False)
        return RankedPart(
            int(self._search[OBJECTS]),
            int(self._search[TOKENS]),
            self._holders,
            candidates,
            self._floats[: FLOATS * count : FLOATS][order],
            self._often[: m * count].reshape(count, m)[order],
        )

    def _filter(self) -> None:
        """Keeps only candidates that satisfy the filter on attributes."""
        assert self._query.where is not None
        count = int(self._search[CANDIDATES])
        numbers, rows = self._references(count)
        keep = np.zeros(count, np.bool_)
        for number in sorted_distinct(numbers).tolist():
            own = np.flatnonzero(numbers == number)
            kept = filtered_rows(self._sources[number], rows[own], self._query.where)
            keep[own] = np.isin(rows[own], kept)
        left = int(keep.sum())
        for column, width in (
            (self._keys, KEYS),
            (self._refs, REFS),
            (self._floats, FLOATS),
            (self._often, len(self._hashes)),
        ):
            table: NDArray[Any] = column[: width * count].reshape(count, width)
            table[:left] = table[keep]
        self._search[CANDIDATES] = left

    def _references(self, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns (slice, row) of the first candidates."""
        references = self._refs[: REFS * count : REFS]
        return references >> 32, references & 0xFFFFFFFF


def _may_hold(slice_: SealedSlice, bounds: Bounds) -> bool:
    return (
        slice_.arrival_last_ms >= bounds.arrival_from_ms
        and slice_.arrival_first_ms <= bounds.arrival_to_ms
        and slice_.first_seq < bounds.seq_before
    )


@dataclass(frozen=True, slots=True, eq=False)
class _RowBounds:
    """Bounds of the scores of the n rows of a sealed slice.

    Attributes:
        summaries: u4[n], see `summarise_rows`.
        addresses: addresses of the slice's `block_lengths` and of `summaries`, for kernels.
    """

    summaries: NDArray[np.uint32]
    addresses: tuple[int, int]

    @property
    def bytes_total(self) -> int:
        """Bytes of memory."""
        return self.summaries.nbytes


def _row_bounds(slice_: SealedSlice) -> _RowBounds:
    """Returns the bounds of a slice, computed at the first request (5 ms per million rows)."""
    found: _RowBounds | None = slice_.derived.get(_ROW_BOUNDS)
    if found is None:
        summaries = np.empty(len(slice_), np.uint32)
        summarise_rows(
            slice_.arrivals_ms, slice_.lengths, slice_.term_offsets, slice_.terms,
            slice_.vocabulary, slice_.arrival_first_ms, slice_.arrival_last_ms, summaries,
        )  # fmt: skip
        addresses = address_of(slice_.block_lengths), address_of(summaries)
        found = _RowBounds(summaries, addresses)
        slice_.derived[_ROW_BOUNDS] = found
    return found
