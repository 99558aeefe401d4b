"""Karmarkar and Karp 1982, as SSTD 4.1.2 allocates leaves to workers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirocco.schemes.workload.allocation import karmarkar_karp

SEEDS = st.integers(0, 2**32 - 1)


def sums(numbers, slots):
    slot_of = karmarkar_karp(np.array(numbers, np.float64), slots)
    assert slot_of.dtype == np.int32
    return sorted(np.bincount(slot_of, numbers, slots).tolist())


@pytest.mark.parametrize(
    ("numbers", "slots", "expected"),
    [
        # Korf 2009's running example: differencing leaves 2 where the best division leaves 0.
        ([8, 7, 6, 5, 4], 2, [14, 16]),
        ([4, 5, 6, 7, 8], 2, [14, 16]),
        ([8, 7, 6, 5, 4], 3, [8, 11, 11]),
        ([10, 8, 7, 6, 5], 2, [17, 19]),
        ([5, 5, 5, 5], 2, [10, 10]),
        ([1], 3, [0, 0, 1]),
        ([], 3, [0, 0, 0]),
        ([3, 1, 2], 1, [6]),
        ([2, 2, 2, 2, 2, 2, 2], 3, [4, 4, 6]),
    ],
)
def test_known_instances(numbers, slots, expected):
    assert sums(numbers, slots) == expected


def best_maximum(numbers, slots):
    best = float("inf")
    for slot_of in itertools.product(range(slots), repeat=len(numbers)):
        best = min(best, max(np.bincount(slot_of, numbers, slots)))
    return best


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_the_greatest_sum_keeps_its_bound(seed):
    """Michiels, Korst, Aarts, van Leeuwen 2003: at most 4/3 - 1/(3k) of the best."""
    rng = np.random.default_rng(seed)
    slots = int(rng.integers(2, 4))
    numbers = rng.integers(1, 40, int(rng.integers(1, 8))).astype(np.float64)
    bound = (4 / 3 - 1 / (3 * slots)) * best_maximum(numbers, slots)
    assert sums(numbers, slots)[-1] <= bound + 1e-9, f"seed {seed}, {numbers}, {slots} slots"


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_it_balances_many_leaves_better_than_dealing_them_out_in_turn(seed):
    rng = np.random.default_rng(seed)
    loads = rng.pareto(1.5, 256) + 0.01
    order = np.argsort(-loads)
    dealt = np.zeros(16)
    for turn, leaf in enumerate(order):
        dealt[turn % 16] += loads[leaf]
    result = np.bincount(karmarkar_karp(loads, 16), loads, 16)
    assert np.ptp(result) <= np.ptp(dealt) + 1e-9, f"seed {seed}"


def test_equal_input_gives_equal_output_and_slots_are_numbered_by_their_first_leaf():
    loads = np.ones(12)
    first = karmarkar_karp(loads, 5)
    assert (first == karmarkar_karp(loads.copy(), 5)).all()
    assert sorted(set(first.tolist()), key=first.tolist().index) == [0, 1, 2, 3, 4]
    assert sorted(np.bincount(first).tolist()) == [2, 2, 2, 3, 3]
