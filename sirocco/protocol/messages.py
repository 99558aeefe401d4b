"""What travels between the services, as frozen values; `codec` turns them into records.

One class for each one-way call of `proto/sirocco/v1` that travels over a topic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sirocco.index.query_rows import QueryRows
from sirocco.model.objects import ObjectColumns, ObjectColumnsBuilder
from sirocco.model.query import Query
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
# Of a query that asks nothing of the past.
NO_PAST = -1
# Of what is told of a query because it changed, not because the map does.
NOT_COPIED = -1
# The end of a lifetime without end, epoch ms.
NEVER_MS = (1 << 63) - 1

# What an object does to a query.
MATCHES = 0
ENTERS = 1
STAYS = 2
LEAVES = 3

# The row of an object that is not beside.
NO_ROW = (1 << 32) - 1


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
        received_ms: time at the front, epoch ms; in a record that covers no numbers it says that
            time has come so far.
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
class Tracked:
    """`intake`: from here on objects are followed by the values of a member."""

    key: str


@dataclass(frozen=True, slots=True)
class Keywords:
    """`intake`: what the queries of one registry partition need, see `protocol.summaries`.

    Attributes:
        partition: of the registry.
        epoch: of the ownership that says so.
        terms: u8[k], keywords; 0 stands for every object.
        slots: u8[k, w], the slots that need objects with each: bit s % 64 of word s // 64.
        begins, ends: the first and the last record of those that say all that is live.
        is_withdrawn: it is not said any more: every object is needed.
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
    """`intake`: objects behind this record follow the map of a version."""

    version: int


@dataclass(frozen=True, slots=True)
class Prepare:
    """`registry`: queries behind this record stand where the next map wants them, too."""

    version: int


@dataclass(frozen=True, slots=True)
class Retire:
    """`registry`: queries behind this record follow the map of a version alone.

    Attributes:
        version: of the map.
        at_ms: when it was said, epoch ms: no object that arrived later was routed by an earlier
            map.
    """

    version: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Change:
    """`registry`: one change to one query.

    It is void unless the query's revision is `expected_revision`, and behind any record of a
    greater epoch. One that is `restated` changes nothing: it says again what is in force under
    `expected_revision`, since the newest record of the query was void.

    Attributes:
        handle: of the query.
        query: the query from now on; None when it is removed.
        subscriber: who is told.
        start_ms: begin of the lifetime, epoch ms.
        expected_revision: `NO_REVISION` when there was no such query.
        digest: 64 bits over query and subscriber, by which equal ones are known; 0 for a removal.
        epoch: of the ownership under which it was appended.
        past_ms: also answer from the objects of so long before; `NO_PAST` for none.
        is_restated: see above.
        locator: where objects that stand in several slots are reported, see `index.locators`;
            empty where that follows from the query.
    """

    handle: int
    query: Query | None
    subscriber: str
    start_ms: int
    expected_revision: int
    digest: int
    epoch: int = 0
    past_ms: int = NO_PAST
    is_restated: bool = False
    locator: bytes = b""


@dataclass(frozen=True, slots=True)
class QueryNames:
    """Which queries a record speaks of; q rows.

    Attributes:
        handles: u8[q], xxh3-64 of the query id.
        ids: u1[b], UTF-8.
        id_offsets: i8[q + 1]
        subscriber_rows: u4[q], row of `subscribers`.
        subscribers: names.
        specs: for each query that is no plain range query its canonical JSON, empty for those;
            None when all are plain.
    """

    handles: NDArray[np.uint64]
    ids: NDArray[np.uint8]
    id_offsets: NDArray[np.int64]
    subscriber_rows: NDArray[np.uint32]
    subscribers: tuple[str, ...]
    specs: tuple[str, ...] | None = None

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
        track_keys: members by whose values objects are followed.
        tracks: u4[n], 0 for an object of the slot itself, else 1 + row of `track_keys` for a copy
            that is here because of its value; None when there are no copies.
        track_values: u8[n], hash of that value; None when there are no copies.
        homes: bool[n], whether this slot is the object's home, which stores it and answers what no
            keyword leads to; of copies it says nothing. None: it is that of all.
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


