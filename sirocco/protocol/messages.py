"""What travels between the services, as frozen values; `codec` turns them into records.

One class for each one-way call of `proto/sirocco/v1` that travels over a topic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sirocco.index.query_rows import QueryRows
from sirocco.model.objects import ObjectColumns, ObjectColumnsBuilder
from sirocco.model.query import RangeQuery
from sirocco.model.text import TermColumns
from sirocco.protocol.positions import Intervals

INTAKE = "intake"
REGISTRY = "registry"
SLOTS = "slots"
PARTIALS = "partials"
DELIVERIES = "deliveries"
CONTROL = "control"
DEAD_LETTERS = "dead-letters"

# The revision of a query that does not exist.
NO_REVISION = -1
# The end of a lifetime without end, epoch ms.
NEVER_MS = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class EventColumns:
    """By what objects are recognised, wherever they went.

    Attributes:
        sessions: u8[n], publishing session.
        numbers: u8[n], number within the session, from 1.
        arrivals_ms: i8[n], epoch ms, non-decreasing within one intake partition.
    """

    sessions: NDArray[np.uint64]
    numbers: NDArray[np.uint64]
    arrivals_ms: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.sessions)

    def take(self, rows: NDArray[np.integer]) -> EventColumns:
        """Returns the given rows, in the given order."""
        return EventColumns(self.sessions[rows], self.numbers[rows], self.arrivals_ms[rows])

    def slice(self, begin: int, end: int) -> EventColumns:
        """Returns the rows from `begin` to before `end`, as views."""
        return EventColumns(
            self.sessions[begin:end], self.numbers[begin:end], self.arrivals_ms[begin:end]
        )

    @classmethod
    def concat(cls, parts: list[EventColumns]) -> EventColumns:
        """Joins columns, one part behind the other."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([part.sessions for part in parts]),
            np.concatenate([part.numbers for part in parts]),
            np.concatenate([part.arrivals_ms for part in parts]),
        )


@dataclass(frozen=True, slots=True)
class Taken:
    """`intake`: objects of one session as they were acknowledged.

    Attributes:
        session: publishing session.
        first_number: number of the first object that the record covers.
        span: how many numbers it covers, refused objects included.
        acknowledged_to: every number up to this one was acknowledged before.
        received_ms: time at the front, epoch ms.
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
class Change:
    """`registry`: one change to one query.

    It is void unless the query's revision is `expected_revision`, and behind any record of a
    greater epoch.

    Attributes:
        handle: of the query.
        query: the query from now on; None when it is removed.
        subscriber: who is told.
        start_ms: begin of the lifetime, epoch ms.
        expected_revision: `NO_REVISION` when there was no such query.
        digest: 64 bits over query and subscriber, by which equal ones are known; 0 for a removal.
        epoch: of the ownership under which it was appended.
    """

    handle: int
    query: RangeQuery | None
    subscriber: str
    start_ms: int
    expected_revision: int
    digest: int
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class QueryNames:
    """Which queries a record speaks of; q rows.

    Attributes:
        handles: u8[q], xxh3-64 of the query id.
        ids: u1[b], UTF-8.
        id_offsets: i8[q + 1]
        subscriber_rows: u4[q], row of `subscribers`.
        subscribers: names.
    """

    handles: NDArray[np.uint64]
    ids: NDArray[np.uint8]
    id_offsets: NDArray[np.int64]
    subscriber_rows: NDArray[np.uint32]
    subscribers: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.handles)


@dataclass(frozen=True, slots=True)
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
    """

    map_version: int
    intervals: Intervals
    objects: ObjectColumns
    events: EventColumns
    positions: NDArray[np.int64]
    interval_rows: NDArray[np.uint32]
    terms: TermColumns


@dataclass(frozen=True, slots=True)
class Installed:
    """`slots`: query changes of one slot, all of one registry partition.

    Attributes:
        registry_partition: where the changes come from.
        floor: every change of that partition below this offset has been in this slot before.
        names: q rows, queries that are new or have a new version.
        revisions: i8[q], offset in the registry partition.
        rows: q rows of compiled conditions.
        filters: for each row the JSON of its `where`, empty without; None when no row has one.
        removed: u8[r], handles of queries that are no longer here.
        removed_revisions: i8[r]
    """

    registry_partition: int
    floor: int
    names: QueryNames
    revisions: NDArray[np.int64]
    rows: QueryRows
    filters: tuple[str, ...] | None
    removed: NDArray[np.uint64]
    removed_revisions: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MatchColumns:
    """Which query matched which object; m rows.

    Attributes:
        objects: u4[m], row of the object columns beside.
        queries: u4[m], row of the query columns beside.
    """

    objects: NDArray[np.uint32]
    queries: NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.objects)


@dataclass(frozen=True, slots=True)
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
    """

    intervals: Intervals
    objects: ObjectColumns
    events: EventColumns
    positions: NDArray[np.int64]
    interval_rows: NDArray[np.uint32]
    queries: QueryNames
    matches: MatchColumns


@dataclass(frozen=True, slots=True)
class Delivered:
    """`deliveries`: matches, those of one subscriber together.

    Attributes:
        objects: n rows.
        events: n rows.
        queries: q rows; `queries.subscribers` holds s names.
        matches: m rows.
        match_offsets: i8[s + 1], where the matches of each subscriber begin.
    """

    objects: ObjectColumns
    events: EventColumns
    queries: QueryNames
    matches: MatchColumns
    match_offsets: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Progress:
    """`deliveries`: closes a transaction with the state that a successor goes on from.

    Attributes:
        input_offset: next offset in the twin partition of `partials`.
        slots: u4[k], which slots have been heard of.
        positions: i8[k], the position up to which each was taken.
        times_ms: i8[k], each slot's time.
    """

    input_offset: int
    slots: NDArray[np.uint32]
    positions: NDArray[np.int64]
    times_ms: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LeaderElected:
    """`control`: a coordinator leads from here on; the record's offset is its term."""

    member: str


@dataclass(frozen=True, slots=True)
class Granted:
    """`control`: a Kafka partition of a topic has an owner from here on.

    The record's offset is the epoch of the ownership; `term` that of the leader who says it.
    """

    term: int
    topic: str
    partition: int
    member: str


@dataclass(frozen=True, slots=True)
class MapActivated:
    """`control`: the partition map from here on."""

    term: int
    version: int
    partition_map: bytes


@dataclass(frozen=True, slots=True)
class CheckpointTaken:
    """`control`: the state of an owned Kafka partition at `offset` is safe in the archive."""

    topic: str
    partition: int
    epoch: int
    offset: int
    name: str


NO_OBJECTS = ObjectColumnsBuilder().build()
NO_EVENTS = EventColumns(np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.int64))
NO_TERMS = TermColumns(np.empty(0, np.uint64), np.zeros(1, np.int64), np.empty(0, np.int32))
NO_NAMES = QueryNames(
    np.empty(0, np.uint64), np.empty(0, np.uint8), np.zeros(1, np.int64), np.empty(0, np.uint32), ()
)
NO_MATCHES = MatchColumns(np.empty(0, np.uint32), np.empty(0, np.uint32))
NO_POSITIONS = np.empty(0, np.int64)
NO_ROWS = np.empty(0, np.uint32)

Declaration = LeaderElected | Granted | MapActivated | CheckpointTaken
Message = Taken | Change | Routed | Installed | Found | Delivered | Progress | Declaration
