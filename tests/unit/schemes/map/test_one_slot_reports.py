"""Every scheme of the table: every match is met, and reported by exactly one slot.

The rule of the evaluators, written a second time and checked for all pairs of objects and queries.
A query with keys (one for each conjunction) counts a hit where the key of the first conjunction
that the object satisfies routes the object here; any other query where the object is at home.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirocco.schemes.builders.scheme import SCHEMES, scheme_named
from sirocco.schemes.map.map_bytes import from_bytes, to_bytes
from sirocco.schemes.workload.sample import QueryKind
from tests.support.random_samples import WORDS, random_sample

SEEDS = st.integers(0, 2**32 - 1)
BY_KEYWORD = {"kdt-tree", "text-frequency", "text-hypergraph", "text-metric", "replicated"}
every_scheme = pytest.mark.parametrize("name", sorted(SCHEMES))


@dataclass
class PlainQuery:
    """A query: a closed box, and a disjunction of (positive terms, negated terms)."""

    box: tuple[float, float, float, float]
    conjunctions: list[tuple[set[int], set[int]]]

    def first_satisfied(self, words):
        for number, (positive, negated) in enumerate(self.conjunctions):
            if positive <= words and not negated & words:
                return number
        return None

    def holds(self, lon, lat):
        west, south, east, north = self.box
        return west <= lon <= east and south <= lat <= north


def random_queries(rng, count):
    words = [int(word) for word in WORDS[:12]] + [int(word) for word in WORDS[-5:]] + [17]

    def pick(least, most):
        chosen = rng.choice(len(words), int(rng.integers(least, most + 1)), replace=False)
        return {words[i] for i in chosen}

    queries = []
    for _ in range(count):
        centre, half = rng.uniform((-150, -60), (150, 60)), rng.uniform(0, 120, 2)
        west, south = np.maximum(centre - half, (-180, -90))
        east, north = np.minimum(centre + half, (180, 90))
        conjunctions = [(pick(1, 2), pick(0, 1)) for _ in range(int(rng.integers(1, 4)))]
        queries.append(PlainQuery((west, south, east, north), conjunctions))
    return queries


def keys_of(arrays, queries, keyed):
    """Returns CSR of keys, one for each conjunction; none for queries that are not keyed."""
    rows = []
    for query, has_keys in zip(queries, keyed, strict=True):
        if not has_keys:
            rows.append(np.empty(0, np.uint64))
            continue
        positive = [np.array(sorted(one[0]), np.uint64) for one in query.conjunctions]
        offsets = np.cumsum([0, *map(len, positive)]).astype(np.int64)
        rows.append(arrays.choose_keys(offsets, np.concatenate(positive)))
    return np.cumsum([0, *map(len, rows)]).astype(np.int64), np.concatenate(rows)


def reporters(query, keys, routes, sample, row, slots_of_query):
    """Returns the slots that report one object to one query that it matches."""
    words = sample.terms[sample.term_offsets[row] : sample.term_offsets[row + 1]]
    number = query.first_satisfied({int(word) for word in words})
    found = []
    for i in np.flatnonzero(routes.row == row):
        slot = int(routes.slot[i])
        if slot not in slots_of_query:
            continue
        is_home = routes.homes is None or bool(routes.homes[i])
        counts = is_home
        if len(keys) > 0 and routes.term_slots is not None:
            at = sample.term_offsets[row] + int(np.flatnonzero(words == keys[number])[0])
            led = int(routes.term_slots[at])
            # -1: the node does not route by terms, so objects are found at home.
            counts = is_home if led < 0 else led == slot
        if counts:
            found.append(slot)
    return found


def check_pairs(scheme, partition_map, stream, queries, keyed, note):
    arrays = scheme.compile(partition_map)
    routes = arrays.route_objects(
        stream.lon, stream.lat, stream.term_offsets, stream.terms, stream.event_keys
    )
    key_offsets, keys = keys_of(arrays, queries, keyed)
    boxes = np.array([query.box for query in queries])
    one_each = np.arange(len(queries) + 1)
    reached = arrays.route_boxes(boxes, one_each, key_offsets, keys)
    pairs = 0
    for number, query in enumerate(queries):
        slots = reached.slots[reached.slot_offsets[number] : reached.slot_offsets[number + 1]]
        own = keys[key_offsets[number] : key_offsets[number + 1]]
        for row in range(len(stream)):
            words = stream.terms[stream.term_offsets[row] : stream.term_offsets[row + 1]]
            if not query.holds(stream.lon[row], stream.lat[row]):
                continue
            if query.first_satisfied({int(word) for word in words}) is None:
                continue
            found = reporters(query, own, routes, stream, row, set(slots.tolist()))
            assert len(found) == 1, f"{note}, query {number}, object {row}: slots {found}"
            pairs += 1
    return pairs


def subscriptions_everywhere(rng, objects, queries):
    """Returns large regions and keywords: the workload for splits by text."""
    return random_sample(rng, objects, queries, (QueryKind.RANGE_CONTINUOUS,), 300.0)


def any_sample(rng):
    objects, queries = int(rng.integers(0, 300)), int(rng.integers(0, 80))
    if rng.random() < 0.5:
        return random_sample(rng, objects, queries)
    return subscriptions_everywhere(rng, objects, queries)


@every_scheme
@settings(max_examples=8, deadline=None)
@given(seed=SEEDS)
def test_each_match_is_reported_by_exactly_one_slot(name, seed):
    rng = np.random.default_rng(seed)
    scheme = scheme_named(name)
    leaves, slots = int(rng.integers(1, 40)), int(rng.integers(1, 12))
    sample = any_sample(rng)
    data = to_bytes(scheme.build(sample, leaves, slots))
    assert len(data) < 1 << 20
    stream = random_sample(rng, 60, 0)
    queries = random_queries(rng, 25)
    keyed = rng.random(25) < 0.7
    check_pairs(scheme, from_bytes(data), stream, queries, keyed, f"seed {seed}")


@every_scheme
def test_the_pairs_of_that_test_are_many(name):
    """Without matches it could not fail."""
    rng = np.random.default_rng(3)
    scheme = scheme_named(name)
    partition_map = scheme.build(subscriptions_everywhere(rng, 300, 60), 20, 7)
    assert not partition_map.keyword_nodes or name in BY_KEYWORD
    assert partition_map.keyword_nodes or name not in BY_KEYWORD
    queries = random_queries(rng, 40)
    keyed = np.arange(40) % 2 == 0
    stream = random_sample(rng, 100, 0)
    assert check_pairs(scheme, partition_map, stream, queries, keyed, "seed 3") > 50


@every_scheme
@settings(max_examples=5, deadline=None)
@given(seed=SEEDS)
def test_slots_and_children_are_used_and_the_map_survives_its_bytes(name, seed):
    rng = np.random.default_rng(seed)
    scheme = scheme_named(name)
    partition_map = scheme.build(random_sample(rng, 600, 200), 32, 8)
    data = to_bytes(partition_map)
    assert to_bytes(from_bytes(data)) == data
    used = len(set(partition_map.slot_of_leaf.tolist()))
    assert used == min(8, len(partition_map.leaves)), f"seed {seed}: {used} slots used"
