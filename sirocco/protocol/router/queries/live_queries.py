"""The live queries of a registry partition: what their owner knows of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.row_table import RowTable
from sirocco.model.query import fingerprint_of
from sirocco.protocol.contract.effects import State
from sirocco.protocol.contract.messages import NEVER_MS, NO_REVISION
from sirocco.protocol.contract.plain_queries import PlainQueries
from sirocco.protocol.router.queries.place_sets import Leaves, PlaceSets, leaves_of_state
from sirocco.schemes.map.map_difference import MapDifference
from sirocco.schemes.map.routing import QueryRoutes

# The fingerprint of a query whose id is unknown.
UNKNOWN = 0


def has_expired(expires_ms: Any, now_ms: int) -> Any:
    """Whether lifetimes that end at given times (one, or an array of them) are over.

    Every check whether a query exists uses this: lists, look-ups, changes, quotas, removal.
    """
    return expires_ms <= now_ms


def definition_places(state: State) -> dict[int, int]:
    """Returns handle → offset of the record with its definition, in the order of a state's rows."""
    places = dict(zip(state["handles"].tolist(), state["revisions"].tolist(), strict=True))
    if "places" in state:
        republished = zip(state["said_again"].tolist(), state["places"].tolist(), strict=True)
        places |= {handle: place for handle, place in republished if handle in places}
    return places


_COLUMNS = (
    *("handles", "fingerprints", "revisions", "digests", "expires_ms"),
    *("slot_sets", "wanted_sets", "is_placed"),
)


# So many distinct places may be known before those without a query are looked for.
_PLACES_MIN = 8_192

