"""Scheme `kd-tree`: median splits, a baseline of PS2Stream (VI.B) and SSTD (7)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.builders.uniform_grid import check_counts
from sirocco.schemes.map.map import WORLD, Box, PartitionMap
from sirocco.schemes.map.routing import RoutingArrays, compile_map
from sirocco.schemes.workload.sample import Sample
from sirocco.schemes.workload.spatial_cuts import SIDE_DEGREES_MIN, weighted_cut
from sirocco.schemes.workload.spatial_grid import fine_grid
from sirocco.schemes.workload.spatial_load import object_loads, with_queries
from sirocco.schemes.workload.spatial_map import spatial_map


class KdTree:
    """Splits each box at the median of its workload, across the wider side of its objects.

    The trees that PS2Stream compares with (its references 21 and 26) weigh objects by the queries
    that they meet, and so do we: equation 1 of Tornado. Unlike in `a-grid` the splits follow no
    grid, and the depth of the tree depends on its share of the leaves.
    """

    name = "kd-tree"

    def build(self, sample: Sample, leaves: int, slots: int) -> PartitionMap:
        """Splits the world, then allocates the leaves by Karmarkar-Karp.

        See `Scheme.build`. Makes `leaves` leaves; fewer only if boxes become as small as one place.
        A sample without queries gets those of `assumed_queries`.
        """
        check_counts(leaves, slots)
        sample = with_queries(sample)
        weights = object_loads(sample, fine_grid(sample))
        boxes, load = _grow(_places(sample), weights, leaves)
        return spatial_map(self.name, boxes, np.array(load), slots)

    def compile(self, partition_map: PartitionMap) -> RoutingArrays:
        """See `Scheme.compile`."""
        return compile_map(partition_map)


def _places(sample: Sample) -> NDArray[np.float64]:
    """Returns the points, moved into the world, f8[2, n]."""
    return np.stack([np.clip(sample.lon, *WORLD[0::2]), np.clip(sample.lat, *WORLD[1::2])])


def _grow(
    places: NDArray[np.float64], weights: NDArray[np.int64], leaves: int
) -> tuple[list[Box], list[float]]:
    """Returns the leaves' boxes and loads."""
    boxes: list[Box] = []
    load: list[float] = []
    waiting = [(WORLD, np.arange(len(weights)), leaves)]
    while waiting:
        box, rows, count = waiting.pop()
        found = None if count == 1 else _cut(box, places[:, rows], weights[rows], count)
        if found is None:
            boxes.append(box)
            load.append(float(weights[rows].sum()))
            continue
        axis, at, own = found
        before = places[axis, rows] < at
        first, second = _halves(box, axis, at)
        waiting += [(second, rows[~before], count - own), (first, rows[before], own)]
    return boxes, load


def _cut(
    box: Box, places: NDArray[np.float64], weights: NDArray[np.int64], count: int
) -> tuple[int, float, int] | None:
    """Returns (axis, split position, leaves before it); None if the box is too small.

    An odd number of leaves shifts the median. If many objects are in one place no split meets it,
    and each side gets leaves by its workload.
    """
    share = (count // 2) / count
    if places.shape[1] > 1:
        extents = np.ptp(places, 1)
        for axis in np.argsort(-extents, kind="stable").tolist():
            at = weighted_cut(places[axis], weights, share, box[axis], box[axis + 2])
            if at is not None:
                before = float(weights[places[axis] < at].sum() / weights.sum())
                return axis, at, min(max(round(count * before), 1), count - 1)
    width, height = box[2] - box[0], box[3] - box[1]
    if max(width, height) < 2 * SIDE_DEGREES_MIN:
        return None
    axis = 0 if width >= height else 1
    return axis, (box[axis] + box[axis + 2]) / 2, count // 2


def _halves(box: Box, axis: int, at: float) -> tuple[Box, Box]:
    west, south, east, north = box
    if axis == 0:
        return (west, south, at, north), (at, south, east, north)
    return (west, south, east, at), (west, at, east, north)
