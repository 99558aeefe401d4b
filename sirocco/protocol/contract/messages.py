"""The messages between the services, as frozen values; `codec` turns them into records.

One class for each one-way call of `proto/sirocco/v1` that travels over a topic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.compile import compile_queries
from sirocco.index.base.query_rows import QueryRows
from sirocco.model.objects import ObjectColumns, ObjectColumnsBuilder
from sirocco.model.query import Query
from sirocco.model.text import TermColumns
from sirocco.protocol.contract.columns import (
    NO_EVENTS,
    NO_MATCHES,
    NO_NAMES,
    EventColumns,
    ListColumns,
    MatchColumns,
    QueryNames,
    StepColumns,
)
from sirocco.protocol.contract.control_records import Declaration
from sirocco.protocol.contract.positions import Intervals

INTAKE = "intake"
REGISTRY = "registry"
SLOTS = "slots"
PARTIALS = "partials"
DELIVERIES = "deliveries"
CONTROL = "control"
DEAD_LETTERS = "dead-letters"

# The revision of a query that does not exist.
NO_REVISION = -1
# The handle of probes, see `Change.is_probe`; a query may have it as well.
PROBE_HANDLE = 0
# `past_ms` of a query that does not ask for earlier objects.
NO_PAST = -1
# `copied_at` of changes sent because the query changed, not because the map does.
NOT_COPIED = -1
# The end of a lifetime without end, epoch ms.
NEVER_MS = (1 << 63) - 1

# Begin of a query for which the order of the log alone decides which objects count.
AT_ONCE_MS = -(1 << 63)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeObjects:
    """`intake`: objects of one session as they were acknowledged.

    Attributes:
        session: publishing session.
        first_number: number of the first object that the record covers.
        span: how many numbers it covers, refused objects included.
        acknowledged_to: every number up to this one was acknowledged before.
        received_ms: time at the front, epoch ms; a record that covers no numbers only reports
            that time has advanced to here.
        objects: n rows, n ≤ span.
        number_deltas: u4[n], number of each row less `first_number`; None when n = span.
    """

    session: int
    first_number: int
    span: int
    acknowledged_to: int
    received_ms: int
    objects: ObjectColumns
    number_deltas: NDArray[np.uint32] | None


@dataclass(frozen=True, slots=True)
class TrackedMember:
    """`intake`: from here on objects are followed by the values of a member.

    Attributes:
        key: the member.
        partition: of the registry, whose queries track it; None in records of older versions.
        epoch: of the owner that appended it.
    """

    key: str
    partition: int | None = None
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class TrackedMemberSet:
    """`intake`: from here on the queries of a registry partition track no others than these.

    Attributes:
        partition: of the registry.
        epoch: of the owner that appended it.
        keys: the members.
    """

    partition: int
    epoch: int
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keywords:
    """`intake`: what the queries of one registry partition need, see `keyword_filter`.

    Attributes:
        partition: of the registry.
        epoch: of the owner that appended it.
        terms: u8[k], keywords; 0 means every object.
        slots: u8[k, w], the slots that need objects with each: bit s % 64 of word s // 64.
        begins, ends: the first and the last record of a whole summary of what is live.
        is_withdrawn: the owner publishes no summary any more: every object is needed.
    """

    partition: int
    epoch: int
    terms: NDArray[np.uint64]
    slots: NDArray[np.uint64]
    begins: bool = False
    ends: bool = False
    is_withdrawn: bool = False


@dataclass(frozen=True, slots=True)
class Switch:
    """`intake`: objects after this record follow the map of a version."""

    version: int


@dataclass(frozen=True, slots=True)
class Prepare:
    """`registry`: queries after this record are also placed where the next map wants them."""

    version: int


@dataclass(frozen=True, slots=True)
class Retire:
    """`registry`: queries after this record follow the map of a version alone.

    Attributes:
        version: of the map.
        at_ms: when it was appended, epoch ms: no object that arrived later was routed by an earlier
            map.
    """

    version: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """`registry`: one change to one query.

    It is void unless the query's revision is `expected_revision`, and after any record of a greater
    epoch. A change with `is_republished` changes nothing: it republishes the version in force under
    `expected_revision`, because the newest record of the query was void.

    Attributes:
        handle: of the query.
        query: the query from now on; None when it is removed.
        subscriber: receives the notifications.
        start_ms: begin of the lifetime, epoch ms.
        expected_revision: `NO_REVISION` when there was no such query.
        digest: 64 bits over query and subscriber, which identify equal ones; 0 for a removal.
        epoch: of the owner that appended it.
        past_ms: also answer from the objects of so long before; `NO_PAST` for none.
        is_republished: see above.
        locator: where objects that are in several slots are reported, see
            `index.standing.locators`; empty where that follows from the query.
        is_start_given: the client gave the begin of the lifetime; else `start_ms` is when a router
            got the change request, by its own clock, and says nothing about objects.
        since: the revision at which the query that this change continues began; `NO_REVISION`
            where it begins with this change.
    """

    handle: int
    query: Query | None
    subscriber: str
    start_ms: int
    expected_revision: int
    digest: int
    epoch: int = 0
    past_ms: int = NO_PAST
    is_republished: bool = False
    locator: bytes = b""
    is_start_given: bool = False
    since: int = NO_REVISION

    @property
    def is_probe(self) -> bool:
        """Whether it is a probe, which changes nothing in any case: it only shows an ownership.

        Its digest is its number, which is never 0; that of a removal always is.
        """
        return self.query is None and self.digest != 0

    @property
    def begins_ms(self) -> int:
        """Objects that arrived before do not count; `AT_ONCE_MS` where the log's order decides."""
        if not self.is_start_given:
            return AT_ONCE_MS
        return max(self.start_ms - max(self.past_ms, 0), AT_ONCE_MS)


