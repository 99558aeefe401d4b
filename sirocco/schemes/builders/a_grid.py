"""Scheme `a-grid`: Tornado's split of a fine grid with least maximum (Tornado 4.1)."""

from __future__ import annotations

import heapq
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.builders.uniform_grid import check_counts
from sirocco.schemes.map.map import PartitionMap
from sirocco.schemes.map.routing import RoutingArrays, compile_map
from sirocco.schemes.workload.sample import Sample
from sirocco.schemes.workload.spatial_aggregates import Aggregates, no_aggregates
from sirocco.schemes.workload.spatial_grid import even_grid, extent_of, fine_grid
from sirocco.schemes.workload.spatial_load import object_loads, with_queries
from sirocco.schemes.workload.spatial_map import spatial_map

# Cells along each side of the grid of possible borders: half a kilometre if objects are spread over
# the world. A cell cannot be split, and on Tornado's 1000 x 1000 cells one town would be one leaf,
# with many times the load of the others.
BORDER_SIDE = 1 << 16

# From this number of leaves on, the borders could span more cells than a tiling allows: half of the
# leaves' borders split columns and half split rows. Such maps use the finest grid allowed.
MANY_LEAVES = 1 << 12
BORDER_SIDE_OF_MANY = 1 << 12

# First column, first row, last column + 1, last row + 1.
Region: TypeAlias = tuple[int, int, int, int]


class AGrid:
    """Splits the heaviest leaf where the heavier half is lightest, until there are enough.

    Regions of all schemes are routed by Tornado's neighbour-based search (3.1), see
    `sirocco.kernels.routing.routing`.
    """

    name = "a-grid"

    def build(self, sample: Sample, leaves: int, slots: int) -> PartitionMap:
        """Splits the fine grid (4.1), then allocates the leaves by Karmarkar-Karp.

        See `Scheme.build`. Makes `leaves` leaves. A leaf of a single cell cannot be split; Tornado
        then stops, we continue with the next. Queries are counted on cells as wide as a query (5);
        borders are on a finer grid over the same extent. A sample without queries gets those of
        `assumed_queries`.
        """
        check_counts(leaves, slots)
        sample = with_queries(sample)
        load = object_loads(sample, fine_grid(sample))
        side = BORDER_SIDE if leaves <= MANY_LEAVES else BORDER_SIDE_OF_MANY
        grid = even_grid(side, side, extent_of(sample))
        cells = np.stack([grid.columns_of(sample.lon), grid.rows_of(sample.lat)])
        regions, costs = least_maximum_regions(cells, load, (0, 0, side, side), leaves)
        boxes = [grid.box(*region) for region in regions]
        return spatial_map(self.name, boxes, np.array(costs, np.float64), slots)

    def compile(self, partition_map: PartitionMap) -> RoutingArrays:
        """See `Scheme.compile`."""
        return compile_map(partition_map)


def least_maximum_regions(
    cells: NDArray[np.int64], load: NDArray[np.int64], region: Region, leaves: int
) -> tuple[list[Region], list[int]]:
    """Splits a rectangle of cells into smaller ones, always the heaviest, as in Tornado 4.1.

    The best splits are NP-hard to find; this is the paper's heuristic. The workload of a cell
    (equation 1) is that of its objects. A split takes one pass over the objects of its rectangle,
    then prefix sums over its columns and rows, not over its cells: these are far more than objects,
    and almost all are empty.

    Args:
        cells: i8[2, n], column and row of each object.
        load: i8[n], workload of each object.
        region: The rectangle.
        leaves: Wanted number of rectangles; fewer if there are fewer cells.

    Returns:
        The rectangles, in order of creation, and their workloads.
    """
    # Of equal workloads the older is split first: an empty grid is split evenly.
    heap = [(-int(load.sum()), 0, region, np.arange(len(load)))]
    done: list[tuple[int, int, Region, NDArray[np.int64]]] = []
    serial = 1
    while heap and len(heap) + len(done) < leaves:
        entry = heapq.heappop(heap)
        cost, _, region, rows = entry
        cut = aggregates_of(cells[:, rows], load[rows], region).best_cut()
        if cut is None:
            done.append(entry)
            continue
        at = region[cut.axis] + cut.at
        is_before = cells[cut.axis, rows] < at
        first, second = list(region), list(region)
        first[cut.axis + 2] = second[cut.axis] = at
        before = int(load[rows[is_before]].sum())
        for half, own, members in (
            (first, before, rows[is_before]),
            (second, -cost - before, rows[~is_before]),
        ):
            x0, y0, x1, y1 = half
            heapq.heappush(heap, (-own, serial, (x0, y0, x1, y1), members))
            serial += 1
    made = sorted(done + heap, key=lambda entry: entry[1])
    return [entry[2] for entry in made], [-entry[0] for entry in made]


def aggregates_of(cells: NDArray[np.int64], load: NDArray[np.int64], region: Region) -> Aggregates:
    """Returns the aggregates of a rectangle.

    Args:
        cells: i8[2, n], column and row of each object in it.
        load: i8[n], workload of each object.
        region: The rectangle.
    """
    x0, y0, x1, y1 = region
    return no_aggregates(x1 - x0, y1 - y0).adding(cells[0] - x0, cells[1] - y0, load)
