"""The balancers' common measure: what it counts, and that its parts add up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirocco.schemes.balance.base.placement import placed
from sirocco.schemes.balance.base.view import LeafLoads, Memory, Stage
from sirocco.schemes.balance.base.work import work
from sirocco.schemes.balance.sstd.balancer import Sstd, SstdSettings, workloads
from sirocco.schemes.balance.swarm.balancer import Swarm, SwarmSettings, merged_neighbours
from sirocco.schemes.balance.swarm.cost import EQUATION_5, WORK
from sirocco.schemes.balance.tornado.balancer import Tornado
from tests.support.worlds import (
    decide,
    detail_of,
    grid_map,
    random_stream,
    view_of,
)

SEEDS = st.integers(0, 2**32 - 1)
READY = Memory(stage=Stage.BAD, rebalances=False, recent_total=1e12)


def loads_of(objects, met, queries):
    objects, met, queries = (np.array(each, np.float64) for each in (objects, met, queries))
    return LeafLoads(objects, met, objects, queries, objects, 10 * queries)


@pytest.mark.parametrize(
    ("met", "expected"),
    [
        # No object meets a query: objects alone. Few: an object is a look. Many: half of it all.
        ([0, 0], [100, 300]),
        ([100, 0], [200, 300]),
        ([800, 800], [800 + 100 * 4, 800 + 300 * 4]),
    ],
)
def test_work_is_what_objects_meet_and_their_handling(met, expected) -> None:
    assert work(loads_of([100, 300], met, [5, 0])).tolist() == expected


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_parts_of_a_leaf_cost_together_what_the_leaf_costs(seed):
    rng = np.random.default_rng(seed)
    view = view_of(stream := random_stream(rng), grid_map(rng, 3, 1), ["a"], ["a"])
    cost = WORK.leaves(view.loads)
    for number, leaf in enumerate(view.map.leaves):
        met = float(view.loads.met[number])
        cuts = WORK.cuts(detail_of(stream, leaf), float(cost[number]), met)
        assert cuts is not None
        for costs in cuts:
            parts = np.array([costs.parts(cut) for cut in range(costs.cells)])
            assert parts.sum(1) == pytest.approx(np.full(costs.cells, cost[number])), f"seed {seed}"
            assert (np.diff(parts[:, 0]) >= -1e-9).all()


def one_leaf_each(met, queries):
    """Returns four leaves of one evaluator each, with equally many objects."""
    rng = np.random.default_rng(3)
    stream = random_stream(rng)
    partition_map = grid_map(rng, 8, 8)
    partition_map = replace(partition_map, slot_of_leaf=np.arange(8, dtype=np.int32))
    view = view_of(stream, partition_map, list("aabbccdd"), list("abcd"), READY)
    return stream, replace(view, loads=loads_of([100_000] * 8, met, queries))


@pytest.mark.parametrize(
    ("balancer", "papers"),
    [
        (Swarm(), Swarm(SwarmSettings(measure=EQUATION_5))),
        (Sstd(), Sstd(SstdSettings(cost=workloads))),
    ],
    ids=["swarm", "sstd"],
)
def test_matches_are_load_and_queries_without_objects_are_not(balancer, papers) -> None:
    stream, idle = one_leaf_each([0] * 8, [900, 900, 10, 10, 10, 10, 10, 10])
    assert not decide(balancer, idle, stream, 0).changes
    assert decide(papers, idle, stream, 0).changes
    stream, busy = one_leaf_each([900_000, 900_000, 0, 0, 0, 0, 0, 0], [10] * 8)
    plan = decide(balancer, busy, stream, 0)
    assert plan.changes
    assert plan.maximum_after < plan.maximum_before
    assert not decide(papers, busy, stream, 0).changes


def test_a_cluster_without_standing_queries_is_balanced_too() -> None:
    """Only searches: arrivals are stored and handled."""
    stream, view = one_leaf_each([0] * 8, [0] * 8)
    objects = np.array([400_000, 400_000] + [100_000] * 6, np.float64)
    view = replace(view, loads=replace(view.loads, objects=objects, arrivals=objects))
    for balancer in (Swarm(), Sstd(), Tornado()):
        assert decide(balancer, view, stream, 0).changes, balancer.name


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_merging_is_priced_in_the_unit_of_the_loads(seed):
    """Whatever the measure, no joint leaf becomes the largest load, or costs less than both."""
    rng = np.random.default_rng(seed)
    view = view_of(random_stream(rng), grid_map(rng, 12, 3), list("abb"), list("ab"))
    for measure in (WORK, EQUATION_5):
        placement = placed(view, measure.leaves(view.loads))
        plan = merged_neighbours(placement, Memory())
        if plan is None:
            continue
        assert plan.map is not None
        after = plan.map.load_of_slot()
        assert (after >= placement.cost_of_slot - 1e-6).all(), f"seed {seed}"
        assert plan.maximum_after <= placement.loads.max() * (1 + 1e-9), f"seed {seed}"
