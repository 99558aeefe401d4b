"""The rows of a range index: lifetime, region and text of each query."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from sirocco.index.base.growable import GrowableArray
from sirocco.index.base.query_rows import QueryRows
from sirocco.kernels.base.blocks import END, new_block_state
from sirocco.kernels.base.faults import required
from sirocco.kernels.standing.pyramid import (
    CONJ_TERMS_MAX,
    DEAD,
    EXPIRES,
    KIND_SHIFT,
    ROW_WORDS,
    SHAPE_HEADER,
    STATE_FREE,
    STATE_MASK,
)
from sirocco.kernels.standing.range_plan import write_shapes
from sirocco.kernels.standing.range_unplan import plan_remove
from sirocco.kernels.standing.row_life import check_rows, end_rows, settle_rows, split_expired

__all__ = ["NEVER_DEAD", "RowStore", "check_conjunctions"]

# The end of a row that is live.
NEVER_DEAD = np.iinfo(np.int64).max

_ROW_BYTES = 8 * ROW_WORDS + 1 + 4
_PLANNED_KEYS = 1 << 14


def check_conjunctions(queries: QueryRows) -> None:
    """Refuses queries whose terms do not fit into term blocks.

    Raises:
        ValueError: A conjunction has more than `CONJ_TERMS_MAX` terms.
    """
    for offsets in (queries.pos_offsets, queries.neg_offsets):
        # A small total implies few terms in each.
        if offsets[-1] > CONJ_TERMS_MAX and np.diff(offsets).max() > CONJ_TERMS_MAX:
            raise ValueError(f"query: more than {CONJ_TERMS_MAX} terms in one conjunction")


class RowStore:
    """Owns the row arrays; see `kernels.standing.pyramid` for their words.

    The views are stale after `take`, `write_shapes` and `reserve_terms`.
    """

    __slots__ = (
        "_free",
        "_free_count",
        "_shapes",
        "_stamp",
        "_state",
        "_terms",
        "_used",
        "_words",
        "shapes_state",
        "terms_state",
    )

    def __init__(self) -> None:
        self._words = GrowableArray(np.int64, 256 * ROW_WORDS)
        self._state = GrowableArray(np.uint8, 256)
        self._stamp = GrowableArray(np.uint32, 256)
        self._free = GrowableArray(np.int32, 256)
        self._free_count = 0
        self._used = 0
        self.terms_state = new_block_state()
        self._terms = GrowableArray(np.int32, 1024)
        self.shapes_state = new_block_state()
        self._shapes = GrowableArray(np.int32, 1024)

    @property
    def words(self) -> npt.NDArray[np.int64]:
        """i8[8 · rows]."""
        return self._words.array

    @property
    def boxes(self) -> npt.NDArray[Any]:
        """f8[8 · rows], the same memory as `words`."""
        return self._words.array.view(np.float64)

    @property
    def state(self) -> npt.NDArray[np.uint8]:
        """u1[rows]."""
        return self._state.array

    @property
    def kind(self) -> npt.NDArray[np.uint8]:
        """u1[rows], KIND_* of each row; a copy."""
        return self._state.array >> np.uint8(KIND_SHIFT)

    @property
    def stamp(self) -> npt.NDArray[np.uint32]:
        """u4[rows]."""
        return self._stamp.array

    @property
    def terms_words(self) -> npt.NDArray[np.int32]:
        """i4[…], term blocks."""
        return self._terms.array

    @property
    def shapes_values(self) -> npt.NDArray[Any]:
        """f8[…], shape blocks."""
        return self._shapes.array.view(np.float64)

    @property
    def in_use(self) -> int:
        """Number of rows in use."""
        return self._used - self._free_count

    @property
    def bytes_total(self) -> int:
        """Bytes of memory in use."""
        blocks = 16 * int(self.terms_state[END]) + 32 * int(self.shapes_state[END])
        return self._used * _ROW_BYTES + 4 * self._free_count + blocks

    def are_mortal(
        self, rows: npt.NDArray[np.int32], expires_ms: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Returns bool[k], whether rows are live and their lifetimes end at these times."""
        begins = rows.astype(np.int64) * ROW_WORDS
        found: npt.NDArray[np.bool_] = self.state[rows] & STATE_MASK != STATE_FREE
        found &= self.words[begins + DEAD] == NEVER_DEAD
        found &= self.words[begins + EXPIRES] == expires_ms
        return found

    def take(self, n: int) -> npt.NDArray[np.int32]:
        """Allocates rows, i4[n]; freed ones first."""
        reused = min(n, self._free_count)
        begin = self._free_count - reused
        rows = np.empty(n, np.int32)
        rows[:reused] = self._free.array[begin : self._free_count]
        rows[reused:] = np.arange(self._used, self._used + n - reused, dtype=np.int32)
        self._free_count = begin
        self._used += n - reused
        self._words.reserve(self._used * ROW_WORDS)
        for column in (self._state, self._stamp):
            column.reserve(self._used)
        return rows

    def free(self, rows: npt.NDArray[np.int32]) -> None:
        """Frees rows whose postings are gone."""
        self._free.reserve(self._free_count + len(rows))
        self._free.array[self._free_count : self._free_count + len(rows)] = rows
        self._free_count += len(rows)

    def reserve_terms(self, words: int) -> None:
        """Makes room for `words` words of term blocks in all."""
        self._terms.reserve(4 * int(self.terms_state[END]) + words)

    def write_shapes(self, rows: npt.NDArray[np.int32], queries: QueryRows) -> None:
        """Sets the kind of new rows, and stores regions that are not a single box."""
        n = len(rows)
        if len(queries.boxes) == n and not queries.shape.any():
            self._state.array[rows] = 0
            return
        values = 2 * (
            n * (SHAPE_HEADER + 4)
            + 4 * len(queries.boxes)
            + 2 * len(queries.ring_offsets)
            + queries.vertices.size
        )
        self._shapes.reserve(8 * int(self.shapes_state[END]) + 2 * values)
        done = write_shapes(
            rows,
            queries.box_offsets,
            queries.boxes,
            queries.shape,
            queries.circles,
            queries.polygon_offsets,
            queries.ring_offsets,
            queries.vertices,
            self.words,
            self.state,
            self.shapes_state,
            self._shapes.array,
            self.shapes_values,
        )
        required(done, "write_shapes: no room")

    def are_live(
        self, rows: npt.NDArray[np.int32], born: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Returns which rows, i4[k], are still those of queries registered at i8[k] positions."""
        state = self.state[rows] & np.uint8(STATE_MASK)
        live: npt.NDArray[np.bool_] = (state != STATE_FREE) & (self.words[rows * ROW_WORDS] == born)
        return live

    def end(self, rows: npt.NDArray[np.int32], position: int) -> None:
        """Sets the dead position of rows."""
        end_rows(rows, position, self.words, self.state)

    def check(self, rows: npt.NDArray[np.int32], horizon_ms: int) -> None:
        """Marks rows for individual checks whose lifetime ends at `horizon_ms` or before."""
        check_rows(rows, horizon_ms, self.words, self.state)

    def settle(self, rows: npt.NDArray[np.int32], position: int, horizon_ms: int) -> None:
        """Ends checks of rows that all objects from a position on can match, up to a time."""
        settle_rows(rows, position, horizon_ms, self.words, self.state)

    def split_expired(
        self, rows: npt.NDArray[np.int32], now_ms: int, horizon_ms: int
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Splits live rows into those that end by `now_ms` and those by `horizon_ms`."""
        ended = np.empty(len(rows), np.int32)
        later = np.empty(len(rows), np.int32)
        ended_count, later_count = split_expired(
            rows, now_ms, horizon_ms, self.words, self.state, ended, later
        )
        return ended[:ended_count], later[:later_count]

    def plan_remove(
        self, rows: npt.NDArray[np.int32], transform: npt.NDArray[np.float64], finest: int
    ) -> Iterator[tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32]]]:
        """Frees rows and their blocks, some rows at a time.

        Yields:
            (keys u8[k] of their postings, released terms i4[t]); valid until the next pair.
        """
        room = _PLANNED_KEYS
        keys = np.empty(room, np.uint64)
        released = np.empty(room, np.int32)
        begin = 0
        while begin < len(rows):
            key_count, released_count, done = plan_remove(
                rows,
                begin,
                self.words,
                self.boxes,
                self.state,
                self.terms_state,
                self.terms_words,
                self.shapes_state,
                self._shapes.array,
                self.shapes_values,
                transform,
                finest,
                keys,
                released,
            )
            required(key_count, "plan_remove: a row of more cells than it can have")
            yield keys[:key_count], released[:released_count]
            if done == begin:  # one row with very many postings
                room *= 2
                keys = np.empty(room, np.uint64)
                released = np.empty(room, np.int32)
            begin = done
