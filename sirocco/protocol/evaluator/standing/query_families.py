"""The standing queries of a slot: each family of kinds has its index and its table of names."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.kinds import KIND_KNN, KIND_RANGE, KIND_TRACKED
from sirocco.index.base.ragged import take_ragged
from sirocco.index.standing.limits import LIMITS
from sirocco.index.standing.query_table import NO_REVISION, NamedQueries, QueryTable, Subscribers

Rows = NDArray[np.int32]

# Numbers of families. Kinds that are evaluated alike share one.
RANGE, KNN, STEPS, TRACKED = range(4)

# The kind of those families that have only one.
FAMILY_KINDS = {RANGE: KIND_RANGE, KNN: KIND_KNN, TRACKED: KIND_TRACKED}

# Low bits of a row of `SlotQueries` that name the family.
FAMILY_BITS = 2


def family_of(kind: int) -> int:
    """Returns the family of a kind (`index.base.kinds`)."""
    return {KIND_RANGE: RANGE, KIND_KNN: KNN, KIND_TRACKED: TRACKED}.get(kind, STEPS)


class Names(Protocol):
    """The names that records need of queries, by row: of one table, or of all of a slot."""

    @property
    def subscriber_names(self) -> list[str]:
        """Names, in order of first appearance."""

    def subscriber_rows(self, rows: Rows) -> NDArray[np.int32]:
        """Returns i4[k], place in `subscriber_names` of each row's subscriber."""

    def handle_rows(self, rows: Rows) -> NDArray[np.uint64]:
        """Returns u8[k], handle of each row."""

    def name_bytes(self, rows: Rows) -> NDArray[np.int64]:
        """Returns i8[k], bytes of each row's names in a record: id, subscriber, definition."""

    def distinct(self, rows: Rows) -> tuple[Rows, Rows]:
        """Returns the distinct rows, and for each row its place among them."""

    def names(self, rows: Rows) -> NamedQueries:
        """Returns the names of rows."""


class Index(Protocol):
    """The common interface of all indexes of standing queries; see `RangeIndex`."""

    def remove(self, rows: Rows, position: int) -> None:
        """Ends queries: objects at `position` and later do not meet them."""

    def reclaim(self, position: int) -> int:
        """Frees the memory of removed queries; returns how many rows."""

    def expire(self, now_ms: int) -> Rows:
        """Returns rows whose lifetime has ended, each once."""


class Family:
    """An index and the names of its rows."""

    def __init__(
        self,
        index: Index,
        subscribers: Subscribers,
        garbage_bytes_min: int = LIMITS.ids_garbage_bytes_min,
    ) -> None:
        self.index = index
        self.table = QueryTable(subscribers, garbage_bytes_min)

    def end(self, rows: Rows, position: int, *, are_removed: bool) -> None:
        """Ends queries from a position on; `are_removed`: they have no newer row here."""
        if len(rows):
            self.index.remove(rows, position)
            self.table.forget(rows, are_removed=are_removed)

    def expire(self, time_ms: int, position: int) -> list[tuple[int, int]]:
        """Ends the queries whose lifetime ended before the time; returns (handle, revision)."""
        rows = self.index.expire(time_ms)
        revisions = self.table.revisions[rows]
        live, revisions = rows[revisions != NO_REVISION], revisions[revisions != NO_REVISION]
        self.end(live, position, are_removed=True)
        handles = self.table.handle_rows(live).tolist()
        return list(zip(handles, revisions.tolist(), strict=True))

    def reclaim(self, position: int) -> None:
        """Frees what no object can meet any more: all objects below the position are matched."""
        if self.index.reclaim(position) == 0:
            self.table.tidy()


class SlotQueries:
    """The tables of all families as one; a row is a family's row with the family's number."""

    def __init__(self, tables: tuple[QueryTable, ...], subscribers: Subscribers) -> None:
        self.tables = tables
        self._subscribers = subscribers

    @staticmethod
    def rows_of(family: int, rows: Rows) -> Rows:
        """Returns the rows of a family as rows of all."""
        joined: Rows = np.asarray(rows << FAMILY_BITS | family, np.int32)
        return joined

    def find(self, handles: NDArray[np.uint64]) -> tuple[list[tuple[int, Rows]], NDArray[np.int64]]:
        """Finds queries.

        Returns:
            For each family that holds any of them its number and i4[q], rows or -1; and i8[q],
            the revision of each query, `NO_REVISION` where it is not here.
        """
        revisions = np.full(len(handles), NO_REVISION, np.int64)
        found: list[tuple[int, Rows]] = []
        for family, table in enumerate(self.tables):
            if not len(table):
                continue
            rows = table.find(handles)
            is_here = rows >= 0
            if is_here.any():
                found.append((family, rows))
                revisions = np.where(is_here, table.revisions[rows], revisions)
        return found, revisions

    def forget_subscribers(self) -> bool:
        """Forgets subscribers that no row names, when many may be so; they get new numbers.

        Rows that were freed name theirs until they are used again, so no more are kept than rows.

        Returns:
            Whether the numbers are new: no record may still have to be made with the former ones.
        """
        subscribers = self._subscribers
        if not subscribers.is_full:
            return False
        used = np.zeros(len(subscribers.names), np.bool_)
        for table in self.tables:
            used[table.subscribers] = True
        numbers = subscribers.keep(used)
        for table in self.tables:
            table.renumber_subscribers(numbers)
        return True

    @property
    def subscriber_names(self) -> list[str]:
        """See `Names`."""
        return self._subscribers.names

    def subscriber_rows(self, rows: Rows) -> NDArray[np.int32]:
        """See `Names`."""
        out = np.empty(len(rows), np.int32)
        for table, places, own in self._split(rows):
            out[places] = table.subscriber_rows(own)
        return out

    def handle_rows(self, rows: Rows) -> NDArray[np.uint64]:
        """See `Names`."""
        out = np.empty(len(rows), np.uint64)
        for table, places, own in self._split(rows):
            out[places] = table.handle_rows(own)
        return out

    def name_bytes(self, rows: Rows) -> NDArray[np.int64]:
        """See `Names`."""
        out = np.empty(len(rows), np.int64)
        for table, places, own in self._split(rows):
            out[places] = table.name_bytes(own)
        return out

    def distinct(self, rows: Rows) -> tuple[Rows, Rows]:
        """See `Names`."""
        found, places = np.unique(rows, return_inverse=True)
        return found, places.astype(np.int32)

    def names(self, rows: Rows) -> NamedQueries:
        """See `Names`."""
        parts = [(places, table.names(own)) for table, places, own in self._split(rows)]
        if len(parts) == 1:
            return parts[0][1]
        order = np.argsort(np.concatenate([places for places, _ in parts]))
        named = [each for _, each in parts]
        lengths = np.concatenate([np.diff(each.id_offsets) for each in named])
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        id_offsets, places = take_ragged(offsets, order)
        specs = [spec for each in named for spec in each.specs or ("",) * len(each.handles)]
        return NamedQueries(
            np.concatenate([each.handles for each in named])[order],
            np.concatenate([each.ids for each in named])[places],
            id_offsets,
            np.concatenate([each.subscribers for each in named])[order],
            tuple(specs[row] for row in order.tolist()) if any(specs) else None,
        )

    def _split(self, rows: Rows) -> list[tuple[QueryTable, NDArray[np.intp], Rows]]:
        families = rows & np.int32((1 << FAMILY_BITS) - 1)
        own = rows >> np.int32(FAMILY_BITS)
        split = []
        for family, table in enumerate(self.tables):
            places = np.flatnonzero(families == family)
            if len(places):
                split.append((table, places, own[places]))
        return split
