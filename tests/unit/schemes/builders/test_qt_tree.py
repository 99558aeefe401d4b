"""The qt-tree on samples of all kinds: a valid map, which the router follows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirocco.model.errors import InvalidArgument
from sirocco.schemes.builders.qt_tree import UNSEEN_LEAF_SHARE, QtTree
from sirocco.schemes.map.map_bytes import to_bytes
from sirocco.schemes.workload.cost import handling_of, held_share_of, workload
from sirocco.schemes.workload.sample import QueryKind, empty_sample
from sirocco.schemes.workload.statistics import QueryStatistics
from tests.support.random_samples import random_sample, sample_at

SEEDS = st.integers(0, 2**32 - 1)
TEXTUAL = (QueryKind.RANGE_SNAPSHOT, QueryKind.KNN_SNAPSHOT, QueryKind.RANKED_SNAPSHOT)


def route(partition_map, sample):
    columns = (sample.lon, sample.lat, sample.term_offsets, sample.terms, sample.event_keys)
    return QtTree().compile(partition_map).route_objects(*columns)


def expected_load(partition_map, sample, leaf_of_object):
    """Returns equation 2 of each leaf over the objects routed there, word by word."""
    statistics = QueryStatistics(sample.queries)
    row_of = {int(term): row for row, term in enumerate(statistics.vocabulary)}

    def held_share(cell, rows):
        held = np.zeros(len(row_of), np.bool_)
        for i in rows:
            for term in sample.terms[sample.term_offsets[i] : sample.term_offsets[i + 1]]:
                if int(term) in row_of:
                    held[row_of[int(term)]] = True
        return held_share_of(cell, held)

    root = statistics.root()
    handling = handling_of(root, len(sample), held_share(root, range(len(sample))))
    loads = []
    for leaf in partition_map.leaves:
        rows = np.flatnonzero(leaf_of_object == leaf.id)
        cell = statistics.within(root, leaf.box)
        loads.append(workload(cell, len(rows), held_share(cell, rows), handling))
    return np.array(loads)


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.booleans())
def test_the_router_sends_objects_where_the_builder_counted_them(seed, wide):
    rng = np.random.default_rng(seed)
    sample = random_sample(rng, kinds=TEXTUAL, side=360.0 if wide else 20.0)
    partition_map = QtTree().build(sample, 31, 8)
    load = expected_load(partition_map, sample, route(partition_map, sample).leaf)
    load = np.maximum(load, UNSEEN_LEAF_SHARE * load.mean())
    np.testing.assert_allclose(partition_map.load_of_leaf, load, 1e-9, err_msg=f"seed {seed}")


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.integers(1, 70), st.integers(1, 20))
def test_the_number_of_leaves_is_the_next_that_splits_by_four_can_give(seed, leaves, slots):
    sample = random_sample(np.random.default_rng(seed))
    partition_map = QtTree().build(sample, leaves, slots)
    assert len(partition_map.leaves) == leaves + (1 - leaves) % 3, f"seed {seed}"
    assert partition_map.slots == slots


@settings(max_examples=10, deadline=None)
@given(SEEDS)
def test_equal_samples_give_equal_maps(seed):
    first, second = (
        to_bytes(QtTree().build(random_sample(np.random.default_rng(seed)), 40, 8))
        for _ in range(2)
    )
    assert first == second, f"seed {seed}"


def test_wide_textual_queries_are_cut_by_text_and_others_are_not():
    rng = np.random.default_rng(2)
    wide = random_sample(rng, kinds=(QueryKind.RANGE_SNAPSHOT,), side=720.0)
    assert QtTree().build(wide, 64, 16).text_nodes
    other = random_sample(rng, kinds=tuple(set(QueryKind) - set(TEXTUAL)), side=720.0)
    assert not QtTree().build(other, 64, 16).text_nodes


def test_text_nodes_hang_within_text_nodes_and_are_cut_in_space():
    """The shapes that routing has to follow do occur."""
    within = []
    for seed in range(12):
        sample = random_sample(np.random.default_rng(seed), 2000, 200, TEXTUAL, side=200.0)
        partition_map = QtTree().build(sample, 100, 16)
        within += [node.within for node in partition_map.text_nodes]
        box_of = {node.id: node.box for node in partition_map.text_nodes}
        within += [
            "space"
            for leaf in partition_map.leaves
            if leaf.within is not None and leaf.box != box_of[leaf.within.node]
        ]
    assert any(place is not None and place != "space" for place in within)
    assert "space" in within


def test_an_empty_sample_gives_an_even_quadtree():
    partition_map = QtTree().build(empty_sample(), 64, 16)
    sizes = {
        (leaf.box[2] - leaf.box[0], leaf.box[3] - leaf.box[1]) for leaf in partition_map.leaves
    }
    assert sizes == {(45.0, 22.5)}
    assert np.bincount(partition_map.slot_of_leaf).tolist() == [4] * 16


@pytest.mark.parametrize("text", [[], [1, 2, 3]])
def test_a_sample_in_one_point_gives_a_valid_map(text):
    sample = sample_at([12.5] * 500, [41.9] * 500, [text] * 500)
    partition_map = QtTree().build(sample, 64, 16)
    counts = np.bincount(route(partition_map, sample).slot, minlength=16)
    assert counts.sum() == 500
    assert counts.max() <= 500 / 4, "equal objects are dealt out by the hash of their keys"


@pytest.mark.parametrize("place", [(180.0, 90.0), (-180.0, -90.0), (0.0, 0.0)])
def test_a_single_object_anywhere_gives_a_valid_map(place):
    sample = sample_at([place[0]], [place[1]], [[1]])
    assert len(QtTree().build(sample, 4, 2).leaves) >= 1


def test_objects_on_one_line_are_split_along_it():
    lon = np.linspace(-10, 10, 400)
    sample = sample_at(lon, np.full(400, 5.0), [[]] * 400)
    counts = np.bincount(route(QtTree().build(sample, 64, 8), sample).leaf)
    assert counts.max() < 60


def test_posts_of_one_city_are_split_although_a_stray_one_is_far_away():
    rng = np.random.default_rng(6)
    lon = np.append(rng.normal(2.35, 0.05, 999), -120.0)
    lat = np.append(rng.normal(48.85, 0.05, 999), -40.0)
    sample = sample_at(lon, lat, [[1]] * 1000)
    partition_map = QtTree().build(sample, 64, 16)
    assert np.bincount(route(partition_map, sample).leaf).max() < 120
    load = partition_map.load_of_slot()
    assert load.max() / load.mean() < 1.3


@pytest.mark.parametrize(("leaves", "slots"), [(0, 4), (4, 0), (-1, 4), (1 << 20, 4), (4, 1 << 20)])
def test_impossible_numbers_are_refused(leaves, slots):
    with pytest.raises(InvalidArgument):
        QtTree().build(empty_sample(), leaves, slots)
