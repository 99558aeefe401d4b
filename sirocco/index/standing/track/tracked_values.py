"""The values inside queries: they enter, stay, wait and leave; kernels change them in place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.standing.limits import StandingLimits
from sirocco.index.standing.row_store import RowStore
from sirocco.index.standing.track.last_objects import NOT_KNOWN, LastObjects
from sirocco.index.standing.track.track_pairs import Members, StayEvents, TrackHits
from sirocco.index.standing.track.tracked_rows import ROW_BYTES, TrackedRows
from sirocco.index.standing.track.value_sets import ValueSets
from sirocco.kernels.base.faults import required
from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.kernels.standing.track_sets import (
    DUE,
    DWELLS,
    ENTERS,
    EXITS,
    INSIDE,
    LAST,
    LEAVES,
    NEVER_DUE,
    OWN_SET,
    PHASE,
    REPORTED,
    ROW,
    drop_stays,
    follow,
    put_members,
    sweep_sets,
    take_members,
)

__all__ = ["TrackedValues"]


class TrackedValues:
    """Knows which values are inside which queries of an index, and the newest object of each.

    One thread at a time: kernels release the GIL and write into the arrays.

    Attributes:
        rows: what queries track, and what is counted for them.
        sets: for each value the queries that it is inside of.
        last: the newest objects of values.
        bytes_max: no value enters that would take more.
    """

    __slots__ = ("_garbage", "_garbage_min", "_store", "bytes_max", "last", "rows", "sets")

    def __init__(self, store: RowStore, limits: StandingLimits) -> None:
        """Creates the values of no query.

        Args:
            store: the rows of the queries.
            limits: those of a slot.
        """
        self.bytes_max = limits.tracked_bytes_max
        self.rows = TrackedRows()
        self.sets = ValueSets()
        self.last = LastObjects(limits.track_objects_garbage_min)
        self._store = store
        self._garbage = 0
        self._garbage_min = limits.track_garbage_min

    # Objects -------------------------------------------------------------------------------

    def keep_objects(
        self,
        rows: npt.NDArray[np.int64],
        named: npt.NDArray[np.int64],
        rows_of: Callable[[npt.NDArray[np.intp]], StoredRows] | None,
    ) -> npt.NDArray[np.int32]:
        """Keeps the objects of values that satisfy a query, each once, as the newest of them.

        Args:
            rows, rows_of: as of `TrackIndex.match`.
            named: i8[p], places in `rows` that satisfy a query.

        Returns:
            i4[v], the number of each value's object; `NOT_KNOWN` if it is not kept.
        """
        numbers = np.full(len(rows), NOT_KNOWN, np.int32)
        if rows_of is not None and len(named):
            # An object is kept once, even if several of its values are inside queries.
            satisfying = sorted_distinct(named)
            distinct, places = np.unique(rows[satisfying], return_inverse=True)
            numbers[satisfying] = self.last.add(rows_of(distinct)) + places
        return numbers

    def follow(
        self,
        arrival_ms: npt.NDArray[np.int64],
        positions: npt.NDArray[np.int64],
        keys: npt.NDArray[np.uint64],
        sets: npt.NDArray[np.int32],
        numbers: npt.NDArray[np.int32],
        named: npt.NDArray[np.int64],
        query_rows: npt.NDArray[np.int32],
    ) -> tuple[TrackHits, npt.NDArray[np.int32]]:
        """Converts the present pairs of value and query, in the order of values, into events.

        With each event the number of the object that is reported, -1 for the object itself.
        """
        n, held = len(keys), self.sets
        touched = sorted_distinct(sets[sets >= 0])
        entries_max = int(held.counts(touched).sum()) + len(query_rows)
        held.reserve(entries_max)
        held.stays.reserve(int(np.count_nonzero(self.rows.has_stays.array[query_rows])))
        room = 2 * entries_max + len(query_rows)
        out_objects = np.empty(room, np.int32)
        out_rows = np.empty(room, np.int32)
        out_events = np.empty(room, np.uint8)
        out_numbers = np.empty(room, np.int32)
        count = follow(
            sets,
            numbers,
            keys,
            arrival_ms,
            positions,
            np.searchsorted(named, np.arange(n + 1)),
            query_rows,
            held.words,
            held.blocks,
            held.entries,
            held.stays.table,
            held.stays.state,
            self._store.words,
            self.rows.keys.array,
            self.rows.generations.array,
            self.rows.stamps.array,
            self.rows.members.array,
            self.rows.events.array,
            self.rows.has_stays.array,
            self.rows.dwells_ms.array,
            self.rows.leaves_ms.array,
            self.last.weights,
            held.charges,
            self.rows.row_bytes.array,
            self.rows.tenant_rows.array,
            self.rows.tenants,
            self.bytes_max,
            held.progress,
            out_objects,
            out_rows,
            out_events,
            out_numbers,
        )
        required(count, "follow: no room")
        held.stays.changed()
        held.drop_empty(touched)
        hits = TrackHits(out_objects[:count], out_rows[:count], out_events[:count])
        return hits, out_numbers[:count]

    def events_with_objects(
        self,
        hits: TrackHits,
        numbers: npt.NDArray[np.int32],
        rows: npt.NDArray[np.int64],
        rows_of: Callable[[npt.NDArray[np.intp]], StoredRows],
    ) -> StayEvents:
        """Returns events of queries with stays, each with the object that it reports.

        Args:
            hits: the events; `object_rows` are places in `rows`.
            numbers: i4[m], of the object that is reported; -1: it is the object of the batch.
            rows, rows_of: as of `TrackIndex.match`.
        """
        is_own = numbers == NOT_KNOWN
        objects, places = [], np.empty(len(hits), np.int32)
        if is_own.any():
            distinct, found = np.unique(rows[hits.object_rows[is_own]], return_inverse=True)
            objects.append(rows_of(distinct))
            places[is_own] = found
        if not is_own.all():
            known, found = np.unique(numbers[~is_own], return_inverse=True)
            places[~is_own] = found + sum(map(len, objects))
            objects.append(self.last.take(known))
        joined = objects[0] if len(objects) == 1 else StoredRows.concat(objects)
        # What was due before an object comes before the object's own events.
        order = 2 * hits.object_rows.astype(np.int64) + is_own
        return StayEvents(joined, places, hits.query_rows, hits.events, order)

    # Waits ---------------------------------------------------------------------------------

    def take_due(self, time_ms: int) -> StayEvents | None:
        """Returns what is due before a time: values have entered or left; None without events."""
        stays = self.sets.stays
        due = stays.due_before(time_ms)
        rows, phases, dues_ms, numbers, sets = (
            stays.table[due, column] for column in (ROW, PHASE, DUE, LAST, OWN_SET)
        )
        has_left = phases == LEAVES
        stays.table[due, PHASE], stays.table[due, DUE] = REPORTED, NEVER_DUE
        bits = self.rows.events.array[rows]
        entered = np.where(bits >> ENTERS & 1, ENTERS, np.where(bits >> INSIDE & 1, INSIDE, 0))
        events = np.where(has_left, np.where(bits >> EXITS & 1, EXITS, 0), entered)
        reported = None
        if (is_wanted := (events != 0) & (numbers != NOT_KNOWN)).any():
            known, places = np.unique(numbers[is_wanted], return_inverse=True)
            reported = StayEvents(
                self.last.take(known),
                places.astype(np.int32),
                rows[is_wanted].astype(np.int32),
                events[is_wanted].astype(np.uint8),
                dues_ms[is_wanted],
            )
        if has_left.any():
            self._drop_stays(due[has_left])
            self.sets.drop_empty(sorted_distinct(sets[has_left].astype(np.int32)))
        stays.changed()
        self.tidy()
        return reported

    def _drop_stays(self, dropped: npt.NDArray[np.int64]) -> None:
        held = self.sets
        count = drop_stays(
            dropped,
            held.words,
            held.blocks,
            held.entries,
            held.stays.table,
            held.stays.state,
            self.rows.members.array,
            self.last.weights,
            held.charges,
            self.rows.row_bytes.array,
            self.rows.tenant_rows.array,
            self.rows.tenants,
            held.progress,
        )
        required(count - len(dropped), "drop_stays: a stay without an entry")

    def _waits_of(
        self, rows: npt.NDArray[np.int32], phases: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Returns i8[m], how long each of some queries waits in a phase."""
        dwells_ms, leaves_ms = self.rows.dwells_ms.array, self.rows.leaves_ms.array
        waits = [(phases == DWELLS) * dwells_ms[rows], (phases == LEAVES) * leaves_ms[rows]]
        return np.asarray(waits[0] + waits[1])

    # Members -------------------------------------------------------------------------------

    def take(self, rows: npt.NDArray[np.int32]) -> Members:
        """Removes the values inside queries and returns them, as before the next object.

        Args:
            rows: i4[k], rows in use, each once.
        """
        count = int(self.rows.members.array[rows].sum())
        out = [np.empty(count, dtype) for dtype in ("i4", "i4", "i4", "i8", "i8")]
        taken = 0
        if count:
            is_taken = np.zeros(len(self.rows.members.array), np.uint8)
            is_taken[rows] = 1
            taken = take_members(
                is_taken,
                self.sets.words_in_use,
                self.sets.blocks,
                self.sets.entries,
                self.sets.stays.table,
                self.sets.stays.state,
                self.rows.generations.array,
                self.rows.members.array,
                self.last.weights,
                self.sets.charges,
                self.rows.row_bytes.array,
                self.rows.tenant_rows.array,
                self.rows.tenants,
                self.sets.progress,
                *out,
            )
        self.sets.stays.changed()
        own, query_rows, numbers, phases, dues_ms = (column[:taken] for column in out)
        keys = self.rows.keys.array[query_rows]
        values = self.sets.handles_of(keys, self.sets.handles_in(own))
        self.sets.drop_empty(sorted_distinct(own))
        order = np.lexsort((values, query_rows))
        members = Members(query_rows[order], values[order], numbers[order])
        if not self.rows.has_stays.array[rows].any():
            return members
        sinces_ms = dues_ms - self._waits_of(query_rows, phases)
        sinces_ms = np.where(phases == REPORTED, 0, sinces_ms)
        return replace(members, phases=phases[order], sinces_ms=sinces_ms[order])

    def put(self, members: Members) -> None:
        """Puts values inside queries in which they are not, without events.

        What they wait for counts from the same time on, and is as long as the queries say.
        """
        phases, dues_ms = members.phases, None
        if phases is not None and members.sinces_ms is not None:
            waits = self._waits_of(members.query_rows, phases)
            dues_ms = np.where(phases == REPORTED, NEVER_DUE, members.sinces_ms + waits)
            # Also a query that does not wait itself: what is due already comes with the next time.
            self.rows.has_stays.array[members.query_rows[phases != REPORTED]] = 1
        self.put_columns(members.query_rows, members.values, members.numbers, None, phases, dues_ms)

    def put_columns(
        self,
        rows: npt.NDArray[np.int32],
        values: npt.NDArray[np.uint64],
        numbers: npt.NDArray[np.int32],
        former_values: npt.NDArray[np.uint64] | None = None,
        phases: npt.NDArray[np.int64] | None = None,
        dues_ms: npt.NDArray[np.int64] | None = None,
    ) -> None:
        """Puts values inside queries, as `put` does, and notes the hashes of earlier versions.

        Args:
            rows, values, numbers, phases: m pairs, as in `Members`.
            former_values: u8[m], each value's hash in earlier versions.
            dues_ms: i8[m], when a wait ends, else `NEVER_DUE`; without `phases` nothing waits.
        """
        if not len(rows):
            return
        held = self.sets
        if phases is None or dues_ms is None:
            phases, dues_ms = np.full(len(rows), REPORTED), np.full(len(rows), NEVER_DUE)
        held.stays.reserve(int(np.count_nonzero(self.rows.has_stays.array[rows])))
        handles = held.handles_of(self.rows.keys.array[rows], values)
        sets = held.find_or_make(handles, np.ones(len(rows), np.bool_))
        if former_values is not None:
            held.note(sets, former_values)
        held.reserve(int(held.counts(sorted_distinct(sets)).sum()) + len(rows))
        done = put_members(
            sets,
            rows,
            numbers,
            phases,
            dues_ms,
            held.words,
            held.blocks,
            held.entries,
            held.stays.table,
            held.stays.state,
            self.rows.generations.array,
            self.rows.members.array,
            self.rows.has_stays.array,
            self.last.weights,
            held.charges,
            self.rows.row_bytes.array,
            self.rows.tenant_rows.array,
            self.rows.tenants,
            held.progress,
        )
        required(done, "put_members: no room")
        held.stays.changed()

    # Memory --------------------------------------------------------------------------------

    def end(self, rows: npt.NDArray[np.int32]) -> None:
        """Forgets what is inside ended queries; `reclaim` frees it later."""
        self._garbage += int(self.rows.members.array[rows].sum())
        self.rows.end(rows)

    def reclaim(self) -> None:
        """Frees what was inside ended queries, once it is worth a sweep over all sets."""
        if self._garbage > max(self._garbage_min, self.sets.entries_count // 2):
            self._sweep()

    def _sweep(self) -> None:
        sets = self.sets.all()
        self._garbage = sweep_sets(
            sets,
            self.sets.words,
            self.sets.blocks,
            self.sets.entries,
            self.sets.stays.table,
            self._store.words,
            self._store.state,
            self.rows.generations.array,
            self.last.weights,
            self.sets.charges,
            self.sets.progress,
        )
        self.sets.drop_empty(sets)

    def tidy(self) -> None:
        """Gives back memory, if most of it is that of values which have left."""
        held = self.sets
        if self.last.is_crowded(held.entries_count, self.rows.row_bytes.array):
            held.renumber(self.last.keep(held.members()[3]))
        if held.is_sparse:
            self.sets = held.compacted()

    @property
    def bytes_total(self) -> int:
        """Bytes of memory that they take."""
        return self.sets.bytes_total + self.last.bytes_total + self._store.in_use * ROW_BYTES
