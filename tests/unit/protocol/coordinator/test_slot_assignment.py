"""Slots are assigned by load: orphaned slots get an owner, and new evaluators a share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sirocco.protocol.coordinator.assignment import IDLE_SHARE, settled


def loads_of(owners, weights):
    loads: dict[Any, Any] = {}
    for slot, member in owners.items():
        loads[member] = loads.get(member, 0.0) + weights[slot]
    return loads


def test_a_new_evaluator_gets_its_share_of_load_not_of_slots() -> None:
    # init: one slot has half of all load
    owners = dict.fromkeys(range(8), "a") | dict.fromkeys(range(8, 16), "b")
    weights = [1.0] * 16
    weights[0] = 15.0

    # test
    found = settled(owners, ("a", "b", "c"), weights)

    # check: the mean is 10; the heavy slot stays, or moves alone
    loads = loads_of(found, weights)
    assert loads["c"] >= 5.0
    assert max(loads.values()) <= 16.0
    moved = {slot for slot in owners if found[slot] != owners[slot]}
    assert {found[slot] for slot in moved} == {"c"}


def test_slots_of_a_dead_owner_go_where_there_is_least_load() -> None:
    owners = {0: "a", 1: "b", 2: "dead", 3: "dead"}

    found = settled(owners, ("a", "b"), [10.0, 1.0, 5.0, 1.0])

    assert found == {0: "a", 1: "b", 2: "b", 3: "b"}


def test_what_is_uneven_among_those_that_have_something_stays() -> None:
    # Whether a move pays is decided by the balancers, which know its cost.
    owners = {0: "a", 1: "a", 2: "a", 3: "b"}

    assert settled(owners, ("a", "b"), [9.0, 9.0, 9.0, 1.0]) == owners


@pytest.mark.parametrize("weights", [(), (0.0,) * 16, (1.0,) * 3])
def test_without_known_loads_counts_differ_by_one_at_most(weights) -> None:
    found = settled(dict.fromkeys(range(16), ""), ("a", "b", "c"), weights)

    counts = [list(found.values()).count(member) for member in ("a", "b", "c")]
    assert max(counts) - min(counts) <= 1


def test_idle_slots_are_spread_too() -> None:
    weights = [1.0] + [0.0] * 15

    found = settled(dict.fromkeys(range(16), ""), ("a", "b"), weights)

    counts = [list(found.values()).count(member) for member in ("a", "b")]
    # The loaded slot weighs as much as twenty idle ones.
    assert min(counts) >= 1
    assert IDLE_SHARE * 16 < 1


def test_assignment_settles_and_members_with_few_slots_lose_none() -> None:
    seed = 20261121
    dice = np.random.default_rng(seed)
    for world in range(200):
        slots, members = int(dice.integers(1, 33)), int(dice.integers(1, 7))
        alive = tuple(f"m{n}" for n in range(members))
        names = [*alive, "dead", ""]
        owners = {slot: names[dice.integers(len(names))] for slot in range(slots)}
        weights = dice.exponential(1.0, slots) * (dice.random(slots) < 0.7)
        found = settled(owners, alive, weights.tolist())
        reported = f"seed={seed} world={world}"
        assert set(found) == set(owners), reported
        assert set(found.values()) <= set(alive), reported
        # An evaluator without slots gets some, if there are enough.
        if slots >= 2 * members:
            assert set(found.values()) == set(alive), reported
        held = {owner for owner in owners.values() if owner in alive}
        newcomers = set(alive) - held
        for slot, owner in owners.items():
            if owner in held:
                assert found[slot] == owner or found[slot] in newcomers, reported
        # Repeated, nothing moves: there are no newcomers any more.
        if set(found.values()) == set(alive):
            assert settled(found, alive, weights.tolist()) == found, reported
