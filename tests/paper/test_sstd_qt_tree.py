"""SSTD 4.1: reasons to split by text, textual partitioning, Algorithm 1, routing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirocco.kernels.routing.text_split import split_by_text
from sirocco.schemes.builders.qt_tree import QtTree
from sirocco.schemes.workload.sample import QueryKind, Sample, SampleQueries

SEEDS = st.integers(0, 2**32 - 1)
COFFEE, PARK, RAIN, MUSIC = 1, 2, 3, 4


def sample_of(places, texts, boxes, asked, kind=QueryKind.RANGE_SNAPSHOT):
    def csr(rows):
        lengths = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        return lengths, np.array([term for row in rows for term in row], np.uint64)

    queries = SampleQueries(  # type: ignore[call-arg]
        np.full(len(boxes), kind, np.uint8),
        np.array(boxes, np.float64),
        *csr(asked),
        np.ones(len(boxes)),
    )
    lon, lat = np.array(places, np.float64).T.copy()
    return Sample(lon, lat, *csr(texts), np.arange(len(lon)).astype(np.uint64), queries)  # type: ignore[call-arg]


def visited(sample, query):
    """Returns objects that a query meets: in the leaves that it reaches and that hold its words."""
    scheme = QtTree()
    partition_map = scheme.build(sample, 4, 4)
    arrays = scheme.compile(partition_map)
    columns = (sample.lon, sample.lat, sample.term_offsets, sample.terms, sample.event_keys)
    leaf = arrays.route_objects(*columns).leaf
    box = sample.queries.boxes[query : query + 1]
    asked = sample.queries.term_offsets[query : query + 2]
    words = set(sample.queries.terms[asked[0] : asked[1]].tolist())
    total = 0
    for one in arrays.route_boxes(box, np.array([0, 1])).leaves:
        rows = np.flatnonzero(leaf == one)
        texts = [sample.terms[sample.term_offsets[i] : sample.term_offsets[i + 1]] for i in rows]
        if words <= {int(term) for text in texts for term in text}:
            total += len(rows)
    return total, partition_map


def test_section_4_1_text_parts_five_objects_better_where_the_query_is_wide():
    """Figures 2 and 3: all objects cost 5 visits, a split by text leaves the 2 similar ones."""
    places = [(1, 1), (9, 9), (1, 9), (9, 1), (5.2, 4)]
    texts = [[COFFEE], [COFFEE], [PARK], [RAIN], [MUSIC]]
    asked = [[COFFEE], [PARK], [RAIN], [MUSIC]]
    sample = sample_of(places, texts, [(0, 0, 10, 10)] * 4, asked)
    count, partition_map = visited(sample, 0)
    assert len(partition_map.text_nodes) == 1
    assert count == 2


def test_section_4_1_space_parts_them_better_where_queries_are_small():
    places = [(1, 1), (9, 9), (1, 9), (9, 1), (5.2, 4)]
    texts = [[COFFEE]] * 5
    sample = sample_of(places, texts, [(0, 0, 2, 2), (8, 8, 10, 10)], [[COFFEE]] * 2)
    count, partition_map = visited(sample, 0)
    assert not partition_map.text_nodes
    assert count == 1


def test_section_4_1_2_ties_go_to_space():
    """Algorithm 1 line 8: textual only if it is strictly less."""
    places = [(1, 1), (9, 9), (1, 9), (9, 1)]
    boxes = [(-180, -90, 180, 90)] * 2
    for kind in (QueryKind.TERMS_SNAPSHOT, QueryKind.RANGE_CONTINUOUS):
        sample = sample_of(places, [[COFFEE], [PARK]] * 2, boxes, [[COFFEE], [PARK]], kind)
        assert not visited(sample, 0)[1].text_nodes


def test_algorithm_1_splits_the_node_of_greatest_workload():
    """Three quarters of the objects are in one quarter: that one is split next."""
    rng = np.random.default_rng(8)
    crowd = rng.uniform((0, 0), (4, 4), (300, 2))
    rest = rng.uniform((-10, -10), (10, 10), (100, 2))
    places = np.concatenate([crowd, rest])
    boxes = np.concatenate([places - 0.1, places + 0.1], 1)
    sample = sample_of(places, [[COFFEE]] * 400, boxes, [[COFFEE]] * 400)
    small = QtTree().build(sample, 7, 4)
    before = QtTree().build(sample, 4, 4)
    heaviest = before.leaves[int(before.load_of_leaf.argmax())].box
    removed = {leaf.box for leaf in before.leaves} - {leaf.box for leaf in small.leaves}
    assert removed == {heaviest}


def increments(gain_words, lists, counts, share, weights, lengths):
    """The definition: W with the object less W without it, of each child, in full."""

    def covered(kind, words):
        h = sum(share[word, kind] for word in words)
        if kind == 2:
            return sum(p * (1 - (1 - h) ** n if n else 1) for n, p in enumerate(lengths[kind]))
        return sum(p * h**n for n, p in enumerate(lengths[kind]))

    return [
        sum(
            weights[kind]
            * (covered(kind, held | gain_words) * (count + 1) - covered(kind, held) * count)
            for kind in range(3)
        )
        for held, count in zip(lists, counts, strict=True)
    ]


def random_node(rng, objects=60, vocabulary=12):
    share = rng.dirichlet(np.ones(vocabulary), 3).T.copy()
    weights = rng.random(3) * (rng.random(3) < 0.8)
    lengths = rng.dirichlet(np.ones(4), 3)
    texts = [rng.choice(vocabulary, int(rng.integers(0, 5)), replace=False) for _ in range(objects)]
    offsets = np.concatenate([[0], np.cumsum([len(text) for text in texts])]).astype(np.int64)
    terms = np.concatenate(texts).astype(np.int32)
    keys = rng.integers(0, 2**64, objects, np.uint64, endpoint=False)
    return share, weights, lengths, [set(map(int, text)) for text in texts], offsets, terms, keys


def split(share, weights, lengths, offsets, terms, keys):
    held = np.zeros(len(share), np.uint8)
    held_share, counts = np.zeros((4, 3)), np.zeros(4)
    child = np.empty(len(keys), np.uint8)
    split_by_text(offsets, terms, keys, share, weights, lengths, 0, held, held_share, counts, child)
    return held, held_share, counts, child


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_textual_partitioning_assigns_to_the_least_increment_over_the_frozen_lists(seed):
    rng = np.random.default_rng(seed)
    share, weights, lengths, texts, offsets, terms, keys = random_node(rng)
    held, held_share, counts, child = split(share, weights, lengths, offsets, terms, keys)
    lists = [{w for w in range(len(share)) if held[w] >> c & 1} for c in range(4)]
    for c in range(4):
        expected = share[sorted(lists[c])].sum(0)
        np.testing.assert_allclose(held_share[c], expected, atol=1e-12, err_msg=f"seed {seed}")
    for text, chosen in zip(texts, child, strict=True):
        growth = increments(text, lists, counts, share, weights, lengths)
        assert growth[chosen] <= min(growth) + 1e-9, f"seed {seed}, text {text}"


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_the_lists_are_those_of_assigning_one_object_after_the_other(seed):
    """The first pass, checked for prefixes: each further object enlarged its best child."""
    rng = np.random.default_rng(seed)
    share, weights, lengths, texts, offsets, terms, keys = random_node(rng, objects=12)
    lists: list[set[Any]] = [set() for _ in range(4)]
    counts = [0] * 4
    for n, text in enumerate(texts):
        part = (offsets[: n + 2], terms[: offsets[n + 1]], keys[: n + 1])
        held, _, after, _ = split(share, weights, lengths, *part)
        (chosen,) = np.flatnonzero(after - counts)
        growth = increments(text, lists, counts, share, weights, lengths)
        assert growth[chosen] <= min(growth) + 1e-9, f"seed {seed}, object {n}"
        lists[chosen] |= text
        counts[chosen] += 1
        assert lists == [{w for w in range(len(share)) if held[w] >> c & 1} for c in range(4)]


def test_section_4_2_a_query_reaches_all_textual_children():
    places = [(1, 1), (9, 9), (1, 9), (9, 1), (5, 4)] * 4
    texts = [[COFFEE], [PARK], [RAIN], [MUSIC], [COFFEE]] * 4
    asked = [[COFFEE], [PARK], [RAIN], [MUSIC]]
    sample = sample_of(places, texts, [(0, 0, 10, 10)] * 4, asked)
    scheme = QtTree()
    partition_map = scheme.build(sample, 4, 4)
    assert partition_map.text_nodes
    routes = scheme.compile(partition_map).route_boxes(np.array([[3.0, 3, 3, 3]]), np.array([0, 1]))
    assert len(routes.leaves) == 4


@pytest.mark.parametrize("copies", [1, 3])
def test_section_4_2_routing_twice_gives_the_same_leaves(copies):
    """Our deviation: lists are frozen, so earlier routes do not matter."""
    rng = np.random.default_rng(4)
    places = rng.uniform(0, 10, (200, 2))
    texts = [[int(word)] for word in rng.integers(1, 9, 200)]
    sample = sample_of(places, texts, [(0, 0, 10, 10)] * 8, [[word] for word in range(1, 9)])
    scheme = QtTree()
    arrays = scheme.compile(scheme.build(sample, 13, 4))
    columns = (sample.lon, sample.lat, sample.term_offsets, sample.terms, sample.event_keys)
    first = arrays.route_objects(*columns).leaf
    for _ in range(copies):
        assert (arrays.route_objects(*columns).leaf == first).all()
