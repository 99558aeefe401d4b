"""Arrivals, loads, details and samples of leaves ⇄ messages."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from sirocco.codec.arrays import F8, I8, U8, pack, read_column
from sirocco.internal_api.v1 import arrival_service_pb2 as arrival_pb
from sirocco.internal_api.v1 import load_service_pb2 as pb
from sirocco.model.errors import InvalidArgument
from sirocco.protocol.contract.load_messages import ArrivalReport, LoadReport, SampleReport
from sirocco.schemes.balance.base.view import LeafDetail, LeafLoads
from sirocco.schemes.workload.sample import QueryKind, Sample, SampleQueries
from sirocco.schemes.workload.spatial_aggregates import Aggregates
from sirocco.schemes.workload.spatial_grid import FineGrid
from sirocco.schemes.workload.swarm_statistics import AxisStatistics, LeafStatistics

I4 = np.dtype("<i4")

_COLUMNS = ("objects", "met", "faded", "queries", "arrivals", "query_bytes")

# Fields of `AxisStatistics` that are sent; collectors are empty between rounds.
_AXIS = ("objects", "queries", "recent", "spans", "recent_spans")


def write_arrivals(report: ArrivalReport) -> arrival_pb.TellArrivalsResponse:
    """Returns the message of a router's report."""
    return arrival_pb.TellArrivalsResponse(
        map_version=report.version, leaves=pack(report.leaves, I4), objects=pack(report.objects, F8)
    )


def read_arrivals(message: arrival_pb.TellArrivalsResponse) -> ArrivalReport:
    """Returns a router's report; raises InvalidArgument."""
    leaves = read_column(message.leaves, I4, "leaves")
    if len(leaves) and int(leaves.min()) < 0:
        raise InvalidArgument("are negative", field="leaves")
    objects = read_column(message.objects, F8, "objects", rows=len(leaves))
    return ArrivalReport(message.map_version, leaves, objects)


def write_loads(report: LoadReport) -> pb.TellLoadsResponse:
    """Returns the message of an evaluator's report."""
    columns = {name: pack(getattr(report.loads, name), F8) for name in _COLUMNS}
    return pb.TellLoadsResponse(
        map_version=report.version, slots=report.slots, leaves=pack(report.leaves, I4), **columns
    )


def read_loads(message: pb.TellLoadsResponse) -> LoadReport:
    """Returns an evaluator's report; raises InvalidArgument."""
    leaves = read_column(message.leaves, I4, "leaves")
    columns = {
        name: read_column(getattr(message, name), F8, name, rows=len(leaves)) for name in _COLUMNS
    }
    return LoadReport(message.map_version, tuple(message.slots), leaves, LeafLoads(**columns))


def write_details(details: Mapping[int, LeafDetail]) -> pb.TellDetailsResponse:
    """Returns the message of leaves' details."""
    return pb.TellDetailsResponse(
        details=[
            pb.LeafDetail(
                leaf=leaf,
                columns=_write_axis(one.grid.x_borders, one.statistics.columns, one.met.columns),
                rows=_write_axis(one.grid.y_borders, one.statistics.rows, one.met.rows),
            )
            for leaf, one in details.items()
        ]
    )


def read_details(message: pb.TellDetailsResponse) -> dict[int, LeafDetail]:
    """Returns leaves' details by leaf id; raises InvalidArgument."""
    details = {}
    for one in message.details:
        x, columns, met_columns = _read_axis(one.columns)
        y, rows, met_rows = _read_axis(one.rows)
        details[one.leaf] = LeafDetail(
            FineGrid(x, y), LeafStatistics(columns, rows), Aggregates(met_columns, met_rows)
        )
    return details


def _write_axis(
    borders: NDArray[np.float64], axis: AxisStatistics, met: NDArray[np.int64]
) -> pb.LeafAxis:
    statistics = np.concatenate([getattr(axis, name) for name in _AXIS])
    return pb.LeafAxis(
        borders=pack(borders, F8), statistics=pack(statistics, F8), met=pack(met, I8)
    )


def _read_axis(
    message: pb.LeafAxis,
) -> tuple[NDArray[np.float64], AxisStatistics, NDArray[np.int64]]:
    borders = read_column(message.borders, F8, "borders")
    count = len(borders) - 1
    if count < 1 or not (np.diff(borders) > 0).all():
        raise InvalidArgument("do not ascend", field="borders")
    flat = read_column(message.statistics, F8, "statistics", rows=len(_AXIS) * count)
    nothing = np.zeros(count)
    collectors = {"new_objects": nothing, "new_queries": nothing, "new_spans": nothing}
    columns = dict(zip(_AXIS, flat.reshape(len(_AXIS), count), strict=True))
    met = read_column(message.met, I8, "met", rows=count)
    return borders, AxisStatistics(**columns, **collectors), met


def write_sample(report: SampleReport) -> pb.TellSampleResponse:
    """Returns the message of a sample."""
    sample, queries = report.sample, report.sample.queries
    return pb.TellSampleResponse(
        objects=report.objects,
        queries=report.queries,
        lon=pack(sample.lon, F8),
        lat=pack(sample.lat, F8),
        term_offsets=pack(sample.term_offsets, I8),
        terms=pack(sample.terms, U8),
        event_keys=pack(sample.event_keys, U8),
        boxes=pack(queries.boxes, F8),
        keyword_offsets=pack(queries.term_offsets, I8),
        keywords=pack(queries.terms, U8),
        handles=pack(report.draws, U8),
    )


def read_sample(message: pb.TellSampleResponse) -> SampleReport:
    """Returns a sample; raises InvalidArgument."""
    boxes = read_column(message.boxes, F8, "boxes")
    if len(boxes) % 4:
        raise InvalidArgument("needs four sides a box", field="boxes")
    boxes = boxes.reshape(-1, 4)
    count = len(boxes)
    queries = SampleQueries(
        np.full(count, QueryKind.RANGE_CONTINUOUS, np.uint8),
        boxes,
        read_column(message.keyword_offsets, I8, "keyword_offsets", rows=count + 1),
        read_column(message.keywords, U8, "keywords"),
        np.ones(count),
    )
    lon = read_column(message.lon, F8, "lon")
    sample = Sample(
        lon,
        read_column(message.lat, F8, "lat", rows=len(lon)),
        read_column(message.term_offsets, I8, "term_offsets", rows=len(lon) + 1),
        read_column(message.terms, U8, "terms"),
        read_column(message.event_keys, U8, "event_keys", rows=len(lon)),
        queries,
    )
    draws = read_column(message.handles, U8, "handles", rows=count)
    return SampleReport(sample, draws, message.objects, message.queries)
