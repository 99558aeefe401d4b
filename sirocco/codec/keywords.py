"""Keywords needed by the queries of a registry partition ⇄ its record on `intake`."""

from __future__ import annotations

from sirocco.codec.arrays import U8, pack, read_column
from sirocco.internal_api.v1 import intake_service_pb2 as pb
from sirocco.model.errors import InvalidArgument
from sirocco.protocol.contract.messages import Keywords


def write_keywords(message: Keywords) -> pb.SummariseRequest:
    """Returns the request of a message."""
    return pb.SummariseRequest(
        registry_partition=message.partition,
        epoch=message.epoch,
        keywords=pack(message.terms, U8),
        slots=pack(message.slots, U8),
        begins=message.begins,
        ends=message.ends,
        is_withdrawn=message.is_withdrawn,
    )


def read_keywords(request: pb.SummariseRequest) -> Keywords:
    """Returns the message of a request.

    Raises:
        InvalidArgument: Its columns do not fit together.
    """
    terms = read_column(request.keywords, U8, "keywords")
    slots = read_column(request.slots, U8, "slots")
    count = len(terms)
    if bool(count) != bool(len(slots)) or (count and len(slots) % count):
        raise InvalidArgument(f"has {len(slots)} words for {count} keywords", field="slots")
    return Keywords(
        partition=request.registry_partition,
        epoch=request.epoch,
        terms=terms,
        slots=slots.reshape(count, -1) if count else slots.reshape(0, 1),
        begins=request.begins,
        ends=request.ends,
        is_withdrawn=request.is_withdrawn,
    )
