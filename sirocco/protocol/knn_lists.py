"""The lists of standing knn queries over all slots.

Each slot reports what enters its own list of the k nearest; the k nearest of all are among that.
What is reported is collected and merged for many queries at once, with one sort: a merge costs
about a microsecond a candidate, whatever the number of lists. Between merges the lists are what
subscribers were told last, so the change to tell is the difference of one merge.

Lists lie one behind the other in a few arrays, 40 bytes an entry: distance, object id, event key,
and the name of an object that has one. Each has room for a power of two of entries, at most k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.index.handle_table import HandleTable
from sirocco.index.ragged import take_ragged
from sirocco.model.objects import concat, pack_bytes
from sirocco.protocol.deliveries import bytes_of
from sirocco.protocol.effects import State
from sirocco.protocol.found import PIECE_BYTES_MAX
from sirocco.protocol.messages import NO_ROW, EventColumns, Found, ListColumns, QueryNames
from sirocco.protocol.positions import NO_TIME_MS
from sirocco.protocol.told_lists import (
    NAME_BYTES_MAX,
    ToldLists,
    joined_names,
    take_names,
)

_ROOM_MIN = 4


@dataclass(slots=True)
class Candidates:
    """Objects of one record that entered lists of slots; c rows.

    Attributes:
        found: the record.
        lists: i4[c], row of each query's list; -1 where it has ended since.
        objects: u4[c], rows of the record's objects.
        queries: u4[c], rows of its queries.
        distances_m: f8[c]
    """

    found: Found
    lists: NDArray[np.int32]
    objects: NDArray[np.uint32]
    queries: NDArray[np.uint32]
    distances_m: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Entries:
    """Objects with what orders them; e rows.

    Attributes:
        distances_m: f8[e]
        ids, sessions, numbers: u8[e]
        names: object[e], UTF-8 of string ids, None for numbers.
    """

    distances_m: NDArray[np.float64]
    ids: NDArray[np.uint64]
    sessions: NDArray[np.uint64]
    numbers: NDArray[np.uint64]
    names: NDArray[np.object_]

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: NDArray[np.integer] | NDArray[np.bool_]) -> Entries:
        """Returns some of them, in the given order."""
        return Entries(
            self.distances_m[rows],
            self.ids[rows],
            self.sessions[rows],
            self.numbers[rows],
            self.names[rows],
        )

    def put(self, places: NDArray[np.integer], entries: Entries) -> None:
        """Overwrites rows."""
        self.distances_m[places] = entries.distances_m
        self.ids[places] = entries.ids
        self.sessions[places] = entries.sessions
        self.numbers[places] = entries.numbers
        self.names[places] = entries.names

    def resized(self, length: int) -> Entries:
        """Returns a longer copy."""
        grown = Entries.empty(length)
        grown.put(np.arange(len(self)), self)
        return grown

    @classmethod
    def empty(cls, length: int) -> Entries:
        """So many rows, for the time being of nothing."""
        return cls(
            np.zeros(length),
            np.zeros(length, np.uint64),
            np.zeros(length, np.uint64),
            np.zeros(length, np.uint64),
            np.full(length, None, np.object_),
        )

    @classmethod
    def concat(cls, parts: Sequence[Entries]) -> Entries:
        """Joins them, one part behind the other."""
        return cls(
            np.concatenate([part.distances_m for part in parts]),
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.sessions for part in parts]),
            np.concatenate([part.numbers for part in parts]),
            np.concatenate([part.names for part in parts]),
        )


@dataclass(frozen=True, slots=True)
class _Merged:
    """One merge: old entries of the lists concerned and the candidates, and what became of them.

    Attributes:
        entries: old ones first, then candidates.
        olds: how many are old.
        owners: i8[e], number of each entry's list among those concerned.
        kept: i8, rows of what the changed lists hold, list by list and in order.
        removed: i8, rows of old entries that have left, likewise.
        changed: i8[l], numbers of the changed lists, ascending.
    """

    entries: Entries
    olds: int
    owners: NDArray[np.int64]
    kept: NDArray[np.int64]
    removed: NDArray[np.int64]
    changed: NDArray[np.int64]


@dataclass(slots=True)
class KnnLists:
    """All lists of one Kafka partition's subscribers.

    Lists are named by row. The columns over rows: `keys` u8 (see `specs`), `handles` u8, `ks` i4,
    `begins` i8, `counts` i4, `rooms` i4, 0 where the row is free.
    """

    _rows: HandleTable = field(default_factory=HandleTable)
    _lists: dict[str, NDArray[Any]] = field(
        default_factory=lambda: {
            "keys": np.zeros(16, np.uint64),
            "handles": np.zeros(16, np.uint64),
            "ks": np.zeros(16, np.int32),
            "begins": np.zeros(16, np.int64),
            "counts": np.zeros(16, np.int32),
            "rooms": np.zeros(16, np.int32),
        }
    )
    _rows_end: int = 0
    _free_rows: list[int] = field(default_factory=list)
    _entries: Entries = field(default_factory=lambda: Entries.empty(64))
    _entries_end: int = 0
    # Room → where pieces of that room are free.
    _free_pieces: dict[int, list[int]] = field(default_factory=dict)
    _candidates: list[Candidates] = field(default_factory=list)

    def __len__(self) -> int:
        """How many lists."""
        return len(self._rows)

    @property
    def has_candidates(self) -> bool:
        """Whether anything is collected."""
        return bool(self._candidates)

    @property
    def bytes_total(self) -> int:
        """Memory beside names, bytes."""
        columns = (getattr(self._entries, name) for name in self._entries.__slots__)
        lists = sum(column.nbytes for column in self._lists.values())
        entries = sum(column.nbytes for column in columns)
        return int(lists + entries + self._rows.bytes_total)

    # --- which lists there are

    def rows_of(
        self, keys: NDArray[np.uint64], handles: NDArray[np.uint64], ks: NDArray[np.int32]
    ) -> NDArray[np.int32]:
        """Returns the row of each version of a query, new and empty ones where there was none."""
        rows = self._rows.get(keys)
        fresh, first = np.unique(keys[rows < 0], return_index=True)
        if not len(fresh):
            return rows
        missing = np.flatnonzero(rows < 0)[first]
        made = np.array([self._free_row() for _ in range(len(fresh))], np.int32)
        columns = self._lists
        columns["keys"][made], columns["handles"][made] = fresh, handles[missing]
        columns["ks"][made], columns["counts"][made] = ks[missing], 0
        for row, room in zip(made.tolist(), self._first_rooms(ks[missing]), strict=True):
            columns["begins"][row], columns["rooms"][row] = self._piece(room), room
        self._rows.put(fresh, made)
        return self._rows.get(keys)

    def drop(self, keys: NDArray[np.uint64]) -> None:
        """Forgets versions of queries, and what is collected for them."""
        rows = self._rows.get(keys)
        self._drop_rows(rows[rows >= 0])

    def drop_handles(self, handles: NDArray[np.uint64]) -> None:
        """Forgets queries, whatever versions of them there are."""
        columns = self._lists
        is_gone = np.isin(columns["handles"][: self._rows_end], handles)
        is_gone &= columns["rooms"][: self._rows_end] > 0
        self._drop_rows(np.flatnonzero(is_gone))

    def move(self, key: int, new_key: int) -> None:
        """Lets a list go by another key from here on."""
        old, new = np.array([key], np.uint64), np.array([new_key], np.uint64)
        row = self._rows.get(old)
        if row[0] >= 0:
            self._rows.drop(old)
            self._rows.put(new, row)
            self._lists["keys"][row] = new

    def _drop_rows(self, rows: NDArray[np.integer]) -> None:
        if not len(rows):
            return
        columns = self._lists
        for row in rows.tolist():
            room, begin = int(columns["rooms"][row]), int(columns["begins"][row])
            self._entries.names[begin : begin + room] = None
            self._free_pieces.setdefault(room, []).append(begin)
        self._rows.drop(columns["keys"][rows])
        columns["rooms"][rows] = 0
        self._free_rows += rows.tolist()
        for each in self._candidates:
            each.lists[np.isin(each.lists, rows)] = -1

    def _free_row(self) -> int:
        if self._free_rows:
            return self._free_rows.pop()
        row = self._rows_end
        if row == len(self._lists["keys"]):
            for name, column in self._lists.items():
                grown = np.zeros(max(row + 1, row * 5 // 4), column.dtype)
                grown[:row] = column
                self._lists[name] = grown
        self._rows_end += 1
        return row

    @staticmethod
    def _first_rooms(ks: NDArray[np.int32]) -> list[int]:
        rooms: list[int] = np.minimum(ks, _ROOM_MIN).tolist()
        return rooms

    def _piece(self, room: int) -> int:
        """Where there is room for so many entries."""
        if free := self._free_pieces.get(room):
            return free.pop()
        begin = self._entries_end
        if begin + room > len(self._entries):
            self._entries = self._entries.resized(max(begin + room, begin * 5 // 4))
        self._entries_end += room
        return begin

    # --- candidates

    def add(self, candidates: Candidates) -> None:
        """Collects candidates; the lists change with the next merge."""
        self._candidates.append(candidates)

    def flush(self, *, tell: bool = True) -> list[ToldLists]:
        """Merges what was collected.

        Returns:
            The lists that changed, as they are now; nothing when it is not to be told. More than
            one list of a query only when the new objects do not fit a record.
        """
        collected, self._candidates = self._candidates, []
        told = []
        for group in _grouped(collected):
            some = self._merge(group, tell=tell)
            if some is not None:
                told.append(some)
        return told

    def _merge(self, group: list[Candidates], *, tell: bool) -> ToldLists | None:
        lists = np.concatenate([each.lists for each in group])
        distances_m = np.concatenate([each.distances_m for each in group])
        parts = np.repeat(np.arange(len(group)), [len(each.lists) for each in group])
        keep = np.flatnonzero(self._may_enter(lists, distances_m))
        if not len(keep):
            return None
        lists, parts = lists[keep], parts[keep]
        objects = np.concatenate([each.objects for each in group])[keep]
        fresh = _entries_of(group, parts, objects, distances_m[keep])
        touched = np.unique(lists)
        merged = self._ordered(touched, lists, fresh)
        if not len(merged.changed):
            return None
        counts = np.bincount(merged.owners[merged.kept], minlength=len(touched))[merged.changed]
        self._write(touched[merged.changed], counts, merged.entries.take(merged.kept))
        if not tell:
            return None
        queries = np.concatenate([each.queries for each in group])[keep]
        return _told(group, merged, parts, objects, queries, counts)

    def _may_enter(
        self, lists: NDArray[np.int32], distances_m: NDArray[np.float64]
    ) -> NDArray[np.bool_]:
        """Leaves out what is farther away than all of a full list: nearly everything, mostly."""
        columns = self._lists
        counts = columns["counts"][lists]
        # Of an empty list the place is nonsense, but such a list is not full.
        last = self._entries.distances_m[columns["begins"][lists] + counts - 1]
        is_full = counts == columns["ks"][lists]
        passes: NDArray[np.bool_] = (lists >= 0) & ~(is_full & (distances_m > last))
        return passes

    def _ordered(
        self, touched: NDArray[np.int32], lists: NDArray[np.int32], fresh: Entries
    ) -> _Merged:
        columns = self._lists
        counts = columns["counts"][touched].astype(np.int64)
        places = np.arange(counts.sum()) + np.repeat(
            columns["begins"][touched] - (np.cumsum(counts) - counts), counts
        )
        olds = len(places)
        entries = Entries.concat([self._entries.take(places), fresh])
        owners = np.concatenate(
            [np.repeat(np.arange(len(touched)), counts), np.searchsorted(touched, lists)]
        )
        keys = (entries.numbers, entries.sessions, entries.ids, entries.distances_m, owners)
        order = np.lexsort(keys)
        # Of equal ones the old one, which the sort leaves in front.
        is_repeat = np.zeros(len(order), np.bool_)
        is_repeat[1:] = np.logical_and.reduce([key[order[1:]] == key[order[:-1]] for key in keys])
        order = order[~is_repeat]
        sorted_owners = owners[order]
        starts = np.searchsorted(sorted_owners, np.arange(len(touched)))
        ranks = np.arange(len(order)) - starts[sorted_owners]
        is_kept = ranks < columns["ks"][touched][sorted_owners]
        is_changed = np.zeros(len(touched), np.bool_)
        is_changed[sorted_owners[is_kept & (order >= olds)]] = True
        return _Merged(
            entries,
            olds,
            owners,
            order[is_kept & is_changed[sorted_owners]],
            order[~is_kept & (order < olds)],
            np.flatnonzero(is_changed),
        )

    def _write(self, rows: NDArray[np.int32], counts: NDArray[np.int64], entries: Entries) -> None:
        columns = self._lists
        for i in np.flatnonzero(counts > columns["rooms"][rows]).tolist():
            row, count = int(rows[i]), int(counts[i])
            room, begin = int(columns["rooms"][row]), int(columns["begins"][row])
            self._entries.names[begin : begin + room] = None
            self._free_pieces.setdefault(room, []).append(begin)
            room = min(int(columns["ks"][row]), 1 << (count - 1).bit_length())
            columns["begins"][row], columns["rooms"][row] = self._piece(room), room
        columns["counts"][rows] = counts
        places = np.arange(len(entries)) + np.repeat(
            columns["begins"][rows] - (np.cumsum(counts) - counts), counts
        )
        self._entries.put(places, entries)

    # --- as a checkpoint

    def state(self) -> State:
        """The lists as columns; what is collected must have been merged."""
        assert not self._candidates
        columns = self._lists
        rows = np.flatnonzero(columns["rooms"][: self._rows_end])
        counts = columns["counts"][rows].astype(np.int64)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        places = np.arange(offsets[-1]) + np.repeat(columns["begins"][rows] - offsets[:-1], counts)
        entries = self._entries.take(places)
        names, name_offsets = pack_names(entries.names)
        return {
            "knn.keys": columns["keys"][rows],
            "knn.handles": columns["handles"][rows],
            "knn.ks": columns["ks"][rows],
            "knn.offsets": offsets,
            "knn.distances_m": entries.distances_m,
            "knn.ids": entries.ids,
            "knn.sessions": entries.sessions,
            "knn.numbers": entries.numbers,
            "knn.names": names,
            "knn.name_offsets": name_offsets,
        }

    def restore(self, state: State) -> None:
        """Takes the lists of a checkpoint, where there were none before."""
        if not len(state["knn.keys"]):
            return
        rows = self.rows_of(state["knn.keys"], state["knn.handles"], state["knn.ks"])
        names = unpack_names(state["knn.names"], state["knn.name_offsets"])
        entries = Entries(
            state["knn.distances_m"],
            state["knn.ids"],
            state["knn.sessions"],
            state["knn.numbers"],
            names,
        )
        self._write(rows, np.diff(state["knn.offsets"]), entries)


def _grouped(collected: list[Candidates]) -> list[list[Candidates]]:
    """Cuts what was collected so that the objects of each part fit a record."""
    groups: list[list[Candidates]] = []
    size = 0
    for each in collected:
        added = bytes_of(each.found)
        if not groups or size + added > PIECE_BYTES_MAX:
            groups.append([])
            size = 0
        groups[-1].append(each)
        size += added
    return groups


def _entries_of(
    group: list[Candidates],
    parts: NDArray[np.int64],
    objects: NDArray[np.uint32],
    distances_m: NDArray[np.float64],
) -> Entries:
    """The candidates as entries; `parts` ascends."""
    bounds = np.searchsorted(parts, np.arange(len(group) + 1)).tolist()
    ids, sessions, numbers, names = [], [], [], []
    for i, each in enumerate(group):
        rows = objects[bounds[i] : bounds[i + 1]]
        found = each.found
        ids.append(found.objects.ids[rows])
        sessions.append(found.events.sessions[rows])
        numbers.append(found.events.numbers[rows])
        names.append(names_of(found.objects.names, found.objects.name_offsets, rows))
    return Entries(
        distances_m,
        np.concatenate(ids),
        np.concatenate(sessions),
        np.concatenate(numbers),
        np.concatenate(names),
    )


def names_of(
    names: NDArray[np.uint8], offsets: NDArray[np.int64], rows: NDArray[np.integer]
) -> NDArray[np.object_]:
    """object[r], the string ids of some objects as bytes, None where an object has a number."""
    taken = np.full(len(rows), None, np.object_)
    if len(names):
        data, bounds = names.tobytes(), offsets.tolist()
        for i, row in enumerate(rows.tolist()):
            taken[i] = data[bounds[row] : bounds[row + 1]] or None
    return taken


def pack_names(names: NDArray[np.object_]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The names as a column and its offsets."""
    named = names.tolist()
    if not any(named):
        return np.empty(0, np.uint8), np.zeros(len(named) + 1, np.int64)
    return pack_bytes([name or b"" for name in named])


