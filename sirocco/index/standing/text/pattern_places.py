"""Places at which queries name phrases and beginnings: texts elsewhere are not searched for them.

Regions of queries are kept with the patterns that they name, so that the filter can be built again:
larger, and without the queries that have ended.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.query_rows import QueryRows
from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.kernels.text.pattern_places import (
    BLOCK_WORDS,
    FINEST_LEVEL,
    PLACE_GROUPS,
    PLACE_NUMBERS,
    PLACE_STATE_WORDS,
    add_places,
)
from sirocco.model.patterns import NearPatterns, PatternTable

__all__ = ["PatternPlaces", "PatternUses"]

_WORDS_MIN = 1 << 10
# Of absent groups and numbers, one in seventy is taken for present: two bits of sixteen for each.
_ENTRIES_A_WORD = 4
_RECORDS_MIN = 1_024
# The boxes of a query with more are joined to one.
_BOXES_MAX = 4

_RECORD = np.dtype(
    [
        ("group", np.uint64),
        ("number", np.uint64),
        ("born", np.int64),
        ("box", np.float32, 4),
        ("row", np.int32),
        ("is_phrase", np.bool_),
    ]
)

IsLive = Callable[[NDArray[np.int32], NDArray[np.int64]], NDArray[np.bool_]]
"""Rows, and the positions of their registrations → whether they still hold these queries."""


class PatternUses:
    """The queries of a batch that name patterns.

    Attributes:
        queries: i8[u], words: i8[u]: a query, and the word that it names; each pair once.
    """

    __slots__ = ("queries", "words")

    def __init__(self, batch: QueryRows, word_rows: NDArray[np.intp]) -> None:
        """Finds them; `word_rows` are the batch's words that are patterns."""
        is_wanted = np.zeros(len(batch.word_offsets), np.bool_)
        is_wanted[word_rows] = True
        found = []
        for offsets, rows in (
            (batch.pos_offsets, batch.pos_word_rows),
            (batch.neg_offsets, batch.neg_word_rows),
        ):
            at = np.flatnonzero(is_wanted[rows])
            conjunctions = np.searchsorted(offsets, at, side="right") - 1
            queries = np.searchsorted(batch.conj_offsets, conjunctions, side="right") - 1
            found.append(queries * len(batch.word_offsets) + rows[at])
        self.queries, self.words = np.divmod(
            sorted_distinct(np.concatenate(found)), len(batch.word_offsets)
        )


class PatternPlaces:
    """The places of the patterns of an index; for one thread at a time."""

    __slots__ = (
        "_blocks",
        "_count",
        "_extent",
        "_records",
        "_records_max",
        "_secret",
        "_state",
    )

    def __init__(self, transform: NDArray[np.float64], finest: int, table: PatternTable) -> None:
        """Creates an empty one.

        Args:
            transform: f8[4], west, south, cells of level `finest` per degree in x and in y.
            finest: number of that level.
            table: the patterns.
        """
        self._extent = transform.copy()
        self._extent[2:] *= 2.0 ** (FINEST_LEVEL - finest)
        self._secret = table.secret
        self._records = np.empty(_RECORDS_MIN, _RECORD)
        self._records_max = _RECORDS_MIN
        self._count = 0
        self._clear(_WORDS_MIN)

    def _clear(self, words: int) -> None:
        """Makes an empty filter of so many words, a power of two."""
        # Its blocks begin at lines of the processor's caches.
        whole = np.zeros(words + BLOCK_WORDS, np.uint64)
        begin = -whole.ctypes.data // whole.itemsize % BLOCK_WORDS
        self._blocks = whole[begin : begin + words]
        self._state = np.zeros(PLACE_STATE_WORDS, np.int64)

    def __len__(self) -> int:
        """Returns how many regions of patterns are known, those of ended queries among them."""
        return self._count

    @property
    def bytes_total(self) -> int:
        """Memory in bytes."""
        return self._blocks.nbytes + self._records.nbytes

    def near(self, lon: NDArray[np.float64], lat: NDArray[np.float64]) -> NearPatterns:
        """Returns what is named at some places, f8[n] each."""
        return NearPatterns(lon, lat, self._extent, self._blocks, self._state, self._secret)

    def add(
        self,
        uses: PatternUses,
        batch: QueryRows,
        boxes: NDArray[np.float32],
        patterns: tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.bool_]],
        rows: NDArray[np.int32],
        position: int,
        is_live: IsLive,
    ) -> None:
        """Adds the patterns of queries.

        Args:
            uses: of the batch.
            batch: the queries.
            boxes: f4[b, 4], their boxes as `add_places` takes them.
            patterns: numbers, groups and is_phrase of the pattern of each use.
            rows: i4[n], of the queries in the index.
            position: of their registration.
            is_live: returns which queries are left.
        """
        at, places = _boxes_of(uses.queries, batch.box_offsets, boxes)
        fresh = np.empty(len(at), _RECORD)
        fresh["number"], fresh["group"], fresh["is_phrase"] = (each[at] for each in patterns)
        fresh["born"], fresh["box"], fresh["row"] = position, places, rows[uses.queries[at]]
        if self._count + len(fresh) > self._records_max:
            known = self._records[: self._count]
            known = known[is_live(known["row"], known["born"])]
            self._records_max = max(_RECORDS_MIN, 2 * (len(known) + len(fresh)))
            self._records = np.empty(self._records_max, _RECORD)
            self._records[: len(known)] = known
            self._count = len(known)
            self._clear(len(self._blocks))
            self._enter(known)
        self._records[self._count : self._count + len(fresh)] = fresh
        self._count += len(fresh)
        self._enter(fresh)
        while self._state[[PLACE_GROUPS, PLACE_NUMBERS]].max() > (
            _ENTRIES_A_WORD * len(self._blocks) // 2
        ):
            self._clear(2 * len(self._blocks))
            self._enter(self._records[: self._count])

    def _enter(self, records: NDArray[np.void]) -> None:
        """Adds records to the filter."""
        columns = ("group", "is_phrase", "number", "box")
        add_places(
            *(np.ascontiguousarray(records[name]) for name in columns),
            self._extent, self._secret, self._blocks, self._state,
        )  # fmt: skip


def _boxes_of(
    queries: NDArray[np.int64], offsets: NDArray[np.int64], boxes: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Returns (places in `queries`, boxes) of some queries, a few of each."""
    counts = np.diff(offsets)[queries]
    is_joined = counts > _BOXES_MAX
    each = np.where(is_joined, 1, counts)
    at = np.repeat(np.arange(len(queries)), each)
    first = offsets[queries] - (np.cumsum(each) - each)
    found = boxes[first[at] + np.arange(len(at))]
    if is_joined.any():
        # East and north are negative: the least of each is the farthest out.
        joined = np.minimum.reduceat(boxes, offsets[:-1])
        found[is_joined[at]] = joined[queries[at[is_joined[at]]]]
    return at, found
