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

import numpy as np
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtoMessage
from numpy.typing import NDArray

from sirocco.codec.arrays import (
    I8,
    U4,
    U8,
    check_between,
    check_time,
    pack,
    read_column,
    read_offsets,
    read_rows,
)
from sirocco.codec.changes import read_change, write_change
from sirocco.codec.columns import (
    SOURCES_MAX,
    Member,
    put_bits,
    put_events,
    put_intervals,
    put_matches,
    put_names,
    put_objects,
    put_terms,
    read_bits,
    read_events,
    read_intervals,
    read_matches,
    read_names,
    read_objects,
    read_routable_objects,
    read_terms,
)
from sirocco.codec.control import read_declaration, write_declaration
from sirocco.codec.installs import read_installed, write_installed
from sirocco.codec.keywords import read_keywords, write_keywords
from sirocco.codec.lists import put_lists, put_steps, read_lists, read_steps
from sirocco.internal_api.v1 import control_service_pb2 as control_pb
from sirocco.internal_api.v1 import delivery_service_pb2 as delivery_pb
from sirocco.internal_api.v1 import intake_service_pb2 as intake_pb
from sirocco.internal_api.v1 import partial_service_pb2 as partial_pb
from sirocco.internal_api.v1 import registry_service_pb2 as registry_pb
from sirocco.internal_api.v1 import slot_service_pb2 as slot_pb
from sirocco.model.errors import InvalidArgument
from sirocco.model.limits import DEFAULT_LIMITS
from sirocco.model.members import read_string
from sirocco.model.text import invalid_utf8_rows
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
    FurtherValues,
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
from sirocco.protocol.contract.positions import NO_TIME_MS, OFFSET_MAX
from sirocco.protocol.router.objects.publish_sessions import NUMBER_MAX

# Marks a slot without a position in the dense columns of a `ProgressRequest`.
_NO_POSITION = -1


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


# --- intake


def _write_intake_objects(message: IntakeObjects) -> intake_pb.TakeRequest:
    request = intake_pb.TakeRequest(
        session=message.session,
        first_number=message.first_number,
        span=message.span,
        acknowledged_to=message.acknowledged_to,
        received_ms=message.received_ms,
    )
    put_objects(request.objects, message.objects)
    if message.number_deltas is not None:
        request.number_deltas = pack(message.number_deltas, U4)
    return request


def _read_intake_objects(request: intake_pb.TakeRequest) -> IntakeObjects:
    with Member("objects"):
        objects = read_routable_objects(request.objects)
        # The analysis requires it; later stages pass texts on unchanged.
        if len(invalid_utf8_rows(objects.text, objects.text_offsets)):
            raise InvalidArgument("is no valid UTF-8", field="text")
    check_time(request.received_ms, "received_ms")
    if not 1 <= request.first_number <= NUMBER_MAX - request.span:
        raise InvalidArgument(f"must be from 1 to {NUMBER_MAX}", field="first_number")
    count = len(objects)
    deltas = None
    if count < request.span:
        deltas = read_rows(request.number_deltas, count, request.span, "number_deltas")
        if (deltas[1:] <= deltas[:-1]).any():
            raise InvalidArgument("must ascend", field="number_deltas")
    elif count > request.span or request.number_deltas:
        raise InvalidArgument(f"is {request.span} with {count} objects", field="span")
    return IntakeObjects(
        session=request.session,
        first_number=request.first_number,
        span=request.span,
        acknowledged_to=request.acknowledged_to,
        received_ms=request.received_ms,
        objects=objects,
        number_deltas=deltas,
    )


def _read_tracked(request: intake_pb.TrackRequest) -> TrackedMember:
    key = read_string(request.key, "key", bytes_max=DEFAULT_LIMITS.id_bytes)
    if not request.HasField("registry_partition"):
        return TrackedMember(key)
    return TrackedMember(key, request.registry_partition, request.epoch)


def _write_tracked(message: TrackedMember) -> intake_pb.TrackRequest:
    if message.partition is None:
        return intake_pb.TrackRequest(key=message.key)
    return intake_pb.TrackRequest(
        key=message.key, registry_partition=message.partition, epoch=message.epoch
    )


def _read_tracked_only(request: intake_pb.TrackOnlyRequest) -> TrackedMemberSet:
    keys = tuple(
        read_string(key, f"keys[{row}]", bytes_max=DEFAULT_LIMITS.id_bytes)
        for row, key in enumerate(request.keys)
    )
    return TrackedMemberSet(request.registry_partition, request.epoch, keys)


def _read_version(version: int) -> int:
    if version < 1:
        raise InvalidArgument("must be positive", field="map_version")
    return version


