"""One-way messages ⇄ the requests of the gRPC methods that carry them over topics.

`HOPS` is the one table: for each message its topic, its method, its request, and both directions.
Decoded messages are safe for the state machines and their kernels: an unsafe record raises
`InvalidArgument`, and becomes a dead letter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtoMessage

from sirocco.codec.changes import read_change, write_change
from sirocco.codec.control import read_declaration, write_declaration
from sirocco.codec.installs import read_installed, write_installed
from sirocco.codec.keywords import read_keywords, write_keywords
from sirocco.codec.topics.deliveries import (
    read_delivered,
    read_progress,
    write_delivered,
    write_progress,
)
from sirocco.codec.topics.intake import (
    read_intake_objects,
    read_tracked,
    read_tracked_only,
    write_intake_objects,
    write_tracked,
    write_tracked_only,
)
from sirocco.codec.topics.partials import read_found, write_found
from sirocco.codec.topics.routed import read_routed, write_routed
from sirocco.internal_api.v1 import control_service_pb2 as control_pb
from sirocco.internal_api.v1 import delivery_service_pb2 as delivery_pb
from sirocco.internal_api.v1 import intake_service_pb2 as intake_pb
from sirocco.internal_api.v1 import partial_service_pb2 as partial_pb
from sirocco.internal_api.v1 import registry_service_pb2 as registry_pb
from sirocco.internal_api.v1 import slot_service_pb2 as slot_pb
from sirocco.model.errors import InvalidArgument
from sirocco.protocol.contract.control_records import (
    Attempted,
    CheckpointTaken,
    Declaration,
    Granted,
    LeaderElected,
    MapActivated,
    MapCopied,
    MapPrepared,
    MapSwitched,
    Skipped,
    subject_of,
)
from sirocco.protocol.contract.messages import (
    CONTROL,
    DELIVERIES,
    INTAKE,
    PARTIALS,
    REGISTRY,
    SLOTS,
    Change,
    Delivered,
    Found,
    Installed,
    IntakeObjects,
    Keywords,
    Message,
    Prepare,
    Progress,
    Retire,
    Routed,
    Switch,
    TrackedMember,
    TrackedMemberSet,
)


@dataclass(frozen=True, slots=True)
class Hop:
    """How one message is sent.

    Attributes:
        topic: the one that it is sent over.
        method_path: of the gRPC method, `/package.Service/Method`.
        request_class: of the method's request.
        encode: message → request.
        decode: request → message; raises `InvalidArgument`.
    """

    topic: str
    method_path: str
    request_class: type[ProtoMessage]
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Message]


def encode(message: Message) -> tuple[str, ProtoMessage]:
    """Returns the method path and the request of a message."""
    hop = HOPS[type(message)]
    return hop.method_path, hop.encode(message)


def decode(request: ProtoMessage) -> Message:
    """Returns the message of a request.

    Raises:
        InvalidArgument: It is damaged; `field` names the column.
    """
    return _BY_REQUEST[type(request)].decode(request)


def read_record(method_path: str, value: bytes) -> Message:
    """Returns the message of a record, given its header's method and its value.

    Raises:
        InvalidArgument: No such method, no such request, or a damaged one.
    """
    hop = _BY_PATH.get(method_path)
    if hop is None:
        raise InvalidArgument(f"{method_path!r:.80} is no hop", field="method")
    request = hop.request_class()
    try:
        request.ParseFromString(value)
    except DecodeError as error:
        raise InvalidArgument(f"is no {request.DESCRIPTOR.name}: {error}", field="value") from None
    return hop.decode(request)


def key_of(message: Message) -> bytes | None:
    """Returns the key of a message's record, by which compacted topics keep the newest record."""
    if isinstance(message, Change) and not message.is_probe:
        return message.handle.to_bytes(8, "big")
    subject = _subject(message)
    return None if subject is None else subject.encode()


