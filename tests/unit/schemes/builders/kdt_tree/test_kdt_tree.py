"""Scheme `kdt-tree`: poor samples, bounds of the map, splits of areas."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirocco.schemes.builders.kdt_tree.areas import Areas, reaching
from sirocco.schemes.builders.kdt_tree.builder import KdtTree
from sirocco.schemes.builders.kdt_tree.plan import KdtSettings
from sirocco.schemes.builders.scheme import SCHEMES
from sirocco.schemes.builders.text_cut import text_cut
from sirocco.schemes.builders.text_frequency import deal_by_frequency
from sirocco.schemes.builders.text_hypergraph import deal_by_hypergraph
from sirocco.schemes.map.map_bytes import to_bytes
from sirocco.schemes.workload.keyword_terms import deal
from sirocco.schemes.workload.keyword_workload import keyword_workload
from sirocco.schemes.workload.sample import QueryKind, SampleQueries, empty_sample
from tests.support.random_samples import csr, random_sample, sample_at

SEEDS = st.integers(0, 2**32 - 1)
SUBSCRIPTIONS = (QueryKind.RANGE_CONTINUOUS,)


def everywhere(words):
    """Returns subscriptions to the whole world, one for each of these words."""
    count = len(words)
    boxes = np.tile((-180.0, -90.0, 180.0, 90.0), (count, 1))
    kinds = np.full(count, QueryKind.RANGE_CONTINUOUS, np.uint8)
    rows = [np.array([word], np.uint64) for word in words]
    return SampleQueries(kinds, boxes, *csr(rows), np.ones(count))  # type: ignore[call-arg]


def test_a_world_without_objects_falls_into_even_tiles():
    partition_map = KdtTree().build(empty_sample(), 16, 16)
    sides = {
        (leaf.box[2] - leaf.box[0], leaf.box[3] - leaf.box[1]) for leaf in partition_map.leaves
    }
    assert len(sides) == 1
    assert sorted(partition_map.slot_of_leaf.tolist()) == list(range(16))


def test_objects_of_one_place_are_split_by_their_words():
    words = list(range(1, 41))
    sample = sample_at([5.0] * 400, [5.0] * 400, [[word] for word in words * 10], everywhere(words))
    partition_map = KdtTree().build(sample, 8, 4)
    (node,) = partition_map.keyword_nodes
    assert node.children >= 4
    assert partition_map.load_of_slot().max() <= 1.2 * partition_map.load_of_slot().min()


def test_objects_of_one_place_without_words_are_split_by_their_homes():
    queries = replace(
        everywhere([1]), terms=np.empty(0, np.uint64), term_offsets=np.zeros(2, np.int64)
    )
    partition_map = KdtTree().build(sample_at([5.0] * 50, [5.0] * 50, [[]] * 50, queries), 4, 4)
    (node,) = partition_map.keyword_nodes
    assert node.children == 4
    assert len(node.terms) == 0


def test_one_word_in_one_place_is_one_leaf():
    """Nothing can be split: there is one place, and one word."""
    sample = sample_at([5.0] * 50, [5.0] * 50, [[1]] * 50, everywhere([1, 1, 1]))
    assert len(KdtTree().build(sample, 8, 4).leaves) == 1


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_equal_samples_give_equal_maps_of_as_many_leaves_as_are_allowed(seed):
    rng = np.random.default_rng(seed)
    sample = random_sample(rng, 300, 80, SUBSCRIPTIONS, float(rng.choice([5.0, 360.0])))
    leaves, slots = int(rng.integers(1, 40)), int(rng.integers(1, 12))
    scheme = KdtTree(KdtSettings(balance=float(rng.uniform(1.01, 2.0))))
    partition_map = scheme.build(sample, leaves, slots)
    assert min(leaves, slots) <= len(partition_map.leaves) <= leaves, f"seed {seed}"
    assert to_bytes(scheme.build(sample, leaves, slots)) == to_bytes(partition_map), f"seed {seed}"


def test_the_lists_of_a_map_are_bounded_and_keep_the_heaviest_keys():
    words = list(range(1, 41))
    texts = [[word] for word in words for _ in range(50 if word <= 10 else 5)]
    sample = sample_at([5.0] * len(texts), [5.0] * len(texts), texts, everywhere(words))
    maps = [
        text_cut("text", sample, 4, 4, each, chosen_terms_max=10)
        for each in (deal_by_frequency, deal, deal_by_hypergraph)
    ]
    maps.append(KdtTree(KdtSettings(chosen_terms_max=10)).build(sample, 4, 4))
    for partition_map in maps:
        (node,) = partition_map.keyword_nodes
        assert node.terms.tolist() == words[:10]


@pytest.mark.parametrize("name", ["kdt-tree", "text-metric"])
def test_the_map_of_a_huge_vocabulary_stays_below_a_megabyte(name):
    """As many keys and leaves as a map takes; brokers refuse larger records by default."""
    rng = np.random.default_rng(4)
    words = rng.integers(0, 2**64, 60_000, np.uint64, endpoint=False)
    count = 20_000
    rows = [words[rng.integers(len(words), size=3)] for _ in range(count)]
    places = rng.uniform((-100, -50), (100, 50), (count, 2))
    sample = sample_at(places[:, 0], places[:, 1], [np.unique(row) for row in rows])
    boxes = np.concatenate([places - 0.01, places + 0.01], 1)
    boxes[: count // 2] = (-180.0, -90.0, 180.0, 90.0)
    queries = SampleQueries(  # type: ignore[call-arg]
        np.full(count, QueryKind.RANGE_CONTINUOUS, np.uint8),
        boxes,
        *csr([words[[i]] for i in rng.integers(len(words), size=count)]),
        np.ones(count),
    )
    data = to_bytes(SCHEMES[name].build(replace(sample, queries=queries), 512, 64))
    assert len(data) < 1_000_000


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_a_cut_splits_objects_as_the_router_does_and_keeps_all_queries(seed):
    rng = np.random.default_rng(seed)
    sample = random_sample(rng, int(rng.integers(2, 60)), 40, SUBSCRIPTIONS, 90.0)
    areas = Areas(keyword_workload(sample))
    world = areas.world()
    for axis, values in enumerate((sample.lon, sample.lat)):
        first, second = areas.cut(world, axis)
        at = first.box[axis + 2]
        assert at == second.box[axis]
        assert first.objects.tolist() == np.flatnonzero(values < at).tolist(), f"seed {seed}"
        assert second.objects.tolist() == np.flatnonzero(values >= at).tolist(), f"seed {seed}"
        assert abs(len(first.objects) - len(second.objects)) <= 1, f"seed {seed}"
        low, high = sample.queries.boxes[:, axis], sample.queries.boxes[:, axis + 2]
        assert first.queries.tolist() == np.flatnonzero(low < at).tolist(), f"seed {seed}"
        assert second.queries.tolist() == np.flatnonzero(high >= at).tolist(), f"seed {seed}"


def test_boxes_across_the_antimeridian_reach_both_ends():
    boxes = np.array([(170.0, 0.0, -170.0, 1.0), (180.0, 0.0, 180.0, 1.0)])
    assert reaching(boxes, (-180.0, -90.0, 0.0, 90.0)).tolist() == [True, False]
    assert reaching(boxes, (0.0, -90.0, 180.0, 90.0)).tolist() == [True, True]
    assert reaching(boxes, (-160.0, -90.0, 100.0, 90.0)).tolist() == [False, False]


def test_places_that_are_almost_one_are_not_cut():
    sample = sample_at([5.0, 5.0, 5.0], [1.0, 1.0, 2.0], [[1]] * 3, everywhere([1]))
    areas = Areas(keyword_workload(sample))
    assert areas.cut(areas.world(), 0) is None
    assert areas.cut(areas.world(), 1) is not None
