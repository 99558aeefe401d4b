"""The message of topic `partials`: what evaluators have found."""

from __future__ import annotations

from sirocco.codec.arrays import I8, U4, pack, read_column, read_rows
from sirocco.codec.columns import (
    Member,
    put_events,
    put_intervals,
    put_matches,
    put_names,
    put_objects,
    read_events,
    read_intervals,
    read_matches,
    read_names,
    read_objects,
)
from sirocco.codec.lists import put_steps, read_steps
from sirocco.internal_api.v1 import partial_service_pb2 as partial_pb
from sirocco.protocol.contract.messages import Found


def write_found(message: Found) -> partial_pb.MergeRequest:
    """Returns the request of what an evaluator has found."""
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


def read_found(request: partial_pb.MergeRequest) -> Found:
    """Returns what an evaluator has found."""
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