# --- slots


def _write_routed(message: Routed) -> slot_pb.RouteRequest:
    request = slot_pb.RouteRequest(
        map_version=message.map_version, least_map_version=message.least_version
    )
    put_intervals(request.intervals, message.intervals)
    if len(message.objects):
        put_objects(request.objects, message.objects)
        put_events(request.events, message.events)
        request.positions = pack(message.positions, I8)
        request.interval_rows = pack(message.interval_rows, U4)
        put_terms(request, message.terms)
        if message.tracks is not None and message.track_values is not None:
            request.track_keys.extend(message.track_keys)
            request.tracks = pack(message.tracks, U4)
            request.track_values = pack(message.track_values, U8)
            if message.further is not None:
                request.further_rows = pack(message.further.rows, U4)
                request.further_tracks = pack(message.further.tracks, U4)
                request.further_values = pack(message.further.values, U8)
        if message.homes is not None and message.via is not None:
            request.homes = put_bits(message.homes)
            request.via = put_bits(message.via)
    return request


def _read_routed(request: slot_pb.RouteRequest) -> Routed:
    with Member("intervals"):
        intervals = read_intervals(request.intervals)
    with Member("objects"):
        objects = read_routable_objects(request.objects)
    count = len(objects)
    with Member("events"):
        events = read_events(request.events, count)
    terms = read_terms(request, count)
    keys, tracks, values = _read_tracks(request, count)
    homes, via = _read_places(request, count, len(terms.terms))
    return Routed(
        map_version=request.map_version,
        intervals=intervals,
        objects=objects,
        events=events,
        positions=read_column(request.positions, I8, "positions", rows=count),
        interval_rows=read_rows(request.interval_rows, count, len(intervals), "interval_rows"),
        terms=terms,
        track_keys=keys,
        tracks=tracks,
        track_values=values,
        homes=homes,
        via=via,
        further=None if tracks is None else _read_further(request, tracks, len(keys)),
        least_version=request.least_map_version,
    )


def _read_tracks(
    request: slot_pb.RouteRequest, rows: int
) -> tuple[tuple[str, ...], NDArray[np.uint32] | None, NDArray[np.uint64] | None]:
    if not request.tracks and not request.track_values:
        return (), None, None
    keys = tuple(request.track_keys)
    return (
        keys,
        read_rows(request.tracks, rows, 1 + len(keys), "tracks"),
        read_column(request.track_values, U8, "track_values", rows=rows),
    )


def _read_further(
    request: slot_pb.RouteRequest, tracks: NDArray[np.uint32], keys: int
) -> FurtherValues | None:
    if not (request.further_rows or request.further_tracks or request.further_values):
        return None
    count = len(request.further_values) // U8.itemsize
    rows = read_rows(request.further_rows, count, len(tracks), "further_rows").astype(np.int64)
    if (np.diff(rows) < 0).any() or not tracks[rows].all():
        raise InvalidArgument("are no copies in their order", field="further_rows")
    named = read_rows(request.further_tracks, count, 1 + keys, "further_tracks")
    if not named.all():
        raise InvalidArgument("names no member", field="further_tracks")
    values = read_column(request.further_values, U8, "further_values", rows=count)
    return FurtherValues(rows, named, values)


def _read_places(
    request: slot_pb.RouteRequest, rows: int, terms: int
) -> tuple[NDArray[np.bool_] | None, NDArray[np.bool_] | None]:
    if not request.homes and not request.via:
        return None, None
    return read_bits(request.homes, rows, "homes"), read_bits(request.via, terms, "via")


# --- partials


def _write_found(message: Found) -> partial_pb.MergeRequest:
    request = partial_pb.MergeRequest()
    put_intervals(request.intervals, message.intervals)
    if len(message.objects):
        put_objects(request.objects, message.objects)
        put_events(request.events, message.events)
        request.positions = pack(message.positions, I8)
        request.interval_rows = pack(message.interval_rows, U4)
        put_matches(request.matches, message.matches)
    if len(message.queries):
        put_names(request.queries, message.queries)
    if message.steps is not None:
        put_steps(request.steps, message.steps)
    return request


def _read_found(request: partial_pb.MergeRequest) -> Found:
    with Member("intervals"):
        intervals = read_intervals(request.intervals)
    with Member("objects"):
        objects = read_objects(request.objects)
    count = len(objects)
    with Member("events"):
        events = read_events(request.events, count)
    with Member("queries"):
        queries = read_names(request.queries)
    with Member("matches"):
        matches = read_matches(request.matches, count, len(queries))
    steps = None
    if request.HasField("steps"):
        with Member("steps"):
            steps = read_steps(request.steps, len(queries), len(intervals), count)
    return Found(
        intervals=intervals,
        objects=objects,
        events=events,
        positions=read_column(request.positions, I8, "positions", rows=count),
        interval_rows=read_rows(request.interval_rows, count, len(intervals), "interval_rows"),
        queries=queries,
        matches=matches,
        steps=steps,
    )


