"""Storage of standing kNN queries: rows, lists, and the postings of their circles."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sirocco.index.base.growable import GrowableArray
from sirocco.index.base.query_rows import FLAG_RESIDUAL, QueryRows
from sirocco.index.standing.knn_table import KnnTable
from sirocco.index.standing.limits import LIMITS, StandingLimits
from sirocco.index.standing.list_store import ListStore
from sirocco.index.standing.row_store import RowStore
from sirocco.index.standing.vocabulary import Vocabulary
from sirocco.kernels.base.faults import required
from sirocco.kernels.standing.knn_list import ENTRY_WORDS
from sirocco.kernels.standing.knn_offer import DUE_COUNT, draw_in, draw_in_all
from sirocco.kernels.standing.knn_plan import (
    COUNT_SHIFT,
    LIST,
    LIST_SHIFT,
    MARK_RESIDUAL,
    SIZE_MASK,
    free_rows,
    list_rows,
    unlist_rows,
    write_rows,
)
from sirocco.kernels.standing.knn_region import BOUND_NONE
from sirocco.kernels.standing.pyramid import POSTING_WORDS, ROW_WORDS, STATE_FREE, STATE_MASK
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing

__all__ = ["FINEST_LEVEL", "LEVELS", "KnnRows"]

# 2^16 cells a side, 600 m by 300 m on the equator for the whole world: the deepest level that keys
# can hold. Every second level is used, so that an object has few cells to look up.
FINEST_LEVEL = 16
LEVELS = FINEST_LEVEL // 2 + 1
# Cells that a circle may meet at its level. More: finer cells, fewer useless tests of objects;
# less: fewer postings and less memory.
CELLS_MAX = 4
# Postings planned at a time: their memory stays in the cache.
_KEYS_PLANNED = 1 << 14

_COLUMNS_BYTES = 1 + 1 + 4 + 4 + 8


class KnnRows:
    """Rows, lists and postings of the queries of one index.

    Attributes:
        store: lifetimes and texts of the rows; lists: the memory of their lists.
        vocabulary: their terms; table: their postings.
        transform: f8[4], of the pyramid.
        progress: i8[5], state of matching between batches.
    """

    __slots__ = (
        "_due",
        "_listed",
        "_marks",
        "_reach",
        "_shared_mm",
        "lists",
        "progress",
        "store",
        "table",
        "transform",
        "vocabulary",
    )

    def __init__(
        self,
        extent: tuple[float, float, float, float],
        expected_queries: int = 0,
        hashing: TermHashing = WIRE_TERMS,
        limits: StandingLimits = LIMITS,
    ) -> None:
        west, south, east, north = extent
        cells = float(1 << FINEST_LEVEL)
        self.transform = np.array([west, south, cells / (east - west), cells / (north - south)])
        self.store = RowStore()
        self.lists = ListStore()
        self.vocabulary = Vocabulary(hashing)
        self.table = KnnTable(expected_queries, limits.knn_repacked_min)
        self.progress = np.zeros(5, np.int64)
        self._listed = GrowableArray(np.uint8, 256)
        self._marks = GrowableArray(np.uint8, 256)
        self._reach = GrowableArray(np.float32, 256)
        self._due = GrowableArray(np.int32, 256)
        self._shared_mm = GrowableArray(np.int64, 256)

    @property
    def listed(self) -> npt.NDArray[np.uint8]:
        """u1[rows], class of the bound for which each row was posted; stale after `write`."""
        return self._listed.array

    @property
    def marks(self) -> npt.NDArray[np.uint8]:
        """u1[rows], MARK_*; stale after `write`."""
        return self._marks.array

    @property
    def reach(self) -> npt.NDArray[np.float32]:
        """f4[rows], squared chord; stale after `write`."""
        return self._reach.array

    @property
    def due(self) -> npt.NDArray[np.int32]:
        """i4[rows], queue of rows to be posted again; stale after `write`."""
        return self._due.array

    @property
    def shared_mm(self) -> npt.NDArray[np.int64]:
        """i8[rows], bound in mm that other slots know of each row; stale after `write`.

        0: its bound is not for others.
        """
        return self._shared_mm.array

    @property
    def due_count(self) -> int:
        """Rows on the queue."""
        return int(self.progress[DUE_COUNT])

    @property
    def bytes_total(self) -> int:
        """Bytes of memory in use, lists included."""
        rows = self.store.in_use * _COLUMNS_BYTES
        parts = (self.store, self.lists, self.table, self.vocabulary)
        return rows + sum(part.bytes_total for part in parts)

    def write(
        self,
        queries: QueryRows,
        points: npt.NDArray[np.float64],
        k: npt.NDArray[np.integer],
        born: npt.NDArray[np.int64],
    ) -> npt.NDArray[np.int32]:
        """Writes new rows with empty lists and without postings; returns i4[n].

        Args:
            queries: n compiled queries; their regions are ignored.
            points: f8[n, 2], lon and lat.
            k: int[n].
            born: i8[n], slot position of each.
        """
        words = queries.words, queries.word_offsets
        pos_ids = self.vocabulary.acquire(queries.pos_terms, *words, queries.pos_word_rows)
        neg_ids = self.vocabulary.acquire(queries.neg_terms, *words, queries.neg_word_rows)
        n = len(queries)
        rows = self.store.take(n)
        self.store.reserve_terms(
            2 * (len(pos_ids) + len(neg_ids) + int(queries.conj_offsets[-1])) + 8 * n
        )
        lengths = k.astype(np.int64)
        lists = (self.lists.take(lengths) << LIST_SHIFT) | lengths
        for column in (self._listed, self._marks, self._reach, self._due, self._shared_mm):
            column.reserve(len(self.store.state) + 1)
        self.shared_mm[rows] = BOUND_NONE
        self.marks[rows] = np.where(queries.flags & FLAG_RESIDUAL, MARK_RESIDUAL, 0)
        done = write_rows(
            queries.conj_offsets,
            queries.pos_offsets,
            pos_ids,
            queries.neg_offsets,
            neg_ids,
            queries.expires_ms,
            born,
            np.ascontiguousarray(points, np.float64),
            lists,
            rows,
            self.store.words,
            self.store.boxes,
            self.store.state,
            self.store.terms_state,
            self.store.terms_words,
            self.vocabulary.frequencies,
        )
        required(done, "write_rows: no room")
        return rows

    def place(self, rows: npt.NDArray[np.int32]) -> None:
        """Creates the postings of rows that have none, for their present circles."""
        room = _KEYS_PLANNED
        begin = 0
        while begin < len(rows):
            templates = np.empty(room * POSTING_WORDS, np.int32)
            keys = np.empty(room, np.uint64)
            owners = np.empty(room, np.int32)
            count, made, done = list_rows(
                rows,
                begin,
                self.store.words,
                self.store.boxes,
                self.store.terms_words,
                self.listed,
                self.marks,
                self.reach,
                self.vocabulary.levels,
                self.transform,
                FINEST_LEVEL,
                CELLS_MAX,
                templates,
                templates.view(np.float32),
                keys,
                owners,
            )
            required(count, "list_rows: a circle of more cells than it can have")
            self.table.post(templates[: made * POSTING_WORDS], keys[:count], owners[:count])
            if done == begin:  # one row with very many conjunctions
                room *= 2
            begin = done

    def withdraw(self, rows: npt.NDArray[np.int32]) -> None:
        """Removes the postings of posted rows."""
        room = _KEYS_PLANNED
        begin = 0
        while begin < len(rows):
            keys = np.empty(room, np.uint64)
            count, done = unlist_rows(
                rows,
                begin,
                self.store.words,
                self.store.boxes,
                self.store.terms_words,
                self.listed,
                self.marks,
                self.transform,
                FINEST_LEVEL,
                CELLS_MAX,
                keys,
            )
            required(count, "unlist_rows: a circle of more cells than it can have")
            self.table.unpost(keys[:count], self.marks)
            if done == begin:
                room *= 2
            begin = done

    def place_due(self) -> None:
        """Posts the rows on the queue again and empties it."""
        rows = self.due[: self.due_count].copy()
        self.progress[DUE_COUNT] = 0
        self.withdraw(rows)
        self.place(rows)
        self.table.repack()

    def free(self, rows: npt.NDArray[np.int32]) -> None:
        """Frees rows with all their data."""
        if self.due_count:
            self.place_due()  # none of these rows may stay on the queue
        self.withdraw(rows)
        words = self.list_words(rows)
        self.lists.free(words >> LIST_SHIFT, words & SIZE_MASK)
        room = _KEYS_PLANNED
        begin = 0
        while begin < len(rows):
            released = np.empty(room, np.int32)
            count, done = free_rows(
                rows,
                begin,
                self.store.words,
                self.store.state,
                self.store.terms_state,
                self.store.terms_words,
                released,
            )
            self.vocabulary.release(released[:count])
            if done == begin:
                room *= 2
            begin = done
        self.store.free(rows)

    def draw_in(self, row: int, bound_mm: int) -> None:
        """Lowers the distance beyond which no object can enter the list of a posted row."""
        draw_in(
            row,
            bound_mm,
            self.store.words,
            self.reach,
            self.listed,
            self.marks,
            self.due,
            self.progress,
        )

    def draw_in_all(self, rows: npt.NDArray[np.int32], bounds_mm: npt.NDArray[np.int64]) -> None:
        """Lowers that distance for posted rows, where it is greater; a row of -1 is none."""
        columns = self.store.words, self.reach, self.listed, self.marks, self.due, self.shared_mm
        draw_in_all(rows, bounds_mm, *columns, self.progress)

    def farthest_mm(self, row: int) -> int:
        """Returns the distance of the last object in a full list; BOUND_NONE if there is room."""
        word = int(self.store.words[row * ROW_WORDS + LIST])
        if (word >> COUNT_SHIFT) & SIZE_MASK < word & SIZE_MASK:
            return BOUND_NONE
        return int(self.lists.words[(word >> LIST_SHIFT) * ENTRY_WORDS])

    def list_words(self, rows: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """Returns i8[n], the list word of each row (see `kernels.standing.knn_plan`)."""
        words: npt.NDArray[Any] = self.store.words[rows.astype(np.int64) * ROW_WORDS + LIST]
        return words

    def in_use(self) -> npt.NDArray[np.int32]:
        """Returns i4[n], all rows in use, ascending."""
        return np.flatnonzero(self.store.state & STATE_MASK != STATE_FREE).astype(np.int32)
