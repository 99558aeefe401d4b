"""SWARM's subset against all subsets, its ladder against Figure 9."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sirocco.schemes.balance.swarm_ladder import climbed
from sirocco.schemes.balance.swarm_reduction import find_subset
from sirocco.schemes.balance.view import Memory, Stage

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
    """Figure 9 as it is drawn."""

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
        memory = climbed(memory, float(total), beta)
        assert memory.rebalances == ladder.round(total), f"seed {seed}"
        assert memory.stage == ladder.at, f"seed {seed}"


def test_a_decision_that_helps_is_kept_until_it_does_not():
    memory = Memory(stage=Stage.START, rebalances=True, recent_total=10.0)
    for total in (11.0, 12.0, 13.0):
        memory = climbed(memory, total)
    assert memory.stage is Stage.GREAT
    for total, expected in ((12.0, True), (11.0, True), (10.0, True), (9.0, False)):
        memory = climbed(memory, total)
        assert memory.rebalances is expected
