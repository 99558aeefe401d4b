"""Samples are checked; queries of the model become rows of a sample."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirocco.model.errors import InvalidArgument
from sirocco.model.query import parse_query
from sirocco.model.text import term_hash
from sirocco.schemes.workload.assumed_queries import assumed_queries
from sirocco.schemes.workload.sample import (
    QueryKind,
    Sample,
    SampleQueries,
    empty_sample,
    no_queries,
)
from sirocco.schemes.workload.sampling import sample_queries
from sirocco.schemes.workload.search_boxes import knn_search_boxes
from tests.support.random_samples import random_sample, sample_at

RECT = {"rect": {"west": 1, "south": 2, "east": 3, "north": 4}}
POINT = {"lon": 10.0, "lat": 20.0}


def describe(*queries, objects=None, population=0, span_ms=3_600_000):
    asked = [parse_query({"id": f"q{i}"} | query) for i, query in enumerate(queries)]
    return sample_queries(asked, objects or empty_sample(), population, span_ms)


def texts_of(queries):
    ends = queries.term_offsets
    return [set(queries.terms[a:b].tolist()) for a, b in itertools.pairwise(ends)]


def hashes(*terms):
    return {term_hash(term) for term in terms}


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ({"kind": "range", "mode": "snapshot"}, QueryKind.RANGE_SNAPSHOT),
        ({"kind": "range", "mode": "continuous"}, QueryKind.RANGE_CONTINUOUS),
        ({"kind": "knn", "mode": "snapshot", "point": POINT, "k": 1}, QueryKind.KNN_SNAPSHOT),
        ({"kind": "knn", "mode": "continuous", "point": POINT, "k": 1}, QueryKind.KNN_CONTINUOUS),
        ({"kind": "terms", "mode": "snapshot", "k": 1}, QueryKind.TERMS_SNAPSHOT),
    ],
)
def test_kinds_are_distinguished_and_without_a_region_they_take_the_world(query, kind):
    described = describe(query)
    assert described.kinds.tolist() == [kind]
    assert described.boxes.tolist() == [[-180, -90, 180, 90]]


def test_a_region_counts_by_its_box_also_across_the_antimeridian():
    far = {"rect": {"west": 170, "south": -5, "east": -160, "north": 5}}
    one = {"kind": "range", "mode": "snapshot"}
    described = describe(one | {"region": RECT}, one | {"region": far})
    assert described.boxes.tolist() == [[1, 2, 3, 4], [170, -5, -160, 5]]


def test_an_expression_counts_by_its_shortest_conjunction():
    one = {"kind": "range", "mode": "snapshot"}
    described = describe(one | {"text": "(a AND b AND NOT c) OR d"}, one, one | {"text": "Ab ab x"})
    assert texts_of(described) == [hashes("d"), set(), hashes("ab", "x")]


def test_ranked_queries_count_by_their_circle_and_keywords():
    described = describe(
        {
            "kind": "ranked",
            "mode": "snapshot",
            "point": POINT,
            "radius_m": 100_000,
            "k": 3,
            "keywords": ["light", "triangle"],
        }
    )
    west, south, east, north = described.boxes[0]
    assert 8 < west < 10 < east < 12
    assert 19 < south < 20 < north < 21
    assert texts_of(described) == [hashes("light", "triangle")]


def test_a_lifetime_is_measured_in_the_time_of_the_sample():
    one = {"kind": "range", "mode": "continuous"}
    assert describe(one | {"ttl": "2h"}, one).lifetimes.tolist() == [2, 1]
    assert describe(one | {"ttl": "2h"}, span_ms=0).lifetimes.tolist() == [1]


def test_a_knn_search_ends_where_enough_objects_are():
    rng = np.random.default_rng(3)
    near = rng.normal((10, 20), 0.5, (500, 2))
    objects = sample_at(*near.T, [[term_hash("rare")] if i < 5 else [] for i in range(500)])  # type: ignore[call-arg]
    one = {"kind": "knn", "mode": "snapshot", "point": POINT}
    described = describe(
        one | {"k": 3},
        one | {"k": 300},
        one | {"k": 3, "text": "rare"},
        one | {"k": 501},
        objects=objects,
        population=500,
    )
    side = described.boxes[:, 2] - described.boxes[:, 0]
    assert side[0] < side[1] < 20
    assert side[2] >= side[1], "rare keywords make a search go far"
    assert side[3] == 360
    thinned = describe(one | {"k": 300}, objects=objects, population=50_000)
    assert thinned.boxes[0, 2] - thinned.boxes[0, 0] == side[0], "the sample is one in a hundred"


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_search_boxes_hold_the_point_and_enough_objects(seed):
    rng = np.random.default_rng(seed)
    lon, lat = rng.uniform(-180, 180, 300), rng.uniform(-90, 90, 300)
    x, y = rng.uniform(-180, 180, 20), rng.uniform(-90, 90, 20)
    needed = rng.integers(1, 301, 20).astype(np.float64)
    for i, box in enumerate(knn_search_boxes(x, y, needed, lon, lat)):
        west, south, east, north = box
        assert west <= x[i] <= east, f"seed {seed}, query {i}"
        assert south <= y[i] <= north, f"seed {seed}, query {i}"
        held = ((lon >= west) & (lon <= east) & (lat >= south) & (lat <= north)).sum()
        assert held >= needed[i], f"seed {seed}, query {i}"


def test_assumed_queries_follow_the_objects():
    sample = random_sample(np.random.default_rng(1), 100, queries=0)
    queries = assumed_queries(sample)
    assert np.bincount(queries.kinds, minlength=8).tolist() == [100, 100, 0, 100, 100, 100, 100, 0]
    objects = [set(sample.terms[a:b].tolist()) for a, b in itertools.pairwise(sample.term_offsets)]
    for text, own, box, i in zip(
        texts_of(queries), objects * 6, queries.boxes, range(600), strict=True
    ):
        assert text <= own
        assert len(text) == min(len(own), 1)
        assert box[0] <= sample.lon[i % 100] <= box[2]
    assert len(assumed_queries(empty_sample())) == 0


@pytest.mark.parametrize("words", [2, 3, 8])
def test_assumed_queries_use_each_word_of_a_text_equally_often(words):
    """Event keys are hashes of 64 bits: the lowest of them decide if there are few words."""
    rng = np.random.default_rng(6)
    sample = sample_at([1] * 1200, [2] * 1200, [list(range(words))] * 1200)
    keys = rng.integers(0, 2**64, 1200, np.uint64, endpoint=False)
    asked = np.bincount(assumed_queries(replace(sample, event_keys=keys)).terms.astype(np.int64))
    mean = 6 * 1200 / words
    assert len(asked) == words
    assert (np.abs(asked - mean) < 0.25 * mean).all(), asked


BASE = sample_at([1, 2], [3, 4], [[1], [2]])


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("lon", np.array([1.0, np.nan])),
        ("lat", np.array([1.0])),
        ("term_offsets", np.array([0, 1])),
        ("term_offsets", np.array([0, 3, 2])),
        ("term_offsets", np.array([1, 1, 2])),
        ("event_keys", np.array([1], np.uint64)),
    ],
)
def test_columns_of_a_sample_have_to_fit(column, value):
    columns = {name: getattr(BASE, name) for name in Sample.__slots__}
    with pytest.raises(InvalidArgument) as caught:
        Sample(**(columns | {column: value}))
    assert caught.value.field == f"sample.{column}"


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("kinds", np.array([8], np.uint8)),
        ("boxes", np.array([[0, 0, np.inf, 0]])),
        ("boxes", np.zeros((2, 4))),
        ("lifetimes", np.array([-1.0])),
        ("lifetimes", np.array([np.inf])),
        ("term_offsets", np.array([0, 1])),
    ],
)
def test_columns_of_its_queries_have_to_fit(column, value):
    columns = {
        "kinds": np.array([0], np.uint8),
        "boxes": np.zeros((1, 4)),
        "term_offsets": np.zeros(2, np.int64),
        "terms": no_queries().terms,
        "lifetimes": np.ones(1),
    }
    with pytest.raises(InvalidArgument) as caught:
        SampleQueries(**(columns | {column: value}))
    assert caught.value.field == f"sample.queries.{column}"