def unpack_names(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.object_]:
    """The inverse of `pack_names`."""
    return names_of(data, offsets, np.arange(len(offsets) - 1))


def _told(
    group: list[Candidates],
    merged: _Merged,
    parts: NDArray[np.int64],
    objects: NDArray[np.uint32],
    queries: NDArray[np.uint32],
    counts: NDArray[np.int64],
) -> ToldLists:
    kept = merged.entries.take(merged.kept)
    removed = merged.entries.take(merged.removed)
    # Of each candidate that stays: its place among the candidates.
    places = merged.kept - merged.olds
    is_new = places >= 0
    new = places[is_new]
    object_rows = np.full(len(places), NO_ROW, np.uint32)
    new_objects, new_events, object_rows[is_new] = _objects(group, parts[new], objects[new])
    _, first = np.unique(merged.owners[merged.kept[is_new]], return_index=True)
    query_parts, query_rows = parts[new[first]], queries[new[first]]
    names, by_list = _queries(group, query_parts, query_rows)
    kept_names, kept_offsets = _bounded(pack_names(kept.names), counts)
    removals = np.bincount(
        np.searchsorted(merged.changed, merged.owners[merged.removed]),
        minlength=len(merged.changed),
    )
    removed_names, removed_offsets = _bounded(pack_names(removed.names), removals)
    return ToldLists(
        new_objects,
        new_events,
        names,
        ListColumns(
            by_list,
            np.full(len(counts), NO_TIME_MS, np.int64),
            np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]),
            kept.distances_m,
            kept_names,
            kept_offsets,
            kept.ids,
            kept.sessions,
            kept.numbers,
            object_rows,
            np.concatenate([np.zeros(1, np.int64), np.cumsum(removals)]),
            removed.ids,
            removed_names,
            removed_offsets,
        ),
    )


