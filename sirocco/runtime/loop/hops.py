"""Messages of the state machines ⇄ calls over topics, by the unmodified generated code."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from google.protobuf.empty_pb2 import Empty

from sirocco.codec.hops import decode, encode, key_of
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
from sirocco.protocol.contract.control_records import (
    Attempted,
    CheckpointTaken,
    Granted,
    LeaderElected,
    MapActivated,
    MapCopied,
    MapPrepared,
    MapSwitched,
    Skipped,
)
from sirocco.protocol.contract.control_view import read_map
from sirocco.protocol.contract.effects import Entry, SetAside
from sirocco.protocol.contract.messages import (
    CONTROL,
    DEAD_LETTERS,
    DELIVERIES,
    INTAKE,
    PARTIALS,
    REGISTRY,
    SLOTS,
    Change,
    Delivered,
    Found,
    Installed,
    Keywords,
    Message,
    Prepare,
    Progress,
    Retire,
    Routed,
    Switch,
    Taken,
    Tracked,
    TrackedOnly,
)
from sirocco.transport.calls import LogChannel, LogContext, LogServer, StreamMethod
from sirocco.transport.log import Producer, Record

# Bytes of a rejected record that are kept for an operator to inspect.
DEAD_LETTER_BYTES_MAX = 64 << 10

# Limit of the reason, which quotes what a client wrote: the log takes no letter that is too large.
REASON_CHARACTERS_MAX = 1_000

_CALLS: dict[type, tuple[Any, str]] = {
    Taken: (intake.IntakeServiceStub, "Take"),
    Tracked: (intake.IntakeServiceStub, "Track"),
    TrackedOnly: (intake.IntakeServiceStub, "TrackOnly"),
    Keywords: (intake.IntakeServiceStub, "Summarise"),
    Switch: (intake.IntakeServiceStub, "Switch"),
    Prepare: (registry.RegistryServiceStub, "Prepare"),
    Retire: (registry.RegistryServiceStub, "Retire"),
    Change: (registry.RegistryServiceStub, "Change"),
    Routed: (slot.SlotServiceStub, "Route"),
    Installed: (slot.SlotServiceStub, "Install"),
    Found: (partial.PartialServiceStub, "Merge"),
    Delivered: (delivery.DeliveryServiceStub, "Deliver"),
    Progress: (delivery.DeliveryServiceStub, "Progress"),
    LeaderElected: (control.ControlServiceStub, "Declare"),
    Granted: (control.ControlServiceStub, "Declare"),
    MapActivated: (control.ControlServiceStub, "Declare"),
    MapPrepared: (control.ControlServiceStub, "Declare"),
    MapCopied: (control.ControlServiceStub, "Declare"),
    MapSwitched: (control.ControlServiceStub, "Declare"),
    CheckpointTaken: (control.ControlServiceStub, "Declare"),
    Attempted: (control.ControlServiceStub, "Declare"),
    Skipped: (control.ControlServiceStub, "Declare"),
}

# The topic of each message. A call on another topic was put there by a faulty writer; the machine
# that owns the topic could not process it.
_TOPICS: dict[type, str] = {
    Taken: INTAKE,
    Tracked: INTAKE,
    TrackedOnly: INTAKE,
    Keywords: INTAKE,
    Switch: INTAKE,
    Prepare: REGISTRY,
    Retire: REGISTRY,
    Change: REGISTRY,
    Routed: SLOTS,
    Installed: SLOTS,
    Found: PARTIALS,
    Delivered: DELIVERIES,
    Progress: DELIVERIES,
    LeaderElected: CONTROL,
    Granted: CONTROL,
    MapActivated: CONTROL,
    MapPrepared: CONTROL,
    MapCopied: CONTROL,
    MapSwitched: CONTROL,
    CheckpointTaken: CONTROL,
    Attempted: CONTROL,
    Skipped: CONTROL,
}


class HopWriter:
    """Appends messages.

    Args:
        producer: where to.
        acknowledged: called for each append with its number: (number, None, offset) when the log
            has it, (number, error, -1) when it never will.
    """

    def __init__(
        self, producer: Producer, acknowledged: Callable[[int, Exception | None, int], None]
    ) -> None:
        self._producer = producer
        self._acknowledged = acknowledged
        self._methods: dict[tuple[str, int, type], StreamMethod[Empty]] = {}

    def append(self, topic: str, partition: int, message: Message, number: int) -> int:
        """Appends one message; returns its size in bytes.

        Raises:
            TransportError: nothing was taken.
        """
        key = (topic, partition, type(message))
        method = self._methods.get(key)
        if method is None:
            stub, name = _CALLS[type(message)]
            method = getattr(stub(LogChannel(self._producer, topic, partition)), name)
            self._methods[key] = method
        _, request = encode(message)
        on_ack = functools.partial(self._acknowledged, number)
        return method.send(request, key=key_of(message), on_ack=on_ack)

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
    """

    def __init__(self, rejected: Callable[[DeadLetter], None]) -> None:
        self._entries: list[Entry] = []
        self._rejected = rejected
        self._server = LogServer(self._reject)
        servicer = _Collector(self._entries)
        intake.add_IntakeServiceServicer_to_server(servicer, self._server)
        registry.add_RegistryServiceServicer_to_server(servicer, self._server)
        slot.add_SlotServiceServicer_to_server(servicer, self._server)
        partial.add_PartialServiceServicer_to_server(servicer, self._server)
        delivery.add_DeliveryServiceServicer_to_server(servicer, self._server)
        control.add_ControlServiceServicer_to_server(servicer, self._server)

    def entries(self, records: Sequence[Record]) -> list[Entry]:
        """Decodes records, in order; rejects those that cannot be decoded."""
        self._server.dispatch(records)
        entries = self._entries.copy()
        self._entries.clear()
        return entries

    def _reject(self, record: Record, reason: str) -> None:
        why = reason[:REASON_CHARACTERS_MAX]
        self._rejected(DeadLetter(record.topic, record.partition, record.offset, why, record.value))


class _Collector(
    intake.IntakeServiceServicer,
    registry.RegistryServiceServicer,
    slot.SlotServiceServicer,
    partial.PartialServiceServicer,
    delivery.DeliveryServiceServicer,
    control.ControlServiceServicer,
):
    """All hop methods: each decodes its requests and keeps them as entries."""

    def __init__(self, entries: list[Entry]) -> None:
        self._entries = entries

    def _collect(self, requests: Iterator[Any], context: LogContext) -> Empty:
        for request, record in zip(requests, context.records, strict=True):
            try:
                message = decode(request)
            except SiroccoError as error:
                context.reject(record, str(error))
                continue
            if record.topic != _TOPICS[type(message)]:
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

    Take = Track = TrackOnly = Switch = Summarise = _collect
    Change = Prepare = Retire = _collect
    Route = Install = Merge = _collect
    Deliver = Progress = Declare = _collect
