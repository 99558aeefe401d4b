"""The ends of queries that ask for it, in one slot.

A lifetime ends where the slot's time passes it, like a step; every other end is a record of the
registry's owner (`end_requests`). In both cases the slot reports it; mergers report the end when
all slots have (`merger/query_ends`). A version is identified by its place in the registry.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sirocco.protocol.contract.byte_columns import packed, unpacked
from sirocco.protocol.contract.columns import NO_EVENTS, NO_MATCHES, QueryNames, names_of_pairs
from sirocco.protocol.contract.effects import State
from sirocco.protocol.contract.messages import (
    NEVER_MS,
    NO_OBJECTS,
    NO_POSITIONS,
    NO_ROWS,
    Found,
    Installed,
)
from sirocco.protocol.contract.positions import NO_TIME_MS, Intervals, place_of
from sirocco.protocol.contract.query_specs import end_spec
from sirocco.protocol.contract.record_sizes import (
    MATCH_BYTES,
    RECORD_LIMITS,
    RecordLimits,
    partition_of,
)
from sirocco.protocol.evaluator.standing.due_heap import push_due

# (registry partition, revision)
Place = tuple[int, int]


@dataclass(frozen=True, slots=True, order=True)
class QueryEnd:
    """The coming or past end of a version of a query.

    Attributes:
        expires_ms: when its lifetime ends; `NEVER_MS` where the registry has ended it.
        place: of the version.
        query, subscriber: its id, and the receiver of the report.
        has_expired: by the registry its lifetime was over.
    """

    expires_ms: int
    place: Place
    query: str
    subscriber: str
    has_expired: bool = False

    @property
    def spec(self) -> str:
        """The spec of the end, as sent to mergers."""
        expires_ms = None if self.expires_ms == NEVER_MS else self.expires_ms
        return end_spec(self.place, expires_ms, has_expired=self.has_expired)


@dataclass(slots=True)
class EndReport:
    """Queries that have ended in a slot, at one position of its log.

    Attributes:
        slot, end, time_ms, sent: as in `Report`.
        ends: in an order that is the same in every evaluator.
        pinned: the position of the report.
    """

    slot: int
    end: int
    time_ms: int
    sent: NDArray[np.int64]
    ends: list[QueryEnd]
    pinned: int


@dataclass(slots=True)
class QueryEndings:
    """What one slot knows of the queries whose end is to be reported."""

    # Handle → the version here, if it has a lifetime that has not been passed.
    _known: dict[int, QueryEnd] = field(default_factory=dict)
    # (end, registry partition, revision, handle), the earliest first; some are obsolete.
    _due: list[tuple[int, int, int, int]] = field(default_factory=list)
    # Ends from the registry → the change that caused each, as long as it may be repeated.
    _reported: dict[Place, int] = field(default_factory=dict)

    def enter(self, message: Installed, rows: list[int]) -> None:
        """Takes new versions of queries."""
        handles = message.names.handles
        for row in rows if self._known else ():
            self._known.pop(int(handles[row]), None)
        if message.reports_end is None:
            return
        names = _pairs(message.names)
        for row in rows:
            expires_ms = int(message.rows.expires_ms[row])
            if message.reports_end[row] and expires_ms != NEVER_MS:
                place = message.registry_partition, int(message.revisions[row])
                if place not in self._reported:
                    self._put(int(handles[row]), QueryEnd(expires_ms, place, *names[row]))

    def _put(self, handle: int, end: QueryEnd) -> None:
        self._known[handle] = end
        due = end.expires_ms, *end.place, handle
        push_due(self._due, due, len(self._known), self._is_current)

    def _is_current(self, due: tuple[int, int, int, int]) -> bool:
        _, partition, revision, handle = due
        end = self._known.get(handle)
        return end is not None and end.place == (partition, revision)

    def leave(self, handles: list[int]) -> None:
        """Drops queries that are no longer here."""
        for handle in handles if self._known else ():
            self._known.pop(handle, None)

    @property
    def next_ms(self) -> int:
        """The earliest end of a lifetime; `NEVER_MS` without any."""
        while self._due and not self._is_current(self._due[0]):
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else NEVER_MS

    def take_due(self, time_ms: int, at_most: int) -> list[QueryEnd]:
        """Takes those whose lifetimes ended before a time."""
        due: list[QueryEnd] = []
        while self.next_ms < time_ms and len(due) < at_most:
            due.append(self._known.pop(heapq.heappop(self._due)[-1]))
        return due

    def registry_ends(self, message: Installed, floor: int) -> list[QueryEnd]:
        """Returns the ends reported by the registry for the first time.

        A version may still be here: where its successor's record was refused and this one was not.
        Its lifetime is awaited no more: mergers forget a version that all slots have reported.

        Args:
            message: of the registry's owner.
            floor: all of its changes below have been here.
        """
        if message.ended is None:
            return []
        ended, partition = message.ended, message.registry_partition
        found: list[QueryEnd] = []
        columns = zip(
            ended.revisions.tolist(), ended.by.tolist(), ended.has_expired.tolist(), strict=True
        )
        handles = ended.names.handles.tolist()
        for (revision, by, has_expired), handle, names in zip(
            columns, handles, _pairs(ended.names), strict=True
        ):
            place = partition, revision
            if handle in self._known and self._known[handle].place == place:
                del self._known[handle]
            if by < floor or place in self._reported:
                continue
            self._reported[place] = by
            found.append(QueryEnd(NEVER_MS, place, *names, has_expired))
        return found

    def forget(self, partition: int, floor: int) -> None:
        """Drops ends of changes below the registry's floor: they are not repeated."""
        if self._reported:
            self._reported = {
                place: by
                for place, by in self._reported.items()
                if place[0] != partition or by >= floor
            }

    # --- as a checkpoint

    def state(self) -> State:
        """Returns the state for a checkpoint, as columns."""
        ends = list(self._known.values())
        return {
            "endings.handles": np.array(list(self._known), np.uint64),
            "endings.expires_ms": np.array([each.expires_ms for each in ends], np.int64),
            "endings.places": np.array([each.place for each in ends], np.int64).reshape(-1, 2),
            **packed("endings.queries", [each.query.encode() for each in ends]),
            **packed("endings.subscribers", [each.subscriber.encode() for each in ends]),
            "endings.said": np.array(
                [(*place, by) for place, by in self._reported.items()], np.int64
            ).reshape(-1, 3),
        }

    def restore(self, state: State) -> None:
        """Takes the columns of a checkpoint; one of an older version has none."""
        if "endings.handles" not in state:
            return
        rows = zip(
            state["endings.handles"].tolist(),
            state["endings.expires_ms"].tolist(),
            state["endings.places"].tolist(),
            unpacked("endings.queries", state),
            unpacked("endings.subscribers", state),
            strict=True,
        )
        for handle, expires_ms, (partition, revision), query, subscriber in rows:
            place = partition, revision
            self._put(handle, QueryEnd(expires_ms, place, query.decode(), subscriber.decode()))
        for partition, revision, by in state["endings.said"].tolist():
            self._reported[partition, revision] = by


