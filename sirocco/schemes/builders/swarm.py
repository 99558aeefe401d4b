"""Scheme `swarm`: equal areas, without prior knowledge of the workload (SWARM 4.1)."""

from __future__ import annotations

import heapq
from typing import TypeAlias

import numpy as np

from sirocco.schemes.builders.uniform_grid import check_counts
from sirocco.schemes.map.map import PartitionMap
from sirocco.schemes.map.routing import RoutingArrays, compile_map
from sirocco.schemes.workload.sample import Sample
from sirocco.schemes.workload.spatial_grid import FineGrid, even_grid
from sirocco.schemes.workload.spatial_map import spatial_map

# Cells of SWARM's global index over the world (C1 x C2; the paper uses 1000 x 1000). Each is a
# sixth of a degree wide and high. Halving a power of two always ends at a whole cell, and even with
# `TILES_MAX` leaves, each has 32 cells for splits in later rounds.
COLUMNS = 1 << 11
ROWS = 1 << 10

# First column, first row, last column + 1, last row + 1.
Region: TypeAlias = tuple[int, int, int, int]


class Swarm:
    """Halves the largest leaf until there are enough; balancing rounds do the rest.

    In SWARM's router each grid cell leads to its leaf. We compile the leaves' borders, which are
    all borders of cells, and find a region's leaves by SWARM's Algorithm 1, which is Tornado's
    neighbour-based search: see `sirocco.kernels.routing.routing`.
    """

    name = "swarm"

    def build(self, sample: Sample, leaves: int, slots: int) -> PartitionMap:
        """Divides the world evenly (4.1.1); the sample is ignored.

        See `Scheme.build`. Makes `leaves` leaves. The load of a leaf is its area.
        """
        check_counts(leaves, slots)
        grid = global_grid()
        regions = equal_areas(COLUMNS, ROWS, leaves)
        area = [float((x1 - x0) * (y1 - y0)) for x0, y0, x1, y1 in regions]
        return spatial_map(
            self.name, [grid.box(*region) for region in regions], np.array(area), slots
        )

    def compile(self, partition_map: PartitionMap) -> RoutingArrays:
        """See `Scheme.compile`."""
        return compile_map(partition_map)


def global_grid() -> FineGrid:
    """Returns the grid of which all leaves consist; `within` a leaf's box returns its cells."""
    return even_grid(COLUMNS, ROWS)


def equal_areas(columns: int, rows: int, leaves: int) -> list[Region]:
    """Halves the rectangle of largest area, across its longer side, until there are enough.

    Args:
        columns, rows: Size of the grid, in cells as wide as they are high.
        leaves: Wanted number of rectangles; fewer if no part has two cells left.

    Returns:
        The rectangles, in order of creation; a side with an odd number of cells is split beside its
        middle.
    """
    heap: list[tuple[int, int, Region]] = [(-columns * rows, 0, (0, 0, columns, rows))]
    serial = 1
    while len(heap) < leaves and -heap[0][0] > 1:
        _, _, (x0, y0, x1, y1) = heapq.heappop(heap)
        x, y = (x0 + x1) // 2, (y0 + y1) // 2
        if x1 - x0 >= y1 - y0:
            halves = ((x0, y0, x, y1), (x, y0, x1, y1))
        else:
            halves = ((x0, y0, x1, y), (x0, y, x1, y1))
        for half in halves:
            area = (half[2] - half[0]) * (half[3] - half[1])
            heapq.heappush(heap, (-area, serial, half))
            serial += 1
    return [region for _, _, region in sorted(heap, key=lambda entry: entry[1])]
