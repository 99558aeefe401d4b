"""The ends of queries that ask for it: each is sent once, when every slot has reached it.

A lifetime is over when the time of all slots has passed it; then no slot finds anything more. Every
other end is a record in the log of each slot, and is sent when each slot has reported it. The first
of the two sends the version's end, the other one is a repeat. So a version is remembered until all
slots have reported what the registry says of it.

A slot may not report for long, as while its state is unusable, and clients register and remove
queries meanwhile. Reading cannot pause until it does: its reports come from the same Kafka
partition. So what waits is bounded in bytes. Beyond that the first end is sent without the missing
slots, as a step is (`step_merge`), and notifications of these slots may follow it.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from sirocco.protocol.contract.byte_columns import packed, unpacked
from sirocco.protocol.contract.columns import (
    BY_REMOVAL,
    BY_TTL,
    NO_EVENTS,
    ListColumns,
    QueryNames,
    names_of_pairs,
)
from sirocco.protocol.contract.effects import State
from sirocco.protocol.contract.messages import NEVER_MS, NO_OBJECTS
from sirocco.protocol.contract.positions import NO_TIME_MS
from sirocco.protocol.contract.query_specs import Spec
from sirocco.protocol.merger.limits import LIMITS
from sirocco.protocol.merger.list_batch import ListBatch
from sirocco.protocol.merger.state_pieces import Piece, in_pieces, weighed_pieces, weight_of_rows

# Ends that were sent and that one Kafka partition of `partials` remembers, some 400 bytes each.
# With event time the registry never says that a lifetime is over. Then the ends that were sent
# first are forgotten, and a query that is copied to other slots after so many would end again.
ENDS_MAX = 1 << 16

# What an end takes in memory beside its names, with its places in tables.
_END_BYTES = 400

# Lifetimes are found anew when so many of them, and most, are of ends that were sent.
_DUE_MIN = 1_024

# (registry partition, revision)
Place = tuple[int, int]

# Slots that take as long, in a checkpoint, as the other columns of a version.
_SLOTS_A_ROW = 8

_NO_BYTES = np.empty(0, np.uint8)
_NO_IDS = np.empty(0, np.uint64)
_NO_OFFSETS = np.zeros(1, np.int64)


@dataclass(slots=True)
class _End:
    """Reports of slots about a version.

    Attributes:
        query, subscriber: its id, and who receives the end.
        slots: a bit for each that has passed the record of the registry.
        has_expired: the registry says that its lifetime was over.
        is_sent: its end has been sent.
        is_due: some slot has passed the end of its lifetime.
    """

    query: str
    subscriber: str
    slots: int = 0
    has_expired: bool = False
    is_sent: bool = False
    is_due: bool = False

    @property
    def bytes_total(self) -> int:
        """About how many bytes it takes, the same after a restart."""
        return _bytes_of(self.query, self.subscriber)


# (query, subscriber, reason, revision)
_Ready = tuple[str, str, int, int]


@dataclass(slots=True, kw_only=True)
class QueryEnds:
    """The ends of queries of one Kafka partition's subscribers.

    Attributes:
        bytes_max: bytes of ends that wait for slots, and of those that wait for other results.
        early: how many were sent without the missing slots, or forgotten, because there were too
            many.
    """

    bytes_max: int = LIMITS.ends_bytes_max
    early: int = 0
    # Of `_ends`, and of `_awaiting`.
    _bytes_waiting: int = 0
    _bytes_awaiting: int = 0
    # Ends that are still to be sent.
    _ends: dict[Place, _End] = field(default_factory=dict)
    # Ends that were sent, the first ones first.
    _sent_ends: dict[Place, _End] = field(default_factory=dict)
    # (end of the lifetime, place) of ends to send when all slots have passed it.
    _due: list[tuple[int, Place]] = field(default_factory=list)
    # Ends that are to be looked at, and those that wait because results are sent before them.
    _ready: deque[_Ready] = field(default_factory=deque)
    _awaiting: list[_Ready] = field(default_factory=list)
    _outgoing: list[tuple[str, str, int]] = field(default_factory=list)

    def __len__(self) -> int:
        """Returns the number of known versions."""
        return len(self._ends) + len(self._sent_ends)

    @property
    def has_output(self) -> bool:
        """Whether any end is to be sent."""
        return bool(self._outgoing)

    @property
    def is_waiting(self) -> bool:
        """Whether any end may be sent once time advances, or other results were sent."""
        return bool(self._due or self._ready or self._awaiting)

    @property
    def next_ms(self) -> int:
        """Returns the earliest end of a lifetime that some slot has passed."""
        return self._due[0][0] if self._due else NEVER_MS

    def take_report(self, spec: Spec, query: str, subscriber: str, slot: int, slots: int) -> None:
        """Takes a slot's report that a version has ended there.

        Args:
            spec: of the version.
            query, subscriber: its id, and who receives the end.
            slot: the reporting slot.
            slots: number of slots.
        """
        if not 0 <= slot < slots:
            return
        end = self._sent_ends.get(spec.place) or self._ends.get(spec.place)
        if end is None:
            end = self._ends[spec.place] = _End(query, subscriber)
            self._bytes_waiting += end.bytes_total
        if spec.expires_ms is not None:
            # Once, not for each slot: 100,000 lifetimes may end together.
            if not end.is_sent and not end.is_due:
                heapq.heappush(self._due, (spec.expires_ms, spec.place))
                end.is_due = True
            self._bound()
            return
        end.slots |= 1 << slot
        end.has_expired |= spec.has_expired
        if end.slots.bit_count() == slots:
            self._queue_end(spec.place, end, BY_TTL if end.has_expired else BY_REMOVAL)
            self._sent_ends.pop(spec.place, None)
        else:
            self._bound()

    def complete(
        self,
        time_ms: int,
        awaits: Callable[[str, str, int], bool],
        ends_max: int = 1 << 62,
        *,
        looks_again: bool = True,
    ) -> int:
        """Takes the time that all slots have reached.

        Args:
            time_ms: their least time.
            awaits: whether results of versions of a query (id, subscriber, the newest revision) are
                still to be sent.
            ends_max: how many ends are looked at.
            looks_again: some results were sent since the last call.

        Returns:
            How many were looked at; fewer than `ends_max` when these were all.
        """
        if looks_again and self._awaiting:
            self._ready.extendleft(reversed(self._awaiting))
            self._awaiting, self._bytes_awaiting = [], 0
        looks = 0
        while looks < ends_max and self.next_ms < time_ms:
            _, place = heapq.heappop(self._due)
            looks += 1
            if (end := self._ends.get(place)) is not None:
                self._queue_end(place, end, BY_TTL)
        while looks < ends_max and self._ready:
            ready = self._ready.popleft()
            looks += 1
            query, subscriber, reason, revision = ready
            has_room = self._bytes_awaiting < self.bytes_max
            if has_room and awaits(query, subscriber, revision):
                self._awaiting.append(ready)
                self._bytes_awaiting += _bytes_of(query, subscriber)
            else:
                self._outgoing.append((query, subscriber, reason))
        return looks

    def _queue_end(self, place: Place, end: _End, reason: int) -> None:
        if not end.is_sent:
            self._ready.append((end.query, end.subscriber, reason, place[1]))
            end.is_sent = True
            self._sent_ends[place] = self._ends.pop(place)
            self._bytes_waiting -= end.bytes_total

    def _bound(self) -> None:
        while self._bytes_waiting > self.bytes_max:
            place, end = next(iter(self._ends.items()))
            self._queue_end(place, end, BY_TTL if end.has_expired or end.is_due else BY_REMOVAL)
            self.early += 1
        while len(self._sent_ends) > ENDS_MAX:
            del self._sent_ends[next(iter(self._sent_ends))]
            self.early += 1
        if len(self._due) > _DUE_MIN + 2 * len(self._ends):
            self._due = [due for due in self._due if due[1] in self._ends]
            heapq.heapify(self._due)

    def flush(self) -> list[ListBatch]:
        """Returns the ends to send since the last call."""
        outgoing, self._outgoing = self._outgoing, []
        return [_end_lists(outgoing)] if outgoing else []

    # --- as a checkpoint

    def pieces(self, rows_max: int) -> Iterator[Piece]:
        """Yields the state as columns; everything to be sent must have been fetched."""
        assert not self._outgoing
        known = chain(self._sent_ends.items(), self._ends.items())
        before = 0
        rows = ((1 + end.slots.bit_count() // _SLOTS_A_ROW, (place, end)) for place, end in known)
        for count, ends in weighed_pieces(rows, rows_max):
            yield weight_of_rows(count), _end_columns(ends, before)
            before += len(ends)
        for ready in in_pieces(chain(self._awaiting, self._ready), rows_max):
            yield (
                weight_of_rows(len(ready)),
                {
                    **packed("over.ready_queries", [query.encode() for query, *_ in ready]),
                    **packed("over.ready_subscribers", [name.encode() for _, name, *_ in ready]),
                    "over.ready": np.array([p for _, _, *p in ready], np.int64).reshape(-1, 2),
                },
            )
        for due in in_pieces(self._due, rows_max):
            columns = np.array([(at_ms, *place) for at_ms, place in due], np.int64)
            yield weight_of_rows(len(due)), {"over.due": columns.reshape(-1, 3)}

    def restore(self, state: State) -> None:
        """Takes the columns of a checkpoint; one of an earlier release has none."""
        if "over.places" not in state:
            return
        rows = zip(
            state["over.places"].tolist(),
            unpacked("over.queries", state),
            unpacked("over.subscribers", state),
            state["over.flags"].tolist(),
            strict=True,
        )
        ends = []
        for (partition, revision), query, subscriber, (has_expired, is_sent) in rows:
            end = _End(query.decode(), subscriber.decode(), 0, has_expired, is_sent)
            known = self._sent_ends if is_sent else self._ends
            self._bytes_waiting += 0 if is_sent else end.bytes_total
            known[partition, revision] = end
            ends.append(end)
        for row, slot in state["over.slots"].tolist():
            ends[row].slots |= 1 << slot
        due = state["over.due"].tolist()
        self._due = [(at_ms, (partition, revision)) for at_ms, partition, revision in due]
        heapq.heapify(self._due)
        for _, place in self._due:
            if place in self._ends:
                self._ends[place].is_due = True
        waiting = zip(
            unpacked("over.ready_queries", state),
            unpacked("over.ready_subscribers", state),
            state["over.ready"].tolist(),
            strict=True,
        )
        self._ready = deque((query.decode(), name.decode(), *pair) for query, name, pair in waiting)


def _end_columns(ends: list[tuple[Place, _End]], before: int) -> State:
    """Returns the columns of some ends, of which so many others are saved before."""
    slots = [(i, slot) for i, (_, end) in enumerate(ends, before) for slot in _bits(end.slots)]
    flags = [(end.has_expired, end.is_sent) for _, end in ends]
    return {
        "over.places": np.array([place for place, _ in ends], np.int64).reshape(-1, 2),
        **packed("over.queries", [end.query.encode() for _, end in ends]),
        **packed("over.subscribers", [end.subscriber.encode() for _, end in ends]),
        "over.flags": np.array(flags, np.bool_).reshape(-1, 2),
        "over.slots": np.array(slots, np.int64).reshape(-1, 2),
    }


def _bits(slots: int) -> list[int]:
    return [slot for slot in range(slots.bit_length()) if slots >> slot & 1]


def _bytes_of(query: str, subscriber: str) -> int:
    return _END_BYTES + len(query) + len(subscriber)


def _end_lists(ends: list[tuple[str, str, int]]) -> ListBatch:
    """Returns lists without entries that report ends."""
    count = len(ends)
    names: QueryNames = names_of_pairs([(query, subscriber) for query, subscriber, _ in ends])
    lists = ListColumns(
        queries=np.arange(count, dtype=np.uint32),
        at_ms=np.full(count, NO_TIME_MS, np.int64),
        entry_offsets=np.zeros(count + 1, np.int64),
        values=np.empty(0, np.float64),
        names=_NO_BYTES,
        name_offsets=_NO_OFFSETS,
        ids=_NO_IDS,
        sessions=_NO_IDS,
        numbers=_NO_IDS,
        objects=np.empty(0, np.uint32),
        removed_offsets=np.zeros(count + 1, np.int64),
        removed_ids=_NO_IDS,
        removed_names=_NO_BYTES,
        removed_name_offsets=_NO_OFFSETS,
        ended=np.array([reason for _, _, reason in ends], np.uint8),
    )
    return ListBatch(NO_OBJECTS, NO_EVENTS, names, lists)
