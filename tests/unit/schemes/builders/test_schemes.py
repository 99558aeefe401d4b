"""Every scheme of the table: valid maps of all samples, exact routing, repeatable."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirocco.model.errors import InvalidArgument
from sirocco.schemes.builders.scheme import SCHEMES, scheme_named
from sirocco.schemes.map.map_bytes import from_bytes, to_bytes
from sirocco.schemes.workload.sample import QueryKind, empty_sample
from tests.support.random_samples import random_sample, sample_at

SEEDS = st.integers(0, 2**32 - 1)
every_scheme = pytest.mark.parametrize("name", sorted(SCHEMES))


def route(scheme, partition_map, sample):
    columns = (sample.lon, sample.lat, sample.term_offsets, sample.terms, sample.event_keys)
    return scheme.compile(partition_map).route_objects(*columns)


@every_scheme
@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
def test_objects_and_queries_meet(name, seed):
    rng = np.random.default_rng(seed)
    scheme = scheme_named(name)
    partition_map = scheme.build(random_sample(rng, side=300.0), 40, 6)
    stream = random_sample(rng, 300, 80, side=100.0)
    routes = route(scheme, from_bytes(to_bytes(partition_map)), stream)
    boxes = stream.queries.boxes
    reached = scheme.compile(partition_map).route_boxes(boxes, np.arange(len(boxes) + 1))
    for query, (west, south, east, north) in enumerate(boxes):
        inside = (stream.lon >= west) & (stream.lon <= east)
        inside &= (stream.lat >= south) & (stream.lat <= north)
        slots = reached.slots[reached.slot_offsets[query] : reached.slot_offsets[query + 1]]
        assert set(routes.slot[inside[routes.row]]) <= set(slots), f"seed {seed}, query {query}"


@every_scheme
@pytest.mark.parametrize(
    "sample",
    [
        empty_sample(),
        sample_at([5.0] * 50, [5.0] * 50, [[1]] * 50),
        sample_at([5.0] * 50, [5.0] * 50, [[]] * 50),
        sample_at([-180.0, 180.0], [-90.0, 90.0], [[1], [2]]),
        random_sample(np.random.default_rng(1), 0, 50),
        random_sample(np.random.default_rng(1), 50, 0),
        random_sample(np.random.default_rng(1), 50, 50, (QueryKind.TERMS_CONTINUOUS,)),
    ],
    ids=["empty", "one point", "no text", "two corners", "no objects", "no queries", "no words"],
)
@pytest.mark.parametrize(("leaves", "slots"), [(1, 1), (16, 4), (4, 16)])
def test_poor_samples_give_valid_maps(name, sample, leaves, slots):
    scheme = scheme_named(name)
    partition_map = scheme.build(sample, leaves, slots)
    assert partition_map.version == 1
    assert partition_map.scheme == name
    assert partition_map.slots == slots
    routes = route(scheme, partition_map, sample)
    homes = slice(None) if routes.homes is None else routes.homes
    assert routes.row[homes].tolist() == list(range(len(sample)))
    assert to_bytes(scheme.build(sample, leaves, slots)) == to_bytes(partition_map)


@pytest.mark.parametrize("leaves", [1, 2, 7, 12, 64, 100])
def test_the_uniform_grid_has_the_requested_number_of_equal_leaves(leaves):
    partition_map = SCHEMES["uniform-grid"].build(empty_sample(), leaves, 4)
    assert len(partition_map.leaves) == leaves
    sides = [
        (leaf.box[2] - leaf.box[0], leaf.box[3] - leaf.box[1]) for leaf in partition_map.leaves
    ]
    np.testing.assert_allclose(sides, [sides[0]] * leaves)
    assert np.ptp(np.bincount(partition_map.slot_of_leaf, minlength=4)) <= 1


def test_the_uniform_grid_counts_objects_where_it_routes_them():
    sample = random_sample(np.random.default_rng(5))
    scheme = SCHEMES["uniform-grid"]
    partition_map = scheme.build(sample, 60, 8)
    counts = np.bincount(route(scheme, partition_map, sample).leaf, minlength=60)
    assert (partition_map.load_of_leaf == counts + 1).all()


def test_an_unknown_scheme_is_refused_with_the_names_that_there_are():
    with pytest.raises(InvalidArgument, match="qt-tree, uniform-grid") as caught:
        scheme_named("quadtree")
    assert caught.value.field == "scheme"
