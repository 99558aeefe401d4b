"""SSTD 4.1.1: the cost model against its definitions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sirocco.schemes.map.map import WORLD
from sirocco.schemes.workload.cost import covered_share, held_share_of, workload, workload_by_kind
from sirocco.schemes.workload.sample import QueryKind, SampleQueries
from sirocco.schemes.workload.statistics import QueryStatistics

SEEDS = st.integers(0, 2**32 - 1)


def queries_of(kinds, boxes, texts, lifetimes=None):
    offsets = np.concatenate([[0], np.cumsum([len(text) for text in texts])]).astype(np.int64)
    return SampleQueries(
        np.array(kinds, np.uint8),
        np.array(boxes, np.float64).reshape(-1, 4),
        offsets,
        np.array([term for text in texts for term in text], np.uint64),
        np.ones(len(kinds)) if lifetimes is None else np.array(lifetimes, np.float64),
    )


def random_queries(rng, count=40):
    corner = rng.uniform((-180, -90), (170, 80), (count, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(0, 10, (count, 2))], 1)
    texts = [rng.choice(6, int(rng.integers(0, 4)), replace=False) for _ in range(count)]
    kinds = rng.integers(0, len(QueryKind), count)
    return queries_of(kinds, boxes, texts, rng.uniform(0, 3, count)), boxes, texts, kinds


@settings(max_examples=50, deadline=None)
@given(SEEDS)
@example(132626)
def test_equation_1_is_the_probability_that_independent_draws_are_all_held(seed):
    """Draws l keywords from M_srq in every possible way and adds up those all held."""
    rng = np.random.default_rng(seed)
    queries, _, _, _ = random_queries(rng)
    statistics = QueryStatistics(queries)
    cell = statistics.root()
    held = rng.random(len(statistics.vocabulary)) < 0.5
    result = covered_share(cell, held_share_of(cell, held))
    for kind in (0, 1, 2):
        if not cell.lengths[kind].any():
            continue  # No query is of this kind: its objects count nowhere.
        share = cell.share[:, kind]
        total = 0.0
        for length in range(4):
            for draw in itertools.product(range(len(share)), repeat=length):
                satisfied = [held[word] for word in draw]
                if not draw or (any(satisfied) if kind == 2 else all(satisfied)):
                    total += cell.lengths[kind, length] * np.prod(share[list(draw)])
        assert result[kind] == pytest.approx(total, abs=1e-12), f"seed {seed}, kind {kind}"


@settings(max_examples=50, deadline=None)
@given(SEEDS)
def test_query_distribution_statistics_count_the_queries_that_overlap_the_cell(seed):
    rng = np.random.default_rng(seed)
    queries, boxes, texts, kinds = random_queries(rng)
    west, east = np.sort(rng.uniform(-180, 180, 2))
    south, north = np.sort(rng.uniform(-90, 90, 2))
    statistics = QueryStatistics(queries)
    cell = statistics.within(statistics.root(), (west, south, east, north))
    for kind in QueryKind:
        own = [
            i
            for i, (w, s, e, n) in enumerate(boxes)
            if kinds[i] == kind and w < east and e >= west and s < north and n >= south
        ]
        assert cell.reach[kind] == pytest.approx(len(own) / len(kinds)), f"seed {seed}"
        if kind <= 2 and own:
            lengths = np.bincount([len(texts[i]) for i in own], minlength=9) / len(own)
            np.testing.assert_allclose(cell.lengths[kind], lengths, err_msg=f"seed {seed}")
            words = [word for i in own for word in texts[i]]
            for row, word in enumerate(statistics.vocabulary):
                expected = words.count(word) / max(len(words), 1)
                assert cell.share[row, kind] == pytest.approx(expected), f"seed {seed}"


@pytest.mark.parametrize("kind", list(QueryKind))
def test_each_kind_costs_as_in_its_equation(kind):
    """Three queries of which two overlap; one keyword of two is held; 7 objects; lifetime 3."""
    boxes = [(0, 0, 1, 1), (5, 5, 6, 6), (50, 50, 60, 60)]
    texts = [[1], [1, 2], [1]]
    statistics = QueryStatistics(queries_of([kind] * 3, boxes, texts, [2, 4, 9]))
    cell = statistics.within(statistics.root(), (0.0, 0.0, 10.0, 10.0))
    held = np.array([True, False])[: len(statistics.vocabulary)]
    # M in the cell: keyword 1 twice, keyword 2 once; lengths 1 and 2 equally often.
    h = 2 / 3
    if kind in (QueryKind.RANGE_SNAPSHOT, QueryKind.KNN_SNAPSHOT):
        expected = 2 / 3 * (h / 2 + h**2 / 2) * 7
    elif kind == QueryKind.RANKED_SNAPSHOT:
        expected = 2 / 3 * (h / 2 + (1 - (1 - h) ** 2) / 2) * 7
    elif kind == QueryKind.TERMS_SNAPSHOT:
        expected = 2 / 3 * 7
    else:
        expected = 2 / 3 * 3 * 7
    result = workload_by_kind(cell, 7, held_share_of(cell, held))
    assert result[kind] == pytest.approx(expected)
    assert result.sum() == result[kind]


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_equation_2_adds_up_the_kinds(seed):
    rng = np.random.default_rng(seed)
    statistics = QueryStatistics(random_queries(rng)[0])
    cell = statistics.within(statistics.root(), WORLD)
    held = held_share_of(cell, rng.random(len(statistics.vocabulary)) < 0.5)
    total = workload_by_kind(cell, 11, held).sum()
    assert workload(cell, 11, held, 0.25) == pytest.approx(total + 11 * 0.25), f"seed {seed}"


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_more_keywords_or_more_objects_never_cost_less(seed):
    rng = np.random.default_rng(seed)
    statistics = QueryStatistics(random_queries(rng)[0])
    cell = statistics.root()
    held = rng.random(len(statistics.vocabulary)) < 0.5
    more = held | (rng.random(len(held)) < 0.3)
    before = workload_by_kind(cell, 10, held_share_of(cell, held))
    after = workload_by_kind(cell, 10, held_share_of(cell, more))
    assert (after >= before - 1e-12).all(), f"seed {seed}"
    assert (workload_by_kind(cell, 11, held_share_of(cell, held)) >= before).all(), f"seed {seed}"
