"""Scheme `uniform-grid`: equal tiles, the baseline of all papers and the map without a sample."""

from __future__ import annotations

import math

import numpy as np

from sirocco.model.errors import InvalidArgument
from sirocco.schemes.map.map import WORLD, Leaf, PartitionMap
from sirocco.schemes.map.routing import RoutingArrays, compile_map
from sirocco.schemes.map.tiling import TILES_MAX
from sirocco.schemes.workload.allocation import karmarkar_karp
from sirocco.schemes.workload.sample import Sample

# Slots are Kafka partitions; brokers serve some thousand well, and a router keeps one buffer for
# each, so a larger number is a user's mistake.
SLOTS_MAX = 1 << 14


class UniformGrid:
    """Splits the world into equal boxes, exactly `leaves` of them."""

    name = "uniform-grid"

    def build(self, sample: Sample, leaves: int, slots: int) -> PartitionMap:
        """Splits the world; the sample only decides which slot holds which box.

        See `Scheme.build`. The load of a box is its number of sample objects.
        """
        check_counts(leaves, slots)
        rows = max(d for d in range(1, math.isqrt(leaves) + 1) if leaves % d == 0)
        columns = leaves // rows
        x = np.linspace(WORLD[0], WORLD[2], columns + 1)
        y = np.linspace(WORLD[1], WORLD[3], rows + 1)
        tiles = tuple(
            Leaf(r * columns + c, (float(x[c]), float(y[r]), float(x[c + 1]), float(y[r + 1])))
            for r in range(rows)
            for c in range(columns)
        )
        column = np.clip(np.searchsorted(x, sample.lon, "right") - 1, 0, columns - 1)
        row = np.clip(np.searchsorted(y, sample.lat, "right") - 1, 0, rows - 1)
        # One more everywhere: boxes without sample objects are also distributed over slots.
        load = (np.bincount(row * columns + column, minlength=leaves) + 1).astype(np.float64)
        return PartitionMap(
            version=1,
            scheme=self.name,
            world=WORLD,
            leaves=tiles,
            text_nodes=(),
            slot_of_leaf=karmarkar_karp(load, slots),
            load_of_leaf=load,
            slots=slots,
        )

    def compile(self, partition_map: PartitionMap) -> RoutingArrays:
        """See `Scheme.compile`."""
        return compile_map(partition_map)


def check_counts(leaves: int, slots: int) -> None:
    """Refuses numbers of leaves and slots that no map can have; raises InvalidArgument."""
    if not 0 < leaves <= TILES_MAX:
        raise InvalidArgument(f"{leaves} is not from 1 to {TILES_MAX}", field="leaves")
    if not 0 < slots <= SLOTS_MAX:
        raise InvalidArgument(f"{slots} is not from 1 to {SLOTS_MAX}", field="slots")
