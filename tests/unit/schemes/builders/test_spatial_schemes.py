"""The spatial schemes: leaves tile the world, and routing agrees exactly with their boxes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirocco.model.errors import InvalidArgument
from sirocco.schemes.builders.a_grid import BORDER_SIDE
from sirocco.schemes.builders.scheme import SCHEMES
from sirocco.schemes.map.map import WORLD
from sirocco.schemes.workload.sample import empty_sample
from sirocco.schemes.workload.spatial_grid import even_grid, extent_of, fine_grid
from sirocco.schemes.workload.spatial_load import object_loads, with_queries
from tests.support.random_samples import random_sample, sample_at

SEEDS = st.integers(0, 2**32 - 1)
SPATIAL = ("a-grid", "kd-tree", "r-tree", "swarm")
every_scheme = pytest.mark.parametrize("name", SPATIAL)


def any_sample(rng):
    """Returns samples of all sizes; many places are equal, share a coordinate or are remote."""
    sample = random_sample(rng, int(rng.integers(0, 300)), int(rng.integers(0, 40)), side=200.0)
    for values, far in ((sample.lon, 180.0), (sample.lat, 90.0)):
        if len(values) == 0:
            continue
        choice = rng.integers(0, 6, len(values))
        values[choice == 0] = values[0]
        values[choice == 1] = np.round(values[choice == 1], -1)
        values[choice == 2] = np.nextafter(values[0], np.inf)
        values[choice == 3] = rng.choice([-far, far], int((choice == 3).sum()))
    return sample


def places_near(rng, boxes, count):
    """Returns places anywhere, on borders of leaves, one float beside them, and on the world's."""
    places = rng.uniform((-180, -90), (180, 90), (count, 2))
    for axis in (0, 1):
        border = rng.choice(boxes[:, [axis, axis + 2]].ravel(), count)
        near = np.nextafter(border, rng.choice([-np.inf, np.inf], count))
        choice = rng.integers(0, 3, count)
        places[choice == 1, axis] = border[choice == 1]
        places[choice == 2, axis] = near[choice == 2]
    return np.clip(places, WORLD[:2], WORLD[2:])


def ends_after(boxes, axis, values):
    """Returns bool[values, leaves]: whether values are before the far border, or the world's."""
    far = boxes[:, axis + 2]
    return (values[:, None] < far) | (far == WORLD[axis + 2])


def holds(boxes, places):
    """Returns bool[places, leaves], by definition: half open towards north and east."""
    inside = np.ones((len(places), len(boxes)), np.bool_)
    for axis in (0, 1):
        value = places[:, axis]
        inside &= (value[:, None] >= boxes[:, axis]) & ends_after(boxes, axis, value)
    return inside


def touches(boxes, asked):
    """Returns bool[queries, leaves], by definition; 180 and -180 are one meridian."""
    parts = []
    for part, (west, east) in enumerate(((0, 2), (0, 180.0), (-180.0, 2))):
        x0 = asked[:, 0] if west == 0 else np.full(len(asked), west)
        x1 = asked[:, 2] if east == 2 else np.full(len(asked), east)
        crosses = asked[:, 0] > asked[:, 2]
        used = ~crosses if part == 0 else crosses
        wide = used[:, None] & (x1[:, None] >= boxes[:, 0]) & ends_after(boxes, 0, x0)
        parts.append(wide)
    at_meridian = (asked[:, 0] <= -180) | (asked[:, 2] >= 180)
    parts.append(at_meridian[:, None] & ((boxes[:, 0] == -180) | (boxes[:, 2] == 180)))
    high = (asked[:, 3][:, None] >= boxes[:, 1]) & ends_after(boxes, 1, asked[:, 1])
    return np.any(parts, 0) & high


