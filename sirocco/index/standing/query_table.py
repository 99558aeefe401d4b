"""Data of a slot's queries outside the matching index: names, revisions, filters.

Rows are those of the slot's `RangeIndex`; all columns are arrays over them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.growable import GrowableArray
from sirocco.index.base.row_table import RowTable
from sirocco.index.standing.limits import LIMITS
from sirocco.kernels.base.columns import distinct, gather_bytes
from sirocco.model.attributes import Filter
from sirocco.model.filter_texts import filter_of

NO_REVISION = -1


@dataclass(frozen=True, slots=True)
class NamedQueries:
    """Names of some queries.

    Attributes:
        handles: u8[q].
        ids: u1[b], UTF-8, with `id_offsets` i8[q + 1].
        subscribers: i4[q], rows of the subscribers' names.
        specs: canonical JSON of those that are not plain range queries; None if all are plain.
    """

    handles: NDArray[np.uint64]
    ids: NDArray[np.uint8]
    id_offsets: NDArray[np.int64]
    subscribers: NDArray[np.int32]
    specs: tuple[str, ...] | None = None


# So many subscribers may be known before those without a query are looked for.
_SUBSCRIBERS_MIN = 1_024


class Subscribers:
    """Subscribers, numbered in order of first appearance; shared by the tables of a slot."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._rows: dict[str, int] = {}
        self._lengths = GrowableArray(np.uint16, 16)
        self._names_max = _SUBSCRIBERS_MIN

    @property
    def is_full(self) -> bool:
        """Whether those without a query are to be looked for."""
        return len(self.names) > self._names_max

    @property
    def lengths(self) -> NDArray[np.uint16]:
        """u2[subscribers], bytes of each name; stale after `row`."""
        return self._lengths.array

    def row(self, name: str) -> int:
        """Returns the number of a subscriber, adding a new one."""
        row = self._rows.setdefault(name, len(self.names))
        if row == len(self.names):
            self.names.append(name)
            self._lengths.reserve(row + 1)
            self._lengths.array[row] = min(len(name.encode()), 0xFFFF)
        return row

    def keep(self, used: NDArray[np.bool_]) -> NDArray[np.int32]:
        """Forgets all others; returns i4[subscribers], the new number of each, 0 of the others.

        Args:
            used: bool[subscribers].
        """
        numbers = np.where(used, np.cumsum(used) - 1, 0).astype(np.int32)
        kept = [self.names[row] for row in np.flatnonzero(used).tolist()]
        self.names, self._rows = [], {}
        for name in kept:
            self.row(name)
        self._names_max = max(_SUBSCRIBERS_MIN, 2 * len(kept))
        return numbers


