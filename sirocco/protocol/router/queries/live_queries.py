"""The live queries of a registry partition: what their owner knows of each."""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.handle_table import HandleTable
from sirocco.model.query import fingerprint_of
from sirocco.protocol.contract.effects import State
from sirocco.protocol.contract.messages import NEVER_MS, NO_REVISION

# The fingerprint of a query whose id is unknown.
UNKNOWN = 0


def has_expired(expires_ms: Any, now_ms: int) -> Any:
    """Whether lifetimes that end at given times (one, or an array of them) are over.

    Every check whether a query exists uses this: lists, look-ups, changes, quotas, removal.
    """
    return expires_ms <= now_ms


_COLUMNS = (
    *("handles", "fingerprints", "revisions", "digests", "expires_ms"),
    *("slot_sets", "wanted_sets", "is_placed"),
)


class LiveQueries:
    """The live queries of one registry partition, in arrays: about 65 bytes each.

    Slot sets are interned: queries are many, the sets of slots that regions meet are few.

    Attributes:
        fingerprints: distinguish the id of each from others with its handle, see
            `fingerprint_of`; `UNKNOWN` where the definition was not found.
        slot_sets: the slots that may hold each query.
        wanted_sets: those that are to hold it when no change of the map is under way.
        is_placed: whether it is known to be where the maps want it; if not, the map is changing,
            its definition has not been read since, and other slots may hold it as well.
        unplaced: how many are not placed.
        is_overdue: some were unplaced already when the present change began.
        has_surplus: whether any may be in slots that are not wanted.
    """

    def __init__(self) -> None:
        self.rows = HandleTable()
        self.handles = np.zeros(64, np.uint64)
        self.fingerprints = np.zeros(64, np.uint64)
        self.revisions = np.full(64, NO_REVISION, np.int64)
        self.digests = np.zeros(64, np.uint64)
        self.expires_ms = np.full(64, NEVER_MS, np.int64)
        self.slot_sets = np.zeros(64, np.int32)
        self.wanted_sets = np.zeros(64, np.int32)
        self.is_placed = np.ones(64, np.bool_)
        self.unplaced = 0
        self.is_overdue = False
        self.has_surplus = False
        self._sets: list[tuple[int, ...]] = [()]
        self._set_ids: dict[tuple[int, ...], int] = {(): 0}
        self._free: list[int] = []
        self._end = 0

    def __len__(self) -> int:
        return len(self.rows)

    def known(self, handles: list[int]) -> list[tuple[int, int, int, int]]:
        """Returns revision (`NO_REVISION` for none), digest, expiry (epoch ms), fingerprint."""
        rows = self.rows.get(np.array(handles, np.uint64))
        is_here = rows >= 0
        revisions = np.where(is_here, self.revisions[rows], NO_REVISION)
        digests = np.where(is_here, self.digests[rows], np.uint64(0))
        expires_ms = self.expires_ms[rows]
        columns = revisions, digests, expires_ms, self.fingerprints[rows]
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def has(self, handle: int, query_id: str) -> bool:
        """Whether the query of that handle has the id, as far as is known."""
        row = int(self.rows.get(np.array([handle], np.uint64))[0])
        return row >= 0 and int(self.fingerprints[row]) in (UNKNOWN, fingerprint_of(query_id))

    def have(
        self, handles: NDArray[np.uint64], fingerprints: NDArray[np.uint64]
    ) -> NDArray[np.bool_]:
        """Returns bool[q], whether each query is live: its handle is, with its fingerprint."""
        rows = self.rows.get(handles)
        known = self.fingerprints[rows]
        found: NDArray[np.bool_] = (rows >= 0) & ((known == fingerprints) | (known == UNKNOWN))
        return found

    def revision(self, handle: int) -> int:
        """Returns the revision of a query, `NO_REVISION` when there is none."""
        return self.known([handle])[0][0]

    def slots(self, row: int) -> tuple[int, ...]:
        """Returns the slots that may hold a query."""
        return self._sets[int(self.slot_sets[row])]

    def places(self) -> NDArray[np.int64]:
        """Returns the rows of all live queries, in the order of the columns of `state`."""
        return np.flatnonzero(self.revisions[: self._end] != NO_REVISION)

    def slot_set(self, set_id: int) -> tuple[int, ...]:
        """Returns the slots of an entry of `slot_sets`."""
        return self._sets[set_id]

    def put(
        self,
        handles: NDArray[np.uint64],
        revisions: list[int],
        digests: list[int],
        expires_ms: NDArray[np.int64],
        slots: list[tuple[int, ...]],
        wanted: list[tuple[int, ...]] | None = None,
        fingerprints: Sequence[int] | None = None,
    ) -> None:
        """Enters queries or their new versions; no handle twice.

        Args:
            handles, revisions, digests, expires_ms, fingerprints: of the queries; None where the
                fingerprints are not known.
            slots: those that may hold each of them.
            wanted: those that are to hold it; None: the same.
        """
        rows = self.rows.get(handles)
        fresh = np.flatnonzero(rows < 0)
        rows[fresh] = [self._free.pop() if self._free else self._extend() for _ in fresh]
        self.rows.put(handles[fresh], rows[fresh])
        self.handles[rows], self.revisions[rows] = handles, revisions
        self.fingerprints[rows] = (
            UNKNOWN if fingerprints is None else np.array(fingerprints, np.uint64)
        )
        self.digests[rows] = np.array(digests, np.uint64)
        self.expires_ms[rows] = expires_ms
        self._settle(rows, slots, wanted)

    def placed(
        self, rows: NDArray[np.int32], slots: list[tuple[int, ...]], wanted: list[tuple[int, ...]]
    ) -> None:
        """Marks queries as placed, in slots as for `put`."""
        self._settle(rows, slots, wanted)

    def _settle(
        self,
        rows: NDArray[np.int32],
        slots: list[tuple[int, ...]],
        wanted: list[tuple[int, ...]] | None,
    ) -> None:
        self.unplaced -= int((~self.is_placed[rows]).sum())
        self.is_placed[rows] = True
        self.slot_sets[rows] = [self._set_id(each) for each in slots]
        self.wanted_sets[rows] = self.slot_sets[rows]
        if wanted is not None and wanted != slots:
            self.wanted_sets[rows] = [self._set_id(each) for each in wanted]
            self.has_surplus |= bool((self.wanted_sets[rows] != self.slot_sets[rows]).any())

    def unplace(self, among: Container[int] | None, slots_total: int) -> None:
        """Marks queries as unplaced: the map is to change.

        Args:
            among: only queries in one of these slots may move; None: any may.
            slots_total: how many slots there are. A query that is to be in all of them stays there.
        """
        self.is_overdue = self.unplaced > 0
        live = self.revisions[: self._end] != NO_REVISION
        if among is not None:
            may_move = np.array(
                [len(each) > 0 and any(slot in among for slot in each) for each in self._sets]
            )
            is_whole = np.array([len(each) == slots_total for each in self._sets])
            live &= may_move[self.slot_sets[: self._end]] & ~is_whole[self.wanted_sets[: self._end]]
        self.is_placed[: self._end] &= ~live
        self.unplaced = int((~self.is_placed[: self._end]).sum())

    def unplaced_rows(self) -> NDArray[np.intp]:
        """Returns the rows of the queries that are not placed; in any thread."""
        return np.flatnonzero(~self.is_placed[: self._end])

    def lose(self, handles: NDArray[np.uint64], slots: tuple[int, ...]) -> None:
        """Marks these queries as unplaced: any of the slots may hold them."""
        rows = self.rows.get(handles)
        self.unplaced += int(self.is_placed[rows].sum())
        self.is_placed[rows] = False
        self.slot_sets[rows] = self._set_id(slots)

    def take_surplus(self, count_max: int) -> list[tuple[int, int, tuple[int, ...]]]:
        """Drops the slots of queries that are not wanted, for some queries.

        Returns:
            (handle, revision, dropped slots) of each.
        """
        if not self.has_surplus:
            return []
        end = self._end
        is_surplus = self.is_placed[:end] & (self.slot_sets[:end] != self.wanted_sets[:end])
        rows = np.flatnonzero(is_surplus & (self.revisions[:end] != NO_REVISION))
        self.has_surplus = len(rows) > count_max
        taken = []
        for row in rows[:count_max].tolist():
            wanted = self._sets[int(self.wanted_sets[row])]
            surplus = tuple(slot for slot in self.slots(row) if slot not in wanted)
            taken.append((int(self.handles[row]), int(self.revisions[row]), surplus))
        self.slot_sets[rows[:count_max]] = self.wanted_sets[rows[:count_max]]
        return taken

    def drop(self, handles: NDArray[np.uint64]) -> None:
        """Removes queries that are live."""
        rows = self.rows.get(handles)
        self.rows.drop(handles)
        self.unplaced -= int((~self.is_placed[rows]).sum())
        self.is_placed[rows] = True
        self.revisions[rows] = NO_REVISION
        self.expires_ms[rows] = NEVER_MS
        self._free.extend(rows.tolist())

    def are_standing(self, handles: NDArray[np.uint64], now_ms: int) -> NDArray[np.bool_]:
        """Returns bool[q], which queries exist, without those whose lifetime has ended."""
        rows = self.rows.get(handles)
        standing: NDArray[np.bool_] = (rows >= 0) & ~has_expired(self.expires_ms[rows], now_ms)
        return standing

    def is_standing(self, handle: int, now_ms: int) -> bool:
        """Whether a query exists and its lifetime has not ended."""
        return bool(self.are_standing(np.array([handle], np.uint64), now_ms)[0])

    def expired(self, now_ms: int) -> list[int]:
        """Returns the handles of the queries whose lifetime ended."""
        rows = np.flatnonzero(has_expired(self.expires_ms[: self._end], now_ms))
        return [int(handle) for handle in self.handles[rows]]

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns all queries as columns, for a checkpoint."""
        rows = self.places()
        return {
            "handles": self.handles[rows],
            "fingerprints": self.fingerprints[rows],
            "revisions": self.revisions[rows],
            "digests": self.digests[rows],
            "expires_ms": self.expires_ms[rows],
            "is_placed": self.is_placed[rows],
            **self._sets_state("slots", "slot_offsets", self.slot_sets[rows]),
            **self._sets_state("wanted", "wanted_offsets", self.wanted_sets[rows]),
        }

    def restore(self, state: State) -> None:
        """Takes all queries of a checkpoint; the table must be empty."""
        slots = _sets(state, "slots", "slot_offsets")
        handles = np.asarray(state["handles"], np.uint64)
        self.put(
            handles,
            state["revisions"].tolist(),
            state["digests"].tolist(),
            np.asarray(state["expires_ms"], np.int64),
            slots,
            _sets(state, "wanted", "wanted_offsets") if "wanted" in state else slots,
            state["fingerprints"].tolist() if "fingerprints" in state else None,
        )
        if "is_placed" in state:
            unplaced = ~np.asarray(state["is_placed"], np.bool_)
            self.is_placed[self.rows.get(handles[unplaced])] = False
            self.unplaced = int(unplaced.sum())

    def _sets_state(
        self, name: str, offsets_name: str, set_ids: NDArray[np.int32]
    ) -> dict[str, NDArray[Any]]:
        sets = [self._sets[set_id] for set_id in set_ids.tolist()]
        offsets = np.zeros(len(sets) + 1, np.int64)
        np.cumsum([len(slots) for slots in sets], out=offsets[1:])
        flat = np.array([slot for slots in sets for slot in slots], np.int32)
        return {name: flat, offsets_name: offsets}

    def _set_id(self, slots: tuple[int, ...]) -> int:
        set_id = self._set_ids.setdefault(slots, len(self._sets))
        if set_id == len(self._sets):
            self._sets.append(slots)
        return set_id

    def _extend(self) -> int:
        if self._end == len(self.handles):
            room = 2 * self._end
            for name in _COLUMNS:
                setattr(self, name, np.resize(getattr(self, name), room))
            self.is_placed[self._end :] = True
        self._end += 1
        return self._end - 1


def _sets(state: State, name: str, offsets_name: str) -> list[tuple[int, ...]]:
    flat = state[name].tolist()
    return [tuple(flat[begin:end]) for begin, end in pairwise(state[offsets_name].tolist())]
