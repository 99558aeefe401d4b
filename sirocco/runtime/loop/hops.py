"""Messages of the state machines ⇄ calls over topics, by the unmodified generated code."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.empty_pb2 import Empty

from sirocco.codec.change_columns import read_change_columns, write_change_columns
from sirocco.codec.hops import HOPS, Hop, decode, encode, key_of
from sirocco.internal_api.v1 import (
    control_service_pb2_grpc as control,
)
from sirocco.internal_api.v1 import (
    delivery_service_pb2_grpc as delivery,
)
from sirocco.internal_api.v1 import (
    intake_service_pb2_grpc as intake,
)
from sirocco.internal_api.v1 import (
    partial_service_pb2_grpc as partial,
)
from sirocco.internal_api.v1 import (
    registry_service_pb2_grpc as registry,
)
from sirocco.internal_api.v1 import (
    slot_service_pb2_grpc as slot,
)
from sirocco.model.errors import InvalidArgument, SiroccoError
from sirocco.protocol.contract.control_records import MapActivated, MapPrepared
from sirocco.protocol.contract.control_view import read_map
from sirocco.protocol.contract.effects import Entry, SetAside
from sirocco.protocol.contract.messages import DEAD_LETTERS, REGISTRY, Change, Message
from sirocco.protocol.contract.plain_queries import ChangeColumns, ChangeRecords
from sirocco.runtime.loop.traced_records import TracedRecords
from sirocco.transport.calls import METHOD_HEADER, LogChannel, LogContext, LogServer, StreamMethod
from sirocco.transport.errors import RecordTooLarge
from sirocco.transport.log import Headers, Producer, Record

# Bytes of a rejected record that are kept for an operator to inspect.
DEAD_LETTER_BYTES_MAX = 64 << 10

# Limit of the reason, which quotes what a client wrote: the log takes no letter that is too large.
REASON_CHARACTERS_MAX = 1_000

# From so many consecutive records of the registry on, changes of plain queries, or removals, are
# read as columns: what that costs for a single one does not pay.
COLUMN_RECORDS_MIN = 8

# Bytes of records between looks at the clock, which is a call of the system; and what a record
# counts besides its value: the hardest expressions have 1 KB and take 7 ms.
_LOOK_BYTES = 16_384
_RECORD_BYTES = 2_048

_CHANGE_HEADERS = ((METHOD_HEADER, HOPS[Change].method_path.encode()),)

# The generated code of each service. A message is declared in `HOPS` alone.
_GENERATED: dict[str, Any] = {
    "ControlService": control,
    "DeliveryService": delivery,
    "IntakeService": intake,
    "PartialService": partial,
    "RegistryService": registry,
    "SlotService": slot,
}


def _split(hop: Hop) -> tuple[str, str]:
    """Returns service and method: `/sirocco.v1.SlotService/Route` → `SlotService`, `Route`."""
    _, service, method = hop.method_path.split("/")
    return service.rpartition(".")[2], method


class HopWriter:
    """Appends messages.

    Args:
        producer: where to.
        acknowledged: called for each append with its number: (number, None, offset) when the log
            has it, (number, error, -1) when it never will.
        traced: which records carry places in traces; None: none does.
    """

    def __init__(
        self,
        producer: Producer,
        acknowledged: Callable[[int, Exception | None, int], None],
        traced: TracedRecords | None = None,
    ) -> None:
        self._producer = producer
        self._acknowledged = acknowledged
        self._traced = traced
        self._methods: dict[tuple[str, int, type], StreamMethod[Empty]] = {}

    def append(
        self, topic: str, partition: int, message: Message, number: int, headers: Headers = ()
    ) -> int:
        """Appends one message; returns its size in bytes.

        `headers`: may be left out, where the record would be too large with them.

        Raises:
            TransportError: nothing was taken.
        """
        key = (topic, partition, type(message))
        method = self._methods.get(key)
        if method is None:
            service, name = _split(HOPS[type(message)])
            stub = getattr(_GENERATED[service], f"{service}Stub")
            method = getattr(stub(LogChannel(self._producer, topic, partition)), name)
            self._methods[key] = method
        _, request = encode(message)
        on_ack = functools.partial(self._acknowledged, number)
        if self._traced is not None:
            headers = self._traced.headers(message)
        try:
            return method.send(request, key=key_of(message), headers=headers, on_ack=on_ack)
        except RecordTooLarge:
            if not headers:
                raise
            return method.send(request, key=key_of(message), on_ack=on_ack)

    def append_changes(self, partition: int, changes: ChangeColumns) -> ColumnAppends:
        """Returns the appends of changes, a record each; they are made by `ColumnAppends.more`."""
        keys: list[bytes] = changes.handles.astype(">u8").view("V8").tolist()
        records = list(zip(keys, write_change_columns(changes), strict=True))
        return ColumnAppends(self._producer, partition, records)

    def dead_letter(self, letter: DeadLetter, number: int) -> None:
        """Appends a record that could not be processed to `dead-letters`."""
        headers = (
            ("topic", letter.topic.encode()),
            ("partition", str(letter.partition).encode()),
            ("offset", str(letter.offset).encode()),
            ("reason", letter.reason.encode()),
        )
        self._producer.append(
            DEAD_LETTERS,
            0,
            letter.value[:DEAD_LETTER_BYTES_MAX],
            headers=headers,
            on_ack=functools.partial(self._acknowledged, number),
        )


class ColumnAppends:
    """Records of the registry that are appended as one, as far as there is room at a time.

    Attributes:
        error: why the log has not taken one of them.
    """

    def __init__(
        self, producer: Producer, partition: int, records: list[tuple[bytes, bytes]]
    ) -> None:
        self.error: Exception | None = None
        self._producer = producer
        self._partition = partition
        self._records = records
        self._unacknowledged = len(records)
        self._done: Callable[[ColumnAppends], None] = lambda _: None

    def on_end(self, done: Callable[[ColumnAppends], None]) -> None:
        """Calls a function when the log has all of them, and with the first error."""
        self._done = done

    def more(self) -> bool:
        """Appends what there is room for; returns whether that was all that was left.

        Raises:
            TransportError: as `Producer.append_many`.
        """
        taken = self._producer.append_many(
            REGISTRY,
            self._partition,
            self._records,
            headers=_CHANGE_HEADERS,
            on_ack=self._acknowledged,
        )
        self._records = self._records[taken:]
        return not self._records

    def _acknowledged(self, error: Exception | None, count: int) -> None:
        self._unacknowledged -= count
        if error is not None and self.error is None:
            self.error = error
            self._done(self)
        elif not self._unacknowledged and self.error is None:
            self._done(self)


class DeadLetter(NamedTuple):
    """A record that could not be processed, and why."""

    topic: str
    partition: int
    offset: int
    reason: str
    value: bytes

    @classmethod
    def of(cls, aside: SetAside) -> DeadLetter:
        """Returns the letter of a record that a machine does not take."""
        _, request = encode(aside.message)
        value = request.SerializeToString()
        return cls(aside.topic, aside.partition, aside.offset, aside.reason, value)

    @classmethod
    def unwritten(cls, topic: str, partition: int, message: Message, reason: str) -> DeadLetter:
        """Returns the letter of a message that the log does not take; it has no offset."""
        _, request = encode(message)
        return cls(topic, partition, -1, reason, request.SerializeToString())


class HopReader:
    """Turns the records of a poll into entries for a machine.

    Args:
        rejected: called with records that are not a known call, or are invalid.
        in_columns: many changes of queries are read as one entry (`ChangeRecords`).
        cpu_s: CPU time of the thread.
    """

    def __init__(
        self,
        rejected: Callable[[DeadLetter], None],
        *,
        in_columns: bool = False,
        cpu_s: Callable[[], float] = time.thread_time,
    ) -> None:
        self._in_columns = in_columns
        self._cpu_s = cpu_s
        self._entries: list[Entry] = []
        # Until when records are decoded, by `cpu_s`, None: all are; and those that are left.
        self._end_s: float | None = None
        self._left: list[Record] = []
        self._unlooked_bytes = 0
        self._rejected = rejected
        self._server = LogServer(self._reject)
        # All hop methods: each decodes its requests and keeps them as entries.
        servicer = SimpleNamespace(**{_split(hop)[1]: self._collect for hop in HOPS.values()})
        for service, generated in _GENERATED.items():
            getattr(generated, f"add_{service}Servicer_to_server")(servicer, self._server)

    def entries(self, records: Sequence[Record]) -> list[Entry]:
        """Decodes records, in order; rejects those that cannot be decoded.

        The order between Kafka partitions may change.
        """
        if self._in_columns:
            records = self._take_many(records)
        self._dispatch(records)
        entries = self._entries.copy()
        self._entries.clear()
        return entries

    def entries_within(
        self, records: Sequence[Record], cpu_s: float
    ) -> tuple[list[Entry], list[Record]]:
        """As `entries`, until it has taken so much CPU time; returns the records left as well.

        Some are always decoded. Clients choose what their expressions take: a poll of the hardest
        would hold up the loop for seconds.
        """
        self._end_s, self._unlooked_bytes = self._cpu_s() + cpu_s, 0
        try:
            entries = self.entries(records)
        finally:
            left, self._left, self._end_s = self._left, [], None
        return entries, left

    def _dispatch(self, records: Sequence[Record]) -> None:
        """Decodes records, as far as there is time for; keeps the others."""
        self._server.dispatch(self._in_time(records))

    def _in_time(self, records: Sequence[Record]) -> Iterator[Record]:
        # Each is decoded before the next one is asked for.
        for place, record in enumerate(records):
            if self._is_late():
                self._left.extend(records[place:])
                return
            self._unlooked_bytes += _RECORD_BYTES + len(record.value)
            yield record

    def _is_late(self) -> bool:
        """Whether what is not decoded yet is left to the next turn."""
        if self._end_s is None or self._unlooked_bytes < _LOOK_BYTES:
            return False
        if self._cpu_s() < self._end_s:
            self._unlooked_bytes = 0
            return False
        return True

    def _take_many(self, records: Sequence[Record]) -> Sequence[Record]:
        """Decodes records of Kafka partitions that bring many changes; returns the others."""
        changes: dict[int, list[Record]] = {}
        # Records of maps are between those of queries.
        mixed: set[int] = set()
        for record in records:
            if record.topic != REGISTRY:
                continue
            if record.headers == _CHANGE_HEADERS:
                changes.setdefault(record.partition, []).append(record)
            else:
                mixed.add(record.partition)
        many = {p for p, some in changes.items() if len(some) >= COLUMN_RECORDS_MIN} - mixed
        if not many:
            return records
        for partition in many:
            self._take_changes(partition, changes[partition])
        return [r for r in records if r.topic != REGISTRY or r.partition not in many]

    def _take_changes(self, partition: int, records: list[Record]) -> None:
        """Decodes changes of one Kafka partition, consecutive ones of a kind as columns."""
        kinds = np.zeros(len(records), np.int8)
        found = read_change_columns([record.value for record in records])
        for kind, (rows, _) in enumerate(found, 1):
            kinds[rows] = kind
        offsets = np.array([record.offset for record in records], np.int64)
        cuts = [0, *(np.flatnonzero(np.diff(kinds)) + 1).tolist(), len(records)]
        taken = [0] * len(found)
        done = 0
        for begin, end in pairwise(cuts):
            kind = int(kinds[begin]) - 1
            if kind < 0:
                continue
            first = taken[kind]
            taken[kind] += end - begin
            if end - begin < COLUMN_RECORDS_MIN:
                continue
            self._dispatch(records[done:begin])
            done = begin
            if self._is_late():
                break
            done = end
            rows, changes = found[kind]
            if len(rows) > end - begin:
                changes = changes.take(np.arange(first, taken[kind]))
            message = ChangeRecords(offsets[begin:end], changes)
            self._entries.append(Entry(REGISTRY, partition, int(offsets[begin]), message))
        self._dispatch(records[done:])

    def _reject(self, record: Record, reason: str) -> None:
        why = reason[:REASON_CHARACTERS_MAX]
        self._rejected(DeadLetter(record.topic, record.partition, record.offset, why, record.value))

    def _collect(self, requests: Iterator[Any], context: LogContext) -> Empty:
        for request, record in zip(requests, context.records, strict=True):
            try:
                message = decode(request)
            except SiroccoError as error:
                context.reject(record, str(error))
                continue
            # Put there by a faulty writer; the machine that owns the topic could not process it.
            if record.topic != HOPS[type(message)].topic:
                context.reject(record, f"{type(message).__name__} does not belong on this topic")
                continue
            if isinstance(message, MapActivated | MapPrepared) and message.partition_map:
                try:
                    read_map(message)
                except InvalidArgument as error:
                    # Rejected and also passed on: it is void for all, and the leader has to see it.
                    context.reject(record, str(error))
            self._entries.append(Entry(record.topic, record.partition, record.offset, message))
        return Empty()
