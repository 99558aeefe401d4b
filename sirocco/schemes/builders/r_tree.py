"""Scheme `r-tree`: the leaves of a packed R-tree, a baseline of PS2Stream (VI.B)."""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.builders.uniform_grid import check_counts
from sirocco.schemes.map.map import WORLD, Box, PartitionMap
from sirocco.schemes.map.routing import RoutingArrays, compile_map
from sirocco.schemes.workload.sample import Sample
from sirocco.schemes.workload.spatial_cuts import quantile_cuts
from sirocco.schemes.workload.spatial_grid import fine_grid
from sirocco.schemes.workload.spatial_load import object_loads, with_queries
from sirocco.schemes.workload.spatial_map import spatial_map


class RTree:
    """Packs the objects by Sort-Tile-Recursive (Leutenegger, Lopez, Edgington 1997).

    The objects are split into about as many vertical slabs as each slab has tiles, all tiles with
    equally many objects. The nodes of an R-tree are bounding boxes and leave gaps; a stream has
    objects in the gaps too, and each needs one leaf. So tiles are extended: their borders are
    midway between neighbours, and the outer ones are at the border of the world.
    """

    name = "r-tree"

    def build(self, sample: Sample, leaves: int, slots: int) -> PartitionMap:
        """Packs the sample, then allocates the leaves by Karmarkar-Karp.

        See `Scheme.build`. Makes `leaves` leaves; fewer only if tiles would become as small as one
        place. Tiles have equal numbers of objects, like an R-tree's nodes; the workload only
        decides which slot holds which leaf ("partitions the set of leaf nodes"). A sample without
        queries gets those of `assumed_queries`.
        """
        check_counts(leaves, slots)
        sample = with_queries(sample)
        weights = object_loads(sample, fine_grid(sample))
        lon, lat = np.clip(sample.lon, *WORLD[0::2]), np.clip(sample.lat, *WORLD[1::2])
        slabs = math.ceil(math.sqrt(leaves))
        firsts = np.arange(slabs + 1) * leaves // slabs
        x = np.array(_borders(lon, firsts[1:-1] / leaves, 0))
        boxes: list[Box] = []
        load: list[float] = []
        slab_of = np.searchsorted(x[1:-1], lon, "right")
        for slab, tiles in enumerate(np.diff(firsts[: len(x)]).tolist()):
            rows = np.flatnonzero(slab_of == slab)
            y = _borders(lat[rows], np.arange(1, tiles) / tiles, 1)
            tile_of = np.searchsorted(y[1:-1], lat[rows], "right")
            load += np.bincount(tile_of, weights[rows], len(y) - 1).tolist()
            west, east = float(x[slab]), float(x[slab + 1])
            boxes += [(west, south, east, north) for south, north in itertools.pairwise(y)]
        return spatial_map(self.name, boxes, np.array(load), slots)

    def compile(self, partition_map: PartitionMap) -> RoutingArrays:
        """See `Scheme.compile`."""
        return compile_map(partition_map)


def _borders(values: NDArray[np.float64], shares: NDArray[np.float64], axis: int) -> list[float]:
    low, high = WORLD[axis], WORLD[axis + 2]
    return [low, *quantile_cuts(values, shares, low, high), high]
