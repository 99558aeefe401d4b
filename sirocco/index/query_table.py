"""What a slot knows of its queries beside the matching index: names, revisions, filters.

Rows are those of the slot's `RangeIndex`; all columns are arrays over them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import orjson
from numpy.typing import NDArray

from sirocco.index.growable import GrowableArray
from sirocco.index.handle_table import HandleTable
from sirocco.kernels.columns import distinct, gather_bytes
from sirocco.model.attributes import Filter

# Compact the arena of ids when more than half of it, and at least so much, is garbage.
GARBAGE_BYTES_MIN = 1 << 16

NO_REVISION = -1


@dataclass(frozen=True, slots=True)
class NamedQueries:
    """Names of some queries: handles u8[q], ids u1[b] with i8[q + 1], subscriber rows i4[q]."""

    handles: NDArray[np.uint64]
    ids: NDArray[np.uint8]
    id_offsets: NDArray[np.int64]
    subscribers: NDArray[np.int32]


class QueryTable:
    """Live queries of one slot.

    Attributes:
        rows: handle → row of each live query.
        subscriber_names: names, in order of first appearance.
        filters: row → attribute filter, where there is one.
    """

    def __init__(self) -> None:
        self.rows = HandleTable()
        self._handles = GrowableArray(np.uint64, 64)
        self._revisions = GrowableArray(np.int64, 64)
        self._subscribers = GrowableArray(np.int32, 64)
        self.subscriber_names: list[str] = []
        self.filters: dict[int, Filter] = {}
        self._subscriber_rows: dict[str, int] = {}
        self._id_begins = GrowableArray(np.uint32, 64)
        self._id_lengths = GrowableArray(np.uint16, 64)
        self._ids = GrowableArray(np.uint8, 1024)
        self._ids_end = 0
        self._ids_dead = 0
        self._scratch = GrowableArray(np.int32, 64)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def handles(self) -> NDArray[np.uint64]:
        """u8[capacity], by row; stale after `put`."""
        return self._handles.array

    @property
    def revisions(self) -> NDArray[np.int64]:
        """i8[capacity], by row, `NO_REVISION` where a query has ended; stale after `put`."""
        return self._revisions.array

    @property
    def subscribers(self) -> NDArray[np.int32]:
        """i4[capacity], by row: place in `subscriber_names`; stale after `put`."""
        return self._subscribers.array

    @property
    def bytes_total(self) -> int:
        """Memory of the columns, bytes."""
        return self.rows.bytes_total + sum(column.bytes_total for column in self._columns())

    def put(
        self,
        rows: NDArray[np.int32],
        names: NamedQueries,
        subscribers: tuple[str, ...],
        revisions: NDArray[np.int64],
        filters: list[str] | None,
    ) -> None:
        """Enters queries at rows that the index gave; a known handle moves to its new row."""
        self._reserve(int(rows.max(initial=-1)) + 1)
        places = np.array([self._subscriber(name) for name in subscribers], np.int32)
        self.handles[rows] = names.handles
        self.revisions[rows] = revisions
        self.subscribers[rows] = places[names.subscribers] if len(places) else 0
        self._store_ids(rows, names.ids, names.id_offsets)
        self._put_filters(rows, filters)
        self.rows.put(names.handles, rows)

    def forget(self, rows: NDArray[np.int32], *, gone: bool) -> None:
        """Ends rows; `gone` tells that their handles have no newer row."""
        if gone:
            self.rows.drop(self.handles[rows])
        self.revisions[rows] = NO_REVISION
        self._ids_dead += int(self.id_lengths(rows).sum())

    def tidy(self) -> None:
        """Reclaims the room of ended ids; only while no ended row can be met any more."""
        if self._ids_dead > max(GARBAGE_BYTES_MIN, self._ids_end // 2):
            self._compact()

    def names(self, rows: NDArray[np.int32]) -> NamedQueries:
        """Gathers the names of rows."""
        begins, lengths = self._id_begins.array[rows].astype(np.int64), self.id_lengths(rows)
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        ids = np.empty(int(offsets[-1]), np.uint8)
        gather_bytes(self._ids.array, begins, lengths, offsets, ids)
        return NamedQueries(self.handles[rows], ids, offsets, self.subscribers[rows])

    def id_lengths(self, rows: NDArray[np.int32]) -> NDArray[np.int64]:
        """i8[k], bytes of the id of each row."""
        return self._id_lengths.array[rows].astype(np.int64)

    def distinct(self, rows: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The distinct rows in order of appearance, and for each row its place among them."""
        found, places = np.empty_like(rows), np.empty_like(rows)
        count = distinct(rows, self._scratch.array, found, places)
        return found[:count], places

    def live(self) -> NDArray[np.int32]:
        """i4[q], the rows of all live queries."""
        return self.rows.items()[1]

    def _put_filters(self, rows: NDArray[np.int32], filters: list[str] | None) -> None:
        # A row keeps its filter until it is given again: objects before its end still meet it.
        if self.filters:
            for row in rows.tolist():
                self.filters.pop(row, None)
        for row, text in zip(rows.tolist(), filters or [], strict=False):
            if text:
                self.filters[row] = Filter.parse(orjson.loads(text))

    def _subscriber(self, name: str) -> int:
        place = self._subscriber_rows.setdefault(name, len(self.subscriber_names))
        if place == len(self.subscriber_names):
            self.subscriber_names.append(name)
        return place

    def _columns(self) -> tuple[GrowableArray, ...]:
        rows = (self._handles, self._revisions, self._subscribers, self._scratch)
        return (*rows, self._id_begins, self._id_lengths, self._ids)

    def _reserve(self, capacity: int) -> None:
        for column in self._columns()[:-1]:
            column.reserve(capacity)

    def _store_ids(
        self, rows: NDArray[np.int32], ids: NDArray[np.uint8], offsets: NDArray[np.int64]
    ) -> None:
        end = self._ids_end + len(ids)
        self._ids.reserve(end)
        self._ids.array[self._ids_end : end] = ids
        self._id_begins.array[rows] = offsets[:-1] + self._ids_end
        self._id_lengths.array[rows] = np.diff(offsets)
        self._ids_end = end

    def _compact(self) -> None:
        live = self.live()
        names = self.names(live)
        self._id_lengths.array[:] = 0
        self._ids_end, self._ids_dead = 0, 0
        self._store_ids(live, names.ids, names.id_offsets)
