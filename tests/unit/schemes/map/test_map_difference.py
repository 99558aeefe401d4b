"""Queries outside the slots of a change are in the same slots by both maps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from sirocco.schemes.map.map import CHILDREN, Leaf, PartitionMap, Place
from sirocco.schemes.map.map_difference import slots_of_change
from sirocco.schemes.map.routing import RoutingArrays, compile_map
from tests.support.random_maps import random_map, random_text_node

SLOTS = 7


def changed(rng: np.random.Generator, before: PartitionMap) -> PartitionMap:
    """The map after a few moves, halvings and cuts by text of leaves."""
    leaves = list(before.leaves)
    slots = before.slot_of_leaf.tolist()
    nodes = list(before.text_nodes)
    ids = max(leaf.id for leaf in leaves) + 1
    for _ in range(int(rng.integers(1, 4))):
        row = int(rng.integers(len(leaves)))
        west, south, east, north = leaves[row].box
        match int(rng.integers(3)):
            case 0:
                slots[row] = int(rng.integers(SLOTS))
            case 1 if east - west > 1:
                middle = (west + east) / 2
                within = leaves[row].within
                leaves[row] = Leaf(leaves[row].id, (west, south, middle, north), within)
                leaves.append(Leaf(ids, (middle, south, east, north), within))
                slots.append(int(rng.integers(SLOTS)))
                ids += 1
            case 2 if leaves[row].within is None:
                number = max((node.id for node in nodes), default=-1) + 1
                nodes.append(random_text_node(rng, number, leaves[row].box, None))
                for child in range(1, CHILDREN):
                    leaves.append(Leaf(ids, leaves[row].box, Place(number, child)))
                    slots.append(int(rng.integers(SLOTS)))
                    ids += 1
                leaves[row] = Leaf(leaves[row].id, leaves[row].box, Place(number, 0))
    return replace(
        before,
        version=before.version + 1,
        leaves=tuple(leaves),
        text_nodes=tuple(nodes),
        slot_of_leaf=np.array(slots, np.int32),
        load_of_leaf=np.zeros(len(leaves)),
    )


def some_boxes(rng: np.random.Generator, arrays: RoutingArrays, count: int) -> NDArray[np.float64]:
    """Boxes of all sizes, many of which end on borders of leaves."""
    xs = np.array([-180.0, 180.0, *arrays.x_borders])
    ys = np.array([-90.0, 90.0, *arrays.y_borders])
    lon = np.where(rng.random((count, 2)) < 0.5, rng.choice(xs, (count, 2)), 0.0)
    lon = np.where(lon == 0.0, rng.uniform(-180, 180, (count, 2)), lon)
    lat = np.where(rng.random((count, 2)) < 0.5, rng.choice(ys, (count, 2)), 0.0)
    lat = np.where(lat == 0.0, rng.uniform(-90, 90, (count, 2)), lat)
    small = rng.random(count) < 0.5
    lon[small, 1], lat[small, 1] = lon[small, 0], lat[small, 0]
    lon.sort(axis=1)
    lat.sort(axis=1)
    return np.stack([lon[:, 0], lat[:, 0], lon[:, 1], lat[:, 1]], axis=1)


def slots_of(arrays: RoutingArrays, box: NDArray[np.float64]) -> set[int]:
    return set(arrays.route_boxes(box.reshape(1, 4), np.array([0, 1])).slots.tolist())


@pytest.mark.parametrize("seed", range(30))
def test_queries_that_move_are_in_slots_of_the_change(seed: int) -> None:
    rng = np.random.default_rng(seed)
    before = random_map(rng, leaves=40, slots=SLOTS, text=seed % 3 == 0)
    after = changed(rng, before)
    base, following = compile_map(before), compile_map(after)
    among = slots_of_change(base, following)
    assert among is not None
    kept = 0
    for box in some_boxes(rng, following, 300):
        old, new = slots_of(base, box), slots_of(following, box)
        if not old & among:
            assert old == new
            kept += 1
    assert kept or len(among) > 1


def test_a_leaf_that_moves_concerns_the_slot_that_it_leaves() -> None:
    before = random_map(np.random.default_rng(4), leaves=40, slots=SLOTS, text=False)
    slots = before.slot_of_leaf.copy()
    slots[5] = (slots[5] + 1) % SLOTS
    after = replace(before, version=4, slot_of_leaf=slots)
    among = slots_of_change(compile_map(before), compile_map(after))
    assert among == {int(before.slot_of_leaf[5])}
    assert slots_of_change(compile_map(before), compile_map(replace(before, version=4))) == set()
