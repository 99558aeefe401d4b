"""The clustered workload has the shape of the reference workload, and depends on its seed."""

from __future__ import annotations

import numpy as np

from sirocco.loadgen.clusters import ClusteredShape, ClusteredWorkload
from sirocco.loadgen.lines import texts_of
from sirocco.model.objects import concat, validate
from sirocco.model.query import RangeQuery, parse_query

SMALL = ClusteredShape(clusters=20, vocabulary=500, side=0.05)


def test_a_seed_gives_the_same_stream_however_it_is_read() -> None:
    at_once = concat(list(ClusteredWorkload(11, SMALL).objects(20_000)))
    in_parts = concat(list(ClusteredWorkload(11, SMALL).objects(20_000, batch_rows=777)))
    assert np.array_equal(at_once.lon, in_parts.lon)
    assert np.array_equal(at_once.text, in_parts.text)
    other = concat(list(ClusteredWorkload(12, SMALL).objects(20_000)))
    assert not np.array_equal(at_once.lon, other.lon)


def test_queries_do_not_depend_on_objects_read_before() -> None:
    workload = ClusteredWorkload(11, SMALL)
    list(workload.objects(5_000))
    assert list(workload.queries(50)) == list(ClusteredWorkload(11, SMALL).queries(50))


def test_objects_are_valid_and_their_words_distinct() -> None:
    batch = next(ClusteredWorkload(3, SMALL).objects(4_000))
    validate(batch)
    texts = [text.split() for text in texts_of(batch.text, batch.text_offsets)]
    assert all(words and len(set(words)) == len(words) for words in texts)
    assert 9.5 < np.mean([len(words) for words in texts]) < 10.5


def test_words_follow_zipf() -> None:
    batch = concat(list(ClusteredWorkload(3, ClusteredShape(words_mean=1)).objects(40_000)))
    words = [word for text in texts_of(batch.text, batch.text_offsets) for word in text.split()]
    counts = np.sort(np.unique(words, return_counts=True)[1])[::-1]
    # The harmonic sum of 200,000 is 12.8; distinctness within a text lowers the top a little.
    assert 0.06 < counts[0] / len(words) < 0.085
    assert 1.6 < counts[0] / counts[1] < 2.4


def test_queries_parse_and_lie_where_objects_lie() -> None:
    workload = ClusteredWorkload(5, SMALL)
    batch = concat(list(workload.objects(4_000)))
    hits = 0
    for members in workload.queries(200):
        query = parse_query(members)
        assert isinstance(query, RangeQuery)
        assert query.region is not None
        hits += bool(query.region.contains(batch.lon, batch.lat).any())
    assert hits > 150


def test_times_follow_the_rate() -> None:
    shape = ClusteredShape(clusters=5, vocabulary=50, arrivals_per_s=100.0)
    batch = next(ClusteredWorkload(5, shape, start_ms=1000).objects(201))
    assert batch.ts[0] == 1000
    assert batch.ts[200] == 3000
