"""The lists of standing knn queries over all slots.

Each slot reports what enters its own list of the k nearest; the k nearest of all slots are among
these. Reports are collected and merged for many queries at once, with one sort. A merge costs about
a microsecond a candidate, whatever the number of lists. Between merges the lists are what
subscribers received last, so one merge yields the change to send.

A version of a query that continues another one begins without objects, but with the list that was
sent for the other: its first change leads from that list. Until then its list is *former*.
Candidates that were collected for the other version are sent first. So the list depends on the
records alone, not on when they were merged.

Lists are stored one after the other in a few arrays, 40 bytes an entry: distance, object id, event
key, and the name of an object that has one. Each has room for a power of two of entries, at most k.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.handle_table import HandleTable
from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.protocol.contract.effects import State
from sirocco.protocol.merger.delivery_records import bytes_of
from sirocco.protocol.merger.knn_changes import Candidates, Merged, changed_lists, entries_of
from sirocco.protocol.merger.limits import LIMITS, MergerLimits
from sirocco.protocol.merger.list_batch import ListBatch, bytes_of_objects
from sirocco.protocol.merger.list_entries import Entries, pack_names, unpack_names
from sirocco.protocol.merger.state_pieces import Piece, weight_of_rows

_ROOM_MIN = 4

# A list of so many entries fits a record with all its ids, the removed ids, and as many objects as
# other records hold: 256 bytes each, twice. A longer one has up to 2.6 MB of ids, so only few
# objects are merged at once.
LONG_LIST = 3_000
LONG_PIECE_BYTES_MAX = 256 << 10

# Entries of a checkpoint that take as long as one row of its other columns, some 3 µs, and what a
# list takes beside its own.
_ENTRIES_A_ROW = 16
_LIST_ENTRIES = 2


@dataclass(slots=True, kw_only=True)
class KnnLists:
    """All lists of one Kafka partition's subscribers.

    Lists are named by row. The columns over rows: `keys` u8 (see `query_specs`), `ks` i4, `begins`
    i8, `counts` i4, `rooms` i4, 0 where the row is free; `queries` u8, `revisions` i8, `is_former`,
    and whether there `has_candidates`.

    Attributes:
        limits: of the merger.
        bytes_waiting: about how many bytes the records of collected candidates take.
        entries_waiting: how many entries a merge of these sorts.
    """

    limits: MergerLimits = LIMITS
    bytes_waiting: int = 0
    entries_waiting: int = 0
    _rows: HandleTable = field(default_factory=HandleTable)
    # Query → row of its newest version.
    _newest: HandleTable = field(default_factory=HandleTable)
    _lists: dict[str, NDArray[Any]] = field(
        default_factory=lambda: {
            "keys": np.zeros(16, np.uint64),
            "ks": np.zeros(16, np.int32),
            "begins": np.zeros(16, np.int64),
            "counts": np.zeros(16, np.int32),
            "rooms": np.zeros(16, np.int32),
            "queries": np.zeros(16, np.uint64),
            "revisions": np.zeros(16, np.int64),
            "is_former": np.zeros(16, np.bool_),
            "has_candidates": np.zeros(16, np.bool_),
        }
    )
    _rows_end: int = 0
    _free_rows: list[int] = field(default_factory=list)
    # Free as well, once the collected candidates are merged: some may be for these rows.
    _dropped_rows: list[int] = field(default_factory=list)
    _entries: Entries = field(default_factory=lambda: Entries.empty(64))
    _entries_end: int = 0
    # Room → begins of free pieces of that room.
    _free_pieces: dict[int, list[int]] = field(default_factory=dict)
    _free_entries: int = 0
    _candidates: list[Candidates] = field(default_factory=list)
    # A merge under way, which nothing may come between.
    _merging: Iterator[ListBatch | None] | None = None
    # Lists merged before the caller asked for them.
    _outgoing: list[ListBatch] = field(default_factory=list)

    def __len__(self) -> int:
        """Returns the number of lists."""
        return len(self._rows)

    @property
    def has_candidates(self) -> bool:
        """Whether candidates are collected, or merged lists wait to be sent."""
        return bool(self._candidates or self._outgoing) or self._merging is not None

    @property
    def is_long_merge(self) -> bool:
        """Whether merging what is collected takes several turns, or is under way."""
        most = 4 * self.limits.merged_entries_max
        return self._merging is not None or self.entries_waiting > most

    @property
    def bytes_total(self) -> int:
        """Memory without names, bytes."""
        columns = (getattr(self._entries, name) for name in self._entries.__slots__)
        lists = sum(column.nbytes for column in self._lists.values())
        entries = sum(column.nbytes for column in columns)
        return int(lists + entries + self._rows.bytes_total)

    # --- which lists there are

    def rows_of(
        self,
        keys: NDArray[np.uint64],
        ks: NDArray[np.int32],
        queries: NDArray[np.uint64] | None = None,
        revisions: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int32]:
        """Returns the row of each version of a query; creates missing ones.

        Args:
            keys: of the versions.
            ks: length of their lists.
            queries, revisions: query and revision of each version; 0: not known. A version that
                another one has followed has no row, -1.
        """
        rows = self._rows.get(keys)
        fresh, first = np.unique(keys[rows < 0], return_index=True)
        if not len(fresh):
            return rows
        missing = np.flatnonzero(rows < 0)[first]
        named = np.zeros(len(fresh), np.uint64) if queries is None else queries[missing]
        versions = np.zeros(len(fresh), np.int64) if revisions is None else revisions[missing]
        is_new = np.ones(len(fresh), np.bool_)
        known = self._newest.get(named) if named.any() else np.full(len(fresh), -1, np.int32)
        for i in np.flatnonzero((known >= 0) & (named != 0)).tolist():
            is_new[i] = False
            self._replace_version(
                int(known[i]), fresh[i : i + 1], int(ks[missing[i]]), int(versions[i])
            )
        fresh, missing = fresh[is_new], missing[is_new]
        named, versions = named[is_new], versions[is_new]
        if not len(fresh):
            return self._rows.get(keys)
        made = np.array([self._free_row() for _ in range(len(fresh))], np.int32)
        columns = self._lists
        columns["keys"][made], columns["ks"][made] = fresh, ks[missing]
        columns["counts"][made] = 0
        columns["queries"][made], columns["revisions"][made] = named, versions
        columns["is_former"][made] = False
        self._newest.put(named[named != 0], made[named != 0])
        rooms = np.minimum(ks[missing], _ROOM_MIN).tolist()
        for row, room in zip(made.tolist(), rooms, strict=True):
            columns["begins"][row], columns["rooms"][row] = self._piece(room), room
        self._rows.put(fresh, made)
        return self._rows.get(keys)

    def _replace_version(self, row: int, key: NDArray[np.uint64], k: int, revision: int) -> None:
        """Gives the row of a query to another version of it, if that is later."""
        columns = self._lists
        if revision <= columns["revisions"][row]:
            return
        self._mark_former(row)
        self._rows.drop(columns["keys"][row : row + 1])
        columns["keys"][row], columns["ks"][row], columns["revisions"][row] = key[0], k, revision
        self._rows.put(key, np.array([row], np.int32))

    def _mark_former(self, row: int) -> None:
        """Marks the list of a row as a previous version's, after merging all candidates for it."""
        if self._lists["has_candidates"][row]:
            # Merges all of them at once: the next call finds nothing more.
            waiting = self.bytes_waiting
            self._outgoing = self.flush()
            self.bytes_waiting = waiting
        self._lists["is_former"][row] = True

    def end(self, query: int, offset: int, *, is_continued: bool) -> None:
        """Ends the versions of a query that precede a change of the registry.

        Args:
            query: 0 where it is not known.
            offset: of the change.
            is_continued: the change is a version that continues them.
        """
        row = int(self._newest.get(np.array([query], np.uint64))[0]) if query else -1
        if row < 0 or self._lists["revisions"][row] >= offset:
            return
        if is_continued:
            self._mark_former(row)
        else:
            self._drop_rows(np.array([row]))

    def drop(self, keys: NDArray[np.uint64]) -> None:
        """Forgets versions of queries, and the candidates for them."""
        rows = self._rows.get(keys)
        self._drop_rows(rows[rows >= 0])

    def _drop_rows(self, rows: NDArray[np.integer]) -> None:
        if not len(rows):
            return
        columns = self._lists
        for row in rows.tolist():
            self._free_piece(row)
        self._rows.drop(columns["keys"][rows])
        named = rows[columns["queries"][rows] != 0]
        if len(named):
            self._newest.drop(columns["queries"][named])
        columns["queries"][rows] = 0
        columns["rooms"][rows] = 0
        if self._candidates:
            self._dropped_rows += rows.tolist()
        else:
            self._free_rows += rows.tolist()

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
        """Returns where there is room for so many entries."""
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
        assert self._merging is None
        self._candidates.append(candidates)
        lists, columns = candidates.lists[candidates.lists >= 0], self._lists
        fresh = sorted_distinct(lists[~columns["has_candidates"][lists]])
        self.entries_waiting += int(columns["counts"][fresh].sum()) + len(lists)
        columns["has_candidates"][fresh] = True
        self.bytes_waiting += bytes_of(candidates.found)

    def flush(self, *, sends: bool = True) -> list[ListBatch]:
        """Merges the collected candidates.

        Returns:
            The lists that changed, as they are now; nothing unless `sends`. More than one list of a
            query only when the new objects do not fit a record.
        """
        while self.merge_some(sends=sends):
            pass
        batches = self.take_merged()
        return batches if sends else []

    def merge_some(self, *, sends: bool = True) -> bool:
        """Merges some of the collected candidates; returns whether there are more.

        A tenant's lists may have millions of entries, and one object may enter all of them.
        """
        if self._merging is None:
            if not self._candidates:
                return False
            self._merging = self._merges(self._collected(), sends=sends)
        try:
            batch = next(self._merging)
        except StopIteration:
            self._merging = None
            return False
        if batch is not None:
            self._outgoing.append(batch)
        return True

    def take_merged(self) -> list[ListBatch]:
        """Returns the lists that were merged and are to be sent."""
        batches, self._outgoing = self._outgoing, []
        # Nothing is collected by now: what was merged before it was asked for may have counted.
        self.bytes_waiting = 0
        return batches

    def _collected(self) -> list[Candidates]:
        """Takes the collected candidates, without those for lists that have ended."""
        collected, self._candidates = self._candidates, []
        self.bytes_waiting = self.entries_waiting = 0
        for each in collected:
            self._lists["has_candidates"][each.lists] = False
            if self._dropped_rows:
                each.lists[self._lists["rooms"][each.lists] == 0] = -1
        self._free_rows += self._dropped_rows
        self._dropped_rows = []
        return collected

    def _merges(self, collected: list[Candidates], *, sends: bool) -> Iterator[ListBatch | None]:
        for group in self._grouped(collected):
            yield from self._merge(group, sends=sends)

    def _grouped(self, collected: list[Candidates]) -> list[list[Candidates]]:
        """Splits the candidates so that a list and the objects of each part fit a record."""
        groups: list[list[Candidates]] = []
        size, bytes_max = 0, self.limits.records.bytes_max
        candidates_total = sum(len(each.lists) for each in collected)
        for whole in collected:
            is_long = self._is_long(whole, candidates_total)
            for each in _split_to(whole, LONG_PIECE_BYTES_MAX) if is_long else (whole,):
                # A part for a long list is merged by itself.
                added = bytes_max + 1 if is_long else bytes_of(each.found)
                if not groups or size + added > bytes_max:
                    groups.append([])
                    size = 0
                groups[-1].append(each)
                size += added
        return groups

    def _is_long(self, each: Candidates, candidates_total: int) -> bool:
        """Whether the string ids of a list may leave little room beside them in a record."""
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
        return is_named and count + candidates_total > LONG_LIST

    def _merge(self, group: list[Candidates], *, sends: bool) -> Iterator[ListBatch | None]:
        """Merges candidates, some lists at a time; yields those that changed."""
        lists = np.concatenate([each.lists for each in group])
        distances_m = np.concatenate([each.distances_m for each in group])
        parts = np.repeat(np.arange(len(group)), [len(each.lists) for each in group])
        keep = np.flatnonzero(self._may_enter(lists, distances_m))
        if not len(keep):
            return
        lists, parts = lists[keep], parts[keep]
        objects = np.concatenate([each.objects for each in group])[keep]
        fresh = entries_of(group, parts, objects, distances_m[keep])
        rows, places = np.unique(lists, return_inverse=True)
        # By key: a process that restored the lists assigns rows in another order.
        order = np.argsort(self._lists["keys"][rows])
        numbers = np.empty(len(rows), np.int64)
        numbers[order] = np.arange(len(rows))
        touched, owners = rows[order], numbers[places]
        queries = np.concatenate([each.queries for each in group])[keep]
        for first, last in self._ranges(touched, owners):
            own = np.flatnonzero((owners >= first) & (owners < last))
            some = touched[first:last]
            merged = self._ordered(some, owners[own] - first, fresh.take(own))
            if not len(merged.changed):
                yield None
                continue
            counts = np.bincount(merged.owners[merged.kept], minlength=len(some))[merged.changed]
            self._write(some[merged.changed], counts, merged.entries.take(merged.kept))
            if sends:
                yield changed_lists(group, merged, parts[own], objects[own], queries[own], counts)
            else:
                yield None

    def _ranges(
        self, touched: NDArray[np.int32], owners: NDArray[np.int64]
    ) -> Iterator[tuple[int, int]]:
        """Yields ranges of the lists that are merged at once, or of one list."""
        sizes = self._lists["counts"][touched] + np.bincount(owners, minlength=len(touched))
        ends, most = np.cumsum(sizes), self.limits.merged_entries_max
        first = 0
        while first < len(touched):
            before = int(ends[first - 1]) if first else 0
            last = int(np.searchsorted(ends, before + most, side="right"))
            last = max(first + 1, last)
            yield first, last
            first = last

    def _may_enter(
        self, lists: NDArray[np.int32], distances_m: NDArray[np.float64]
    ) -> NDArray[np.bool_]:
        """Leaves out what is farther away than all of a full list: usually nearly everything."""
        columns = self._lists
        may_enter: NDArray[np.bool_] = lists >= 0
        counts = columns["counts"][lists]
        is_full = (counts == columns["ks"][lists]) & ~columns["is_former"][lists]
        full = np.flatnonzero(may_enter & is_full)
        last = columns["begins"][lists[full]] + counts[full] - 1
        may_enter[full] = distances_m[full] <= self._entries.distances_m[last]
        return may_enter

    def _ordered(
        self, touched: NDArray[np.int32], owners: NDArray[np.int64], fresh: Entries
    ) -> Merged:
        """Orders the lists of `touched` together with the candidates, by number of their list."""
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
        # Of equal entries the old one is kept, which the sort leaves in front. Entries of the
        # version before do not rank: they have left, unless they arrive again.
        is_former = np.zeros(len(entries), np.bool_)
        is_former[:olds] = columns["is_former"][touched][owners[:olds]]
        order = order[~is_former[order]]
        is_repeat = np.zeros(len(order), np.bool_)
        is_repeat[1:] = np.logical_and.reduce([key[order[1:]] == key[order[:-1]] for key in keys])
        order = order[~is_repeat]
        sorted_owners = owners[order]
        starts = np.searchsorted(sorted_owners, np.arange(len(touched)))
        ranks = np.arange(len(order)) - starts[sorted_owners]
        is_kept = ranks < columns["ks"][touched][sorted_owners]
        is_changed = np.zeros(len(touched), np.bool_)
        is_changed[sorted_owners[is_kept & (order >= olds)]] = True
        kept = order[is_kept & is_changed[sorted_owners]]
        removed = order[~is_kept & (order < olds)]
        is_known = np.zeros(len(kept), np.bool_)
        former = np.flatnonzero(is_former)
        former = former[is_changed[owners[former]]]
        if len(former):
            before, now = _places_of(entries, owners, former), _places_of(entries, owners, kept)
            is_known = np.isin(now, before)
            removed = np.concatenate([removed, former[~np.isin(before, now)]])
            removed = removed[np.argsort(owners[removed], kind="stable")]
        return Merged(
            entries=entries,
            olds=olds,
            owners=owners,
            kept=kept,
            is_known=is_known,
            removed=removed,
            changed=np.flatnonzero(is_changed),
        )

    def _write(self, rows: NDArray[np.int32], counts: NDArray[np.int64], entries: Entries) -> None:
        columns = self._lists
        for i in np.flatnonzero(counts > columns["rooms"][rows]).tolist():
            row, count = int(rows[i]), int(counts[i])
            self._free_piece(row)
            room = min(int(columns["ks"][row]), 1 << (count - 1).bit_length())
            columns["begins"][row], columns["rooms"][row] = self._piece(room), room
        columns["counts"][rows], columns["is_former"][rows] = counts, False
        places = np.arange(len(entries)) + np.repeat(
            columns["begins"][rows] - (np.cumsum(counts) - counts), counts
        )
        self._entries.put(places, entries)
        if self._free_entries > max(self.limits.free_entries_max, self._entries_end // 4):
            self._compact()

    def _compact(self) -> None:
        """Closes the gaps between pieces: many growing lists leave small pieces free."""
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

    def pieces(self, rows_max: int) -> Iterator[Piece]:
        """Yields the lists as columns; all candidates must have been merged and fetched."""
        assert not self.has_candidates
        rows = np.flatnonzero(self._lists["rooms"][: self._rows_end])
        ends = np.cumsum(_LIST_ENTRIES + self._lists["counts"][rows].astype(np.int64))
        entries_max = rows_max * _ENTRIES_A_ROW
        begin = 0
        while begin < len(rows) or not begin:
            before = int(ends[begin - 1]) if begin else 0
            end = int(np.searchsorted(ends, before + entries_max, side="right"))
            end = max(begin + 1, end)
            taken = (int(ends[end - 1]) - before) // _ENTRIES_A_ROW if len(rows) else 0
            yield weight_of_rows(taken), self._piece_of(rows[begin:end])
            begin = end

    def _piece_of(self, rows: NDArray[np.intp]) -> State:
        columns = self._lists
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
            "knn.queries": columns["queries"][rows],
            "knn.revisions": columns["revisions"][rows],
            "knn.is_former": columns["is_former"][rows],
        }

    def restore(self, state: State) -> None:
        """Takes the lists of a checkpoint, into an empty object."""
        if not len(state["knn.keys"]):
            return
        # A checkpoint of an earlier release has no queries.
        rows = self.rows_of(
            state["knn.keys"],
            state["knn.ks"],
            state.get("knn.queries"),
            state.get("knn.revisions"),
        )
        names = unpack_names(state["knn.names"], state["knn.name_offsets"])
        entries = Entries(
            state["knn.distances_m"],
            state["knn.ids"],
            state["knn.sessions"],
            state["knn.numbers"],
            names,
        )
        self._write(rows, np.diff(state["knn.offsets"]), entries)
        if "knn.is_former" in state:
            self._lists["is_former"][rows] = state["knn.is_former"]


def _places_of(
    entries: Entries, owners: NDArray[np.int64], rows: NDArray[np.integer]
) -> NDArray[np.void]:
    """Returns the list and publication of some entries, as comparable values."""
    places = np.empty(
        len(rows), [("list", np.int64), ("session", np.uint64), ("number", np.uint64)]
    )
    places["list"], places["session"] = owners[rows], entries.sessions[rows]
    places["number"] = entries.numbers[rows]
    return places.view("V24")


def _split_to(each: Candidates, bytes_max: int) -> Iterator[Candidates]:
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