def end_founds(
    report: EndReport, limits: RecordLimits = RECORD_LIMITS
) -> Iterator[tuple[int, Found]]:
    """Makes the records of a report, with the Kafka partition of each."""
    by_target: dict[int, list[QueryEnd]] = {}
    for end in report.ends:
        by_target.setdefault(partition_of(end.subscriber, len(report.sent)), []).append(end)
    for target, ends in sorted(by_target.items()):
        pieces = list(_pieces(ends, limits.bytes_max))
        for number, piece in enumerate(pieces):
            sent = int(report.sent[target])
            place = place_of(report.pinned, sent)
            time_ms = report.time_ms if number == len(pieces) - 1 else NO_TIME_MS
            report.sent[target] = place + 1
            yield target, _found((report.slot, sent, place + 1, time_ms), piece)


def _found(interval: tuple[int, int, int, int], ends: list[QueryEnd]) -> Found:
    names = names_of_pairs([(end.query, end.subscriber) for end in ends])
    names = QueryNames(
        names.handles,
        names.ids,
        names.id_offsets,
        names.subscriber_rows,
        names.subscribers,
        tuple(end.spec for end in ends),
    )
    return Found(
        intervals=Intervals.of([interval]),
        objects=NO_OBJECTS,
        events=NO_EVENTS,
        positions=NO_POSITIONS,
        interval_rows=NO_ROWS,
        queries=names,
        matches=NO_MATCHES,
    )


def _pieces(ends: list[QueryEnd], bytes_max: int) -> Iterator[list[QueryEnd]]:
    piece: list[QueryEnd] = []
    size = 0
    for end in ends:
        own = sum(len(text.encode()) for text in (end.query, end.subscriber, end.spec))
        own += MATCH_BYTES
        if piece and size + own > bytes_max:
            yield piece
            piece, size = [], 0
        piece.append(end)
        size += own
    yield piece


def _pairs(names: QueryNames) -> list[tuple[str, str]]:
    """Returns id and subscriber of each query."""
    ids, bounds = names.ids.tobytes(), names.id_offsets.tolist()
    return [
        (ids[bounds[row] : bounds[row + 1]].decode(), names.subscribers[own])
        for row, own in enumerate(names.subscriber_rows.tolist())
    ]