def _objects(
    group: list[Candidates], parts: NDArray[np.int64], rows: NDArray[np.uint32]
) -> tuple[Any, EventColumns, NDArray[np.uint32]]:
    """The objects of some candidates, each once, and where those of each candidate stand."""
    ends = np.cumsum([len(each.found.objects) for each in group])
    begins = ends - [len(each.found.objects) for each in group]
    distinct, places = np.unique(begins[parts] + rows, return_inverse=True)
    bounds = np.searchsorted(distinct, [0, *ends]).tolist()
    taken = [
        (each.found, distinct[bounds[i] : bounds[i + 1]] - begins[i])
        for i, each in enumerate(group)
        if bounds[i] < bounds[i + 1]
    ]
    return (
        concat([found.objects.take(some) for found, some in taken]),
        EventColumns.concat([found.events.take(some) for found, some in taken]),
        places.astype(np.uint32),
    )


def _queries(
    group: list[Candidates], parts: NDArray[np.int64], rows: NDArray[np.uint32]
) -> tuple[QueryNames, NDArray[np.uint32]]:
    """The queries of lists, without their texts, and where each list's stands."""
    order = np.argsort(parts, kind="stable")
    bounds = np.searchsorted(parts[order], np.arange(len(group) + 1)).tolist()
    taken = [
        take_names(_bare(each.found.queries), rows[order[bounds[i] : bounds[i + 1]]])
        for i, each in enumerate(group)
        if bounds[i] < bounds[i + 1]
    ]
    places = np.empty(len(order), np.uint32)
    places[order] = np.arange(len(order))
    return joined_names(taken), places


def _bare(names: QueryNames) -> QueryNames:
    # A list without a time is one of a knn query: nobody needs its text to know it.
    return QueryNames(
        names.handles, names.ids, names.id_offsets, names.subscriber_rows, names.subscribers
    )


def _bounded(
    packed: tuple[NDArray[np.uint8], NDArray[np.int64]], counts: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Leaves out the names of a list beyond what one may have."""
    names, offsets = packed
    if len(names) <= NAME_BYTES_MAX:
        return packed
    ends = np.cumsum(counts)
    begins = np.repeat(offsets[ends - counts], counts)
    lengths = np.where(offsets[1:] - begins <= NAME_BYTES_MAX, np.diff(offsets), 0)
    kept = np.zeros(len(offsets), np.int64)
    np.cumsum(lengths, out=kept[1:])
    _, places = take_ragged(offsets, np.flatnonzero(lengths))
    return names[places], kept
