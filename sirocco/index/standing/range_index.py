"""Continuous range queries of one slot: insertion, removal, expiry, and matching of batches.

Design (docs/adr/0003; FAST, Mahmood, Aly, Aref, ICDE 2018; Tornado 4): a hash table on (cell, least
frequent keyword of a conjunction) leads to lists of 32-byte postings, which are enough to reject
most objects. Cells are from a pyramid of grids, of which every second level is used. A region is
stored at the finest level at which it meets at most two cells in each direction, or at the next if
lists stay short. Each term stores the levels at which it has postings.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sirocco.index.base.query_rows import QueryRows
from sirocco.index.standing.grid import Grid
from sirocco.index.standing.posting_table import PostingTable
from sirocco.index.standing.row_lifetimes import RowLifetimes
from sirocco.index.standing.row_store import RowStore, check_conjunctions
from sirocco.index.standing.text.pattern_places import PatternPlaces, PatternUses
from sirocco.index.standing.vocabulary import Vocabulary
from sirocco.kernels.base.faults import required
from sirocco.kernels.standing.pyramid import POSTING_WORDS, STAMP, SURVEY_LEVEL
from sirocco.kernels.standing.range_match import batch_bounds, match_batch
from sirocco.kernels.standing.range_plan import plan_insert
from sirocco.model.patterns import NearPatterns, placed_rows
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing

__all__ = ["Grid", "Matches", "RangeIndex", "RangeIndexStatistics"]

# The vocabulary counts the terms of every n-th batch: enough for frequencies, and cheap.
_OBSERVED_BATCHES = 8
# A box meets at most 2 cells in each direction at its level, 3 after rounding.
_CELLS_PER_BOX_MAX = 9
_STAMPS_MAX = np.iinfo(np.uint32).max - 1


@dataclass(frozen=True, slots=True)
class Matches:
    """Pairs found in one batch, ordered by object.

    Attributes:
        object_rows: i4[m], numbers of objects within the batch, ascending.
        query_rows: i4[m], rows returned by `RangeIndex.insert`, unordered within one object.
    """

    object_rows: npt.NDArray[np.int32]
    query_rows: npt.NDArray[np.int32]

    def __len__(self) -> int:
        """Returns the number of pairs."""
        return len(self.object_rows)


@dataclass(frozen=True, slots=True)
class RangeIndexStatistics:
    """Sizes of an index, for metrics.

    Attributes:
        live_queries: inserted and not removed.
        dead_queries: removed and not yet reclaimed.
        postings: in all lists, with free ones in their blocks.
        keys: (cell, term) pairs with postings.
        terms: distinct terms in use.
        bytes_total: memory taken.
    """

    live_queries: int
    dead_queries: int
    postings: int
    keys: int
    terms: int
    bytes_total: int


class RangeIndex:
    """Standing range queries of one slot.

    Rows are dense numbers; a row is reused after its query was removed and reclaimed. Positions are
    those of the slot's log; a query can match the objects at positions in [born, dead) that arrive
    before its expiry. Registrations and removals are in log order.

    One thread at a time: kernels release the GIL and write into arrays of the index.
    """

    __slots__ = (
        "_batches",
        "_cell_levels",
        "_density",
        "_grid",
        "_has_unnamed",
        "_ids",
        "_lifetimes",
        "_match_state",
        "_out_objects",
        "_out_rows",
        "_places",
        "_probe_hashes",
        "_probe_keys",
        "_probe_lanes",
        "_rows",
        "_table",
        "_term_parts",
        "_transform",
        "vocabulary",
    )

    def __init__(
        self,
        grid: Grid | None = None,
        expected_queries: int = 0,
        hashing: TermHashing = WIRE_TERMS,
    ) -> None:
        """Creates an empty index.

        Args:
            grid: extent and depth of the pyramid; the whole world by default.
            expected_queries: initial size of the table; it grows if needed.
            hashing: numbers the terms of queries and objects.
        """
        self._grid = grid or Grid()
        self._transform = self._grid.transform
        self.vocabulary = Vocabulary(hashing)
        self._table = PostingTable(expected_queries)
        self._rows = RowStore()
        # Of phrases and beginnings; none as long as they may be anywhere.
        self._places: PatternPlaces | None = None
        self._has_unnamed = False
        self._lifetimes = RowLifetimes(self._rows)
        survey_cells = 1 << 2 * min(self._grid.finest_level, SURVEY_LEVEL)
        self._density = np.zeros(survey_cells, np.int32)
        self._cell_levels = np.zeros(survey_cells, np.uint16)
        self._match_state = np.zeros(3, np.int64)
        self._batches = 0
        self._ids = np.empty(1 << 14, np.int32)
        self._probe_keys = np.empty(1 << 13, np.uint64)
        self._probe_hashes = np.empty(1 << 13, np.uint64)
        self._probe_lanes = np.empty(1 << 13, np.int32)
        self._term_parts = np.empty(1 << 14, np.uint64)
        self._out_objects = np.empty(1 << 13, np.int32)
        self._out_rows = np.empty(1 << 13, np.int32)

    # Insertion -----------------------------------------------------------------------------

    def insert(self, queries: QueryRows, position: int) -> npt.NDArray[np.int32]:
        """Adds queries; they match objects from `position` on.

        Args:
            queries: n compiled queries; batches of about 1,000 are fastest.
            position: slot position of the registration.

        Returns:
            i4[n], the row of each query.

        Raises:
            ValueError: A conjunction has more terms than fit a term block.
        """
        n = len(queries)
        if n == 0:
            return np.empty(0, np.int32)
        check_conjunctions(queries)
        words = queries.words, queries.word_offsets
        pos_ids = self.vocabulary.acquire(queries.pos_terms, *words, queries.pos_word_rows)
        neg_ids = self.vocabulary.acquire(queries.neg_terms, *words, queries.neg_word_rows)
        rows = self._rows.take(n)
        self._rows.write_shapes(rows, queries)
        self._rows.reserve_terms(
            2 * (len(pos_ids) + len(neg_ids) + int(queries.conj_offsets[-1])) + 8 * n
        )

        boxes_each = np.diff(queries.box_offsets)
        templates_count = int((np.diff(queries.conj_offsets) * boxes_each).sum())
        templates = np.empty(templates_count * POSTING_WORDS, np.int32)
        keys = np.empty(templates_count * _CELLS_PER_BOX_MAX, np.uint64)
        owners = np.empty(templates_count * _CELLS_PER_BOX_MAX, np.int32)
        store = self._rows
        count = plan_insert(
            queries.conj_offsets,
            queries.pos_offsets,
            pos_ids,
            queries.neg_offsets,
            neg_ids,
            queries.box_offsets,
            queries.boxes,
            queries.expires_ms,
            position,
            rows,
            store.words,
            store.boxes,
            store.state,
            store.terms_state,
            store.terms_words,
            self.vocabulary.frequencies,
            self.vocabulary.uses,
            self.vocabulary.levels,
            self._transform,
            self._grid.finest_level,
            self._grid.list_length,
            self._density,
            self._cell_levels,
            self._match_state,
            templates,
            keys,
            owners,
        )
        required(count, "plan_insert: no room")
        table = templates.reshape(-1, POSTING_WORDS)
        outward = _rounded_outwards(queries.boxes)
        table.view(np.float32)[:, :4] = outward[table[:, 0]]
        self._table.post(templates, keys[:count], owners[:count])
        self._note_places(queries, outward, rows, position)

        self._lifetimes.begin(rows, position, queries.expires_ms)
        return rows

    def _note_places(
        self,
        queries: QueryRows,
        outward: npt.NDArray[np.float32],
        rows: npt.NDArray[np.int32],
        position: int,
    ) -> None:
        """Notes where the patterns of new queries are."""
        named = queries.pos_word_rows, queries.neg_word_rows
        if not self.vocabulary.is_keyed:
            # A term without a word may be a pattern of others.
            terms = len(queries.pos_terms), len(queries.neg_terms)
            self._has_unnamed |= terms != (len(named[0]), len(named[1]))
            self._has_unnamed |= any((each < 0).any() for each in named)
        known = self.vocabulary.patterns
        if known is None:
            return
        words = placed_rows(queries.words, queries.word_offsets)
        if not len(words):
            return
        if self._places is None:
            self._places = PatternPlaces(self._transform, self._grid.finest_level, known.placed)
        uses = PatternUses(queries, words)
        places = np.searchsorted(words, uses.words)
        columns = known.columns_of(queries.words, queries.word_offsets, words)
        self._places.add(
            uses,
            queries,
            outward,
            (columns[0][places], columns[1][places], columns[2][places]),
            rows,
            position,
            self._rows.are_live,
        )

    # Removal -------------------------------------------------------------------------------

    def remove(self, rows: npt.NDArray[np.int32], position: int) -> None:
        """Ends queries: they do not match objects at `position` and later.

        Args:
            rows: i4[k], live rows, each once.
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
            for keys, released in self._rows.plan_remove(
                rows, self._transform, self._grid.finest_level
            ):
                self._table.unpost(keys, self._rows.state)
                self.vocabulary.release(released)
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
        """The rows of the index."""
        return self._rows

    def settle(self, rows: npt.NDArray[np.int32], position: int) -> None:
        """Ends individual checks of rows that every object from a position on can match."""
        self._lifetimes.settle(rows, position)

    def near_patterns(
        self, lon: npt.NDArray[np.float64], lat: npt.NDArray[np.float64]
    ) -> NearPatterns | None:
        """Returns which phrases and beginnings queries name at places; None: it is not known.

        Args:
            lon, lat: f8[n], degrees, of objects that `match` is to match.
        """
        if self._places is None or self._has_unnamed:
            return None
        return self._places.near(np.ascontiguousarray(lon), np.ascontiguousarray(lat))

    # Matching ------------------------------------------------------------------------------

    def match(
        self,
        lon: npt.NDArray[np.float64],
        lat: npt.NDArray[np.float64],
        term_offsets: npt.NDArray[np.int64],
        terms: npt.NDArray[np.uint64],
        arrival_ms: npt.NDArray[np.int64],
        positions: npt.NDArray[np.int64],
    ) -> Matches:
        """Matches a batch of objects.

        Args:
            lon, lat: f8[n], degrees; longitudes ±180 are equal.
            term_offsets: i8[n + 1] into `terms`.
            terms: u8[t], numbers of terms, distinct within an object.
            arrival_ms: i8[n].
            positions: i8[n], slot positions.

        Returns:
            Each pair (object, query) once.
        """
        if len(self._ids) < len(terms):
            self._ids = np.empty(2 * len(terms), np.int32)
        ids = self.vocabulary.look_up(terms, self._ids)
        return self.match_ids(lon, lat, term_offsets, ids, arrival_ms, positions)

    def match_ids(
        self,
        lon: npt.NDArray[np.float64],
        lat: npt.NDArray[np.float64],
        term_offsets: npt.NDArray[np.int64],
        term_ids: npt.NDArray[np.int32],
        arrival_ms: npt.NDArray[np.int64],
        positions: npt.NDArray[np.int64],
    ) -> Matches:
        """Matches a batch whose terms are already ids of `vocabulary`; otherwise as `match`."""
        n = len(lon)
        if n == 0:
            return Matches(np.empty(0, np.int32), np.empty(0, np.int32))
        terms_max, arrival_max, first_position = batch_bounds(term_offsets, arrival_ms, positions)
        check_all = self._lifetimes.prepare(first_position, arrival_max)
        if self._batches % _OBSERVED_BATCHES == 0:
            self.vocabulary.observe(term_ids, int(term_offsets[0]), int(term_offsets[-1]), n)
        self._batches += 1
        if self._match_state[STAMP] > _STAMPS_MAX - 2 * n:
            self._match_state[STAMP] = 0
            self._rows.stamp[:] = 0
        if len(self._term_parts) < len(term_ids):
            self._term_parts = np.empty(len(term_ids), np.uint64)
        probes = 2 * (self._grid.finest_level + 1) * (terms_max + 1)
        if probes > len(self._probe_keys):
            self._probe_keys = np.empty(probes, np.uint64)
            self._probe_hashes = np.empty(probes, np.uint64)
            self._probe_lanes = np.empty(probes, np.int32)
        return self._match_all(
            lon, lat, term_offsets, term_ids, arrival_ms, positions, int(check_all)
        )

    def _match_all(
        self,
        lon: npt.NDArray[np.float64],
        lat: npt.NDArray[np.float64],
        term_offsets: npt.NDArray[np.int64],
        term_ids: npt.NDArray[np.int32],
        arrival_ms: npt.NDArray[np.int64],
        positions: npt.NDArray[np.int64],
        check_all: int,
    ) -> Matches:
        """Runs the kernel until all objects are done, with longer output if one needs it."""
        table = self._table
        rows = self._rows
        parts: list[Matches] = []
        begin = 0
        while begin < len(lon):
            done, pairs = match_batch(
                lon,
                lat,
                term_offsets,
                term_ids,
                arrival_ms,
                positions,
                begin,
                check_all,
                table.slots,
                table.filter_words,
                table.state,
                self.vocabulary.levels,
                table.postings,
                table.posting_boxes,
                rows.words,
                rows.boxes,
                rows.state,
                rows.stamp,
                rows.terms_words,
                rows.shapes_values,
                self._transform,
                self._grid.finest_level,
                self._cell_levels,
                self._match_state,
                self._term_parts,
                self._probe_keys,
                self._probe_hashes,
                self._probe_lanes,
                self._out_objects,
                self._out_rows,
            )
            parts.append(Matches(self._out_objects[:pairs].copy(), self._out_rows[:pairs].copy()))
            if done < len(lon):
                room = 2 * len(self._out_rows)
                self._out_objects = np.empty(room, np.int32)
                self._out_rows = np.empty(room, np.int32)
            begin = done
        if len(parts) == 1:
            return parts[0]
        return Matches(
            np.concatenate([part.object_rows for part in parts]),
            np.concatenate([part.query_rows for part in parts]),
        )

    # Measures ------------------------------------------------------------------------------

    def seed_frequencies(
        self, terms: npt.NDArray[np.uint64], counts: npt.NDArray[np.int64], objects: int
    ) -> None:
        """Sets how many objects of a sample hold each term; only speed depends on it.

        Args:
            terms: u8[t], numbers of terms, distinct; terms that no query uses are ignored.
            counts: i8[t].
            objects: size of the sample.
        """
        self.vocabulary.seed_frequencies(terms, counts, objects)

    @property
    def live_queries(self) -> int:
        """Queries inserted and not removed."""
        return self._rows.in_use - self._lifetimes.dead_queries

    @property
    def bytes_total(self) -> int:
        """Memory of the index in bytes, without untouched reserves."""
        return (
            self._table.bytes_total
            + self._rows.bytes_total
            + self.vocabulary.bytes_total
            + self._lifetimes.bytes_total
            + (0 if self._places is None else self._places.bytes_total)
        )

    def statistics(self) -> RangeIndexStatistics:
        """Returns the sizes of the index."""
        return RangeIndexStatistics(
            live_queries=self.live_queries,
            dead_queries=self._lifetimes.dead_queries,
            postings=self._table.postings_in_blocks,
            keys=self._table.keys,
            terms=len(self.vocabulary),
            bytes_total=self.bytes_total,
        )


def _rounded_outwards(boxes: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Returns f4[b, 4], rows (west, south, −east, −north), each rounded down."""
    signed = boxes * np.array([1.0, 1.0, -1.0, -1.0])
    rounded: npt.NDArray[np.float32] = signed.astype(np.float32)
    too_great = rounded > signed
    rounded[too_great] = np.nextafter(rounded[too_great], np.float32(-np.inf))
    return rounded