@dataclass(frozen=True, slots=True)
class FurtherValues:
    """Values of copies beyond the first; m of them.

    Attributes:
        rows: i8[m], ascending, of the copies.
        tracks: u4[m], 1 + row of `Routed.track_keys`.
        values: u8[m], hash of each value.
    """

    rows: NDArray[np.int64]
    tracks: NDArray[np.uint32]
    values: NDArray[np.uint64]

    def of(self, begin: int, end: int) -> FurtherValues | None:
        """Returns those of rows [begin, end), counted from `begin`; None when there are none."""
        first, last = np.searchsorted(self.rows, [begin, end]).tolist()
        if first == last:
            return None
        own = slice(first, last)
        return FurtherValues(self.rows[own] - begin, self.tracks[own], self.values[own])

    def taken(self, rows: NDArray[np.intp], count: int) -> FurtherValues:
        """Returns those of some of `count` rows, each taken once, by their places among these."""
        places = np.full(count, -1, np.int64)
        places[rows] = np.arange(len(rows))
        own = places[self.rows]
        kept = np.flatnonzero(own >= 0)
        kept = kept[np.argsort(own[kept], kind="stable")]
        return FurtherValues(own[kept], self.tracks[kept], self.values[kept])


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """`slots`: objects of one slot, or a mark when there are none.

    Attributes:
        map_version: under which they were routed.
        intervals: of the intake partitions.
        objects: n rows, those of one source together and in its order.
        events: n rows.
        positions: i8[n], in the source.
        interval_rows: u4[n], row of `intervals`.
        terms: n rows.
        track_keys: members by whose values objects are followed.
        tracks: u4[n], 0 for an object of the slot itself, else 1 + row of `track_keys` for a copy
            that is here because of its value; None when there are no copies.
        track_values: u8[n], hash of that value; None when there are no copies.
        least_version: of a mark: no later object of these sources is routed by an older map; 0: not
            known.
        further: further values of copies: an object has one copy in a slot, however many of its
            values lead there. None when there are none.
        homes: bool[n], whether this slot is the object's home, which stores it and answers queries
            that no keyword leads to; undefined for copies. None: all are at home here.
        via: bool[t], whether each term of `terms` leads here; None with `homes`.
    """

    map_version: int
    intervals: Intervals
    objects: ObjectColumns
    events: EventColumns
    positions: NDArray[np.int64]
    interval_rows: NDArray[np.uint32]
    terms: TermColumns
    track_keys: tuple[str, ...] = ()
    tracks: NDArray[np.uint32] | None = None
    track_values: NDArray[np.uint64] | None = None
    homes: NDArray[np.bool_] | None = None
    via: NDArray[np.bool_] | None = None
    further: FurtherValues | None = None
    least_version: int = 0


