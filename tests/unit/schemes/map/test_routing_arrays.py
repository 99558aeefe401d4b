"""Routing: an object's slot is always among those of a query whose box holds the object."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirocco.schemes.map.routing import RoutingArrays, compile_map
from tests.support.random_maps import NO_TERMS, random_map, route_points

SEEDS = st.integers(0, 2**32 - 1)


def leaves_by_brute_force(partition_map, lon, lat):
    """Returns ids of leaves whose closed box holds the point, or is the nearest to it."""
    west, south, east, north = partition_map.world
    x, y = min(max(lon, west), east), min(max(lat, south), north)
    return {
        leaf.id
        for leaf in partition_map.leaves
        if leaf.box[0] <= x <= leaf.box[2] and leaf.box[1] <= y <= leaf.box[3]
    }


def coordinates(rng, partition_map, count):
    """Returns random points, points on borders of leaves, one float beside, and on the world's."""
    boxes = np.array([leaf.box for leaf in partition_map.leaves])
    lon = rng.uniform(-180, 180, count)
    lat = rng.uniform(-90, 90, count)
    for values, sides in ((lon, (0, 2)), (lat, (1, 3))):
        border = rng.choice(boxes[:, sides].ravel(), count)
        near = np.nextafter(border, rng.choice([-np.inf, np.inf], count))
        choice = rng.integers(0, 3, count)
        values[choice == 1] = border[choice == 1]
        values[choice == 2] = near[choice == 2]
    return np.clip(lon, -180, 180), np.clip(lat, -90, 90)


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_an_object_goes_to_one_leaf_that_holds_it(seed):
    rng = np.random.default_rng(seed)
    partition_map = random_map(rng)
    lon, lat = coordinates(rng, partition_map, 200)
    routes, keys = route_points(compile_map(partition_map), rng, lon, lat)
    assert routes.row.tolist() == list(range(200)), f"seed {seed}"
    slot_of = dict(
        zip((leaf.id for leaf in partition_map.leaves), partition_map.slot_of_leaf, strict=True)
    )
    for i in range(200):
        allowed = leaves_by_brute_force(partition_map, lon[i], lat[i])
        assert routes.leaf[i] in allowed, f"seed {seed}, key {keys[i]}, ({lon[i]}, {lat[i]})"
        assert routes.slot[i] == slot_of[routes.leaf[i]], f"seed {seed}"


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_a_query_reaches_the_leaf_of_every_object_in_its_boxes(seed):
    rng = np.random.default_rng(seed)
    partition_map = random_map(rng)
    arrays = compile_map(partition_map)
    lon, lat = coordinates(rng, partition_map, 300)
    routes, _ = route_points(arrays, rng, lon, lat)
    boxes, offsets = random_boxes(rng, partition_map, 40)
    queries = arrays.route_boxes(boxes, offsets)
    for query in range(40):
        leaves = queries.leaves[queries.leaf_offsets[query] : queries.leaf_offsets[query + 1]]
        slots = queries.slots[queries.slot_offsets[query] : queries.slot_offsets[query + 1]]
        owners = queries.slot_of_leaf[queries.leaf_offsets[query] : queries.leaf_offsets[query + 1]]
        assert len(set(leaves.tolist())) == len(leaves), f"seed {seed}, query {query}"
        assert slots.tolist() == sorted(set(owners.tolist())), f"seed {seed}, query {query}"
        inside = np.zeros(300, np.bool_)
        for box in boxes[offsets[query] : offsets[query + 1]]:
            inside |= holds(box, lon, lat)
        assert set(routes.leaf[inside]) <= set(leaves), f"seed {seed}, query {query}"
        assert set(routes.slot[inside]) <= set(slots), f"seed {seed}, query {query}"


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_a_query_reaches_no_leaf_that_its_box_does_not_touch(seed):
    rng = np.random.default_rng(seed)
    partition_map = random_map(rng)
    boxes = random_boxes(rng, partition_map, 40)[0]
    boxes = boxes[boxes[:, 0] <= boxes[:, 2]]
    routes = compile_map(partition_map).route_boxes(boxes, np.arange(len(boxes) + 1))
    leaf_of = {leaf.id: leaf for leaf in partition_map.leaves}
    for query, (west, south, east, north) in enumerate(boxes):
        at_meridian = west <= -180 or east >= 180
        for one in routes.leaves[routes.leaf_offsets[query] : routes.leaf_offsets[query + 1]]:
            box = leaf_of[int(one)].box
            touches = box[0] <= east and west <= box[2]
            touches |= at_meridian and (box[0] == -180 or box[2] == 180)
            touches &= box[1] <= north and south <= box[3]
            assert touches, f"seed {seed}, box {boxes[query]}, leaf {box}"