class QueryTable:
    """Live queries of one slot.

    Attributes:
        filters: row → attribute filter, if any.
        specs: row → canonical JSON of queries that are not plain range queries.
    """

    def __init__(
        self,
        subscribers: Subscribers | None = None,
        garbage_bytes_min: int = LIMITS.ids_garbage_bytes_min,
    ) -> None:
        self._garbage_bytes_min = garbage_bytes_min
        self._rows = RowTable()
        self._handles = GrowableArray(np.uint64, 64)
        self._revisions = GrowableArray(np.int64, 64)
        self._subscribers = GrowableArray(np.int32, 64)
        self._known_subscribers = subscribers or Subscribers()
        self.filters: dict[int, Filter] = {}
        self.specs: dict[int, str] = {}
        self._id_begins = GrowableArray(np.uint32, 64)
        self._id_lengths = GrowableArray(np.uint16, 64)
        self._spec_lengths = GrowableArray(np.uint32, 64)
        self._ids = GrowableArray(np.uint8, 1024)
        self._ids_end = 0
        self._ids_dead = 0
        self._scratch = GrowableArray(np.int32, 64)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def handles(self) -> NDArray[np.uint64]:
        """u8[capacity], by row; stale after `put`."""
        return self._handles.array

    @property
    def revisions(self) -> NDArray[np.int64]:
        """i8[capacity], by row, `NO_REVISION` if a query has ended; stale after `put`."""
        return self._revisions.array

    @property
    def subscribers(self) -> NDArray[np.int32]:
        """i4[capacity], by row: place in `subscriber_names`; stale after `put`."""
        return self._subscribers.array

    @property
    def subscriber_names(self) -> list[str]:
        """Names, in order of first appearance."""
        return self._known_subscribers.names

    def find(self, handles: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Returns i4[q], the row of each live query, -1 for none."""
        return self._rows.get(self.handles, handles)

    def subscriber_rows(self, rows: NDArray[np.int32]) -> NDArray[np.int32]:
        """Returns i4[k], place in `subscriber_names` of each row's subscriber."""
        return self.subscribers[rows]

    def handle_rows(self, rows: NDArray[np.int32]) -> NDArray[np.uint64]:
        """Returns u8[k], handle of each row."""
        return self.handles[rows]

    @property
    def bytes_total(self) -> int:
        """Memory of the columns, bytes."""
        return self._rows.bytes_total + sum(column.bytes_total for column in self._columns())

    def put(
        self,
        rows: NDArray[np.int32],
        names: NamedQueries,
        subscribers: tuple[str, ...],
        revisions: NDArray[np.int64],
        filters: list[str] | None,
    ) -> None:
        """Adds queries at rows of the index; a known handle moves to its new row."""
        self._reserve(int(rows.max(initial=-1)) + 1)
        places = np.array([self._known_subscribers.row(name) for name in subscribers], np.int32)
        self.handles[rows] = names.handles
        self.revisions[rows] = revisions
        self.subscribers[rows] = places[names.subscribers] if len(places) else 0
        self._store_ids(rows, names.ids, names.id_offsets)
        self._put_filters(rows, filters)
        self._put_specs(rows, names.specs)
        self._rows.put(self.handles, rows)

    def forget(self, rows: NDArray[np.int32], *, are_removed: bool) -> None:
        """Ends rows; `are_removed` means that their handles have no newer row."""
        if are_removed:
            self._rows.drop(self.handles, self.handles[rows])
        self.revisions[rows] = NO_REVISION
        self._ids_dead += int(self.id_lengths(rows).sum())

    def tidy(self) -> None:
        """Reclaims the memory of ended ids; only while no ended row can match any more."""
        if self._ids_dead > self._garbage_bytes_min and self._ids_dead > self._ids_end // 2:
            self._compact()

    def renumber_subscribers(self, numbers: NDArray[np.int32]) -> None:
        """Takes the new numbers of subscribers, i4[subscribers]."""
        self.subscribers[:] = numbers[self.subscribers]

    def names(self, rows: NDArray[np.int32]) -> NamedQueries:
        """Returns the names of rows."""
        begins, lengths = self._id_begins.array[rows].astype(np.int64), self.id_lengths(rows)
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        ids = np.empty(int(offsets[-1]), np.uint8)
        gather_bytes(self._ids.array, begins, lengths, offsets, ids)
        # A row keeps its spec, like its filter, until it is reused.
        specs = None
        if self.specs:
            found = tuple(self.specs.get(row, "") for row in rows.tolist())
            specs = found if any(found) else None
        return NamedQueries(self.handles[rows], ids, offsets, self.subscribers[rows], specs)

    def id_lengths(self, rows: NDArray[np.int32]) -> NDArray[np.int64]:
        """Returns i8[k], bytes of the id of each row."""
        return self._id_lengths.array[rows].astype(np.int64)

    def name_bytes(self, rows: NDArray[np.int32]) -> NDArray[np.int64]:
        """Returns i8[k], bytes of all names of each row in a record: id, subscriber, definition."""
        lengths = self.id_lengths(rows)
        lengths += self._known_subscribers.lengths[self.subscribers[rows]]
        if self.specs:
            lengths += self._spec_lengths.array[rows]
        return lengths

    def distinct(self, rows: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Returns the distinct rows in order of appearance, and each row's place among them."""
        found, places = np.empty_like(rows), np.empty_like(rows)
        count = distinct(rows, self._scratch.array, found, places)
        return found[:count], places

    def live(self) -> NDArray[np.int32]:
        """Returns i4[q], the rows of all live queries."""
        return self._rows.rows()

    def _put_specs(self, rows: NDArray[np.int32], specs: tuple[str, ...] | None) -> None:
        # As filters; of range queries few have a spec.
        if self.specs:
            for row in rows.tolist():
                self.specs.pop(row, None)
            self._spec_lengths.array[rows] = 0
        for row, spec in zip(rows.tolist(), specs or (), strict=False):
            if spec:
                self.specs[row] = spec
                self._spec_lengths.array[row] = len(spec) if spec.isascii() else len(spec.encode())

    def _put_filters(self, rows: NDArray[np.int32], filters: list[str] | None) -> None:
        # A row keeps its filter until it is reused: objects before its end still match it.
        if self.filters:
            for row in rows.tolist():
                self.filters.pop(row, None)
        for row, text in zip(rows.tolist(), filters or [], strict=False):
            if text:
                self.filters[row] = filter_of(text)

    def _columns(self) -> tuple[GrowableArray, ...]:
        rows = (self._handles, self._revisions, self._subscribers, self._scratch)
        return (*rows, self._id_begins, self._id_lengths, self._spec_lengths, self._ids)

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