@dataclass(frozen=True, slots=True)
class Installed:
    """`slots`: query changes of one slot, all of one registry partition.

    Of a plain range query that asks nothing of the past its rows say all; the columns from `kinds`
    on hold zero for it, and `NO_PAST`.

    Attributes:
        registry_partition: where the changes come from.
        floor: every change of that partition below this offset has been in this slot before.
        names: q rows, queries that are new or have a new version.
        revisions: i8[q], offset in the registry partition.
        rows: q rows of compiled conditions: which objects count.
        filters: for each row the JSON of its `where`, empty without; None when no row has one.
        removed: u8[r], handles of queries that are no longer here.
        removed_revisions: i8[r]
        kinds: u1[q], see `index.kinds`.
        starts_ms: i8[q], begin of the lifetime, epoch ms.
        past_ms: i8[q], also answer from the objects of so long before; `NO_PAST` for none.
        slot_counts: u4[q], in how many slots the query stands.
        homes: bool[q], whether this is the least of them, which reports even what is empty.
        locators: of each query as in `Change`; None when all are empty.
        copied_at: the queries are not new, but copied for a change of the map: up to this offset
            of the registry partition they are known to be in force.
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

    @property
    def specs(self) -> tuple[str, ...] | None:
        """The canonical JSON of each query that is no plain range query; see `QueryNames`."""
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
        """Changes of plain range queries alone, none of which asks for the past."""
        count = len(revisions)
        return cls(
            registry_partition,
            floor,
            names,
            revisions,
            rows,
            filters,
            removed,
            removed_revisions,
            np.zeros(count, np.uint8),
            np.zeros(count, np.int64),
            np.full(count, NO_PAST, np.int64),
            np.zeros(count, np.uint32),
            np.zeros(count, np.bool_),
        )


@dataclass(frozen=True, slots=True)
class MatchColumns:
    """Which query matched which object; m rows.

    Attributes:
        objects: u4[m], row of the object columns beside.
        queries: u4[m], row of the query columns beside.
        changes: u1[m], `MATCHES`, `ENTERS`, `STAYS` or `LEAVES`; None when all are `MATCHES`.
        distances_m: f8[m], from the query's point; None when no query has one.
    """

    objects: NDArray[np.uint32]
    queries: NDArray[np.uint32]
    changes: NDArray[np.uint8] | None = None
    distances_m: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.objects)

    def take(self, rows: NDArray[np.integer] | NDArray[np.bool_]) -> MatchColumns:
        """Returns some of the matches, in the given order."""
        return MatchColumns(
            self.objects[rows],
            self.queries[rows],
            None if self.changes is None else self.changes[rows],
            None if self.distances_m is None else self.distances_m[rows],
        )


@dataclass(frozen=True, slots=True)
class StepColumns:
    """What slots have to say of steps of terms and ranked queries; s steps.

    A step that is too large for a record comes in parts, which are added up.

    Attributes:
        queries: u4[s], row of the query columns beside.
        at_ms: i8[s], epoch ms.
        positions: i8[s], in the slot.
        interval_rows: u4[s], row of the intervals beside.
        entry_offsets: i8[s + 1], of terms queries: the entries of each step; e in all.
        terms: u1[b], UTF-8.
        term_offsets: i8[e + 1]
        counts: u8[e], objects that hold the term.
        totals: u8[s, 2], of ranked queries: objects of the window within the radius, and the sum
            of their lengths in tokens.
        holder_offsets: i8[s + 1], h in all.
        holders: u8[h], how many of those objects hold each keyword, in the query's order.
        candidate_offsets: i8[s + 1], c in all.
        candidates: u4[c], row of the object columns beside.
        token_counts: u4[c], length of each.
        distances_m: f8[c], from the query's point.
        frequencies: u2[f], how often each candidate holds each keyword, candidate by candidate.
    """

    queries: NDArray[np.uint32]
    at_ms: NDArray[np.int64]
    positions: NDArray[np.int64]
    interval_rows: NDArray[np.uint32]
    entry_offsets: NDArray[np.int64]
    terms: NDArray[np.uint8]
    term_offsets: NDArray[np.int64]
    counts: NDArray[np.uint64]
    totals: NDArray[np.uint64]
    holder_offsets: NDArray[np.int64]
    holders: NDArray[np.uint64]
    candidate_offsets: NDArray[np.int64]
    candidates: NDArray[np.uint32]
    token_counts: NDArray[np.uint32]
    distances_m: NDArray[np.float64]
    frequencies: NDArray[np.uint16]

    def __len__(self) -> int:
        return len(self.queries)


@dataclass(frozen=True, slots=True)
class ListColumns:
    """Answers that are lists; l of them with e entries.

    Attributes:
        queries: u4[l], row of the query columns beside.
        at_ms: i8[l], the step, epoch ms; `NO_TIME_MS` for a knn query, which has none.
        entry_offsets: i8[l + 1]
        values: f8[e], metres, score or count.
        names: u1[b], UTF-8: terms, or the names of objects that have string ids.
        name_offsets: i8[e + 1]
        ids: u8[e], of objects; 0 for terms.
        sessions, numbers: u8[e], event keys of objects; 0 for terms.
        objects: u4[e], row of the object columns beside for what is new in the list, `NO_ROW` for
            the rest.
        removed_offsets: i8[l + 1], what has left a knn list; r in all.
        removed_ids: u8[r]
        removed_names: u1[b], UTF-8
        removed_name_offsets: i8[r + 1]
        partial: bool[l], whether slots are missing in a step; None where none are.
    """

    queries: NDArray[np.uint32]
    at_ms: NDArray[np.int64]
    entry_offsets: NDArray[np.int64]
    values: NDArray[np.float64]
    names: NDArray[np.uint8]
    name_offsets: NDArray[np.int64]
    ids: NDArray[np.uint64]
    sessions: NDArray[np.uint64]
    numbers: NDArray[np.uint64]
    objects: NDArray[np.uint32]
    removed_offsets: NDArray[np.int64]
    removed_ids: NDArray[np.uint64]
    removed_names: NDArray[np.uint8]
    removed_name_offsets: NDArray[np.int64]
    partial: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.queries)


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


@dataclass(frozen=True, slots=True)
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
class MapPrepared:
    """`control`: the map that is to follow the one in force.

    Without bytes it says that there is none of a version whose number is as even or odd.
    """

    term: int
    version: int
    partition_map: bytes


@dataclass(frozen=True, slots=True)
class MapCopied:
    """`control`: all live queries of a registry partition stand where a map wants them."""

    partition: int
    version: int
    epoch: int


@dataclass(frozen=True, slots=True)
class MapSwitched:
    """`control`: a prepared map is in force from here on."""

    term: int
    version: int


@dataclass(frozen=True, slots=True)
class CheckpointTaken:
    """`control`: the state of an owned Kafka partition at `offset` is safe in the archive.

    `map_version`: the map that holds at that place of `intake` or `registry`; 0 elsewhere.
    """

    topic: str
    partition: int
    epoch: int
    offset: int
    name: str
    map_version: int = 0


NO_OBJECTS = ObjectColumnsBuilder().build()
NO_EVENTS = EventColumns(np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.int64))
NO_TERMS = TermColumns(
    np.empty(0, np.uint64), np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.uint16)
)
NO_NAMES = QueryNames(
    np.empty(0, np.uint64), np.empty(0, np.uint8), np.zeros(1, np.int64), np.empty(0, np.uint32), ()
)
NO_MATCHES = MatchColumns(np.empty(0, np.uint32), np.empty(0, np.uint32))
NO_POSITIONS = np.empty(0, np.int64)
NO_ROWS = np.empty(0, np.uint32)

Declaration = (
    LeaderElected | Granted | MapActivated | MapPrepared | MapCopied | MapSwitched | CheckpointTaken
)
Message = (
    Taken
    | Tracked
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
