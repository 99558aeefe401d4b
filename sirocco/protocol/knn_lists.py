"""The lists of standing knn queries over all slots.

Each slot reports what enters its own list of the k nearest; the k nearest of all are among that.
What is reported is collected and merged for many queries at once, with one sort: a merge costs
about a microsecond a candidate, whatever the number of lists. Between merges the lists are what
subscribers were told last, so the change to tell is the difference of one merge.

Lists lie one behind the other in a few arrays, 40 bytes an entry: distance, object id, event key,
and the name of an object that has one. Each has room for a power of two of entries, at most k.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.index.handle_table import HandleTable
from sirocco.protocol.deliveries import bytes_of
from sirocco.protocol.effects import State
from sirocco.protocol.found import PIECE_BYTES_MAX
from sirocco.protocol.knn_changes import Candidates, Merged, changes_told, entries_of
from sirocco.protocol.list_entries import Entries, pack_names, unpack_names
from sirocco.protocol.told_lists import ToldLists, bytes_of_objects

_ROOM_MIN = 4

# A list of so many entries fits a record with all its ids, those that have left it, and as many
# objects as other records hold: 256 bytes each, twice. Of a longer one, up to 2.6 MB of ids, only
# few objects are merged at once.
LONG_LIST = 3_000
LONG_PIECE_BYTES_MAX = 256 << 10

# Entries that may be free before their number matters.
_FREE_MIN = 4_096


@dataclass(slots=True)
class KnnLists:
    """All lists of one Kafka partition's subscribers.

    Lists are named by row. The columns over rows: `keys` u8 (see `specs`), `ks` i4, `begins` i8,
    `counts` i4, `rooms` i4, 0 where the row is free.
    """

    _rows: HandleTable = field(default_factory=HandleTable)
    _lists: dict[str, NDArray[Any]] = field(
        default_factory=lambda: {
            "keys": np.zeros(16, np.uint64),
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
    _free_entries: int = 0
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

    def rows_of(self, keys: NDArray[np.uint64], ks: NDArray[np.int32]) -> NDArray[np.int32]:
        """Returns the row of each version of a query, new and empty ones where there was none."""
        rows = self._rows.get(keys)
        fresh, first = np.unique(keys[rows < 0], return_index=True)
        if not len(fresh):
            return rows
        missing = np.flatnonzero(rows < 0)[first]
        made = np.array([self._free_row() for _ in range(len(fresh))], np.int32)
        columns = self._lists
        columns["keys"][made], columns["ks"][made] = fresh, ks[missing]
        columns["counts"][made] = 0
        rooms = np.minimum(ks[missing], _ROOM_MIN).tolist()
        for row, room in zip(made.tolist(), rooms, strict=True):
            columns["begins"][row], columns["rooms"][row] = self._piece(room), room
        self._rows.put(fresh, made)
        return self._rows.get(keys)

    def drop(self, keys: NDArray[np.uint64]) -> None:
        """Forgets versions of queries, and what is collected for them."""
        rows = self._rows.get(keys)
        self._drop_rows(rows[rows >= 0])

    def _drop_rows(self, rows: NDArray[np.integer]) -> None:
        if not len(rows):
            return
        columns = self._lists
        for row in rows.tolist():
            self._free_piece(row)
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

    def _free_piece(self, row: int) -> None:
        room, begin = int(self._lists["rooms"][row]), int(self._lists["begins"][row])
        self._entries.names[begin : begin + room] = None
        self._free_pieces.setdefault(room, []).append(begin)
        self._free_entries += room

    def _piece(self, room: int) -> int:
        """Where there is room for so many entries."""
        if free := self._free_pieces.get(room):
            self._free_entries -= room
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
        for group in self._grouped(collected):
            some = self._merge(group, tell=tell)
            if some is not None:
                told.append(some)
        return told

    def _grouped(self, collected: list[Candidates]) -> list[list[Candidates]]:
        """Cuts what was collected so that a list and the objects of each part fit a record."""
        groups: list[list[Candidates]] = []
        size = 0
        coming = sum(len(each.lists) for each in collected)
        for whole in collected:
            is_long = self._may_be_long(whole, coming)
            for each in _cut_to(whole, LONG_PIECE_BYTES_MAX) if is_long else (whole,):
                # A part of a long list is merged by itself.
                added = PIECE_BYTES_MAX + 1 if is_long else bytes_of(each.found)
                if not groups or size + added > PIECE_BYTES_MAX:
                    groups.append([])
                    size = 0
                groups[-1].append(each)
                size += added
        return groups

    def _may_be_long(self, each: Candidates, coming: int) -> bool:
        """Whether the string ids of a list may leave little room in a record beside them."""
        lists = each.lists[each.lists >= 0]
        if not len(lists) or int(self._lists["ks"][lists].max()) <= LONG_LIST:
            return False
        columns = self._lists
        counts = columns["counts"][lists]
        longest = int(lists[np.argmax(counts)])
        begin, count = int(columns["begins"][longest]), int(columns["counts"][longest])
        is_named = bool(len(each.found.objects.names)) or any(
            self._entries.names[begin : begin + count]
        )
        return is_named and count + coming > LONG_LIST

    def _merge(self, group: list[Candidates], *, tell: bool) -> ToldLists | None:
        lists = np.concatenate([each.lists for each in group])
        distances_m = np.concatenate([each.distances_m for each in group])
        parts = np.repeat(np.arange(len(group)), [len(each.lists) for each in group])
        keep = np.flatnonzero(self._may_enter(lists, distances_m))
        if not len(keep):
            return None
        lists, parts = lists[keep], parts[keep]
        objects = np.concatenate([each.objects for each in group])[keep]
        fresh = entries_of(group, parts, objects, distances_m[keep])
        rows, places = np.unique(lists, return_inverse=True)
        # By key: rows are given away in another order by who restored the lists.
        order = np.argsort(self._lists["keys"][rows])
        numbers = np.empty(len(rows), np.int64)
        numbers[order] = np.arange(len(rows))
        touched = rows[order]
        merged = self._ordered(touched, numbers[places], fresh)
        if not len(merged.changed):
            return None
        counts = np.bincount(merged.owners[merged.kept], minlength=len(touched))[merged.changed]
        self._write(touched[merged.changed], counts, merged.entries.take(merged.kept))
        if not tell:
            return None
        queries = np.concatenate([each.queries for each in group])[keep]
        return changes_told(group, merged, parts, objects, queries, counts)

    def _may_enter(
        self, lists: NDArray[np.int32], distances_m: NDArray[np.float64]
    ) -> NDArray[np.bool_]:
        """Leaves out what is farther away than all of a full list: nearly everything, mostly."""
        columns = self._lists
        may_enter: NDArray[np.bool_] = lists >= 0
        counts = columns["counts"][lists]
        full = np.flatnonzero(may_enter & (counts == columns["ks"][lists]))
        last = columns["begins"][lists[full]] + counts[full] - 1
        may_enter[full] = distances_m[full] <= self._entries.distances_m[last]
        return may_enter

    def _ordered(
        self, touched: NDArray[np.int32], owners: NDArray[np.int64], fresh: Entries
    ) -> Merged:
        """Puts the lists of `touched` and the candidates, by number of their list, in order."""
        columns = self._lists
        counts = columns["counts"][touched].astype(np.int64)
        places = np.arange(counts.sum()) + np.repeat(
            columns["begins"][touched] - (np.cumsum(counts) - counts), counts
        )
        olds = len(places)
        entries = Entries.concat([self._entries.take(places), fresh])
        owners = np.concatenate([np.repeat(np.arange(len(touched)), counts), owners])
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
        return Merged(
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
            self._free_piece(row)
            room = min(int(columns["ks"][row]), 1 << (count - 1).bit_length())
            columns["begins"][row], columns["rooms"][row] = self._piece(room), room
        columns["counts"][rows] = counts
        places = np.arange(len(entries)) + np.repeat(
            columns["begins"][rows] - (np.cumsum(counts) - counts), counts
        )
        self._entries.put(places, entries)
        if self._free_entries > max(_FREE_MIN, self._entries_end // 4):
            self._close_up()

    def _close_up(self) -> None:
        """Lays the pieces one behind the other: many lists that grow leave small ones free."""
        columns = self._lists
        rows = np.flatnonzero(columns["rooms"][: self._rows_end])
        rooms = columns["rooms"][rows].astype(np.int64)
        begins = np.cumsum(rooms) - rooms
        self._entries_end = int(rooms.sum())
        within = np.arange(self._entries_end) - np.repeat(begins, rooms)
        closed = Entries.empty(self._entries_end * 9 // 8)
        places = np.repeat(columns["begins"][rows], rooms) + within
        closed.put(np.arange(self._entries_end), self._entries.take(places))
        columns["begins"][rows] = begins
        self._entries, self._free_pieces, self._free_entries = closed, {}, 0

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
        rows = self.rows_of(state["knn.keys"], state["knn.ks"])
        names = unpack_names(state["knn.names"], state["knn.name_offsets"])
        entries = Entries(
            state["knn.distances_m"],
            state["knn.ids"],
            state["knn.sessions"],
            state["knn.numbers"],
            names,
        )
        self._write(rows, np.diff(state["knn.offsets"]), entries)


def _cut_to(each: Candidates, bytes_max: int) -> Iterator[Candidates]:
    """Yields candidates in parts whose objects take so many bytes together, or of one object."""
    sizes = bytes_of_objects(each.found.objects)[each.objects]
    ends = np.cumsum(sizes)
    begin = 0
    while begin < len(sizes):
        before = int(ends[begin - 1]) if begin else 0
        end = int(np.searchsorted(ends, before + bytes_max, side="right"))
        end = max(begin + 1, end)
        yield each.slice(begin, end)
        begin = end