# --- deliveries


def _write_delivered(message: Delivered) -> delivery_pb.DeliverRequest:
    request = delivery_pb.DeliverRequest(match_offsets=pack(message.match_offsets, U4))
    put_objects(request.objects, message.objects)
    put_events(request.events, message.events)
    put_names(request.queries, message.queries)
    put_matches(request.matches, message.matches)
    if message.lists is not None and message.list_offsets is not None:
        put_lists(request.lists, message.lists)
        request.list_offsets = pack(message.list_offsets, U4)
    return request


def _read_delivered(request: delivery_pb.DeliverRequest) -> Delivered:
    with Member("objects"):
        objects = read_objects(request.objects)
    with Member("events"):
        events = read_events(request.events, len(objects))
    with Member("queries"):
        queries = read_names(request.queries)
    with Member("matches"):
        matches = read_matches(request.matches, len(objects), len(queries))
    offsets = read_offsets(
        request.match_offsets, len(queries.subscribers), len(matches), "match_offsets"
    )
    if not request.HasField("lists"):
        return Delivered(
            objects=objects, events=events, queries=queries, matches=matches, match_offsets=offsets
        )
    with Member("lists"):
        lists = read_lists(request.lists, len(queries), len(objects))
    list_offsets = read_offsets(
        request.list_offsets, len(queries.subscribers), len(lists), "list_offsets"
    )
    return Delivered(
        objects=objects,
        events=events,
        queries=queries,
        matches=matches,
        match_offsets=offsets,
        lists=lists,
        list_offsets=list_offsets,
    )


def _write_progress(message: Progress) -> delivery_pb.ProgressRequest:
    count = int(message.slots.max()) + 1 if len(message.slots) else 0
    positions = np.full(count, _NO_POSITION, np.int64)
    times_ms = np.full(count, NO_TIME_MS, np.int64)
    positions[message.slots], times_ms[message.slots] = message.positions, message.times_ms
    return delivery_pb.ProgressRequest(
        input_offset=message.input_offset,
        slot_positions=pack(positions, I8),
        slot_times_ms=pack(times_ms, I8),
        has_lists=message.has_lists,
    )


def _read_progress(request: delivery_pb.ProgressRequest) -> Progress:
    positions = read_column(request.slot_positions, I8, "slot_positions")
    times_ms = read_column(request.slot_times_ms, I8, "slot_times_ms", rows=len(positions))
    if len(positions) > SOURCES_MAX:
        raise InvalidArgument(f"speaks of more than {SOURCES_MAX} slots", field="slot_positions")
    check_between(times_ms, NO_TIME_MS, DEFAULT_LIMITS.ts_ms, "slot_times_ms")
    if not 0 <= request.input_offset <= OFFSET_MAX:
        raise InvalidArgument(f"{request.input_offset} is no offset", field="input_offset")
    if (positions < _NO_POSITION).any():
        raise InvalidArgument("a position is negative", field="slot_positions")
    slots = np.flatnonzero(positions != _NO_POSITION)
    return Progress(
        request.input_offset,
        slots.astype(np.uint32),
        positions[slots],
        times_ms[slots],
        request.has_lists,
    )


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
            _write_intake_objects,
            _read_intake_objects,
        ),
        TrackedMember: Hop(
            INTAKE,
            "/sirocco.v1.IntakeService/Track",
            intake_pb.TrackRequest,
            _write_tracked,
            _read_tracked,
        ),
        TrackedMemberSet: Hop(
            INTAKE,
            "/sirocco.v1.IntakeService/TrackOnly",
            intake_pb.TrackOnlyRequest,
            lambda message: intake_pb.TrackOnlyRequest(
                registry_partition=message.partition, epoch=message.epoch, keys=message.keys
            ),
            _read_tracked_only,
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
            _write_routed,
            _read_routed,
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
            _write_found,
            _read_found,
        ),
        Delivered: Hop(
            DELIVERIES,
            "/sirocco.v1.DeliveryService/Deliver",
            delivery_pb.DeliverRequest,
            _write_delivered,
            _read_delivered,
        ),
        Progress: Hop(
            DELIVERIES,
            "/sirocco.v1.DeliveryService/Progress",
            delivery_pb.ProgressRequest,
            _write_progress,
            _read_progress,
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
