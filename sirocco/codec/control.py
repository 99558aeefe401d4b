"""Declarations on `control` ⇄ `DeclareRequest`."""

from __future__ import annotations

from sirocco.codec.columns import SOURCES_MAX
from sirocco.internal_api.v1 import control_service_pb2 as pb
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
)
from sirocco.protocol.contract.messages import INTAKE, PARTIALS, REGISTRY, SLOTS
from sirocco.protocol.contract.positions import OFFSET_MAX

# Topics whose Kafka partitions are granted.
_TOPICS = frozenset({INTAKE, REGISTRY, SLOTS, PARTIALS})


def write_declaration(message: Declaration) -> pb.DeclareRequest:
    """Returns the request of a message."""
    match message:
        case LeaderElected(member=name):
            return pb.DeclareRequest(leader_elected=pb.LeaderElected(member=name))
        case Granted():
            granted = pb.Granted(
                term=message.term,
                topic=message.topic,
                partition=message.partition,
                member=message.member,
                has_ended=message.has_ended,
            )
            return pb.DeclareRequest(granted=granted)
        case MapActivated():
            activated = pb.MapActivated(
                term=message.term, version=message.version, partition_map=message.partition_map
            )
            return pb.DeclareRequest(map_activated=activated)
        case MapPrepared():
            prepared = pb.MapPrepared(
                term=message.term, version=message.version, partition_map=message.partition_map
            )
            return pb.DeclareRequest(map_prepared=prepared)
        case MapCopied():
            copied = pb.MapCopied(
                partition=message.partition, version=message.version, epoch=message.epoch
            )
            return pb.DeclareRequest(map_copied=copied)
        case MapSwitched():
            switched = pb.MapSwitched(term=message.term, version=message.version)
            return pb.DeclareRequest(map_switched=switched)
        case CheckpointTaken():
            taken = pb.CheckpointTaken(
                topic=message.topic,
                partition=message.partition,
                epoch=message.epoch,
                offset=message.offset,
                name=message.name,
                map_version=message.map_version,
            )
            return pb.DeclareRequest(checkpoint_taken=taken)
        case Attempted():
            attempted = pb.Attempted(
                topic=message.topic,
                partition=message.partition,
                epoch=message.epoch,
                begin=message.begin,
                end=message.end,
            )
            return pb.DeclareRequest(attempted=attempted)
        case Skipped():
            skipped = pb.Skipped(
                topic=message.topic, partition=message.partition, offset=message.offset
            )
            return pb.DeclareRequest(skipped=skipped)


def read_declaration(request: pb.DeclareRequest) -> Declaration:
    """Returns the message of a request.

    Raises:
        InvalidArgument: It declares nothing known here, or an impossible place: no process applies
            it.
    """
    declaration = _read(request)
    _check(declaration)
    return declaration


def _check(declaration: Declaration) -> None:
    """Refuses numbers that our writers never write."""
    match declaration:
        case Granted() | CheckpointTaken() | Attempted() | Skipped():
            if declaration.topic not in _TOPICS:
                raise InvalidArgument(f"{declaration.topic!r:.80} has no owners", field="topic")
            _check_between("partition", declaration.partition, 0, SOURCES_MAX - 1)
        case MapActivated() | MapPrepared() | MapSwitched():
            _check_between("version", declaration.version, 0, OFFSET_MAX)
        case MapCopied():
            _check_between("partition", declaration.partition, 0, SOURCES_MAX - 1)
            _check_between("version", declaration.version, 0, OFFSET_MAX)
        case _:
            return
    match declaration:
        case CheckpointTaken():
            _check_between("offset", declaration.offset, 0, OFFSET_MAX)
            _check_between("epoch", declaration.epoch, 0, OFFSET_MAX)
            _check_between("map_version", declaration.map_version, 0, OFFSET_MAX)
        case Attempted():
            _check_between("begin", declaration.begin, 0, OFFSET_MAX)
            _check_between("end", declaration.end, declaration.begin, OFFSET_MAX)
        case Skipped():
            _check_between("offset", declaration.offset, 0, OFFSET_MAX)


def _check_between(field: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InvalidArgument(f"{value} is not within {least} … {most}", field=field)


def _read(request: pb.DeclareRequest) -> Declaration:
    match request.WhichOneof("declaration"):
        case "leader_elected":
            return LeaderElected(request.leader_elected.member)
        case "granted":
            granted = request.granted
            return Granted(
                granted.term,
                granted.topic,
                granted.partition,
                granted.member,
                granted.has_ended,
            )
        case "map_activated":
            activated = request.map_activated
            return MapActivated(activated.term, activated.version, activated.partition_map)
        case "map_prepared":
            prepared = request.map_prepared
            return MapPrepared(prepared.term, prepared.version, prepared.partition_map)
        case "map_copied":
            copied = request.map_copied
            return MapCopied(copied.partition, copied.version, copied.epoch)
        case "map_switched":
            return MapSwitched(request.map_switched.term, request.map_switched.version)
        case "checkpoint_taken":
            taken = request.checkpoint_taken
            return CheckpointTaken(
                taken.topic,
                taken.partition,
                taken.epoch,
                taken.offset,
                taken.name,
                taken.map_version,
            )
        case "attempted":
            attempted = request.attempted
            return Attempted(
                attempted.topic,
                attempted.partition,
                attempted.epoch,
                attempted.begin,
                attempted.end,
            )
        case "skipped":
            skipped = request.skipped
            return Skipped(skipped.topic, skipped.partition, skipped.offset)
    raise InvalidArgument("is missing or of a later version", field="declaration")
