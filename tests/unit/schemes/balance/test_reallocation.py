"""Leaves that change owners are spread over the slots of the new owner."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sirocco.schemes.balance.base.draft import Draft
from sirocco.schemes.balance.base.placement import placed
from sirocco.schemes.balance.base.reallocation import full, leaf_units, move_leaves, place_leaves
from sirocco.schemes.balance.base.view import LeafLoads, View
from tests.support.worlds import grid_map

SEEDS = st.integers(0, 2**32 - 1)


def draft_of(slot_of_leaf, owners, cost):
    cost = np.array(cost, np.float64)
    base = grid_map(np.random.default_rng(3), len(cost), len(owners))
    base = replace(base, slot_of_leaf=np.array(slot_of_leaf, np.int32))
    view = View(
        map=base,
        owners=tuple(owners),
        evaluators=tuple(sorted(set(owners))),
        loads=LeafLoads(*[cost] * 6),
    )
    return placed(view, cost), Draft(view, cost)


def slots_of(draft):
    return [draft[number].slot for number in draft]


def test_the_heaviest_first_each_to_the_least_loaded_slot():
    placement, draft = draft_of([0, 0, 0, 0, 1, 2], "abb", [1, 5, 3, 3, 1, 0])
    move_leaves(placement, draft, [0, 1, 2, 3], 1)
    # 5 to the empty slot 2, both of 3 to slot 1 that has 1, the last to slot 2 again.
    assert slots_of(draft) == [2, 2, 1, 1, 1, 2]


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_a_leaf_that_stays_with_a_machine_stays_in_its_slot(seed):
    rng = np.random.default_rng(seed)
    slots = int(rng.integers(2, 7))
    owners = ["a", "b", *rng.choice(["a", "b"], slots - 2)]
    cost = rng.integers(0, 9, int(rng.integers(1, 12)))
    before = rng.integers(0, slots, len(cost))
    placement, draft = draft_of(before, owners, cost)
    machine = full(leaf_units(placement, draft))
    place_leaves(placement, draft, machine)
    for number, slot in enumerate(slots_of(draft)):
        assert placement.machine_of_slot[slot] == machine[number], f"seed {seed}"
        if placement.machine_of_slot[before[number]] == machine[number]:
            assert slot == before[number], f"seed {seed}"
        if cost[number] == 0:
            assert slot == before[number], f"seed {seed}"