@every_scheme
@settings(max_examples=25, deadline=None)
@given(seed=SEEDS)
def test_routing_agrees_with_the_boxes(name, seed):
    rng = np.random.default_rng(seed)
    scheme = SCHEMES[name]
    leaves = int(rng.integers(1, 70))
    partition_map = scheme.build(any_sample(rng), leaves, int(rng.integers(1, 9)))
    assert len(partition_map.leaves) == leaves, f"seed {seed}"
    boxes = np.array([leaf.box for leaf in partition_map.leaves])
    arrays = scheme.compile(partition_map)
    places = places_near(rng, boxes, 300)
    none = np.zeros(301, np.int64), np.empty(0, np.uint64)
    columns = (places[:, 0].copy(), places[:, 1].copy(), *none, np.arange(300, dtype=np.uint64))
    routes = arrays.route_objects(*columns)
    held = holds(boxes, places)
    assert (held.sum(1) == 1).all(), f"seed {seed}"
    assert (routes.leaf == held.argmax(1)).all(), f"seed {seed}"
    assert (routes.slot == partition_map.slot_of_leaf[held.argmax(1)]).all(), f"seed {seed}"
    ends = places_near(rng, boxes, 120).reshape(60, 4)
    ends[:, [1, 3]] = np.sort(ends[:, [1, 3]], 1)
    reached = arrays.route_boxes(ends, np.arange(61))
    touched = touches(boxes, ends)
    for query in range(60):
        found = reached.leaves[reached.leaf_offsets[query] : reached.leaf_offsets[query + 1]]
        expected = np.flatnonzero(touched[query])
        assert found.tolist() == expected.tolist(), f"seed {seed}, box {ends[query]}"


@every_scheme
@pytest.mark.parametrize("leaves", [1, 2, 3, 5, 16, 37, 300, 1024])
def test_maps_have_the_requested_number_of_leaves(name, leaves):
    rng = np.random.default_rng(leaves)
    for sample in (empty_sample(), random_sample(rng), sample_at([5.0] * 9, [5.0] * 9, [[]] * 9)):
        assert len(SCHEMES[name].build(sample, leaves, 4).leaves) == leaves


@every_scheme
def test_a_city_in_a_sample_of_the_world_is_cut_too(name):
    """Half of all objects are within 20 km. (SWARM ignores the data, by its definition.)"""
    rng = np.random.default_rng(3)
    city = rng.normal((2.35, 48.85), 0.05, (2000, 2))
    world = rng.uniform((-170, -80), (170, 80), (2000, 2))
    places = np.concatenate([city, world])
    sample = sample_at(places[:, 0], places[:, 1], [[1]] * 4000)
    scheme = SCHEMES[name]
    partition_map = scheme.build(sample, 64, 4)
    columns = (sample.lon, sample.lat, sample.term_offsets, sample.terms, sample.event_keys)
    leaf = scheme.compile(partition_map).route_objects(*columns).leaf
    most = np.bincount(leaf, minlength=64).max() / 4000
    assert most > 0.4 if name == "swarm" else most < 0.05


@pytest.mark.parametrize("name", ["a-grid", "kd-tree", "r-tree"])
@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
def test_the_expected_load_is_that_of_the_objects_routed(name, seed):
    """Up to the floor under leaves that the sample never saw."""
    rng = np.random.default_rng(seed)
    sample = any_sample(rng)
    if len(sample) == 0:
        return
    scheme = SCHEMES[name]
    partition_map = scheme.build(sample, 30, 4)
    columns = (sample.lon, sample.lat, sample.term_offsets, sample.terms, sample.event_keys)
    leaf = scheme.compile(partition_map).route_objects(*columns).leaf
    sample = with_queries(sample)
    weights = object_loads(sample, fine_grid(sample))
    load = np.bincount(leaf, weights, 30)
    floor = load.mean() * 1e-3
    np.testing.assert_allclose(
        partition_map.load_of_leaf, np.maximum(load, floor), err_msg=f"seed {seed}"
    )


