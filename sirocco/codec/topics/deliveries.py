"""The messages of topic `deliveries`: notifications, and the progress that they stand for."""

from __future__ import annotations

import numpy as np

from sirocco.codec.arrays import I8, U4, check_between, pack, read_column, read_offsets
from sirocco.codec.columns import (
    SOURCES_MAX,
    Member,
    put_events,
    put_matches,
    put_names,
    put_objects,
    read_events,
    read_matches,
    read_names,
    read_objects,
)
from sirocco.codec.lists import put_lists, read_lists
from sirocco.internal_api.v1 import delivery_service_pb2 as delivery_pb
from sirocco.model.errors import InvalidArgument
from sirocco.model.limits import DEFAULT_LIMITS
from sirocco.protocol.contract.messages import Delivered, Progress
from sirocco.protocol.contract.positions import NO_TIME_MS, OFFSET_MAX

# Marks a slot without a position in the dense columns of a `ProgressRequest`.
_NO_POSITION = -1


def write_delivered(message: Delivered) -> delivery_pb.DeliverRequest:
    """Returns the request of notifications."""
    request = delivery_pb.DeliverRequest(match_offsets=pack(message.match_offsets, U4))
    put_objects(request.objects, message.objects)
    put_events(request.events, message.events)
    put_names(request.queries, message.queries)
    put_matches(request.matches, message.matches)
    if message.lists is not None and message.list_offsets is not None:
        put_lists(request.lists, message.lists)
        request.list_offsets = pack(message.list_offsets, U4)
    return request


def read_delivered(request: delivery_pb.DeliverRequest) -> Delivered:
    """Returns the notifications of a request."""
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


def write_progress(message: Progress) -> delivery_pb.ProgressRequest:
    """Returns the request of a progress, with one row for each slot up to the greatest."""
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


def read_progress(request: delivery_pb.ProgressRequest) -> Progress:
    """Returns the progress of a request."""
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
