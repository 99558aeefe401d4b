"""Boxes and their loads → a map."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.map.map import WORLD, Box, Leaf, PartitionMap
from sirocco.schemes.workload.allocation import karmarkar_karp

# Load of a leaf without sample objects, in mean loads: enough to distribute such leaves over all
# slots, too little to disturb the balance of the known loads.
UNSEEN_LEAF_SHARE = 1e-3


def spatial_map(
    scheme: str, boxes: Sequence[Box], load: NDArray[np.float64], slots: int
) -> PartitionMap:
    """Returns a map of version 1 whose leaves are boxes that tile the world.

    Args:
        scheme: Name of the scheme.
        boxes: The leaves' boxes; their order gives the ids.
        load: f8[leaves]; raised to a minimum, and divided among slots by Karmarkar-Karp.
        slots: Number of slots.
    """
    floor = UNSEEN_LEAF_SHARE * float(load.mean()) if load.any() else 1.0
    load = np.maximum(load, floor)
    return PartitionMap(
        version=1,
        scheme=scheme,
        world=WORLD,
        leaves=tuple(Leaf(number, box) for number, box in enumerate(boxes)),
        text_nodes=(),
        slot_of_leaf=karmarkar_karp(load, slots),
        load_of_leaf=load,
        slots=slots,
    )