def test_borders_of_the_a_grid_lie_on_the_fine_grid():
    sample = random_sample(np.random.default_rng(7), 2000, 100)
    grid = even_grid(BORDER_SIDE, BORDER_SIDE, extent_of(sample))
    boxes = np.array([leaf.box for leaf in SCHEMES["a-grid"].build(sample, 200, 8).leaves])
    assert np.isin(boxes[:, [0, 2]], grid.x_borders).all()
    assert np.isin(boxes[:, [1, 3]], grid.y_borders).all()
    assert len(np.unique(boxes[:, [0, 2]])) > 10


def test_ten_thousand_leaves_of_the_a_grid_still_fit_a_tiling():
    sample = random_sample(np.random.default_rng(7), 20_000, 100)
    assert len(SCHEMES["a-grid"].build(sample, 10_000, 16).leaves) == 10_000


def test_slabs_of_the_r_tree_have_equal_numbers_of_objects():
    rng = np.random.default_rng(9)
    sample = random_sample(rng, 4000, 50)
    scheme = SCHEMES["r-tree"]
    partition_map = scheme.build(sample, 49, 4)
    columns = (sample.lon, sample.lat, sample.term_offsets, sample.terms, sample.event_keys)
    leaf = scheme.compile(partition_map).route_objects(*columns).leaf
    counts = np.bincount(leaf, minlength=49)
    assert counts.max() - counts.min() <= 4, counts
    assert len({leaf.box[0] for leaf in partition_map.leaves}) == 7


def test_leaves_of_the_kd_tree_have_equal_workloads_however_many_they_are():
    sample = random_sample(np.random.default_rng(9), 20_000, 50)
    for leaves in (7, 48, 100):
        load = SCHEMES["kd-tree"].build(sample, leaves, 4).load_of_leaf
        assert load.max() < 1.2 * load.mean()


@pytest.mark.parametrize(("wide", "axis"), [((50, 1), 0), ((1, 50), 1)])
def test_the_kd_tree_cuts_across_the_wider_side_of_the_objects(wide, axis):
    places = np.random.default_rng(1).uniform(-1, 1, (500, 2)) * wide
    sample = sample_at(places[:, 0], places[:, 1], [[1]] * 500)
    first, second = SCHEMES["kd-tree"].build(sample, 2, 2).leaves
    assert first.box[axis + 2] == second.box[axis]
    assert abs(first.box[axis + 2]) < wide[axis] / 4


def test_leaves_of_the_kd_tree_go_where_the_workload_is_if_no_cut_halves_it():
    """Four fifths of the objects share one longitude, which no cut can split."""
    rng = np.random.default_rng(1)
    lon = np.where(np.arange(5000) < 4000, 7.0, rng.uniform(-100, 100, 5000))
    lat = rng.uniform(-40, 40, 5000)
    load = SCHEMES["kd-tree"].build(sample_at(lon, lat, [[]] * 5000), 60, 4).load_of_leaf
    assert load.max() < 1.4 * load.mean()


def test_ps2stream_6_b_the_kd_tree_balances_best_of_the_baselines_in_space():
    """Figure 6 by the heaviest worker: kd-tree before R-tree and grid."""
    rng = np.random.default_rng(2)
    sample = random_sample(rng, 8000, 400, side=10.0)
    heaviest = {}
    weights = object_loads(sample, fine_grid(sample))
    for name in ("kd-tree", "r-tree", "uniform-grid"):
        scheme = SCHEMES[name]
        columns = (sample.lon, sample.lat, sample.term_offsets, sample.terms, sample.event_keys)
        arrays = scheme.compile(scheme.build(sample, 8, 8))
        slots = np.bincount(arrays.route_objects(*columns).slot, weights, 8)
        heaviest[name] = slots.max() / slots.mean()
    assert heaviest["kd-tree"] < heaviest["r-tree"] < heaviest["uniform-grid"], heaviest


@every_scheme
def test_numbers_out_of_range_are_refused(name):
    for leaves, slots in ((0, 4), (4, 0), (1 << 17, 4)):
        with pytest.raises(InvalidArgument):
            SCHEMES[name].build(empty_sample(), leaves, slots)
