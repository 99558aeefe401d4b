"""Standing range queries over tracked values, which enter, stay inside and leave.

Objects that share a value of an attribute (a vehicle, a person) are one moving thing. For every
value the index knows the queries whose region, text and filter its newest object satisfied (Tornado
2 has queries over moving objects; events are ours, docs/reference/queries.md). An object satisfies
the queries that a `RangeIndex` finds, if they track its key and their filter holds. A query that
was satisfied before and is not now is left; a newly satisfied one is entered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sirocco.index.base.query_rows import FLAG_RESIDUAL, QueryRows
from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.standing.grid import Grid
from sirocco.index.standing.limits import LIMITS, StandingLimits
from sirocco.index.standing.range_index import RangeIndex
from sirocco.index.standing.row_store import NEVER_DEAD, RowStore
from sirocco.index.standing.track.last_objects import NOT_KNOWN
from sirocco.index.standing.track.member_checks import accepted_pairs, satisfied_members
from sirocco.index.standing.track.track_pairs import (
    Members,
    StayEvents,
    TrackHits,
    Waits,
    named_values,
)
from sirocco.index.standing.track.track_state import state_of
from sirocco.index.standing.track.tracked_values import TrackedValues
from sirocco.index.standing.vocabulary import Vocabulary
from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.kernels.standing.pyramid import BORN, ROW_WORDS
from sirocco.kernels.standing.track_sets import ENTERS, EXITS, INSIDE, REFUSED, STALE
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing

__all__ = ["ENTERS", "EXITS", "INSIDE", "TrackIndex"]


class TrackIndex:
    """Standing range queries of one slot that track values of attributes.

    Rows, positions and lifetimes are as in `RangeIndex`; objects are processed in the order of the
    batch. An inserted query has no values: the first object of a value that satisfies it enters. An
    object outside a query's lifetime changes nothing for it. A removed query has no values.

    One thread at a time: kernels release the GIL and write into arrays of the index.
    """

    __slots__ = ("_former", "_hashing", "_ranges", "_values")

    def __init__(
        self,
        grid: Grid | None = None,
        expected_queries: int = 0,
        hashing: TermHashing = WIRE_TERMS,
        limits: StandingLimits = LIMITS,
    ) -> None:
        """Creates an empty index; arguments as of `RangeIndex`, and the limits of a slot."""
        self._ranges = RangeIndex(grid, expected_queries, hashing)
        self._values = TrackedValues(self._ranges.row_store, limits)
        # Handles of sets that an old checkpoint stored under former hashes of their values.
        self._former: set[int] = set()
        self._hashing = hashing

    @property
    def vocabulary(self) -> Vocabulary:
        """The terms of the queries."""
        return self._ranges.vocabulary

    # Queries -------------------------------------------------------------------------------

    def insert(
        self,
        queries: QueryRows,
        keys: npt.NDArray[np.uint64],
        events: npt.NDArray[np.uint8],
        position: int,
        tenants: npt.NDArray[np.uint64] | None = None,
        waits: Waits | None = None,
    ) -> npt.NDArray[np.int32]:
        """Adds queries; they match objects from `position` on.

        Args:
            queries: n compiled queries.
            keys: u8[n], the attribute that each tracks, as in objects.
            events: u1[n], bit 1 << e is set if the query asks for event e.
            position: slot position of the registration.
            tenants: u8[n], hashes of the tenants whose shares of the room they use; 0: of none.
            waits: how long values must be inside and outside; None: no query waits.

        Returns:
            i4[n], the row of each query.

        Raises:
            ValueError: A conjunction has more terms than fit a term block.
        """
        rows = self._ranges.insert(queries, position)
        if len(rows) == 0:
            return rows
        self._values.rows.put(rows, queries, keys, events, tenants, waits)
        return rows

    def remove(self, rows: npt.NDArray[np.int32], position: int) -> None:
        """Ends queries: they do not match objects at `position` and later.

        Args:
            rows: i4[k], live rows, each once.
            position: slot position of the removal, not below that of an earlier one.
        """
        # Nothing becomes due for a query that has ended.
        if len(waiting := rows[self._values.rows.has_stays.array[rows] != 0]):
            self.take_members(waiting)
            self._values.rows.end_waits(waiting)
        self._ranges.remove(rows, position)
        self._values.end(rows)

    def reclaim(self, position: int, rows_max: int = 4096) -> int:
        """Frees the memory of removed queries, once no object before their end can follow.

        Args:
            position: every object at a lower position has been matched.
            rows_max: bound of the work of one call, except for occasional sweeps.

        Returns:
            The number of freed rows, which may be reused.
        """
        freed = self._ranges.reclaim(position, rows_max)
        if freed:
            self._values.reclaim()
        self._values.tidy()
        return freed

    def expire(self, now_ms: int) -> npt.NDArray[np.int32]:
        """Returns rows whose lifetime has ended, each once; the caller removes them.

        Args:
            now_ms: the slot's time; lifetimes that end at it or before have ended.

        Returns:
            i4[k], live rows with expires_ms ≤ now_ms.
        """
        return self._ranges.expire(now_ms)

    @property
    def row_store(self) -> RowStore:
        """The lifetimes of the rows."""
        return self._ranges.row_store

    def settle(self, rows: npt.NDArray[np.int32], position: int) -> None:
        """Ends individual checks of rows that every object from a position on can match."""
        self._ranges.settle(rows, position)

    # Matching ------------------------------------------------------------------------------

    def match(
        self,
        lon: npt.NDArray[np.float64],
        lat: npt.NDArray[np.float64],
        term_offsets: npt.NDArray[np.int64],
        terms: npt.NDArray[np.uint64],
        arrival_ms: npt.NDArray[np.int64],
        positions: npt.NDArray[np.int64],
        rows: npt.NDArray[np.int64],
        keys: npt.NDArray[np.uint64],
        values: npt.NDArray[np.uint64],
        accepts: Callable[[int, int], bool] | None = None,
        former_values: npt.NDArray[np.uint64] | None = None,
        rows_of: Callable[[npt.NDArray[np.intp]], StoredRows] | None = None,
    ) -> TrackHits:
        """Processes a batch of objects, each for some of its tracked attributes.

        Args:
            lon … positions: as in `RangeIndex.match`, n objects.
            rows: i8[v], ascending: the objects, once for each tracked attribute.
            keys: u8[v], that attribute; those of one object are distinct.
            values: u8[v], the hash of its value.
            accepts: called for pairs (object row, query row) of queries with FLAG_RESIDUAL for
                which everything else holds.
            former_values: u8[v], the value's hash in earlier versions.
            rows_of: returns some of the objects (row numbers), to be kept as the newest of their
                values, each once; without it, they are unknown later.

        Returns:
            The events that queries ask for.

        Raises:
            ValueError: A query has FLAG_RESIDUAL and `accepts` is missing, or one waits and
                `rows_of` is.
        """
        if self._ranges.row_store.in_use == 0 or not len(rows):
            return TrackHits(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.uint8))
        if self._former and former_values is not None:
            self._rename(keys, values, former_values)
        tracked, held = self._values.rows, self._values.sets
        found = self._ranges.match(lon, lat, term_offsets, terms, arrival_ms, positions)
        object_rows, query_rows = found.object_rows, found.query_rows
        # The object's value that each query tracks; from here on pairs of value and query.
        named = named_values(rows, keys, object_rows, tracked.keys.array[query_rows])
        named, query_rows = named[named >= 0], query_rows[named >= 0]
        if len(residual := np.flatnonzero(tracked.flags.array[query_rows] & FLAG_RESIDUAL)):
            holds = accepted_pairs(rows[named], query_rows, residual, accepts)
            named, query_rows = named[holds], query_rows[holds]
        order = np.argsort(named, kind="stable")
        named, query_rows = named[order], query_rows[order]
        is_in_some = np.zeros(len(keys), np.bool_)
        is_in_some[named] = True
        sets = held.find_or_make(held.handles_of(keys, values), is_in_some)
        if former_values is not None:
            held.note(sets, former_values)
        numbers = self._values.keep_objects(rows, named, rows_of)
        hits, reported_numbers = self._values.follow(
            arrival_ms[rows], positions[rows], keys, sets, numbers, named, query_rows
        )
        has_stay = tracked.has_stays.array[hits.query_rows] != 0
        stay_events = None
        if has_stay.any():
            if rows_of is None:
                raise ValueError("rows_of: is missing, and a query that waits needs it")
            stay_events = self._values.events_with_objects(
                hits.where(has_stay), reported_numbers[has_stay], rows, rows_of
            )
            hits = hits.where(~has_stay)
        hits = replace(
            hits, object_rows=rows[hits.object_rows].astype(np.int32), stay_events=stay_events
        )
        self._values.tidy()
        return hits

    # Waits ---------------------------------------------------------------------------------

    @property
    def next_due_ms(self) -> int:
        """When a value has next been inside or outside for long enough; `NEVER_DUE`: never."""
        return self._values.sets.stays.next_ms

    @property
    def has_waits(self) -> bool:
        """Whether any query has stays."""
        return bool(self._values.rows.has_stays.array.any())

    def take_due(self, time_ms: int) -> StayEvents | None:
        """Returns what is due before a time: values have entered or left; None without events."""
        return self._values.take_due(time_ms)

    def _rename(
        self,
        keys: npt.NDArray[np.uint64],
        values: npt.NDArray[np.uint64],
        former_values: npt.NDArray[np.uint64],
    ) -> None:
        """Renames sets with former hashes to the hashes of these values."""
        handles = self._values.sets.handles_of(keys, values).tolist()
        former = self._values.sets.handles_of(keys, former_values).tolist()
        for handle, before in zip(handles, former, strict=True):
            if before in self._former:
                self._former.discard(before)
                self._values.sets.rename(before, handle)

    # Members ------------------------------------------------------------------------------

    def take_members(self, rows: npt.NDArray[np.int32]) -> Members:
        """Removes the values inside queries and returns them, as before the next object.

        Args:
            rows: i4[k], rows in use, each once.
        """
        return self._values.take(rows)

    def put_members(self, members: Members) -> None:
        """Puts values inside queries in which they are not, without events.

        What they wait for counts from the same time on, and is as long as the queries say.
        """
        self._values.put(members)

    def objects(self, numbers: npt.NDArray[np.int32]) -> StoredRows:
        """Returns the objects of members, one row each; at least one."""
        return self._values.last.take(numbers)

    def keys_of(self, rows: npt.NDArray[np.int32]) -> npt.NDArray[np.uint64]:
        """Returns u8[k], the attribute that each query tracks."""
        keys: npt.NDArray[np.uint64] = self._values.rows.keys.array[rows]
        return keys

    def reports(self, rows: npt.NDArray[np.int32], event: int) -> npt.NDArray[np.bool_]:
        """Returns bool[k], whether each query asks for an event."""
        bits = self._values.rows.events.array[rows] >> np.uint8(event)
        is_reported: npt.NDArray[np.bool_] = bits & 1 != 0
        return is_reported

    def satisfied(
        self,
        members: Members,
        begins_ms: npt.NDArray[np.int64],
        position: int,
        accepts: Callable[[StoredRows], Callable[[int, int], bool]],
    ) -> npt.NDArray[np.bool_]:
        """Returns bool[m], whether the object of each member satisfies its query at a position.

        Args:
            members: pairs with known objects.
            begins_ms: i8[m], earlier objects do not count.
            position: position in the slot.
            accepts: returns, for some objects, the `accepts` of `match`.
        """
        flags = self._values.rows.flags.array
        return satisfied_members(
            *(self._ranges, flags, members, self.objects),
            *(begins_ms, position, accepts, self._hashing),
        )

    # Checkpoints ---------------------------------------------------------------------------

    def state(self, rows: npt.NDArray[np.int32] | None = None) -> dict[str, npt.NDArray[Any]]:
        """Returns queries and the values inside them as named columns, for `restore`.

        Columns: those of `QueryRows`; `keys`, `events`; `tenants` u8[n], see `insert`; `born` and
        `dead` i8[n], slot positions; where queries wait, the columns `dwells_ms` to `has_stays` of
        `TrackedRows`, and `member_phases`, `member_dues_ms` i8[m];
        `member_queries` i4[m] and `member_values` u8[m]: the value is inside that query, by the
        hash of earlier versions; `member_identities` u8[m]: by the present hash; `member_is_former`
        u1[m]: 1 if the present hash is unknown. `member_objects` i4[m]: row of `last.…`, the
        columns of `StoredRows`, or `NOT_KNOWN`.

        Args:
            rows: i4[n], rows in use; None: all, ascending, including removed ones that are not
                reclaimed.
        """
        held = self._values
        return state_of(self._ranges, held.rows, held.sets, self._former, held.last, rows)

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.int32]:
        """Puts the queries of a state into this empty index.

        It then answers like the index of the state, except for row numbers.

        Returns:
            i4[n], the row of each query of the state.
        """
        queries = QueryRows.from_columns(state)
        if len(queries) == 0:
            return np.empty(0, np.int32)
        born, dead = state["born"], state["dead"]
        # States of earlier versions lack the tenants.
        tenants = state.get("tenants")
        # Only states with queries that wait have these.
        waits = Waits(state["dwells_ms"], state["leaves_ms"]) if "dwells_ms" in state else None
        rows = self.insert(queries, state["keys"], state["events"], int(born.max()), tenants, waits)
        self._values.rows.has_stays.array[rows] = state.get("has_stays", 0)
        # Until an object at the greatest of them arrives, births are compared one by one.
        self._ranges.row_store.words[rows.astype(np.int64) * ROW_WORDS + BORN] = born
        members, former_values = rows[state["member_queries"]], state["member_values"]
        values = state.get("member_identities", former_values)
        # States of earlier versions lack the last objects of values.
        numbers = state.get("member_objects", np.full(len(members), NOT_KNOWN, np.int32))
        last = {n.removeprefix("last."): c for n, c in state.items() if n.startswith("last.")}
        if last:
            self._values.last.add(StoredRows.from_columns(last).with_terms(self._hashing))
        self._values.put_columns(
            members,
            values,
            np.asarray(numbers, np.int32),
            former_values,
            state.get("member_phases"),
            state.get("member_dues_ms"),
        )
        is_former = state.get("member_is_former", np.ones(len(values), np.uint8)) != 0
        handles = self._values.sets.handles_of(self._values.rows.keys.array[members], values)
        self._former.update(handles[is_former].tolist())
        for position in sorted_distinct(dead[dead != NEVER_DEAD]).tolist():
            self.remove(rows[dead == position], position)
        return rows

    # Measures ------------------------------------------------------------------------------

    @property
    def live_queries(self) -> int:
        """Queries inserted and not removed."""
        return self._ranges.live_queries

    @property
    def tracked_values(self) -> int:
        """Values that are inside some query, or were when it ended."""
        return len(self._values.sets)

    @property
    def held_bytes(self) -> int:
        """Bytes counted for them, at most the limit unless a state held more."""
        return self._values.sets.held_bytes

    @property
    def refused_total(self) -> int:
        """Pairs of an object and a query so far whose value did not enter, for want of room."""
        return int(self._values.sets.progress[REFUSED])

    @property
    def stale_total(self) -> int:
        """Values of queries so far whose newest object was too large to be kept."""
        return int(self._values.sets.progress[STALE])

    @property
    def bytes_total(self) -> int:
        """Bytes of memory that the index takes."""
        return self._ranges.bytes_total + self._values.bytes_total
