"""Slots of evaluators that are gone, evaluators that join, and the noise of a load."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirocco.model.errors import InvalidArgument
from sirocco.schemes.balance.base.placement import imbalance, placed
from sirocco.schemes.balance.base.plans import GAIN_DEVIATIONS_MIN, GAIN_SHARE_MIN, least_gain
from sirocco.schemes.balance.base.view import LeafLoads, View
from tests.support.worlds import grid_map

SEEDS = st.integers(0, 2**32 - 1)


def view_of(cost, owners, evaluators, objects=None):
    """Returns a view with one leaf for each slot."""
    count = len(cost)
    base = grid_map(np.random.default_rng(3), count, count)
    base = replace(base, slot_of_leaf=np.arange(count, dtype=np.int32))
    cost = np.array(cost, np.float64)
    objects = cost if objects is None else np.array(objects, np.float64)
    return View(
        map=base,
        owners=tuple(owners),
        evaluators=tuple(evaluators),
        loads=LeafLoads(objects, *[cost] * 5),
    )


def house(cost, owners, evaluators):
    """The heaviest orphaned slot first, each to the least loaded evaluator."""
    loads = dict.fromkeys(evaluators, 0.0)
    held = dict.fromkeys(evaluators, 0)
    after = list(owners)
    for slot, owner in enumerate(owners):
        if owner in loads:
            loads[owner] += cost[slot]
            held[owner] += 1
    homeless = [slot for slot, owner in enumerate(owners) if owner not in loads]
    for slot in sorted(homeless, key=lambda slot: (-cost[slot], slot)):
        least = min(evaluators, key=lambda name: (loads[name], held[name]))
        loads[least] += cost[slot]
        held[least] += 1
        after[slot] = least
    return after


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_slots_without_owner_go_to_the_least_loaded(seed):
    rng = np.random.default_rng(seed)
    evaluators = ("a", "b", "c")[: int(rng.integers(1, 4))]
    slots = int(rng.integers(len(evaluators), 10))
    cost = rng.integers(0, 9, slots).astype(np.float64)
    # Every evaluator has a slot at the beginning, so that none is given one afterwards.
    owners = [*evaluators, *rng.choice(["x", "y", *evaluators], slots - len(evaluators))]
    placement = placed(view_of(cost, owners, evaluators), cost)
    found = [evaluators[machine] for machine in placement.machine_of_slot]
    assert found == house(cost, owners, evaluators), f"seed {seed}"
    assert set(placement.moves) == {s for s, owner in enumerate(owners) if owner in ("x", "y")}
    assert placement.loads.sum() == cost.sum()


def test_a_joining_member_receives_the_slot_that_balances_best():
    cost = [5.0, 4.0, 3.0, 1.0]
    placement = placed(view_of(cost, "aaab", "abc"), np.array(cost))
    # Half of the 12 of a is 6: the slot of 5 is nearest.
    assert placement.moves == {0: "c"}
    assert placement.maximum == 12
    nobody_can_spare = placed(view_of([5.0, 4.0], "ab", "abc"), np.array([5.0, 4.0]))
    assert not nobody_can_spare.moves


def test_definition_4():
    assert imbalance(np.array([3.0, 2.0])) == 1.5
    assert imbalance(np.array([0.0, 0.0])) == 1.0
    assert imbalance(np.array([1.0, 0.0])) == float("inf")


def test_rounds_differ_by_chance_less_than_a_gain_has_to_be():
    """Evaluators with the same stream, drawn repeatedly: none seems worth relieving."""
    rng = np.random.default_rng(1)
    exceeded = 0
    for _ in range(300):
        objects = rng.poisson(400, 4).astype(np.float64)
        cost = np.array([rng.exponential(3.0, int(count)).sum() for count in objects])
        placement = placed(view_of(cost, "abcd", "abcd", objects), cost)
        busiest = int(placement.loads.argmax())
        exceeded += (cost.max() - cost.min()) / 2 > least_gain(placement, busiest)
    assert exceeded <= 3


def test_chance_does_not_matter_with_many_objects():
    cost = [1e6, 1e6]
    placement = placed(view_of(cost, "ab", "ab", objects=[1e8, 1e8]), np.array(cost))
    assert least_gain(placement, 0) == GAIN_SHARE_MIN * 1e6
    placement = placed(view_of(cost, "ab", "ab", objects=[2, 2]), np.array(cost))
    assert least_gain(placement, 0) == pytest.approx(GAIN_DEVIATIONS_MIN * 1e6)


@pytest.mark.parametrize(
    "changes",
    [
        {"owners": ("a",)},
        {"evaluators": ("a", "a")},
        {"evaluators": ()},
        {"loads": LeafLoads(*[np.ones(3)] * 6)},
    ],
)
def test_views_are_checked(changes):
    view = view_of([1.0, 2.0], "ab", "ab")
    with pytest.raises(InvalidArgument):
        replace(view, **changes)


@pytest.mark.parametrize("last", [-np.ones(2), np.ones(3), np.full(2, np.nan)])
def test_loads_are_checked(last):
    with pytest.raises(InvalidArgument):
        LeafLoads(*[np.ones(2)] * 5, last)  # type: ignore[call-arg]
