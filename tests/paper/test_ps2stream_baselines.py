"""PS2Stream VI.B: the baselines that split the vocabulary, and their references 27 and 28."""

from __future__ import annotations

import numpy as np
import pytest

from sirocco.schemes.builders.scheme import SCHEMES
from sirocco.schemes.map.routing import compile_map
from tests.paper.ps2stream_workloads import definition_1, queries_of, sample_of, shaped_like

TEXT = ("text-frequency", "text-hypergraph", "text-metric")


def topics(rng, count=12, words=40, objects=2400):
    """Returns objects of one topic each; queries ask for every word, topics share no word."""
    topic = rng.integers(count, size=objects)
    texts = [
        sorted({int(word) for word in one * words + rng.integers(0, words, 5)}) for one in topic
    ]
    # Words of all topics in turn: neither order nor frequency reveals the topics.
    shuffle = rng.permutation(count * words)
    texts = [[int(shuffle[word]) for word in text] for text in texts]
    places = rng.uniform(-80, 80, (objects, 2))
    boxes = [(-90.0, -85.0, 90.0, 85.0)] * (count * words)
    asked = [[word] for word in range(count * words)]
    return sample_of(places, texts, queries_of(boxes, asked))


def copies(name, sample, slots):
    """Returns to how many leaves an object's terms lead, on average."""
    partition_map = SCHEMES[name].build(sample, slots, slots)
    arrays = compile_map(partition_map)
    routes = arrays.route_objects(
        sample.lon, sample.lat, sample.term_offsets, sample.terms, sample.event_keys
    )
    row = np.repeat(np.arange(len(sample)), np.diff(sample.term_offsets))
    return len(np.unique(row * slots + routes.term_slots)) / len(sample)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_words_that_occur_together_stay_together(seed):
    """The hypergraph [27] and the metric [28] find the topics, frequencies cannot."""
    sample = topics(np.random.default_rng(seed))
    assert copies("text-hypergraph", sample, 4) < 1.1
    assert copies("text-metric", sample, 4) < 2.2
    assert copies("text-frequency", sample, 4) > 2.5


@pytest.mark.parametrize("name", TEXT)
@pytest.mark.parametrize("slots", [2, 7, 16])
def test_the_load_is_dealt_evenly_where_no_word_is_too_heavy(name, slots):
    load = SCHEMES[name].build(shaped_like("q2", 3), slots, slots).load_of_leaf
    assert load.max() <= 4 / 3 * load.mean()


@pytest.mark.parametrize("shape", ["q1", "q2"])
def test_section_6_b_the_metric_is_better_than_frequencies(shape):
    """Figure 6: overall, metric-based partitioning is best among the three."""
    sample = shaped_like(shape, 4)
    loads = {name: SCHEMES[name].build(sample, 8, 8).load_of_leaf for name in TEXT}
    assert loads["text-metric"].sum() < loads["text-frequency"].sum()
    assert loads["text-metric"].max() <= 1.02 * min(load.max() for load in loads.values())


@pytest.mark.parametrize("name", [*TEXT, "replicated"])
def test_expected_loads_are_what_routing_makes_them(name):
    sample = shaped_like("q2", 5, 1500, 400)
    partition_map = SCHEMES[name].build(sample, 6, 6)
    counted = definition_1(partition_map, sample)
    np.testing.assert_allclose(partition_map.load_of_leaf, counted, rtol=1e-9)


def test_a_word_that_is_too_heavy_has_a_leaf_of_its_own():
    """Q1's most frequent word outweighs any other leaf; nothing is added to its leaf."""
    sample = shaped_like("q1", 6)
    for name in TEXT:
        partition_map = SCHEMES[name].build(sample, 64, 64)
        (node,) = partition_map.keyword_nodes
        child = partition_map.load_of_leaf.argmax()
        assert (node.child_of_term == child).sum() == 1, name


def test_replicated_is_even_wherever_objects_lie_and_pays_with_every_query_everywhere():
    sample = shaped_like("q1", 7)
    few, many = (SCHEMES["replicated"].build(sample, n, n).load_of_leaf for n in (4, 8))
    assert few.min() == few.max()
    # 8 slots handle as many objects and check as many pairs, but install each query 8 times.
    assert many.sum() - few.sum() == pytest.approx(4 * len(sample.queries))
