"""Continuous kNN queries of one slot: the k nearest objects so far, and new entries.

Design (SSTD 6.1 with SEA-CNN, Xiong, Mokbel, Aref, ICDE 2005): each query has a list of the k
nearest of this slot's objects that satisfy it (of those that arrived within its lifetime, none
expires), and is posted in the cells that the circle of its k-th distance meets, under its rarest
keyword. The cells are from a pyramid, so that a query with an incomplete list, whose circle is the
world, is in one cell. As circles only shrink, a query is posted again when its circle has halved,
between batches or when many have; results are exact meanwhile.

A circle also shrinks by what another slot knows: where that has k objects within a radius, nothing
farther is among the k nearest of all. The list is then no longer of this slot's k nearest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sirocco.index.base.query_rows import QueryRows
from sirocco.index.standing.knn_hits import KnnHits, KnnIndexStatistics, NearList, joined
from sirocco.index.standing.knn_rows import FINEST_LEVEL, LEVELS, KnnRows
from sirocco.index.standing.knn_state import export_state, restore_state
from sirocco.index.standing.limits import LIMITS, StandingLimits
from sirocco.index.standing.row_lifetimes import RowLifetimes
from sirocco.index.standing.row_store import NEVER_DEAD, RowStore, check_conjunctions
from sirocco.index.standing.vocabulary import Vocabulary
from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.kernels.standing.knn_list import ENTRY_WORDS, put_entries
from sirocco.kernels.standing.knn_match import match_batch
from sirocco.kernels.standing.knn_offer import NEEDED, SCANNED, STAMP, UNDECIDED, settle_undecided
from sirocco.kernels.standing.knn_plan import BOUND, COUNT_SHIFT, LIST, LIST_SHIFT, SIZE_MASK
from sirocco.kernels.standing.knn_region import BOUND_NONE
from sirocco.kernels.standing.pyramid import ROW_WORDS
from sirocco.kernels.standing.range_match import batch_bounds
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing

__all__ = ["Accepts", "KnnHits", "KnnIndex", "NearList"]

WORLD = (-180.0, -90.0, 180.0, 90.0)

Accepts = Callable[[int, int], bool]
"""Whether an object (row of the batch) satisfies what else a query (row) asks for."""

# The vocabulary counts the terms of every n-th batch: enough for frequencies, and cheap.
_OBSERVED_BATCHES = 8
# A smaller bound is sent to other slots when it is at most this part of the one they know. They
# test a few objects too many; sending each entry would cost them more.
_SHARED_NUMERATOR, _SHARED_DENOMINATOR = 7, 8
_STAMPS_MAX = np.iinfo(np.uint32).max - 1


class KnnIndex:
    """Standing kNN queries of one slot.

    Rows, positions, lifetimes and batches are as in `RangeIndex`: rows are dense and reused after
    removal and reclaim; a query can match objects at positions in [born, dead) that arrive before
    its expiry; registrations and removals are in log order. Objects are processed in the order of
    the batch, each once.

    One thread at a time: kernels release the GIL and write into arrays of the index.
    """

    __slots__ = (
        "_batches",
        "_lifetimes",
        "_limits",
        "_objects_before",
        "_out_mm",
        "_out_objects",
        "_out_rows",
        "_probe_hashes",
        "_probe_keys",
        "_probe_lanes",
        "_rows",
        "_term_ids",
    )

    def __init__(
        self,
        extent: tuple[float, float, float, float] = WORLD,
        expected_queries: int = 0,
        hashing: TermHashing = WIRE_TERMS,
        limits: StandingLimits = LIMITS,
    ) -> None:
        """Creates an empty index.

        Args:
            extent: west, south, east, north of most objects; only speed depends on it.
            expected_queries: initial size of the table; it grows if needed.
            hashing: numbers the terms of queries and objects.
            limits: of the index.

        Raises:
            ValueError: The extent is empty.
        """
        if not (extent[0] < extent[2] and extent[1] < extent[3]):
            raise ValueError("extent: is empty")
        self._rows = KnnRows(extent, expected_queries, hashing, limits)
        self._lifetimes = RowLifetimes(self._rows.store)
        self._limits = limits
        self._batches = 0
        self._objects_before = 1  # no row has stamp 0, that of rows never tested
        self._term_ids = np.empty(1 << 14, np.int32)
        self._probe_keys = np.empty(1 << 13, np.uint64)
        self._probe_hashes = np.empty(1 << 13, np.uint64)
        self._probe_lanes = np.empty(1 << 13, np.int32)
        self._out_objects = np.empty(1 << 14, np.int32)
        self._out_rows = np.empty(1 << 14, np.int32)
        self._out_mm = np.empty(1 << 14, np.int64)

    @property
    def vocabulary(self) -> Vocabulary:
        """The terms of the queries."""
        return self._rows.vocabulary

    # Queries -------------------------------------------------------------------------------

    def insert(
        self,
        queries: QueryRows,
        points: npt.NDArray[np.float64],
        k: npt.NDArray[np.integer],
        position: int,
    ) -> npt.NDArray[np.int32]:
        """Adds queries with empty lists; they match objects from `position` on.

        Args:
            queries: n compiled queries; their regions are ignored.
            points: f8[n, 2], lon and lat.
            k: int[n].
            position: slot position of the registration.

        Returns:
            i4[n], the row of each query.

        Raises:
            ValueError: A k is not in 1..65,535, or a conjunction has more terms than fit a term
                block.
        """
        n = len(queries)
        if n == 0:
            return np.empty(0, np.int32)
        return self._insert(queries, points, k, np.full(n, position, np.int64))

    def _insert(
        self,
        queries: QueryRows,
        points: npt.NDArray[np.float64],
        k: npt.NDArray[np.integer],
        born: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.int32]:
        if k.min() < 1 or k.max() > SIZE_MASK:
            raise ValueError(f"k: must lie in 1..{SIZE_MASK}")
        check_conjunctions(queries)
        rows = self._rows.write(queries, points, k, born)
        self._rows.place(rows)
        self._lifetimes.begin(rows, int(born.max()), queries.expires_ms)
        return rows

    def remove(self, rows: npt.NDArray[np.int32], position: int) -> None:
        """Ends queries: they do not match objects at `position` and later.

        Args:
            rows: i4[n], live rows, each once.
            position: slot position of the removal, not below that of an earlier one.
        """
        if len(rows):
            self._lifetimes.end(rows, position)

    def reclaim(self, position: int, rows_max: int = 4096) -> int:
        """Frees the memory of removed queries, once no object before their end can follow.

        Args:
            position: every object at a lower position has been matched.
            rows_max: bound of the work of one call.

        Returns:
            The number of freed rows, which may be reused.
        """
        self._lifetimes.reach(position)
        freed = 0
        while freed < rows_max:
            rows = self._lifetimes.take_dead(position, rows_max - freed)
            if rows is None:
                break
            self._rows.free(rows)
            freed += len(rows)
        return freed

    def expire(self, now_ms: int) -> npt.NDArray[np.int32]:
        """Returns rows whose lifetime has ended, each once; the caller removes them.

        Args:
            now_ms: the slot's time; lifetimes that end at it or before have ended.

        Returns:
            i4[k], live rows with expires_ms ≤ now_ms.
        """
        return self._lifetimes.take_expired(now_ms)

    @property
    def row_store(self) -> RowStore:
        """The lifetimes of the rows."""
        return self._rows.store

    def settle(self, rows: npt.NDArray[np.int32], position: int) -> None:
        """Ends individual checks of rows that every object from a position on can match."""
        self._lifetimes.settle(rows, position)

    # Lists ---------------------------------------------------------------------------------

    def seed(
        self,
        row: int,
        ids: npt.NDArray[np.uint64],
        sessions: npt.NDArray[np.uint64],
        numbers: npt.NDArray[np.uint64],
        distances_m: npt.NDArray[np.float64],
    ) -> None:
        """Adds past objects to the list of a query, without duplicates.

        Its bound is not for other slots any more (ADR 65): another owner of this slot may find
        other objects of the past.

        Args:
            row: row of a query in use.
            ids, sessions, numbers: u8[n], distinct objects that satisfy the query.
            distances_m: f8[n].
        """
        rows = self._rows
        rows.shared_mm[row] = 0
        base = row * ROW_WORDS
        distances_mm = np.rint(distances_m * 1000.0).astype(np.int64)
        near = distances_mm <= rows.store.words[base + BOUND]
        word = int(rows.store.words[base + LIST])
        count = put_entries(
            rows.lists.words,
            word >> LIST_SHIFT,
            (word >> COUNT_SHIFT) & SIZE_MASK,
            word & SIZE_MASK,
            distances_mm[near],
            ids[near],
            sessions[near],
            numbers[near],
        )
        word &= ~(SIZE_MASK << COUNT_SHIFT)
        rows.store.words[base + LIST] = word | (count << COUNT_SHIFT)
        rows.draw_in(row, min(int(rows.store.words[base + BOUND]), rows.farthest_mm(row)))

    def bounds_mm(self, rows: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """Returns i8[n], beyond which distance no object can enter the lists of rows in use."""
        words: npt.NDArray[Any] = self._rows.store.words[rows.astype(np.int64) * ROW_WORDS + BOUND]
        return words

    def take_shrunk(
        self, rows: npt.NDArray[np.int32]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Returns those of some rows whose bounds other slots should know, and the bounds in mm.

        Within such a bound there are k objects that satisfy the query and were reported.

        Args:
            rows: i4[n], rows whose lists have changed, in any order, perhaps more than once.
        """
        bounds_mm = self.bounds_mm(rows)
        is_due = bounds_mm < self._rows.shared_mm[rows] // _SHARED_DENOMINATOR * _SHARED_NUMERATOR
        rows, bounds_mm = rows[is_due], bounds_mm[is_due]
        self._rows.shared_mm[rows] = bounds_mm
        return rows, bounds_mm

    def draw_in(self, rows: npt.NDArray[np.int32], bounds_mm: npt.NDArray[np.int64]) -> None:
        """Takes bounds from another slot: nothing farther enters the lists of the rows.

        Args:
            rows: i4[n], rows in use, -1 for none; bounds_mm: i8[n].
        """
        self._rows.draw_in_all(rows, bounds_mm)

    def send_again(self) -> None:
        """Makes the bounds of all rows due to be sent once more: another slot is here."""
        shared_mm = self._rows.shared_mm
        shared_mm[shared_mm != 0] = BOUND_NONE

    def near(self, row: int) -> NearList:
        """Returns the list of a query, in order."""
        rows = self._rows
        word = int(rows.store.words[row * ROW_WORDS + LIST])
        begin, count = word >> LIST_SHIFT, (word >> COUNT_SHIFT) & SIZE_MASK
        entries = rows.lists.words[begin * ENTRY_WORDS :][: count * ENTRY_WORDS]
        mm, ids, sessions, numbers = entries.reshape(-1, ENTRY_WORDS).T
        order = np.lexsort((numbers, sessions, ids, mm))
        return NearList(mm[order] / 1000.0, ids[order], sessions[order], numbers[order])

    # Matching ------------------------------------------------------------------------------

    def match(
        self,
        lon: npt.NDArray[np.float64],
        lat: npt.NDArray[np.float64],
        term_offsets: npt.NDArray[np.int64],
        terms: npt.NDArray[np.uint64],
        arrival_ms: npt.NDArray[np.int64],
        positions: npt.NDArray[np.int64],
        ids: npt.NDArray[np.uint64],
        sessions: npt.NDArray[np.uint64],
        numbers: npt.NDArray[np.uint64],
        accepts: Accepts | None = None,
    ) -> KnnHits:
        """Adds a batch of objects, in its order, to the lists that they enter.

        Args:
            lon, lat: f8[n], degrees; longitudes ±180 are equal.
            term_offsets: i8[n + 1] into `terms`.
            terms: u8[t], numbers of terms, distinct within an object.
            arrival_ms: i8[n].
            positions: i8[n], slot positions.
            ids: u8[n], object ids; sessions, numbers: u8[n], event keys.
            accepts: called for pairs of queries with FLAG_RESIDUAL for which everything else holds.

        Returns:
            Each pair (object, query) in which the object entered the list, once.

        Raises:
            ValueError: A query has FLAG_RESIDUAL and `accepts` is missing.
        """
        n = len(lon)
        if n == 0 or self._rows.store.in_use == 0:
            return joined([])
        if len(self._term_ids) < len(terms):
            self._term_ids = np.empty(2 * len(terms), np.int32)
        rows, limits = self._rows, self._limits
        term_ids = rows.vocabulary.look_up(terms, self._term_ids)
        terms_max, arrival_max, first_position = batch_bounds(term_offsets, arrival_ms, positions)
        check_all = self._lifetimes.prepare(first_position, arrival_max)
        self._prepare(term_offsets, term_ids, n, terms_max)
        objects = ids, sessions, numbers
        parts: list[KnnHits] = []
        begin = 0
        while begin < n:
            if rows.due_count >= limits.knn_due_min or (begin and rows.due_count):
                rows.place_due()
            begin, pairs = match_batch(
                lon,
                lat,
                term_offsets,
                term_ids,
                arrival_ms,
                positions,
                *objects,
                begin,
                int(check_all),
                limits.knn_due_max,
                limits.knn_undecided_max,
                limits.knn_scanned_max,
                rows.table.slots,
                rows.table.filter_words,
                rows.table.state,
                rows.vocabulary.levels,
                rows.table.postings,
                rows.table.posting_boxes,
                rows.store.words,
                rows.store.boxes,
                rows.store.state,
                rows.store.stamp,
                rows.store.terms_words,
                rows.lists.words,
                rows.reach,
                rows.listed,
                rows.marks,
                rows.transform,
                FINEST_LEVEL,
                self._probe_keys,
                self._probe_hashes,
                self._probe_lanes,
                rows.due,
                rows.progress,
                self._out_objects,
                self._out_rows,
                self._out_mm,
            )
            parts.append(self._take_hits(pairs, objects, accepts))
            self._reserve_out(int(rows.progress[NEEDED]))
        return joined(parts)

    def _prepare(
        self,
        term_offsets: npt.NDArray[np.int64],
        term_ids: npt.NDArray[np.int32],
        n: int,
        terms_max: int,
    ) -> None:
        """Makes room for the probes of a batch; updates stamps and term frequencies."""
        rows = self._rows
        if self._batches % _OBSERVED_BATCHES == 0:
            rows.vocabulary.observe(term_ids, int(term_offsets[0]), int(term_offsets[-1]), n)
        self._batches += 1
        # The previous batch's stamps were below its first one plus its objects.
        rows.progress[STAMP] += self._objects_before
        self._objects_before = n
        if rows.progress[STAMP] > _STAMPS_MAX - n:
            rows.progress[STAMP] = 1
            rows.store.stamp[:] = 0
        probes = LEVELS * (terms_max + 1)
        if probes > len(self._probe_keys):
            self._probe_keys = np.empty(probes, np.uint64)
            self._probe_hashes = np.empty(probes, np.uint64)
            self._probe_lanes = np.empty(probes, np.int32)

    def _reserve_out(self, pairs: int) -> None:
        if pairs > len(self._out_rows):
            self._out_objects = np.empty(2 * pairs, np.int32)
            self._out_rows = np.empty(2 * pairs, np.int32)
            self._out_mm = np.empty(2 * pairs, np.int64)

    def _take_hits(
        self,
        pairs: int,
        objects: tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64], npt.NDArray[np.uint64]],
        accepts: Accepts | None,
    ) -> KnnHits:
        """Returns the pairs, after the caller's decisions."""
        out_rows = self._out_rows[:pairs]
        if (out_rows >= UNDECIDED).any():
            self._ask(pairs, objects, accepts)
            kept = np.flatnonzero(out_rows >= 0)
            return KnnHits(self._out_objects[kept], out_rows[kept], self._out_mm[kept] / 1000.0)
        return KnnHits(
            self._out_objects[:pairs].copy(), out_rows.copy(), self._out_mm[:pairs] / 1000.0
        )

    def _ask(
        self,
        pairs: int,
        objects: tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64], npt.NDArray[np.uint64]],
        accepts: Accepts | None,
    ) -> None:
        """Decides pairs one by one, as each depends on earlier ones; refused ones get row −1."""
        if accepts is None:
            raise ValueError("accepts: is missing, and a query needs it")
        rows = self._rows
        at, is_accepted = -1, False
        while True:
            at = settle_undecided(
                at,
                int(is_accepted),
                pairs,
                self._out_objects,
                self._out_rows,
                self._out_mm,
                *objects,
                rows.store.words,
                rows.lists.words,
                rows.reach,
                rows.listed,
                rows.marks,
                rows.due,
                rows.progress,
            )
            if at >= pairs:
                return
            row = int(self._out_rows[at]) & (UNDECIDED - 1)
            is_accepted = accepts(int(self._out_objects[at]), row)

    # Checkpoints ---------------------------------------------------------------------------

    def state(self, rows: npt.NDArray[np.int32] | None = None) -> dict[str, npt.NDArray[Any]]:
        """Returns queries with their lists as named columns, for `restore`.

        Args:
            rows: i4[n], rows in use; None: all, ascending, including removed ones that are not
                reclaimed.
        """
        return export_state(self._rows, self._rows.in_use() if rows is None else rows)

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.int32]:
        """Puts the queries of a state into this empty index.

        It then answers like the index of the state, except for row numbers.

        Returns:
            i4[n], the row of each query of the state.
        """
        rows = restore_state(self._rows, state)
        if len(rows):
            dead = state["dead"]
            self._lifetimes.begin(rows, int(state["born"].max()), state["expires_ms"])
            for position in sorted_distinct(dead[dead != NEVER_DEAD]).tolist():
                self._lifetimes.end(rows[dead == position], position)
        return rows

    # Measures ------------------------------------------------------------------------------

    @property
    def live_queries(self) -> int:
        """Queries inserted and not removed."""
        return self._rows.store.in_use - self._lifetimes.dead_queries

    @property
    def bytes_total(self) -> int:
        """Memory of the index in bytes, including lists."""
        return self._rows.bytes_total + self._lifetimes.bytes_total

    def statistics(self) -> KnnIndexStatistics:
        """Returns the sizes of the index."""
        rows = self._rows
        words = rows.list_words(rows.in_use())
        full = (words >> COUNT_SHIFT) & SIZE_MASK == words & SIZE_MASK
        return KnnIndexStatistics(
            live_queries=self.live_queries,
            dead_queries=self._lifetimes.dead_queries,
            full_lists=int(full.sum()),
            postings=rows.table.postings_in_blocks,
            keys=rows.table.keys,
            postings_tested=int(rows.progress[SCANNED]),
            list_bytes_total=rows.lists.bytes_total,
            bytes_total=self.bytes_total,
        )
