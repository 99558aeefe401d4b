"""Routes objects from intake to slots: the half of a router's back for objects (rules R1, R2).

The output is a function of the record, the state at its offset and the map alone. So a restarted
router repeats exactly what its predecessor did, and the slots drop the repeats.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sirocco.model.objects import concat
from sirocco.model.text import TermColumns, TextAnalyser
from sirocco.protocol.contract.columns import NO_EVENTS, EventColumns, event_keys
from sirocco.protocol.contract.effects import Append, Effect, State
from sirocco.protocol.contract.load_messages import ArrivalReport
from sirocco.protocol.contract.messages import (
    INTAKE,
    NO_OBJECTS,
    NO_POSITIONS,
    NO_ROWS,
    NO_TERMS,
    SLOTS,
    IntakeObjects,
    Keywords,
    Routed,
    Switch,
    TrackedMember,
    TrackedMemberSet,
)
from sirocco.protocol.contract.positions import (
    NO_INTERVALS,
    NO_TIME_MS,
    Intervals,
    position_of,
)
from sirocco.protocol.contract.term_rows import take_terms
from sirocco.protocol.router.limits import LIMITS, RouterLimits
from sirocco.protocol.router.objects.followed_members import FollowedMembers
from sirocco.protocol.router.objects.intake_partition import IntakeRecord, Part, Source
from sirocco.protocol.router.objects.keyword_filter import KeywordFilter, wanted
from sirocco.protocol.router.objects.publish_sessions import SESSION_IDLE_MS_MAX, SessionTable
from sirocco.protocol.router.objects.slot_records import (
    bytes_of,
    piece_of,
    record_bounds,
    with_places,
)
from sirocco.protocol.router.objects.track_copies import copies_max, followed
from sirocco.schemes.map.routing import ObjectRoutes, RoutingArrays

Waiting: TypeAlias = tuple[int, int, IntakeRecord]


@dataclass(frozen=True, slots=True, eq=False)
class LeafArrivals:
    """How many objects were routed to each leaf of a map. Other threads may read it.

    Attributes:
        version: of the map; 0 without one.
        objects: i8[ids], by the leaf's id.
    """

    version: int
    objects: NDArray[np.int64]

    def add(self, leaves: NDArray[np.integer[Any]]) -> None:
        """Counts objects by the ids of their leaves."""
        np.add(self.objects, np.bincount(leaves, minlength=len(self.objects)), out=self.objects)

    def report(self) -> ArrivalReport:
        """Returns the counts as of now."""
        objects = self.objects.copy()
        leaves = np.flatnonzero(objects)
        return ArrivalReport(
            self.version, leaves.astype(np.int32), objects[leaves].astype(np.float64)
        )


@dataclass(slots=True, kw_only=True)
class IntakeRouter:
    """Routes the objects of the owned intake partitions.

    Attributes:
        slots: number of slots.
        event_time: take an object's own time as its arrival, made non-decreasing.
        routings: of the known maps, by version.
        map_version: of the map in force.
        summarised: registry partitions that publish which objects their queries need, so that
            others are held back; 0 where everything is stored.
        registries: number of registry partitions.
        limits: of the router.
        sources: owned intake partition → its state.
        objects_total: routed so far.
        copied_bytes_total: bytes in copies of followed objects, so far.
        held_back_total: objects not sent to a slot that their place leads to, so far.
        slot_objects: i8[slots], routed so far.
        arrivals: routed to leaves of the map in force so far.
    """

    slots: int
    event_time: bool
    routings: Mapping[int, RoutingArrays] = field(default_factory=dict)
    map_version: int = 0
    summarised: int = 0
    registries: int = 1
    limits: RouterLimits = LIMITS
    sources: dict[int, Source] = field(default_factory=dict)
    objects_total: int = 0
    held_back_total: int = 0
    copied_bytes_total: int = 0
    slot_objects: NDArray[np.int64] = field(init=False)
    arrivals: LeafArrivals = field(init=False)
    _analyser: TextAnalyser = field(default_factory=TextAnalyser)
    _waiting: list[Waiting] = field(default_factory=list)
    _waiting_objects: int = 0
    # Members by whose values objects are followed, over all sources.
    _track_keys: set[str] = field(default_factory=set)
    # How many entries of `_waiting` wait for a map that is not known yet.
    _stalled: int = 0
    # Whether more waits than one turn takes: the next turn continues, and nothing is read until
    # then.
    is_crowded: bool = False
    _flushed_ms: int = 0
    _interval_ms: int = field(init=False)

    def __post_init__(self) -> None:
        self._interval_ms = self.limits.flush_interval_ms_min
        self.slot_objects = np.zeros(self.slots, np.int64)
        self.arrivals = LeafArrivals(0, np.zeros(0, np.int64))

    def use(self, routings: Mapping[int, RoutingArrays], version: int) -> None:
        """Updates the known maps and the version in force.

        Each source uses its own version: records say where it changes.
        """
        self.routings, self._stalled = routings, 0
        if version == self.map_version:
            return
        self.map_version = version
        ids = int(routings[version].leaf_ids.max()) + 1
        self.arrivals = LeafArrivals(version, np.zeros(ids, np.int64))

    @property
    def routing(self) -> RoutingArrays | None:
        """Returns the routing of the map in force."""
        return self.routings.get(self.map_version)

    def own(self, partition: int, offset: int, state: State | None, now_ms: int) -> None:
        """Continues from a checkpoint, or from the beginning."""
        sessions = SessionTable(self.limits.sessions_max)
        received_ms = arrival_ms = NO_TIME_MS
        if state is not None:
            received_ms, arrival_ms = (int(time) for time in state["times_ms"])
            sessions.restore(state)
        sent = np.full(self.slots, position_of(offset), np.int64)
        source = Source(
            partition=partition,
            offset=offset,
            received_ms=received_ms,
            arrival_ms=arrival_ms,
            sessions=sessions,
            sent=sent,
            last_ms=now_ms,
        )
        # Without a checkpoint, start with the oldest map that anyone may need.
        source.map_version = min(self.routings, default=0)
        if state is not None and "map_version" in state:
            source.map_version = int(state["map_version"][0])
        source.members = FollowedMembers(self.registries)
        if state is not None:
            source.members.restore(state)
        if self.summarised:
            source.summaries = KeywordFilter(
                self.slots, self.summarised, self.limits.keyword_table_bytes_max
            )
            if state is not None:
                source.summaries.restore(state)
        self.sources[partition] = source
        self._gather_members()

    def disown(self, partition: int) -> None:
        """Drops the state of a Kafka partition that another process owns now."""
        del self.sources[partition]
        self._gather_members()
        kept = [entry for entry in self._waiting if entry[0] != partition]
        self._waiting, self._stalled = kept, 0
        # The waiting entries may have been those of this partition: the next turn decides.
        self.is_crowded = False
        self._waiting_objects = _objects_of(kept)

    @property
    def followed_members(self) -> int:
        """Returns how many members objects are followed by."""
        return len(self._track_keys)

    def _gather_members(self) -> None:
        self._track_keys = set().union(*(each.members.names for each in self.sources.values()))

    def add(self, partition: int, offset: int, taken: IntakeRecord, now_ms: int) -> None:
        """Takes the next record of an owned intake partition."""
        self._waiting.append((partition, offset, taken))
        if isinstance(taken, IntakeObjects):
            self._waiting_objects += len(taken.objects)
        self.sources[partition].last_ms = now_ms

    @property
    def is_full(self) -> bool:
        """Whether enough objects wait for a flush at once."""
        return self._waiting_objects >= self.limits.flush_objects

    def deadline_ms(self) -> int | None:
        """Returns when `flush` is due; None while nothing waits."""
        if len(self._waiting) <= self._stalled:
            return None
        is_due = self.is_full or self.is_crowded
        return self._flushed_ms + (0 if is_due else self._interval_ms)

    def flush(self, now_ms: int, *, at_once: bool = False) -> list[Effect]:
        """Routes the waiting records when due: one record for each slot that gets an object."""
        due_ms = self.deadline_ms()
        if due_ms is None or (now_ms < due_ms and not at_once):
            return []
        self._flushed_ms = now_ms
        self.is_crowded = False
        effects: list[Effect] = []
        left = self.limits.flush_bytes_max
        while stretch := self._take_stretch(left):
            left -= sum(self._bytes_of(taken) for _, _, taken in stretch)
            # A member dropped within this stretch counts until its end: earlier objects are
            # followed.
            self._track_keys.update(
                each.key for _, _, each in stretch if isinstance(each, TrackedMember)
            )
            parts = [
                part
                for partition, offset, taken in stretch
                if (part := self.sources[partition].take(offset, taken, event_time=self.event_time))
                is not None
            ]
            for version in sorted({part.map_version for part in parts}):
                effects += self._route([part for part in parts if part.map_version == version])
            for partition, _, taken in stretch:
                if isinstance(taken, Keywords):
                    self.sources[partition].learn()
            if any(isinstance(each, TrackedMemberSet) for _, _, each in stretch):
                self._gather_members()
        if not effects:
            return []
        limits = self.limits
        interval_ms = len(effects) * 1_000 // limits.records_per_s_max
        interval_ms = max(interval_ms, limits.flush_interval_ms_min)
        self._interval_ms = min(interval_ms, limits.flush_interval_ms_max)
        return effects

    def _take_stretch(self, bytes_max: int) -> list[Waiting]:
        """Takes the waiting records of each source up to the next change of its map, by source.

        A record covers a source up to its position: before records of another map are taken, all
        earlier ones must be sent. A source whose map has not been read from `control` waits.

        Args:
            bytes_max: bytes that may be made of them; the first record is always taken, others wait
                for the next turn, with all after them.
        """
        taken: list[Waiting] = []
        kept: list[Waiting] = []
        held: set[int] = set()
        # Whether this flush has taken something already.
        is_begun = bytes_max < self.limits.flush_bytes_max
        for entry in self._waiting:
            partition, _, message = entry
            source = self.sources[partition]
            if partition in held or source.map_version not in self.routings:
                kept.append(entry)
                continue
            if not self.is_crowded:
                size = self._bytes_of(message)
                self.is_crowded = size > max(bytes_max, 0) and is_begun
                is_begun, bytes_max = is_begun or size > 0, bytes_max - size
            if self.is_crowded:
                kept.append(entry)
                continue
            taken.append(entry)
            if isinstance(message, Switch):
                held.add(partition)
        self._waiting, self._stalled = kept, 0 if self.is_crowded else len(kept)
        self._waiting_objects = _objects_of(kept)
        # Records of one source together: a slot's record then has them in the source's order.
        taken.sort(key=lambda entry: entry[0])
        return taken

    def _bytes_of(self, message: IntakeRecord) -> int:
        """Returns an upper bound of the bytes made of the objects of a record."""
        if not isinstance(message, IntakeObjects) or not len(message.objects):
            return 0
        objects = message.objects
        if not self._track_keys:
            return len(objects.text) + len(objects.attributes)
        sizes = np.diff(objects.text_offsets) + np.diff(objects.attribute_offsets)
        return int((sizes * (1 + copies_max(objects, self.slots))).sum())

    def next_offset(self, partition: int) -> int:
        """Returns the offset of the next record to be added to an owned intake partition."""
        added = [offset for number, offset, _ in self._waiting if number == partition]
        return max([self.sources[partition].offset, *(offset + 1 for offset in added)])

    def marks(self, partitions: list[int]) -> list[Effect]:
        """Reports the positions of these sources to every slot, also if there are no objects.

        `flush` must run first: a mark covers only what was routed.
        """
        effects: list[Effect] = []
        for slot in range(self.slots):
            rows = [self._interval(partition, slot) for partition in partitions]
            effects.append(Append(SLOTS, slot, self._mark(Intervals.of(rows))))
        return effects

    def beats(self, now_ms: int) -> list[Effect]:
        """Appends the time to the log of idle sources, so that time advances for their slots."""
        if self.event_time:
            return []
        effects: list[Effect] = []
        for partition, source in self.sources.items():
            if now_ms - source.last_ms >= self.limits.mark_interval_ms:
                source.last_ms = now_ms
                beat = IntakeObjects(
                    session=0,
                    first_number=1,
                    span=0,
                    acknowledged_to=0,
                    received_ms=now_ms,
                    objects=NO_OBJECTS,
                    number_deltas=None,
                )
                effects.append(Append(INTAKE, partition, beat))
        return effects

    def _route(self, parts: list[Part]) -> list[Effect]:
        version = parts[0].map_version
        objects = concat([part.objects for part in parts])
        events = EventColumns.concat([part.events for part in parts])
        positions = np.concatenate([part.positions for part in parts])
        sources = np.repeat(
            np.array([part.partition for part in parts], np.uint32),
            [len(part.objects) for part in parts],
        )
        terms = self._analyser.tokens_of_batch(objects.text, objects.text_offsets)
        routes = self.routings[version].route_objects(
            objects.lon, objects.lat, terms.offsets, terms.terms, event_keys(events)
        )
        if self.summarised:
            routes = self._wanted(parts, terms, routes)
        copies = followed(objects, self._track_keys, self.slots) if self._track_keys else None
        row, slots = routes.row, routes.slot
        if copies is not None:
            self.copied_bytes_total += int(bytes_of(objects, terms.offsets)[copies.rows].sum())
            row = np.concatenate([row, copies.rows])
            of_values = copies.values % np.uint64(self.slots)
            slots = np.concatenate([slots, of_values.astype(slots.dtype)])
        # Rows of a slot in the order of their source, an object before its copies.
        order = np.lexsort((row, slots)) if copies else np.argsort(slots, kind="stable")
        rows = row[order].astype(np.int64)
        routed = Routed(
            map_version=version,
            intervals=NO_INTERVALS,
            objects=objects.take(rows),
            events=events.take(rows),
            positions=positions[rows],
            interval_rows=sources[rows],
            terms=take_terms(terms, rows),
        )
        if copies is not None:
            routed = copies.mark(routed, order, len(routes.row))
        if routes.homes is not None:
            routed = with_places(routed, routes, terms, rows, slots[order], order)
        counts = np.bincount(slots, minlength=self.slots)
        self.objects_total += len(objects)
        self.slot_objects += counts
        if version == self.map_version:
            self.arrivals.add(routes.leaf)
        effects: list[Effect] = []
        end = 0
        for slot in np.flatnonzero(counts).tolist():
            begin, end = end, end + int(counts[slot])
            for first, last in record_bounds(routed, begin, end, self.limits):
                effects.append(Append(SLOTS, slot, self._record(routed, slot, first, last, end)))
        return effects

    def _wanted(self, parts: list[Part], terms: TermColumns, routes: ObjectRoutes) -> ObjectRoutes:
        keyword_parts = [(part.partition, len(part.objects), part.keywords) for part in parts]
        summaries = {
            partition: source.summaries
            for partition, source in self.sources.items()
            if source.summaries is not None
        }
        kept = wanted(keyword_parts, summaries, terms, routes)
        self.held_back_total += len(routes.row) - len(kept.row)
        return kept

    def _record(self, routed: Routed, slot: int, first: int, last: int, end: int) -> Routed:
        """Returns one record for a slot: rows [first, last) of those that end at `end`."""
        sources = routed.interval_rows[first:last]
        # Rows of a slot are in the order of their sources: each begins where the number changes.
        is_next = np.zeros(last - first, np.bool_)
        np.not_equal(sources[1:], sources[:-1], out=is_next[1:])
        rows = np.cumsum(is_next, dtype=np.uint32)
        intervals = []
        for partition in [int(sources[0]), *sources[is_next].tolist()]:
            # A source whose rows continue in the slot's next record is covered up to its last row
            # here; otherwise up to its position.
            is_continued = last < end and int(routed.interval_rows[last]) == partition
            if is_continued:
                next_position = int(routed.positions[last - 1]) + 1
                time_ms = int(routed.events.arrivals_ms[last - 1])
                intervals.append(self._interval(partition, slot, next_position, time_ms))
            else:
                intervals.append(self._interval(partition, slot))
        return piece_of(routed, first, last, Intervals.of(intervals), rows)

    def _interval(
        self,
        partition: int,
        slot: int,
        next_position: int | None = None,
        time_ms: int | None = None,
    ) -> tuple[int, int, int, int]:
        source = self.sources[partition]
        begin = int(source.sent[slot])
        end = source.position if next_position is None else next_position
        source.sent[slot] = end
        return partition, begin, end, source.arrival_ms if time_ms is None else time_ms

    def _mark(self, intervals: Intervals) -> Routed:
        # A slot that has taken this mark knows which maps the sources use; a search needs that.
        versions = [self.sources[source].map_version for source in intervals.sources.tolist()]
        version = max(self.map_version, *versions)
        return Routed(
            map_version=version,
            intervals=intervals,
            objects=NO_OBJECTS,
            events=NO_EVENTS,
            positions=NO_POSITIONS,
            interval_rows=NO_ROWS,
            terms=NO_TERMS,
            least_version=min(versions),
        )

    def forget_sessions(self) -> None:
        """Drops the sessions that have been idle too long."""
        for source in self.sources.values():
            if source.received_ms != NO_TIME_MS:
                source.sessions.forget(source.received_ms - SESSION_IDLE_MS_MAX)


def _objects_of(waiting: list[Waiting]) -> int:
    return sum(len(taken.objects) for _, _, taken in waiting if isinstance(taken, IntakeObjects))
