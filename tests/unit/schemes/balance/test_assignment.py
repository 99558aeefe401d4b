"""The Hungarian method and subsets, compared with all assignments."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirocco.schemes.balance.base.assignment import assign_subsets, hungarian

SEEDS = st.integers(0, 2**32 - 1)


def least(cost):
    rows = range(len(cost))
    return min(sum(cost[i, j] for i, j in enumerate(p)) for p in itertools.permutations(rows))


@settings(max_examples=150, deadline=None)
@given(SEEDS)
def test_no_permutation_costs_less(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 7))
    cost = rng.integers(-5, 9, (size, size)).astype(np.float64)
    columns = hungarian(cost)
    assert sorted(columns.tolist()) == list(range(size)), f"seed {seed}"
    total = cost[np.arange(size), columns].sum()
    assert total == pytest.approx(least(cost)), f"seed {seed}\n{cost}"


def test_a_greedy_choice_would_cost_more():
    assert hungarian(np.array([[1.0, 2.0], [2.0, 9.0]])).tolist() == [1, 0]


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_subsets_go_where_least_is_transferred(seed):
    rng = np.random.default_rng(seed)
    machines, units = int(rng.integers(1, 5)), int(rng.integers(0, 9))
    subset_of = rng.integers(0, machines, units)
    at = rng.integers(0, machines, units)
    size = rng.integers(0, 9, units).astype(np.float64)
    transfer = np.where(at[:, None] == np.arange(machines), 0.0, size[:, None])
    machine = assign_subsets(subset_of, transfer)
    for subset in range(machines):
        assert len(set(machine[subset_of == subset].tolist())) <= 1, f"seed {seed}"
    best = min(
        sum(transfer[unit, p[subset]] for unit, subset in enumerate(subset_of))
        for p in itertools.permutations(range(machines))
    )
    assert transfer[np.arange(units), machine].sum() == pytest.approx(best), f"seed {seed}"