@dataclass(frozen=True, slots=True)
class EndedColumns:
    """Ended versions of queries whose end is to be reported; e rows.

    Attributes:
        names: e rows.
        revisions: i8[e], which versions.
        by: i8[e], offset in the registry partition of the change that ended each.
        has_expired: bool[e], whether its lifetime was over by then.
    """

    names: QueryNames
    revisions: NDArray[np.int64]
    by: NDArray[np.int64]
    has_expired: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """`slots`: query changes of one slot, all of one registry partition.

    The rows fully describe a plain range query that asks nothing of the past; the columns from
    `kinds` on hold zero for it, and `NO_PAST`.

    Attributes:
        registry_partition: where the changes come from.
        floor: every change of that partition below this offset has been sent to this slot before.
        names: q rows, queries that are new or have a new version.
        revisions: i8[q], offset in the registry partition.
        rows: q rows of compiled conditions: which objects count.
        filters: for each row the JSON of its `where`, empty without; None when no row has one.
        removed: u8[r], handles of queries that are no longer here.
        removed_revisions: i8[r]
        kinds: u1[q], see `index.base.kinds`.
        starts_ms: i8[q], begin of the lifetime, epoch ms.
        past_ms: i8[q], also answer from the objects of so long before; `NO_PAST` for none.
        slot_counts: u4[q], number of slots that hold the query.
        homes: bool[q], whether this is the least of them, which also reports empty results.
        locators: of each query as in `Change`; None when all are empty.
        copied_at: the queries are not new, but copied for a change of the map: up to this offset
            of the registry partition they are known to be in force.
        begins_ms: i8[q], as in `Change`; None when all are `AT_ONCE_MS`.
        sinces: i8[q], as in `Change`; None when all are `NO_REVISION`.
        reports_end: bool[q], whether the end of each is to be reported; None when no end is.
        ended: the ended versions; every slot reports when it has come so far. None: none has ended.
    """

    registry_partition: int
    floor: int
    names: QueryNames
    revisions: NDArray[np.int64]
    rows: QueryRows
    filters: tuple[str, ...] | None
    removed: NDArray[np.uint64]
    removed_revisions: NDArray[np.int64]
    kinds: NDArray[np.uint8]
    starts_ms: NDArray[np.int64]
    past_ms: NDArray[np.int64]
    slot_counts: NDArray[np.uint32]
    homes: NDArray[np.bool_]
    locators: tuple[bytes, ...] | None = None
    copied_at: int = NOT_COPIED
    begins_ms: NDArray[np.int64] | None = None
    sinces: NDArray[np.int64] | None = None
    reports_end: NDArray[np.bool_] | None = None
    ended: EndedColumns | None = None

    @property
    def specs(self) -> tuple[str, ...] | None:
        """Returns the canonical JSON of all but plain range queries; see `QueryNames`."""
        return self.names.specs

    @classmethod
    def plain(
        cls,
        registry_partition: int,
        floor: int,
        names: QueryNames,
        revisions: NDArray[np.int64],
        rows: QueryRows,
        filters: tuple[str, ...] | None,
        removed: NDArray[np.uint64],
        removed_revisions: NDArray[np.int64],
    ) -> Installed:
        """Returns changes of plain range queries alone, none of which asks for the past."""
        count = len(revisions)
        return cls(
            registry_partition=registry_partition,
            floor=floor,
            names=names,
            revisions=revisions,
            rows=rows,
            filters=filters,
            removed=removed,
            removed_revisions=removed_revisions,
            kinds=np.zeros(count, np.uint8),
            starts_ms=np.zeros(count, np.int64),
            past_ms=np.full(count, NO_PAST, np.int64),
            slot_counts=np.zeros(count, np.uint32),
            homes=np.zeros(count, np.bool_),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`partials`: what an evaluator found for the subscribers of one Kafka partition.

    Attributes:
        intervals: of the slots.
        objects: n rows, the objects that matched.
        events: n rows.
        positions: i8[n], in the slot.
        interval_rows: u4[n], row of `intervals`.
        queries: q rows.
        matches: m rows; those of one object together, objects in the order of their rows.
        steps: of terms and ranked queries; their candidates are among the objects.
    """

    intervals: Intervals
    objects: ObjectColumns
    events: EventColumns
    positions: NDArray[np.int64]
    interval_rows: NDArray[np.uint32]
    queries: QueryNames
    matches: MatchColumns
    steps: StepColumns | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """`deliveries`: matches and lists, those of one subscriber together.

    Attributes:
        objects: n rows.
        events: n rows.
        queries: q rows; `queries.subscribers` holds s names.
        matches: m rows.
        match_offsets: i8[s + 1], where the matches of each subscriber begin.
        lists: l rows; None without any.
        list_offsets: i8[s + 1], where the lists of each subscriber begin; None without any.
    """

    objects: ObjectColumns
    events: EventColumns
    queries: QueryNames
    matches: MatchColumns
    match_offsets: NDArray[np.int64]
    lists: ListColumns | None = None
    list_offsets: NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """`deliveries`: closes a transaction with the state from which a successor continues.

    Attributes:
        input_offset: next offset in the twin partition of `partials`.
        slots: u4[k], the slots that have reported.
        positions: i8[k], the position up to which each was taken.
        times_ms: i8[k], each slot's time.
        has_lists: there are lists, stored in a checkpoint that was declared in `control` before.
    """

    input_offset: int
    slots: NDArray[np.uint32]
    positions: NDArray[np.int64]
    times_ms: NDArray[np.int64]
    has_lists: bool = False


NO_OBJECTS = ObjectColumnsBuilder().build()
NO_TERMS = TermColumns(
    np.empty(0, np.uint64), np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.uint16)
)
NO_POSITIONS = np.empty(0, np.int64)
NO_ROWS = np.empty(0, np.uint32)


def without_content(message: Message) -> Message | None:
    """Returns what must still be sent of a message that no record can hold; None: nothing.

    The result covers the same positions, so that records after it are accepted, and removes the
    same queries from a slot.
    """
    match message:
        case Routed():
            return Routed(
                map_version=message.map_version,
                intervals=message.intervals,
                objects=NO_OBJECTS,
                events=NO_EVENTS,
                positions=NO_POSITIONS,
                interval_rows=NO_ROWS,
                terms=NO_TERMS,
            )
        case Found():
            return Found(
                intervals=message.intervals,
                objects=NO_OBJECTS,
                events=NO_EVENTS,
                positions=NO_POSITIONS,
                interval_rows=NO_ROWS,
                queries=NO_NAMES,
                matches=NO_MATCHES,
            )
        case Installed() if len(message.removed):
            return Installed.plain(
                message.registry_partition,
                message.floor,
                NO_NAMES,
                np.empty(0, np.int64),
                compile_queries([], []),
                None,
                message.removed,
                message.removed_revisions,
            )
    return None


Message = (
    IntakeObjects
    | TrackedMember
    | TrackedMemberSet
    | Keywords
    | Switch
    | Change
    | Prepare
    | Retire
    | Routed
    | Installed
    | Found
    | Delivered
    | Progress
    | Declaration
)
