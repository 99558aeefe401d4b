"""Turns the counts of an evaluator into reports: numbers, details and a sample of leaves.

It works on the results of `LeafCounts.look`, outside the loop that counts.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.query_rows import QueryRows
from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.protocol.contract.load_messages import LoadReport, SampleReport
from sirocco.protocol.contract.query_samples import (
    DRAW_MAX,
    QuerySample,
    joined_queries,
    least_distinct,
    range_queries,
)
from sirocco.protocol.evaluator.load.leaf_counts import Counted, QueryCounts
from sirocco.schemes.balance.base.view import LeafDetail, LeafLoads
from sirocco.schemes.map.map import WORLD, PartitionMap
from sirocco.schemes.map.routing import RoutingArrays
from sirocco.schemes.workload.columns import take_rows
from sirocco.schemes.workload.sample import Sample
from sirocco.schemes.workload.spatial_aggregates import no_aggregates
from sirocco.schemes.workload.spatial_grid import FineGrid
from sirocco.schemes.workload.swarm_statistics import AxisStatistics, LeafStatistics, no_statistics

# Columns and rows of a leaf between which it may be split. Each holds about equally many of its
# objects, so a hot spot within a hot spot is still split.
SIDE_MAX = 64

# Cells narrower than this, about 10 m, would only split the noise of coordinates.
CELL_DEGREES_MIN = 1e-4


def loads_of(counted: Counted) -> LoadReport:
    """Returns the numbers of the leaves that were counted."""
    slot_of_leaf = counted.map.slot_of_leaf
    count = len(slot_of_leaf)
    queries, arrived, query_bytes = np.zeros(count), np.zeros(count), np.zeros(count)
    for slot, standing in counted.queries.items():
        own = slot_of_leaf == slot
        here = np.where(own, _queries_by_leaf(counted.routing, standing), 0.0)
        total = standing.ranges + standing.others
        queries += here
        if total:
            # A query in several leaves of a slot is new in each, but is stored in one table.
            arrived += here * (standing.arrived / total)
            query_bytes += here * (standing.bytes_total / total)
    is_reported = np.isin(slot_of_leaf, list(counted.queries))
    ids = np.array([leaf.id for leaf in counted.map.leaves], np.int32)
    loads = LeafLoads(
        counted.objects[is_reported],
        counted.met[is_reported],
        counted.faded[is_reported],
        queries[is_reported],
        (counted.objects + arrived)[is_reported],
        query_bytes[is_reported],
    )
    return LoadReport(counted.map.version, tuple(sorted(counted.queries)), ids[is_reported], loads)


def details_of(counted: Counted, wanted: list[int]) -> dict[int, LeafDetail]:
    """Returns the statistics of leaves by column and row.

    Args:
        counted: the counts.
        wanted: ids of leaves; those of other slots are left out.
    """
    report = loads_of(counted)
    place = {leaf: row for row, leaf in enumerate(report.leaves.tolist())}
    details = {}
    for position, leaf in enumerate(counted.map.leaves):
        if leaf.id in wanted and leaf.id in place:
            row = place[leaf.id]
            details[leaf.id] = _detail(counted, position, report.loads, row)
    return details


def sample_of(counted: Counted, objects_max: int, queries_max: int) -> SampleReport:
    """Returns some objects of the last round and some standing range queries."""
    homes = counted.recent.take(np.flatnonzero(counted.recent.is_home))
    some = homes.take(np.arange(0, len(homes), max(1, -(-len(homes) // max(objects_max, 1)))))
    parts = [_as_sampled(each) for each in counted.queries.values()]
    draws, boxes, offsets, keywords = joined_queries(parts)
    # The greatest draw that every slot samples; more would favour the queries of small slots.
    greatest = min((each.greatest_draw for each in counted.queries.values()), default=0)
    first = least_distinct(draws, greatest)
    queries = len(first) * ((DRAW_MAX + 1) / (greatest + 1))
    first = first[: max(queries_max, 1)]
    kept = take_rows(offsets, keywords, first)
    sample = Sample(
        some.lon,
        some.lat,
        some.terms.offsets,
        some.terms.terms,
        some.event_keys,
        range_queries(boxes[first], *kept),
    )
    return SampleReport(sample, draws[first], float(len(homes) * homes.every), queries)


def _as_sampled(standing: QueryCounts) -> QuerySample:
    """Returns draws, bounding boxes, and the keywords of the first conjunction of each query."""
    rows = standing.sampled
    first = rows.conj_offsets[:-1]
    offsets, keywords = take_rows(rows.pos_offsets, rows.pos_terms, first)
    return standing.draws, _bounds(rows), offsets, keywords


def _bounds(rows: QueryRows) -> NDArray[np.float64]:
    if not len(rows):
        return np.empty((0, 4))
    begins = rows.box_offsets[:-1]
    bounds = np.minimum.reduceat(rows.boxes, begins)
    most = np.maximum.reduceat(rows.boxes, begins)
    # Of two boxes that meet at the antimeridian one ends there and one begins: together they are
    # one that crosses it.
    crosses = (bounds[:, 0] == WORLD[0]) & (most[:, 2] == WORLD[2]) & (most[:, 0] > bounds[:, 2])
    bounds[:, 3] = most[:, 3]
    bounds[~crosses, 2] = most[~crosses, 2]
    bounds[crosses, 0] = most[crosses, 0]
    return bounds


def _queries_by_leaf(routing: RoutingArrays, standing: QueryCounts) -> NDArray[np.float64]:
    """Returns how many queries of a slot check the objects of each leaf, by its sampled ones."""
    rows = standing.sampled
    found = np.full(len(routing.leaf_ids), float(standing.others))
    if not len(rows):
        return found
    key_offsets = keys = None
    if routing.is_by_keyword:
        chosen, key_offsets = _with_terms(rows)
        keys = routing.choose_keys(*chosen) if len(chosen[0]) > 1 else np.empty(0, np.uint64)
    routes = routing.route_boxes(rows.boxes, rows.box_offsets, key_offsets, keys)
    here = np.bincount(routes.slots, minlength=len(routing.leaf_ids))
    total: NDArray[np.float64] = found + here * (standing.ranges / len(rows))
    return total


def _with_terms(
    rows: QueryRows,
) -> tuple[tuple[NDArray[np.int64], NDArray[np.uint64]], NDArray[np.int64]]:
    """Returns the conjunctions that have terms, and which of them belong to each query."""
    has_terms = np.diff(rows.pos_offsets) > 0
    before = np.concatenate([[0], np.cumsum(has_terms)]).astype(np.int64)
    conjunctions = take_rows(rows.pos_offsets, rows.pos_terms, np.flatnonzero(has_terms))
    return conjunctions, before[rows.conj_offsets]


# --- the detail of one leaf


def _detail(counted: Counted, position: int, loads: LeafLoads, row: int) -> LeafDetail:
    recent, partition_map = counted.recent, counted.map
    rows = np.flatnonzero(recent.leaf == position)
    lon, lat = recent.lon[rows], recent.lat[rows]
    grid = _grid(partition_map, position, lon, lat)
    standing = counted.queries[int(partition_map.slot_of_leaf[position])]
    statistics = (
        no_statistics(grid.columns, grid.rows)
        .with_objects(grid, lon, lat)
        .with_queries(grid, standing.sampled.boxes)
    )
    scaled = LeafStatistics(
        _scaled(statistics.columns, loads, row), _scaled(statistics.rows, loads, row)
    )
    met = no_aggregates(grid.columns, grid.rows).adding(
        grid.columns_of(lon), grid.rows_of(lat), recent.met[rows] * recent.every
    )
    return LeafDetail(grid, scaled, met)


def _grid(
    partition_map: PartitionMap,
    position: int,
    lon: NDArray[np.float64],
    lat: NDArray[np.float64],
) -> FineGrid:
    """Returns cells that hold about equally many objects each, and end where neighbours do."""
    box = partition_map.leaves[position].box
    boxes = np.array([leaf.box for leaf in partition_map.leaves])
    x = _borders(box[0], box[2], lon, boxes[:, 0::2])
    return FineGrid(x, _borders(box[1], box[3], lat, boxes[:, 1::2]))


def _borders(
    low: float, high: float, values: NDArray[np.float64], others: NDArray[np.float64]
) -> NDArray[np.float64]:
    shares = np.linspace(0, 1, SIDE_MAX + 1)[1:-1]
    cuts = np.linspace(low, high, 5)[1:-1]
    if len(values):
        cuts = np.concatenate([cuts, np.quantile(values, shares)])
    # Borders of neighbours stay exact: a corner is split exactly where a neighbour ends.
    exact = sorted_distinct(others[(others > low) & (others < high)])[:SIDE_MAX]
    borders = [low]
    for cut in sorted_distinct(cuts).tolist():
        near = np.abs(exact - cut).min() if len(exact) else np.inf
        apart = min(cut - borders[-1], high - cut, float(near))
        if apart >= CELL_DEGREES_MIN:
            borders.append(cut)
    return sorted_distinct(np.concatenate([borders, exact, [high]]))


def _scaled(axis: AxisStatistics, loads: LeafLoads, row: int) -> AxisStatistics:
    """Scales the sampled statistics of one axis to the counted totals."""
    objects, queries = np.cumsum(axis.new_objects), np.cumsum(axis.new_queries)
    faded = _ratio(loads.faded[row], objects)
    standing = _ratio(loads.queries[row], queries)
    new = _ratio(loads.arrivals[row] - loads.objects[row], queries)
    fresh = _ratio(loads.objects[row], objects)
    return replace(
        axis,
        objects=objects * faded,
        queries=queries * standing,
        recent=objects * fresh + queries * new,
        spans=axis.new_spans * standing,
        recent_spans=axis.new_spans * new,
        new_objects=np.zeros(len(objects)),
        new_queries=np.zeros(len(objects)),
        new_spans=np.zeros(len(objects)),
    )


def _ratio(whole: float, cumulative: NDArray[np.float64]) -> float:
    total = float(cumulative[-1]) if len(cumulative) else 0.0
    return float(whole) / total if total else 0.0
