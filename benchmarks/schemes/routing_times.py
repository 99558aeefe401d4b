"""The time that a router takes for an object and for a region, and its growth."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.schemes.cell_scan import scan
from benchmarks.schemes.queries import boxes_around
from benchmarks.schemes.streams import Stream
from benchmarks.schemes.timing import best_of
from sirocco.schemes.builders.a_grid import least_maximum_regions
from sirocco.schemes.map.map import WORLD, PartitionMap
from sirocco.schemes.map.map_bytes import to_bytes
from sirocco.schemes.map.routing import RoutingArrays, compile_map
from sirocco.schemes.workload.sample import Sample
from sirocco.schemes.workload.spatial_grid import FineGrid, even_grid
from sirocco.schemes.workload.spatial_load import object_loads, with_queries
from sirocco.schemes.workload.spatial_map import spatial_map

# About the objects that a router takes from its intake partitions in one poll.
BATCH = 4_096
REGIONS = 4_096

# Tornado 6, Figure 9b: 0.05 % to 1.5 % of the range; one more with many leaves in a region.
SIDES = (0.0005, 0.001, 0.005, 0.01, 0.015, 0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRouting:
    """Routing of objects by one map.

    Attributes:
        objects_per_s: Objects a second of one core.
        copies: Slots that an object is sent to, on average.
        leaves, text_nodes, keyword_nodes: Of the map.
        array_bytes: Memory of the routing arrays.
        map_bytes: Size of the published map.
    """

    objects_per_s: float
    copies: float
    leaves: int
    text_nodes: int
    keyword_nodes: int
    array_bytes: int
    map_bytes: int


@dataclass(frozen=True, slots=True)
class RegionRouting:
    """Routing of regions of one size by one map.

    Attributes:
        side: Side of a region relative to the side of the world.
        ns_per_region: CPU time.
        leaves_hit: Leaves under a region, on average.
    """

    side: float
    ns_per_region: float
    leaves_hit: float


@dataclass(frozen=True, slots=True)
class GridRouting:
    """Routing of regions with the same leaves on a coarser or finer grid.

    Attributes:
        grid: Cells along a side.
        side, ns_per_region, leaves_hit: As in `RegionRouting`.
        scan_ns_per_region: CPU time of examining every cell instead.
        cells_hit: Cells under a region, on average.
    """

    grid: int
    side: float
    ns_per_region: float
    leaves_hit: float
    scan_ns_per_region: float
    cells_hit: float


def route_objects(
    partition_map: PartitionMap, arrays: RoutingArrays, stream: Stream
) -> ObjectRouting:
    """Routes a stream batch by batch."""
    batches = []
    for begin in range(0, len(stream), BATCH):
        own = stream.term_offsets[begin : begin + BATCH + 1]
        rows = slice(begin, begin + BATCH)
        terms = stream.terms[own[0] : own[-1]]
        batches.append((stream.lon[rows], stream.lat[rows], own - own[0], terms, stream.keys[rows]))
    seconds, routes = best_of(lambda: sum(len(arrays.route_objects(*b).row) for b in batches))
    return ObjectRouting(
        objects_per_s=len(stream) / seconds,
        copies=routes / len(stream),
        leaves=len(partition_map.leaves),
        text_nodes=len(partition_map.text_nodes),
        keyword_nodes=len(partition_map.keyword_nodes),
        array_bytes=arrays.nbytes(),
        map_bytes=len(to_bytes(partition_map)),
    )


def route_regions(arrays: RoutingArrays, stream: Stream) -> list[RegionRouting]:
    """Routes regions of all sizes around objects."""
    rows = np.linspace(0, len(stream) - 1, REGIONS).astype(np.int64)
    out = []
    for side in SIDES:
        boxes = boxes_around(stream.lon[rows], stream.lat[rows], side * 360, side * 180)
        seconds, leaves = _route(arrays, boxes)
        out.append(RegionRouting(side, 1e9 * seconds / REGIONS, leaves))
    return out


def route_on_grids(sample: Sample, sides: tuple[int, ...], leaves: int) -> list[GridRouting]:
    """Partitions the workload by A-Grid on grids of several sizes, and routes regions on each."""
    sample = with_queries(sample)
    rows = np.linspace(0, len(sample) - 1, REGIONS).astype(np.int64)
    out = []
    for cells in sides:
        grid = even_grid(cells, cells)
        place = np.stack([grid.columns_of(sample.lon), grid.rows_of(sample.lat)])
        load = object_loads(sample, grid)
        regions, costs = least_maximum_regions(place, load, (0, 0, cells, cells), leaves)
        made = [grid.box(*region) for region in regions]
        arrays = compile_map(spatial_map("a-grid", made, np.array(costs, np.float64), 1))
        leaf_of_cell = np.empty((cells, cells), np.int32)
        for number, (x0, y0, x1, y1) in enumerate(regions):
            leaf_of_cell[y0:y1, x0:x1] = number
        for side in SIDES:
            boxes = boxes_around(sample.lon[rows], sample.lat[rows], side * 360, side * 180)
            # A region that ends at 180 degrees also includes -180; a plain grid would have to scan
            # there as well.
            boxes = boxes[(boxes[:, 0] > WORLD[0]) & (boxes[:, 2] < WORLD[2])]
            seconds, hit = _route(arrays, boxes)
            scan_s, scanned, cells_hit = _scan(grid, leaf_of_cell, len(regions), boxes)
            # A scan that finds other leaves would be no comparison. Cells are half open, like
            # leaves, so the counts are exactly equal.
            assert abs(scanned - hit) < 1e-9, (cells, side, scanned, hit)
            ns = 1e9 / len(boxes)
            out.append(GridRouting(cells, side, seconds * ns, hit, scan_s * ns, cells_hit))
    return out


def _route(arrays: RoutingArrays, boxes: NDArray[np.float64]) -> tuple[float, float]:
    """Returns (CPU seconds, leaves hit by a region)."""
    offsets = np.arange(len(boxes) + 1)
    seconds, found = best_of(partial(arrays.route_boxes, boxes, offsets), passes=5)
    return seconds, len(found.leaves) / len(boxes)


def _scan(
    grid: FineGrid, leaf_of_cell: NDArray[np.int32], leaves: int, boxes: NDArray[np.float64]
) -> tuple[float, float, float]:
    """Returns (CPU seconds, leaves hit by a region, cells hit by a region)."""
    owner, spans = grid.spans_of(boxes)
    assert len(owner) == len(boxes)
    seen, out = np.zeros(leaves, np.int64), np.zeros(len(boxes), np.int64)
    columns = [spans, leaf_of_cell.ravel(), grid.columns, seen, out]
    scan(spans[:1], *columns[1:])

    def once() -> None:
        seen.fill(0)
        scan(*columns)

    seconds, _ = best_of(once)
    cells = (spans[:, 2] - spans[:, 0] + 1) * (spans[:, 3] - spans[:, 1] + 1)
    return seconds, float(out.mean()), float(cells.mean())
