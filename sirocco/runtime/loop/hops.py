"""Messages of the state machines ⇄ calls over topics, by the unmodified generated code."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from google.protobuf.empty_pb2 import Empty

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
from sirocco.protocol.contract.messages import DEAD_LETTERS, Message
from sirocco.transport.calls import LogChannel, LogContext, LogServer, StreamMethod
from sirocco.transport.log import Producer, Record

# Bytes of a rejected record that are kept for an operator to inspect.
DEAD_LETTER_BYTES_MAX = 64 << 10

# Limit of the reason, which quotes what a client wrote: the log takes no letter that is too large.
REASON_CHARACTERS_MAX = 1_000

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
            service, name = _split(HOPS[type(message)])
            stub = getattr(_GENERATED[service], f"{service}Stub")
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
        # All hop methods: each decodes its requests and keeps them as entries.
        servicer = SimpleNamespace(**{_split(hop)[1]: self._collect for hop in HOPS.values()})
        for service, generated in _GENERATED.items():
            getattr(generated, f"add_{service}Servicer_to_server")(servicer, self._server)

    def entries(self, records: Sequence[Record]) -> list[Entry]:
        """Decodes records, in order; rejects those that cannot be decoded."""
        self._server.dispatch(records)
        entries = self._entries.copy()
        self._entries.clear()
        return entries

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