# Columns grow by this part: they are copied so rarely that it does not show, and memory is spare.
_SPARE = 8


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of some handles; n rows.

    Attributes:
        revisions: i8[n], `NO_REVISION` where no query is live.
        digests, fingerprints: u8[n]
        expires_ms: i8[n]
    """

    revisions: NDArray[np.int64]
    digests: NDArray[np.uint64]
    expires_ms: NDArray[np.int64]
    fingerprints: NDArray[np.uint64]


class LiveQueries:
    """The live queries of one registry partition, in arrays: 53 to 68 bytes each.

    Attributes:
        fingerprints: distinguish the id of each from others with its handle, see
            `fingerprint_of`; `UNKNOWN` where the definition was not found.
        slot_sets: numbers of the slots that may hold each query, see `PlaceSets`.
        wanted_sets: of those that are to hold it when no change of the map is under way, and of the
            leaves that it touches; the same number where the slots are the same.
        is_placed: whether it is known to be where the maps want it; if not, the map is changing,
            its definition has not been read since, and other slots may hold it as well.
        unplaced: how many are not placed.
        is_overdue: some were unplaced already when the present change began.
        has_surplus: whether any may be in slots that are not wanted.
    """

    def __init__(self) -> None:
        self._rows = RowTable()
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
        self._places = PlaceSets()
        self._places_max = _PLACES_MIN
        self._free: list[int] = []
        self._end = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def bytes_total(self) -> int:
        """Memory of all queries, bytes."""
        columns: list[NDArray[Any]] = [getattr(self, name) for name in _COLUMNS]
        return self._rows.bytes_total + sum(column.nbytes for column in columns)

    def rows_of(self, handles: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Returns i4[n], the row of each handle, -1 where no query is live."""
        return self._rows.get(self.handles, handles)

    def known(self, handles: list[int]) -> list[tuple[int, int, int, int]]:
        """Returns revision (`NO_REVISION` for none), digest, expiry (epoch ms), fingerprint."""
        known = self.known_columns(np.array(handles, np.uint64))
        columns = known.revisions, known.digests, known.expires_ms, known.fingerprints
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def known_columns(self, handles: NDArray[np.uint64]) -> Known:
        """Returns what is known of some handles."""
        rows = self.rows_of(handles)
        is_here = rows >= 0
        return Known(
            np.where(is_here, self.revisions[rows], NO_REVISION),
            np.where(is_here, self.digests[rows], np.uint64(0)),
            self.expires_ms[rows],
            self.fingerprints[rows],
        )

    def has(self, handle: int, query_id: str) -> bool:
        """Whether the query of that handle has the id, as far as is known."""
        row = int(self.rows_of(np.array([handle], np.uint64))[0])
        return row >= 0 and int(self.fingerprints[row]) in (UNKNOWN, fingerprint_of(query_id))

    def have(
        self, handles: NDArray[np.uint64], fingerprints: NDArray[np.uint64]
    ) -> NDArray[np.bool_]:
        """Returns bool[q], whether each query is live: its handle is, with its fingerprint."""
        rows = self.rows_of(handles)
        known = self.fingerprints[rows]
        found: NDArray[np.bool_] = (rows >= 0) & ((known == fingerprints) | (known == UNKNOWN))
        return found

    def revision(self, handle: int) -> int:
        """Returns the revision of a query, `NO_REVISION` when there is none."""
        return self.known([handle])[0][0]

    def slots(self, row: int) -> tuple[int, ...]:
        """Returns the slots that may hold a query."""
        return self._places.slots(int(self.slot_sets[row]))

    def slots_of(self, rows: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Returns the slots that may hold some queries, one after the other, and i8[n + 1]."""
        return self._places.slots_of(self.slot_sets[rows])

    def places(self) -> NDArray[np.int64]:
        """Returns the rows of all live queries, in the order of the columns of `state`."""
        return np.flatnonzero(self.revisions[: self._end] != NO_REVISION)

    def slot_set(self, set_id: int) -> tuple[int, ...]:
        """Returns the slots of an entry of `slot_sets`."""
        return self._places.slots(set_id)

    def put(
        self,
        handles: NDArray[np.uint64],
        revisions: list[int],
        digests: list[int],
        expires_ms: NDArray[np.int64],
        slots: list[tuple[int, ...]],
        wanted: list[tuple[int, ...]] | None = None,
        fingerprints: Sequence[int] | None = None,
        leaves: Sequence[Leaves | None] | None = None,
    ) -> None:
        """Enters queries or their new versions; no handle twice.

        Args:
            handles, revisions, digests, expires_ms, fingerprints: of the queries; None where the
                fingerprints are not known.
            slots: those that may hold each of them.
            wanted: those that are to hold it; None: the same.
            leaves: those that it touches, by the later map in force; None where unknown.
        """
        known = UNKNOWN if fingerprints is None else np.array(fingerprints, np.uint64)
        rows = self._enter(handles, np.array(revisions, np.int64), np.array(digests, np.uint64))
        self.fingerprints[rows] = known
        self.expires_ms[rows] = expires_ms
        self.placed(rows, slots, wanted, leaves)

    def put_plain(
        self, queries: PlainQueries, revisions: NDArray[np.int64], places: NDArray[np.int32]
    ) -> None:
        """Enters plain queries or their new versions, in the places that are wanted."""
        rows = self._enter(queries.handles, revisions, queries.digests)
        self.fingerprints[rows] = queries.fingerprints
        self.expires_ms[rows] = NEVER_MS
        self.unplaced -= int((~self.is_placed[rows]).sum())
        self.is_placed[rows] = True
        self.slot_sets[rows] = self.wanted_sets[rows] = places

    def _enter(
        self,
        handles: NDArray[np.uint64],
        revisions: NDArray[np.int64],
        digests: NDArray[np.uint64],
    ) -> NDArray[np.int32]:
        """Returns the rows of queries, old or new, with their revisions and digests."""
        rows = self.rows_of(handles)
        fresh = np.flatnonzero(rows < 0)
        if len(fresh):
            kept = max(0, len(self._free) - len(fresh))
            again = self._free[kept:][::-1]
            del self._free[kept:]
            begin = self._extend(len(fresh) - len(again))
            rows[fresh[: len(again)]] = again
            rows[fresh[len(again) :]] = np.arange(begin, self._end)
        self.handles[rows], self.revisions[rows], self.digests[rows] = handles, revisions, digests
        # Readers in other threads find a row when it is there.
        self._rows.put(self.handles, rows[fresh])
        return rows

    def places_of(self, routes: QueryRoutes) -> NDArray[np.int32]:
        """Returns i4[n], the numbers for `slot_sets` of some queries; former numbers may change."""
        self._forget_places()
        return self._places.numbers(routes)

    def _forget_places(self) -> None:
        """Forgets places without queries when many may be so: clients choose how many."""
        if len(self._places) <= self._places_max:
            return
        is_live = self.revisions[: self._end] != NO_REVISION
        self._renumber_places(self._places.keep(self._used_places(is_live)))
        self._places_max = max(_PLACES_MIN, 2 * len(self._places))

    def _used_places(self, is_live: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Returns bool[p], which places live queries are in."""
        is_used = np.zeros(len(self._places), np.bool_)
        for column in (self.slot_sets, self.wanted_sets):
            is_used[column[: self._end][is_live]] = True
        return is_used

    def _renumber_places(self, numbers: NDArray[np.int32]) -> None:
        for column in (self.slot_sets, self.wanted_sets):
            column[: self._end] = numbers[column[: self._end]]

    def placed(
        self,
        rows: NDArray[np.int32],
        slots: list[tuple[int, ...]],
        wanted: list[tuple[int, ...]] | None,
        leaves: Sequence[Leaves | None] | None = None,
    ) -> None:
        """Marks queries as placed, in slots as for `put`."""
        self._forget_places()
        self.unplaced -= int((~self.is_placed[rows]).sum())
        self.is_placed[rows] = True
        wanted = slots if wanted is None else wanted
        leaves = [None] * len(slots) if leaves is None else leaves
        number = self._places.number
        self.wanted_sets[rows] = [number(*each) for each in zip(wanted, leaves, strict=True)]
        self.slot_sets[rows] = self.wanted_sets[rows]
        if wanted == slots:
            return
        for row, held, kept in zip(rows.tolist(), slots, wanted, strict=True):
            if held != kept:
                self.slot_sets[row] = number(held, None)
                self.has_surplus = True

    def unplace(self, change: MapDifference | None, slots_total: int) -> None:
        """Marks queries as unplaced: the map is to change.

        Args:
            change: where it differs from the one that follows; None: any query may move.
            slots_total: how many slots there are. A query that is to be in all of them stays there.
        """
        self.is_overdue = self.unplaced > 0
        end = self._end
        is_live = self.revisions[:end] != NO_REVISION
        held, wanted, places = self.slot_sets[:end], self.wanted_sets[:end], self._places
        may_move = is_live
        if change is not None:
            may_move = np.where(
                places.are_located()[wanted],
                places.touch(change.leaves)[wanted],
                places.are_in(change.slots)[held],
            )
            may_move &= is_live & ~places.are_whole(slots_total)[wanted]
        self.is_placed[:end] &= ~may_move
        self.unplaced = int((~self.is_placed[:end]).sum())
        self._renumber_places(places.follow(change, self._used_places(is_live)))

    def unplaced_rows(self) -> NDArray[np.intp]:
        """Returns the rows of the queries that are not placed; in any thread."""
        return np.flatnonzero(~self.is_placed[: self._end])

    def lose(self, handles: NDArray[np.uint64], slots: tuple[int, ...]) -> None:
        """Marks these queries as unplaced: any of the slots may hold them."""
        rows = self.rows_of(handles)
        self.unplaced += int(self.is_placed[rows].sum())
        self.is_placed[rows] = False
        self.slot_sets[rows] = self._places.number(slots, None)

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
            wanted = self._places.slots(int(self.wanted_sets[row]))
            surplus = tuple(slot for slot in self.slots(row) if slot not in wanted)
            taken.append((int(self.handles[row]), int(self.revisions[row]), surplus))
        self.slot_sets[rows[:count_max]] = self.wanted_sets[rows[:count_max]]
        return taken

    def drop(self, handles: NDArray[np.uint64]) -> None:
        """Removes queries that are live."""
        rows = self.rows_of(handles)
        self._rows.drop(self.handles, handles)
        self.unplaced -= int((~self.is_placed[rows]).sum())
        self.is_placed[rows] = True
        self.revisions[rows] = NO_REVISION
        self.expires_ms[rows] = NEVER_MS
        self._free.extend(rows.tolist())

    def are_standing(self, handles: NDArray[np.uint64], now_ms: int) -> NDArray[np.bool_]:
        """Returns bool[q], which queries exist, without those whose lifetime has ended."""
        rows = self.rows_of(handles)
        standing: NDArray[np.bool_] = (rows >= 0) & ~has_expired(self.expires_ms[rows], now_ms)
        return standing

    def is_standing(self, handle: int, now_ms: int) -> bool:
        """Whether a query exists and its lifetime has not ended."""
        return bool(self.are_standing(np.array([handle], np.uint64), now_ms)[0])

    def expired(self, now_ms: int) -> NDArray[np.uint64]:
        """Returns u8[n], the handles of the queries whose lifetime ended."""
        have_expired = has_expired(self.expires_ms[: self._end], now_ms)
        handles: NDArray[np.uint64] = self.handles[: self._end][have_expired]
        return handles

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns all queries as columns, for a checkpoint."""
        rows = self.places()
        slots, slot_offsets = self._places.slots_of(self.slot_sets[rows])
        wanted, wanted_offsets = self._places.slots_of(self.wanted_sets[rows])
        return {
            "handles": self.handles[rows],
            "fingerprints": self.fingerprints[rows],
            "revisions": self.revisions[rows],
            "digests": self.digests[rows],
            "expires_ms": self.expires_ms[rows],
            "is_placed": self.is_placed[rows],
            **{"slots": slots, "slot_offsets": slot_offsets},
            **{"wanted": wanted, "wanted_offsets": wanted_offsets},
            **self._places.leaves_state(self.wanted_sets[rows]),
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
            leaves_of_state(state),
        )
        if "is_placed" in state:
            unplaced = ~np.asarray(state["is_placed"], np.bool_)
            self.is_placed[self.rows_of(handles[unplaced])] = False
            self.unplaced = int(unplaced.sum())

    def _extend(self, count: int) -> int:
        """Adds rows; returns the first one."""
        begin, room = self._end, len(self.handles)
        if begin + count > room:
            room = max(begin + count, room + room // _SPARE)
            for name in _COLUMNS:
                setattr(self, name, _extended(getattr(self, name), begin, room))
            self.is_placed[begin:] = True
        self._end += count
        return begin


def _extended(column: NDArray[Any], used: int, room: int) -> NDArray[Any]:
    larger = np.zeros(room, column.dtype)
    larger[:used] = column[:used]
    return larger


def _sets(state: State, name: str, offsets_name: str) -> list[tuple[int, ...]]:
    flat = state[name].tolist()
    return [tuple(flat[begin:end]) for begin, end in pairwise(state[offsets_name].tolist())]