def holds(box, lon, lat):
    """The oracle: closed, west > east crosses the antimeridian, ±180 equal."""
    west, south, east, north = box
    inside = np.zeros(len(lon), np.bool_)
    for x in (lon, np.where(lon == 180, -180, lon), np.where(lon == -180, 180, lon)):
        if west > east:
            inside |= (x >= west) | (x <= east)
        else:
            inside |= (x >= west) & (x <= east)
    return inside & (lat >= south) & (lat <= north)


def random_boxes(rng, partition_map, queries):
    counts = rng.integers(0, 4, queries)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    x0, y0 = coordinates(rng, partition_map, int(offsets[-1]))
    x1, y1 = coordinates(rng, partition_map, int(offsets[-1]))
    boxes = np.stack([x0, np.minimum(y0, y1), x1, np.maximum(y0, y1)], 1)
    point = rng.random(len(boxes)) < 0.2
    boxes[point, 2:] = boxes[point, :2]
    return boxes, offsets


def one_query(arrays: RoutingArrays, *box: float) -> set[int]:
    return set(arrays.route_boxes(np.array([box]), np.array([0, 1])).leaves.tolist())


@pytest.mark.parametrize("box", [(170.0, 1, 180, 2), (-180.0, 1, -170, 2), (179.0, 1, -179, 2)])
def test_both_sides_of_the_antimeridian_are_reached(box):
    rng = np.random.default_rng(5)
    partition_map = random_map(rng, text=False)
    arrays = compile_map(partition_map)
    routes, _ = route_points(arrays, rng, np.array([180.0, -180.0]), np.array([1.5, 1.5]))
    assert set(routes.leaf.tolist()) <= one_query(arrays, *box)


def test_the_output_grows_when_queries_are_large():
    partition_map = random_map(np.random.default_rng(3))
    arrays = compile_map(partition_map)
    world = np.tile(np.array([[-180.0, -90, 180, 90]]), (500, 1))
    routes = arrays.route_boxes(world, np.arange(501))
    assert (np.diff(routes.leaf_offsets) == len(partition_map.leaves)).all()
    assert routes.leaves[: len(partition_map.leaves)].tolist() == arrays.leaf_ids.tolist()


def test_an_empty_batch_gives_empty_routes():
    arrays = compile_map(random_map(np.random.default_rng(4)))
    none = np.empty(0)
    objects = arrays.route_objects(none, none, np.zeros(1, np.int64), NO_TERMS, NO_TERMS)
    assert len(objects.leaf) == len(objects.slot) == len(objects.row) == 0
    queries = arrays.route_boxes(np.empty((0, 4)), np.zeros(1, np.int64))
    assert queries.slot_offsets.tolist() == queries.leaf_offsets.tolist() == [0]


def test_read_only_columns_are_taken():
    arrays = compile_map(random_map(np.random.default_rng(4)))
    lon = np.frombuffer(np.array([1.0, 2.0]).tobytes())
    keys = np.frombuffer(np.array([7, 8], np.uint64).tobytes(), np.uint64)
    offsets = np.frombuffer(np.array([0, 1, 2]).tobytes(), np.int64)
    assert len(arrays.route_objects(lon, lon, offsets, keys, keys).leaf) == 2
