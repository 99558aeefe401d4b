"""Keys of a sample's queries, and sets of keys."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirocco.schemes.map.keyword_keys import least_frequent
from sirocco.schemes.workload import keyword_workload
from sirocco.schemes.workload.keyword_load import LoadCosts
from sirocco.schemes.workload.keyword_terms import halves, term_set
from sirocco.schemes.workload.sample import QueryKind, SampleQueries, empty_sample
from sirocco.schemes.workload.sample_keys import frequent_terms
from tests.support.random_samples import random_sample, sample_at

SEEDS = st.integers(0, 2**32 - 1)


def terms_of(offsets, terms, row):
    return terms[offsets[row] : offsets[row + 1]].tolist()


def everything(workload):
    objects = np.arange(len(workload.sample), dtype=np.int32)
    return term_set(workload, objects, np.arange(len(workload.key_of_query), dtype=np.int32))


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_the_key_of_a_query_is_the_term_that_fewest_objects_hold(seed):
    rng = np.random.default_rng(seed)
    sample = random_sample(rng, int(rng.integers(0, 200)), int(rng.integers(1, 80)))
    workload = keyword_workload.keyword_workload(sample)
    holders = dict(zip(*np.unique(sample.terms, return_counts=True), strict=True))
    queries = sample.queries
    for row, key in enumerate(workload.key_of_query):
        words = terms_of(queries.term_offsets, queries.terms, row)
        if queries.kinds[row] != QueryKind.RANGE_CONTINUOUS or not words:
            assert key == -1, f"seed {seed}, query {row}"
        else:
            expected = min(words, key=lambda word: (holders.get(word, 0), word))
            assert workload.keys[key] == expected, f"seed {seed}, query {row}"
    for row in range(len(sample)):
        held = workload.keys[terms_of(workload.object_offsets, workload.object_keys, row)]
        words = terms_of(sample.term_offsets, sample.terms, row)
        assert set(held.tolist()) == set(words) & set(workload.keys.tolist()), f"seed {seed}"


def test_only_the_most_frequent_terms_are_counted_and_others_count_as_rarer():
    sample = sample_at([0.0] * 4, [0.0] * 4, [[1, 2, 3], [1, 2, 3], [1, 3], [4]])
    terms, frequencies = frequent_terms(sample, terms_max=2)
    assert terms.tolist() == [1, 3]
    assert frequencies.tolist() == [3, 3]
    conjunctions = np.array([1, 2, 3, 3, 1], np.uint64)
    keys = least_frequent(np.array([0, 3, 5]), conjunctions, terms, frequencies)
    assert keys.tolist() == [2, 1]


def test_without_queries_there_are_subscriptions_like_the_objects():
    sample = random_sample(np.random.default_rng(1), 100, 0)
    workload = keyword_workload.keyword_workload(sample)
    assert set(workload.sample.queries.kinds.tolist()) == {QueryKind.RANGE_CONTINUOUS}
    assert 50 < (workload.key_of_query >= 0).sum() <= 100
    assert len(keyword_workload.keyword_workload(empty_sample()).key_of_query) == 0


def test_of_too_many_queries_some_stand_for_all():
    sample = random_sample(np.random.default_rng(2), 100, 60, (QueryKind.RANGE_CONTINUOUS,))
    costs = LoadCosts(check=1.0, handling=2.0, insertion=3.0, deletion=4.0)
    workload = keyword_workload.keyword_workload(sample, costs, queries_max=20)
    assert len(workload.key_of_query) == 20
    assert workload.costs == LoadCosts(3.0, 2.0, 9.0, 12.0)


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_a_set_holds_the_keys_of_the_queries_given_and_the_objects_given_that_have_them(seed):
    rng = np.random.default_rng(seed)
    workload = keyword_workload.keyword_workload(
        random_sample(rng, 120, 60, (QueryKind.RANGE_CONTINUOUS,))
    )
    objects = np.flatnonzero(rng.random(120) < 0.5).astype(np.int32)
    queries = np.flatnonzero(rng.random(60) < 0.5).astype(np.int32)
    terms = term_set(workload, objects, queries)
    asked = [int(key) for key in workload.key_of_query[queries] if key >= 0]
    assert terms.keys.tolist() == sorted(set(asked)), f"seed {seed}"
    assert terms.queries.tolist() == [asked.count(key) for key in terms.keys], f"seed {seed}"
    held = [
        [o for o in objects.tolist() if key in terms_of(*rows_of(workload), o)]  # type: ignore[call-arg]
        for key in terms.keys
    ]
    assert [terms_of(terms.offsets, terms.holders, i) for i in range(len(held))] == held
    assert terms.seekers == len({o for row in held for o in row}), f"seed {seed}"


def rows_of(workload):
    return workload.object_offsets, workload.object_keys


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_halves_part_the_keys(seed):
    rng = np.random.default_rng(seed)
    workload = keyword_workload.keyword_workload(
        random_sample(rng, 120, int(rng.integers(1, 60)), (QueryKind.RANGE_CONTINUOUS,))
    )
    terms = everything(workload)
    pair = halves(terms, 120, workload.costs)
    if len(terms) < 2:
        assert pair is None
        return
    assert pair is not None
    keys = sorted([*pair[0].keys.tolist(), *pair[1].keys.tolist()])
    assert keys == terms.keys.tolist(), f"seed {seed}"
    assert pair[0].keyed + pair[1].keyed == terms.keyed, f"seed {seed}"
    assert min(len(half) for half in pair) > 0, f"seed {seed}"


def test_load_costs_of_many_leaves_are_those_of_each():
    costs = LoadCosts(0.5)
    columns = np.arange(15.0).reshape(5, 3)
    one_by_one = [costs.load(*(float(value) for value in column)) for column in columns.T]
    assert costs.load(*columns).tolist() == pytest.approx(one_by_one)


def test_queries_that_look_nothing_up_have_no_key():
    sample = random_sample(np.random.default_rng(3), 50, 30, (QueryKind.KNN_CONTINUOUS,))
    workload = keyword_workload.keyword_workload(sample)
    assert len(workload.keys) == 0
    assert len(everything(workload)) == 0
    no_words = SampleQueries(
        np.full(1, QueryKind.RANGE_CONTINUOUS, np.uint8),
        np.zeros((1, 4)),
        np.zeros(2, np.int64),
        np.empty(0, np.uint64),
        np.ones(1),
    )
    workload = keyword_workload.keyword_workload(replace(sample, queries=no_words))
    assert workload.key_of_query.tolist() == [-1]
