"""The messages of topic `intake`, but for keywords and map switches."""

from __future__ import annotations

from sirocco.codec.arrays import U4, check_time, pack, read_rows
from sirocco.codec.columns import Member, put_objects, read_routable_objects
from sirocco.internal_api.v1 import intake_service_pb2 as intake_pb
from sirocco.model.errors import InvalidArgument
from sirocco.model.limits import DEFAULT_LIMITS
from sirocco.model.members import read_string
from sirocco.model.text import invalid_utf8_rows
from sirocco.protocol.contract.messages import IntakeObjects, TrackedMember, TrackedMemberSet
from sirocco.protocol.router.objects.publish_sessions import NUMBER_MAX


def write_intake_objects(message: IntakeObjects) -> intake_pb.TakeRequest:
    """Returns the request of objects as a router accepts them."""
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


def read_intake_objects(request: intake_pb.TakeRequest) -> IntakeObjects:
    """Returns the objects of a request; checks what later stages assume."""
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


def read_tracked(request: intake_pb.TrackRequest) -> TrackedMember:
    """Returns a member whose values are tracked."""
    key = read_string(request.key, "key", bytes_max=DEFAULT_LIMITS.id_bytes)
    if not request.HasField("registry_partition"):
        return TrackedMember(key)
    return TrackedMember(key, request.registry_partition, request.epoch)


def write_tracked(message: TrackedMember) -> intake_pb.TrackRequest:
    """Returns the request of a member whose values are tracked."""
    if message.partition is None:
        return intake_pb.TrackRequest(key=message.key)
    return intake_pb.TrackRequest(
        key=message.key, registry_partition=message.partition, epoch=message.epoch
    )


def read_tracked_only(request: intake_pb.TrackOnlyRequest) -> TrackedMemberSet:
    """Returns all tracked members of a registry partition."""
    keys = tuple(
        read_string(key, f"keys[{row}]", bytes_max=DEFAULT_LIMITS.id_bytes)
        for row, key in enumerate(request.keys)
    )
    return TrackedMemberSet(request.registry_partition, request.epoch, keys)


def write_tracked_only(message: TrackedMemberSet) -> intake_pb.TrackOnlyRequest:
    """Returns the request of all tracked members of a registry partition."""
    return intake_pb.TrackOnlyRequest(
        registry_partition=message.partition, epoch=message.epoch, keys=message.keys
    )
