"""When a balancer's plan is carried out: wanted twice, one at a time, with a pause after each."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from sirocco.protocol.contract.load_messages import LoadReport
from sirocco.protocol.contract.map_change import ChangePhase
from sirocco.protocol.coordinator.balance_rounds import (
    AT_INTERVALS,
    CHANGE_MS_MAX,
    ClusterState,
    Rounds,
    imbalance_of,
    joined_loads,
    memory_state,
    read_memory,
)
from sirocco.protocol.coordinator.round_settings import URGENT_EXCESS, RoundSettings
from sirocco.schemes.balance.base.view import LeafLoads, Memory, Plan, Stage
from sirocco.schemes.map.map import WORLD, Leaf, PartitionMap

SETTINGS = RoundSettings(1_000, 5_000, 2, 100, 1.2)
OWNERS = ("a", "a", "b")
MOVE = Plan(
    memory=Memory(repeats=3), reason="PM", moves={0: "b"}, maximum_before=4.0, maximum_after=2.0
)
NOTHING = Plan(memory=Memory())


def standing(owners=OWNERS, phase=ChangePhase.NONE, *, is_granting=False):
    return ClusterState(
        leading=True,
        phase=phase,
        map=None,
        owners=owners,
        evaluators=("a", "b"),
        is_granting=is_granting,
        routers=("r",),
    )


# Uneven, but not so much that it is urgent.
UNEVEN, URGENT = 1.3, 1.01 + URGENT_EXCESS * 0.2


def decided(rounds, plan, now_ms, objects=1_000.0, imbalance=UNEVEN):
    return rounds.decide(plan, OWNERS, objects, imbalance, now_ms)


def test_a_change_has_to_be_wanted_in_two_rounds_in_a_row() -> None:
    rounds = Rounds(SETTINGS)

    assert decided(rounds, MOVE, 0) == (None, "needed in 1 of 2 rounds")
    assert decided(rounds, NOTHING, 1)[0] is None
    assert decided(rounds, MOVE, 2)[0] is None
    decision, _ = decided(rounds, MOVE, 3)

    assert decision is not None
    assert decision.moves == {0: ("a", "b")}
    assert decision.reason == "PM"
    assert rounds.under_way == decision


@pytest.mark.parametrize(
    ("plan", "objects", "imbalance", "reason"),
    [
        (NOTHING, 1_000.0, 2.0, "nothing to change"),
        (Plan(memory=Memory(), wants=(3,)), 1_000.0, 2.0, "details are missing"),
        (MOVE, 99.0, 2.0, "too few objects to decide"),
        (MOVE, 1_000.0, 1.19, "balanced well enough"),
    ],
)
def test_what_is_not_worth_a_change(plan, objects, imbalance, reason) -> None:
    rounds = Rounds(SETTINGS)

    for now_ms in range(4):
        assert decided(rounds, plan, now_ms, objects, imbalance) == (None, reason)
    assert rounds.memory == plan.memory


def test_what_is_proposed_and_not_carried_out_stays_due() -> None:
    rounds = Rounds(SETTINGS, Memory(merged_ms=1, checked_ms=2))
    proposed = replace(MOVE, memory=Memory(repeats=3, merged_ms=7, checked_ms=8))

    decided(rounds, proposed, 7)
    assert rounds.memory == Memory(repeats=3, merged_ms=1, checked_ms=2)

    assert decided(rounds, proposed, 8)[0] is not None
    assert rounds.memory == proposed.memory


def test_what_is_due_at_intervals_is_so_first_by_when_it_was_watched_first() -> None:
    """Also if a change is proposed in every round and none is carried out."""
    rounds = Rounds(SETTINGS)
    for now_ms in (5, 6, 7):
        known = rounds.memory
        since = Memory(
            merged_ms=now_ms if known.merged_ms is None else known.merged_ms,
            checked_ms=now_ms if known.checked_ms is None else known.checked_ms,
        )
        decided(rounds, replace(MOVE, memory=since), now_ms, imbalance=1.1)

    assert (rounds.memory.merged_ms, rounds.memory.checked_ms) == (5, 5)


def test_a_pause_follows_every_change() -> None:
    rounds = Rounds(SETTINGS)
    decided(rounds, MOVE, 0)
    decided(rounds, MOVE, 1_000)

    ended = rounds.ended(1_500)

    assert ended is not None
    assert ended.seconds == 0.5
    assert (rounds.moves_total, rounds.map_changes_total) == (1, 0)
    assert decided(rounds, MOVE, 2_000) == (None, "pausing after a change")
    assert decided(rounds, MOVE, 6_499) == (None, "pausing after a change")
    assert decided(rounds, MOVE, 6_500)[0] is not None


def test_what_is_urgent_is_done_in_the_first_round_that_wants_it() -> None:
    rounds = Rounds(SETTINGS)

    decision, state = decided(rounds, MOVE, 0, imbalance=URGENT)

    assert decision is not None
    assert state == ""


def test_after_a_change_what_is_urgent_waits_for_a_short_round() -> None:
    rounds = Rounds(SETTINGS)
    decided(rounds, MOVE, 0, imbalance=URGENT)
    rounds.ended(400)

    paused = "pausing after a change"
    assert rounds.look_ms == SETTINGS.look_ms == 5
    assert decided(rounds, MOVE, 404, imbalance=URGENT) == (None, paused)
    assert decided(rounds, MOVE, 1_000) == (None, paused)
    assert decided(rounds, MOVE, 1_001, imbalance=URGENT)[0] is not None


def test_a_shorter_pause_than_a_round_holds_for_what_is_urgent_too() -> None:
    rounds = Rounds(replace(SETTINGS, cooldown_ms=2))
    decided(rounds, MOVE, 0, imbalance=URGENT)
    rounds.ended(400)

    assert decided(rounds, MOVE, 401, imbalance=URGENT)[0] is None
    assert decided(rounds, MOVE, 402, imbalance=URGENT)[0] is not None


@pytest.mark.parametrize("reason", sorted(AT_INTERVALS))
def test_what_is_done_at_intervals_is_never_urgent(reason) -> None:
    due = replace(MOVE, reason=reason)

    assert decided(Rounds(SETTINGS), due, 0, imbalance=9.0)[1] == "needed in 1 of 2 rounds"


@pytest.mark.parametrize("seed", range(5))
def test_what_comes_and_goes_below_the_urgent_changes_nothing(seed) -> None:
    """Bursts of one round, each of which a balancer would answer."""
    rng = np.random.default_rng(seed)
    rounds = Rounds(SETTINGS)
    for number in range(200):
        is_burst = number % 2 and rng.random() < 0.8
        imbalance = rng.uniform(1.2, URGENT - 0.02) if is_burst else rng.uniform(1.0, 1.199)
        assert decided(rounds, MOVE, 1_000 * number, imbalance=imbalance)[0] is None, f"seed {seed}"


def test_what_failed_does_not_count_and_is_paused_after_too() -> None:
    rounds = Rounds(SETTINGS)
    decided(rounds, MOVE, 0)
    decided(rounds, MOVE, 1)

    rounds.ended(2, "gone")

    assert rounds.moves_total == 0
    assert rounds.decisions[0].outcome == "gone"
    assert rounds.under_way is None
    assert decided(rounds, MOVE, 3)[1] == "pausing after a change"


def test_a_move_is_over_when_its_new_owner_is_up_to_date() -> None:
    rounds = Rounds(SETTINGS)
    decided(rounds, MOVE, 0)
    decision, _ = decided(rounds, MOVE, 1)
    after = ("b", "a", "b")

    assert not rounds.is_over(decision, standing(after, is_granting=True), {"b": (0, 2)})
    assert not rounds.is_over(decision, standing(after), {"b": (2,)})
    assert not rounds.is_over(decision, standing(), {"a": (1,), "b": (2,)})
    assert not rounds.is_over(decision, standing(after, ChangePhase.COPYING), {"b": (0, 2)})
    assert rounds.is_over(decision, standing(after), {"b": (0, 2)})
    assert not rounds.is_late(CHANGE_MS_MAX)
    assert rounds.is_late(CHANGE_MS_MAX + 2)


def test_memory_survives_as_plain_values() -> None:
    memory = Memory(Stage.GOOD, True, 4, 12.5, 77, None)

    assert read_memory(json.loads(json.dumps(memory_state(memory)))) == memory
    for odd in (None, 3, {}, {"stage": 9}, {**memory_state(memory), "stage": 99}):
        assert read_memory(odd) == Memory()


def four_leaves() -> PartitionMap:
    west, south, east, north = WORLD
    boxes = [(west, south, 0.0, 0.0), (0.0, south, east, 0.0)]
    boxes += [(west, 0.0, 0.0, north), (0.0, 0.0, east, north)]
    leaves = tuple(Leaf(7 + n, box) for n, box in enumerate(boxes))
    slots = np.array([0, 0, 1, 2], np.int32)
    return PartitionMap(
        version=4,
        scheme="uniform-grid",
        world=WORLD,
        leaves=leaves,
        text_nodes=(),
        slot_of_leaf=slots,
        load_of_leaf=np.ones(4),
        slots=3,
    )


def load_report(slots, leaves, objects, version=4):
    column = np.array(objects, np.float64)
    return LoadReport(version, slots, np.array(leaves, np.int32), LeafLoads(*[column] * 6))


def test_loads_of_evaluators_become_those_of_the_map() -> None:
    loads, missing = joined_loads(
        four_leaves(),
        OWNERS,
        {"a": load_report((0, 1), (7, 8, 9), (1, 2, 3)), "b": load_report((2,), (10,), (4,))},
    )

    assert loads.objects.tolist() == [1, 2, 3, 4]
    assert missing == ()


def test_reports_of_former_owners_and_of_other_maps_are_ignored() -> None:
    loads, missing = joined_loads(
        four_leaves(),
        OWNERS,
        {
            "a": load_report((0, 2), (7, 8, 10), (1, 2, 50)),
            "b": load_report((2,), (10,), (4,), version=3),
        },
    )

    assert loads.objects.tolist() == [1, 2, 0, 0]
    assert missing == (1, 2)


def test_imbalance_is_the_greatest_over_the_mean() -> None:
    assert imbalance_of(np.array([1.0, 2.0, 3.0])) == 1.5
    assert imbalance_of(np.zeros(3)) == 0.0
    assert imbalance_of(np.zeros(0)) == 0.0