def _subject(message: Message) -> str | None:
    if isinstance(message, Declaration):
        return subject_of(message)
    match message:
        case Change():
            # One of each ownership stays: it may be the only record that shows the start of later
            # ones.
            subject = f"probe/{message.epoch}"
        case Prepare():
            subject = f"map/prepare/{message.version}"
        case Retire():
            subject = f"map/retire/{message.version}"
        case _:
            return None
    return subject


def _read_version(version: int) -> int:
    if version < 1:
        raise InvalidArgument("must be positive", field="map_version")
    return version


_DECLARE = Hop(
    CONTROL,
    "/sirocco.v1.ControlService/Declare",
    control_pb.DeclareRequest,
    write_declaration,
    read_declaration,
)

HOPS: Mapping[type, Hop] = MappingProxyType(
    {
        IntakeObjects: Hop(
            INTAKE,
            "/sirocco.v1.IntakeService/Take",
            intake_pb.TakeRequest,
            write_intake_objects,
            read_intake_objects,
        ),
        TrackedMember: Hop(
            INTAKE,
            "/sirocco.v1.IntakeService/Track",
            intake_pb.TrackRequest,
            write_tracked,
            read_tracked,
        ),
        TrackedMemberSet: Hop(
            INTAKE,
            "/sirocco.v1.IntakeService/TrackOnly",
            intake_pb.TrackOnlyRequest,
            write_tracked_only,
            read_tracked_only,
        ),
        Keywords: Hop(
            INTAKE,
            "/sirocco.v1.IntakeService/Summarise",
            intake_pb.SummariseRequest,
            write_keywords,
            read_keywords,
        ),
        Switch: Hop(
            INTAKE,
            "/sirocco.v1.IntakeService/Switch",
            intake_pb.SwitchRequest,
            lambda message: intake_pb.SwitchRequest(map_version=message.version),
            lambda request: Switch(_read_version(request.map_version)),
        ),
        Prepare: Hop(
            REGISTRY,
            "/sirocco.v1.RegistryService/Prepare",
            registry_pb.PrepareRequest,
            lambda message: registry_pb.PrepareRequest(map_version=message.version),
            lambda request: Prepare(_read_version(request.map_version)),
        ),
        Retire: Hop(
            REGISTRY,
            "/sirocco.v1.RegistryService/Retire",
            registry_pb.RetireRequest,
            lambda message: registry_pb.RetireRequest(
                map_version=message.version, at_ms=message.at_ms
            ),
            lambda request: Retire(_read_version(request.map_version), request.at_ms),
        ),
        Change: Hop(
            REGISTRY,
            "/sirocco.v1.RegistryService/Change",
            registry_pb.ChangeRequest,
            write_change,
            read_change,
        ),
        Routed: Hop(
            SLOTS,
            "/sirocco.v1.SlotService/Route",
            slot_pb.RouteRequest,
            write_routed,
            read_routed,
        ),
        Installed: Hop(
            SLOTS,
            "/sirocco.v1.SlotService/Install",
            slot_pb.InstallRequest,
            write_installed,
            read_installed,
        ),
        Found: Hop(
            PARTIALS,
            "/sirocco.v1.PartialService/Merge",
            partial_pb.MergeRequest,
            write_found,
            read_found,
        ),
        Delivered: Hop(
            DELIVERIES,
            "/sirocco.v1.DeliveryService/Deliver",
            delivery_pb.DeliverRequest,
            write_delivered,
            read_delivered,
        ),
        Progress: Hop(
            DELIVERIES,
            "/sirocco.v1.DeliveryService/Progress",
            delivery_pb.ProgressRequest,
            write_progress,
            read_progress,
        ),
        LeaderElected: _DECLARE,
        Granted: _DECLARE,
        MapActivated: _DECLARE,
        MapPrepared: _DECLARE,
        MapCopied: _DECLARE,
        MapSwitched: _DECLARE,
        Attempted: _DECLARE,
        Skipped: _DECLARE,
        CheckpointTaken: _DECLARE,
    }
)
_BY_REQUEST = {hop.request_class: hop for hop in HOPS.values()}
_BY_PATH = {hop.method_path: hop for hop in HOPS.values()}
