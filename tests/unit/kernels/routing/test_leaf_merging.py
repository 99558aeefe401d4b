"""Leaves merged into slots, compared with the rule leaf by leaf with sets."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sirocco.kernels.routing.leaf_merging import loads_of_slots, merge_leaves

SEEDS = st.integers(0, 2**32 - 1)


def random_leaves(rng):
    leaves, items = int(rng.integers(1, 14)), int(rng.integers(1, 25))
    rows = [np.flatnonzero(rng.random(items) < 0.3) for _ in range(leaves)]
    weights = rng.integers(1, 4, items).astype(np.float64)
    loads = np.array([weights[row].sum() for row in rows]) + rng.integers(1, 9, leaves)
    offsets = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    return rows, weights, loads, offsets, np.concatenate(rows).astype(np.int32)


def keeps_balance(loads, slot, added):
    after = list(loads)
    after[slot] += added
    if min(loads) == 0:
        return min(after) > 0 or max(after) <= max(loads)
    return max(after) / min(after) <= max(loads) / min(loads)


@settings(max_examples=120, deadline=None)
@given(SEEDS)
def test_each_leaf_goes_where_it_adds_least_or_to_the_least_loaded(seed):
    rng = np.random.default_rng(seed)
    rows, weights, loads, offsets, items = random_leaves(rng)
    slots = int(rng.integers(1, 6))
    order = np.argsort(-loads, kind="stable")
    slot_of_leaf, sums = np.empty(len(rows), np.int32), np.zeros(slots)
    merge_leaves(order, loads, offsets, items, weights, slot_of_leaf, sums)
    handled: list[set[Any]] = [set() for _ in range(slots)]
    expected = [0.0] * slots
    for position, leaf in enumerate(order):
        added = [loads[leaf] - sum(weights[i] for i in rows[leaf] if i in own) for own in handled]
        slot = min(range(slots), key=lambda s: (added[s], expected[s], s))
        scarce = len(rows) - position <= expected.count(0.0)
        if scarce or not keeps_balance(expected, slot, added[slot]):
            slot = min(range(slots), key=lambda s: (expected[s], s))
        assert slot_of_leaf[leaf] == slot, f"seed {seed}, leaf {leaf}"
        expected[slot] += added[slot]
        handled[slot] |= set(rows[leaf])
    assert len(set(slot_of_leaf.tolist())) == min(len(rows), slots), f"seed {seed}"
    np.testing.assert_allclose(sums, expected, err_msg=f"seed {seed}")
    again = np.zeros(slots)
    loads_of_slots(loads, offsets, items, weights, slot_of_leaf, again)
    np.testing.assert_allclose(again, expected, err_msg=f"seed {seed}")


def test_estimates_of_what_is_shared_never_make_a_slot_lighter():
    loads, offsets = np.array([5.0, 4.0, 1.0]), np.array([0, 1, 2, 3])
    items, weights = np.zeros(3, np.int32), np.array([20.0])
    slot_of_leaf, sums = np.empty(3, np.int32), np.zeros(1)
    merge_leaves(np.arange(3), loads, offsets, items, weights, slot_of_leaf, sums)
    assert sums.tolist() == [5.0]
    again = np.zeros(1)
    loads_of_slots(loads, offsets, items, weights, slot_of_leaf, again)
    assert again.tolist() == [5.0]
