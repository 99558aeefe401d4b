"""SWARM's subset, compared with all subsets; its ladder, compared with Figure 9."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirocco.schemes.balance.base.view import Memory, Stage
from sirocco.schemes.balance.swarm.ladder import REPEATS_MAX, climbed, figure_9
from sirocco.schemes.balance.swarm.reduction import find_subset

SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=150, deadline=None)
@given(SEEDS)
def test_the_subset_reaches_half_of_the_best(seed):
    rng = np.random.default_rng(seed)
    cost = rng.integers(0, 20, int(rng.integers(0, 9))).astype(np.float64)
    capacity = float(rng.integers(0, 60))
    chosen = find_subset(cost, capacity)
    sets = (itertools.combinations(cost, n) for n in range(len(cost) + 1))
    sums = [sum(one) for one in itertools.chain.from_iterable(sets)]
    best = max(one for one in sums if one <= capacity)
    assert best / 2 <= cost[chosen].sum() <= capacity, f"seed {seed}"
    assert len(set(chosen.tolist())) == len(chosen)
    assert (cost[chosen] > 0).all()


class Ladder:
    """Figure 9 as drawn."""

    def __init__(self, beta):
        self.beta, self.at, self.rebalances, self.times = beta, 2, False, 0
        self.before = None

    def round(self, recent_total):
        if self.before is not None:
            self.at = min(self.at + 1, 4) if recent_total > self.before else self.at - 1
            if self.times >= self.beta:
                self.at = 0
            if self.at == 0:
                self.at, self.rebalances, self.times = 2, not self.rebalances, 0
        self.before = recent_total
        self.times += 1
        return self.rebalances


@settings(max_examples=80, deadline=None)
@given(SEEDS)
def test_decisions_are_those_of_figure_9(seed):
    rng = np.random.default_rng(seed)
    beta = int(rng.integers(2, 8))
    ladder, memory = Ladder(beta), Memory()
    for total in rng.integers(0, 5, 60).tolist():
        memory = climbed(memory, float(total), beta, figure_9)
        assert memory.rebalances == ladder.round(total), f"seed {seed}"
        assert memory.stage == ladder.at, f"seed {seed}"


def test_a_decision_that_helps_is_kept_until_it_does_not():
    memory = Memory(stage=Stage.START, rebalances=True, recent_total=10.0)
    for total in (11.0, 12.0, 13.0):
        memory = climbed(memory, total, step=figure_9)
    assert memory.stage is Stage.GREAT
    for total, expected in ((12.0, True), (11.0, True), (10.0, True), (9.0, False)):
        memory = climbed(memory, total, step=figure_9)
        assert memory.rebalances is expected


def decisions(totals):
    """Returns the ladder's decision in each round."""
    memory, seen = Memory(), []
    for total in totals:
        memory = climbed(memory, float(total))
        seen.append(memory.rebalances)
    return seen


@pytest.mark.parametrize("mean", [300, 3e3, 1e6])
def test_on_a_steady_stream_nothing_is_done_in_two_rounds_of_a_turn(mean):
    """A turn is two rounds of doing nothing, which improve nothing, and β of rebalancing."""
    turns = 4
    rng = np.random.default_rng(11)
    totals = rng.poisson(mean, turns * (REPEATS_MAX + 2))
    expected = ([False] * 2 + [True] * REPEATS_MAX) * turns
    assert decisions(totals) == expected
    # Rounds that are longer and shorter by a look of the coordinator.
    uneven = totals * rng.uniform(0.98, 1.02, len(totals))
    if mean > 1e4:
        assert decisions(uneven) == expected


def test_rebalancing_ends_where_less_and_less_is_borne():
    memory = Memory(stage=Stage.GREAT, rebalances=True, recent_total=1e6)
    seen = []
    for total in (0.9e6, 0.8e6, 0.7e6, 0.6e6):
        memory = climbed(memory, total)
        seen.append(memory.rebalances)
    assert seen == [True, True, True, False]


def test_a_rise_keeps_doing_nothing_until_it_ends():
    assert decisions([1e6, 1.2e6, 1.5e6, 1.6e6, 1.6e6, 1.6e6, 1.6e6, 1.6e6])[-3:] == [
        False, False, True,
    ]  # fmt: skip
