"""The load of a sample under a map, compared with sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirocco.schemes.balance.base.sample_routes import routed
from sirocco.schemes.map.routing import compile_map
from sirocco.schemes.workload.keyword_load import LoadCosts
from sirocco.schemes.workload.keyword_workload import keyword_workload
from tests.support.worlds import grid_map, random_stream

SEEDS = st.integers(0, 2**32 - 1)
COSTS = LoadCosts(check=0.5, handling=2.0, insertion=3.0, deletion=4.0)


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_what_goes_to_several_leaves_of_a_place_counts_there_once(seed):
    rng = np.random.default_rng(seed)
    partition_map = grid_map(rng, int(rng.integers(2, 12)), 4, keywords=2)
    sample = random_stream(rng, rounds=1, objects=80, queries=20).sample()
    workload = keyword_workload(sample, COSTS)
    routes = routed(workload, partition_map)
    slot_of_leaf = partition_map.slot_of_leaf.astype(np.int64)
    found = routes.loads(slot_of_leaf, 4, COSTS)
    for slot in range(4):
        leaves = np.flatnonzero(slot_of_leaf == slot).tolist()
        objects = {row for leaf in leaves for row in routes.objects_of(leaf).tolist()}
        queries = {row for leaf in leaves for row in routes.queries_of(leaf).tolist()}
        expected = 0.5 * len(objects) * len(queries) + 2 * len(objects) + 7 * len(queries)
        assert found[slot] == pytest.approx(expected), f"seed {seed}"
    # The router sends each object once to each of its slots.
    columns = (sample.lon, sample.lat, sample.term_offsets, sample.terms, sample.event_keys)
    sent = compile_map(partition_map).route_objects(*columns)
    pairs = {(row, int(slot_of_leaf[leaf])) for row, leaf in zip(*routes.objects, strict=True)}
    assert pairs == set(zip(sent.row.tolist(), sent.slot.tolist(), strict=True)), f"seed {seed}"
