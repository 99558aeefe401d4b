"""Objects of topic `slots`: what a router sends to a slot."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sirocco.codec.arrays import I8, U4, U8, pack, read_column, read_rows
from sirocco.codec.columns import (
    Member,
    put_bits,
    put_events,
    put_intervals,
    put_objects,
    put_terms,
    read_bits,
    read_events,
    read_intervals,
    read_routable_objects,
    read_terms,
)
from sirocco.internal_api.v1 import slot_service_pb2 as slot_pb
from sirocco.model.errors import InvalidArgument
from sirocco.protocol.contract.messages import FurtherValues, Routed


def write_routed(message: Routed) -> slot_pb.RouteRequest:
    """Returns the request of objects that a router sends to a slot."""
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


def read_routed(request: slot_pb.RouteRequest) -> Routed:
    """Returns the objects of a request."""
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
