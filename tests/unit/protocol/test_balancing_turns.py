"""What turns ask for, and what becomes of a decision when some of it fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sirocco.model.errors import FailedPrecondition
from sirocco.protocol.balancing import (
    Ask,
    AskLoads,
    AskSamples,
    AskSlots,
    Ended,
    Judged,
    Move,
    Recall,
    Remember,
    Save,
    Turns,
)
from sirocco.protocol.leaf_loads import ToldLoads
from sirocco.protocol.map_change import Phase
from sirocco.protocol.rounds import LOOKS, RoundSettings, Standing
from sirocco.schemes.balance.view import LeafLoads, Memory, Plan, View
from tests.unit.protocol.values import uniform_map

MAP = uniform_map(2, 2)
# Slots 0 and 1 have a leaf each.
IDS = np.array([leaf.id for leaf in MAP.leaves], np.int32)
TOLD = {"a": ToldLoads(MAP.version, (0, 1), IDS, LeafLoads(*[np.full(2, 9.0)] * 6))}
STANDING = Standing(True, Phase.NONE, MAP, ("a", "a"), ("a", "b"), False)


class Away(Exception):  # noqa: N818 -- as the stores' own
    """The map store is away."""


class Moving:
    """Wants one slot to change hands, in every round."""

    name = "moving"

    def adjust(self, view: View, now_ms: int) -> Plan:
        return Plan(view.memory, "PM", {0: "b"}, maximum_before=2.0, maximum_after=1.0)


class Coordinator:
    """Answers what turns ask for; at one of them something fails."""

    def __init__(
        self,
        failing: type | None = None,
        error: Exception | None = None,
        told: dict[str, ToldLoads] | None = None,
        standing: Standing = STANDING,
    ) -> None:
        self.now_ms = 0
        self.told, self.standing = told or TOLD, standing
        self.asked: list[Ask] = []
        self.failing, self.error = failing, error
        settings = RoundSettings(1_000, 5_000, 1, 1, 1.0)
        clock: Callable[[], int] = lambda: self.now_ms  # noqa: E731
        self.turns = Turns(settings, clock, clock, lambda _: Moving())

    def turn(self, now_ms: int) -> None:
        self.now_ms = now_ms
        turn = self.turns.turn(self.standing)
        try:
            ask = next(turn)
            while True:
                self.asked.append(ask)
                if self.error is not None and isinstance(ask, self.failing or object):
                    ask = turn.throw(self.error)
                else:
                    ask = turn.send(self.answer(ask))
        except StopIteration:
            pass

    def outcomes(self) -> list[str]:
        return [ask.decision.outcome for ask in self.asked if isinstance(ask, Ended)]

    def answer(self, ask: Ask) -> Any:
        match ask:
            case Recall():
                return Memory()
            case AskLoads():
                return self.told
            case AskSlots():
                return {"a": (0, 1), "b": ()}
            case AskSamples():
                return []
        return None


@pytest.mark.parametrize("failing", [Save, Move])
def test_what_was_not_asked_for_to_its_end_is_not_under_way(failing: type) -> None:
    coordinator = Coordinator(failing, Away("the map store is away"))
    coordinator.turn(0)

    with pytest.raises(Away):
        coordinator.turn(1_000)

    assert coordinator.outcomes() == ["given up: the map store is away"]
    assert coordinator.turns.rounds.under_way is None
    assert coordinator.turns.rounds.moves_total == 0


def test_what_is_refused_ends_and_the_round_goes_on() -> None:
    coordinator = Coordinator(Move, FailedPrecondition("slot 0 has changed hands meanwhile"))
    coordinator.turn(0)

    coordinator.turn(1_000)

    assert coordinator.outcomes() == ["slot 0 has changed hands meanwhile"]
    assert isinstance(coordinator.asked[-1], Judged)


def test_a_memory_that_cannot_be_written_down_keeps_nothing_from_being_carried_out() -> None:
    coordinator = Coordinator(Remember, Away("the map store is away"))
    coordinator.turn(0)

    with pytest.raises(Away):
        coordinator.turn(1_000)

    assert any(isinstance(ask, Move) for ask in coordinator.asked)
    assert coordinator.turns.rounds.under_way is not None
    assert coordinator.outcomes() == []


def of_two(objects: tuple[float, float], queries: tuple[float, float]) -> Coordinator:
    """Two evaluators with a slot each, under a scheme that asks for samples."""
    told = {}
    for slot, member in enumerate("ab"):
        row = MAP.slot_of_leaf == slot
        came, stand = np.full(1, objects[slot]), np.full(1, queries[slot])
        loads = LeafLoads(came, came, came, stand, came, stand)
        told[member] = ToldLoads(MAP.version, (slot,), IDS[row], loads)
    sampled = replace(STANDING, map=replace(MAP, scheme="qt-tree"), owners=("a", "b"))
    return Coordinator(told=told, standing=sampled)


def test_evaluators_are_asked_for_their_share_of_a_sample() -> None:
    coordinator = of_two((9_900.0, 100.0), (250.0, 750.0))
    coordinator.turn(0)

    coordinator.turn(1_000)

    (asked,) = (ask for ask in coordinator.asked if isinstance(ask, AskSamples))
    assert asked.sizes == {"a": (4_055, 1_024), "b": (64, 3_072)}


def test_no_sample_is_asked_for_by_which_nothing_is_decided() -> None:
    coordinator = of_two((0.6, 0.3), (250.0, 750.0))
    coordinator.turn(0)

    coordinator.turn(1_000)

    assert not any(isinstance(ask, AskSamples) for ask in coordinator.asked)


class Stream:
    """Two evaluators with a slot each, what comes to them, and what they count of it."""

    INTERVAL_MS, LOOK_MS = 8_000, 200

    def __init__(self, plan: Plan | None = None) -> None:
        self.now_ms = 0
        # Objects a millisecond of each.
        self.rates = np.array([10.0, 10.0])
        self.counted = np.zeros(2)
        self.owners, self.silent = ("a", "b"), ""
        # How long a look takes, and when there was one.
        self.takes_ms = 0
        self.looked_ms: list[int] = []
        self.ends_ms: list[int] = []
        self.judged: list[Judged] = []
        self.decided_ms: list[int] = []
        self.arrivals: list[float] = []
        self.plan = plan or Plan(Memory(), "PM", {0: "b"}, maximum_before=2.0, maximum_after=1.0)
        settings = RoundSettings(self.INTERVAL_MS, 5_000, 2, 100, 1.2)
        clock: Callable[[], int] = lambda: self.now_ms  # noqa: E731
        self.turns = Turns(settings, clock, clock, lambda _: self)
        self.run(0)

    name = "moving"

    def adjust(self, view: View, now_ms: int) -> Plan:
        self.arrivals.append(float(view.loads.arrivals.sum()))
        return replace(self.plan, memory=view.memory)

    def run(self, until_ms: int) -> None:
        """Goes on in steps of 50 ms."""
        while True:
            self._turn()
            if self.now_ms >= until_ms:
                return
            self.now_ms += 50
            self.counted += 50 * self.rates

    def _turn(self) -> None:
        standing = Standing(True, Phase.NONE, MAP, self.owners, ("a", "b"), False)
        turn = self.turns.turn(standing)
        try:
            ask = next(turn)
            while True:
                ask = turn.send(self._answer(ask))
        except StopIteration:
            pass

    def _answer(self, ask: Ask) -> Any:
        match ask:
            case Recall():
                return Memory()
            case AskLoads(_, ends_round):
                told = {}
                for slot, member in enumerate("ab"):
                    column = self.counted[slot : slot + 1].copy()
                    loads = LeafLoads(*[column] * 6)
                    row = MAP.slot_of_leaf == slot
                    told[member] = ToldLoads(MAP.version, (slot,), IDS[row], loads)
                if ends_round:
                    self.counted[:] = 0.0
                    self.ends_ms.append(self.now_ms)
                else:
                    self.looked_ms.append(self.now_ms)
                    self.now_ms += self.takes_ms
                return {one: each for one, each in told.items() if one != self.silent}
            case AskSlots():
                return {"a": (0,), "b": (1,)}
            case Move():
                self.decided_ms.append(self.now_ms)
            case Judged():
                self.judged.append(ask)
        return None


HOT = np.array([30.0, 10.0])


def test_what_is_even_is_judged_by_whole_rounds() -> None:
    stream = Stream()

    stream.run(24_000)

    assert stream.ends_ms == [8_000, 16_000, 24_000]
    assert stream.decided_ms == []


def test_what_is_uneven_but_not_urgent_is_judged_by_whole_rounds() -> None:
    stream = Stream()
    stream.rates = np.array([13.0, 10.0 - 3.0])

    stream.run(16_000)

    assert stream.ends_ms == [8_000, 16_000]
    assert stream.decided_ms == [16_000]


def test_a_round_that_is_urgent_from_its_begin_ends_at_the_first_look() -> None:
    stream = Stream()
    stream.rates = HOT

    stream.run(200)

    assert stream.decided_ms == [200]
    assert [one.measured.round_ms for one in stream.judged] == [200]
    # As of a whole round: SWARM compares what arrived in one with the one before.
    assert stream.arrivals == [LOOKS * 200 * 40.0]


def test_what_becomes_urgent_in_a_round_is_judged_by_what_came_since() -> None:
    stream = Stream()
    stream.run(650)
    stream.rates = HOT

    stream.run(1_000)

    # Seen at 800 ms, where counting begins anew; by 40 of the next 200 ms it would not be urgent.
    assert stream.ends_ms == [800, 1_000]
    assert stream.decided_ms == [1_000]
    assert stream.judged[0].measured.imbalance == pytest.approx(1.5)


def test_a_burst_between_two_looks_changes_nothing() -> None:
    stream = Stream()
    stream.run(450)
    stream.rates = HOT
    stream.run(600)
    stream.rates = np.array([10.0, 10.0])

    stream.run(9_000)

    assert stream.ends_ms == [600, 8_600]
    assert stream.decided_ms == []


def test_behind_a_change_counting_begins_anew_and_is_judged_again_at_the_first_look() -> None:
    stream = Stream()
    stream.rates = HOT
    stream.run(350)
    stream.owners = ("b", "b")
    stream.run(400)
    # It is over at 350 ms, when slot 0 has its new owner; the round from there on is a short one.
    stream.owners = ("a", "b")

    stream.run(650)

    assert stream.decided_ms[:1] == [200]
    assert len(stream.decided_ms) == 2


def test_what_cannot_be_relieved_is_not_tried_at_every_look() -> None:
    stream = Stream(Plan(Memory()))
    stream.rates = HOT

    stream.run(16_600)

    assert stream.ends_ms == [200, 8_200, 8_400, 16_400, 16_600]
    assert [one.state for one in stream.judged] == ["nothing to change"] * 5


def test_who_is_silent_at_a_look_keeps_the_round_going() -> None:
    stream = Stream()
    stream.rates, stream.silent = HOT, "b"
    stream.run(200)
    stream.silent = ""

    stream.run(800)

    # At 400 ms all that has come since 0 is seen at once.
    assert stream.ends_ms[:1] == stream.decided_ms[:1] == [400]


def test_few_objects_are_nothing_urgent() -> None:
    stream = Stream()
    stream.rates = HOT / 4_000

    stream.run(8_000)

    assert stream.ends_ms == [8_000]
    assert stream.decided_ms == []


def test_looks_that_take_long_are_rare() -> None:
    stream = Stream()
    stream.run(600)
    assert stream.looked_ms == [200, 400, 600]
    stream.takes_ms = 100

    stream.run(3_000)

    # The first of them is over at 900 ms, and nine times as long passes until the next one.
    assert stream.looked_ms[3:] == [800, 1_800, 2_800]


def test_where_few_objects_come_several_looks_are_one() -> None:
    stream = Stream()
    stream.rates = HOT / 100

    # 100 objects take 250 ms, and 400 until there is a look again.
    stream.run(400)

    assert stream.ends_ms == stream.decided_ms == [400]

    later = Stream()
    later.rates = np.array([0.2, 0.2])
    later.run(650)
    later.rates = HOT / 100
    # Looks at 400, 800 and 1,200 ms, at 160 objects each; judged by what comes behind the last.
    later.run(1_600)

    assert later.ends_ms == [1_200, 1_600]
    assert later.judged[0].measured.imbalance == pytest.approx(1.5)


def test_what_comes_and_goes_between_looks_does_not_keep_rounds_from_ending() -> None:
    stream = Stream()
    for _ in range(24):
        stream.run(stream.now_ms + 200)
        stream.rates = HOT
        stream.run(stream.now_ms + 200)
        stream.rates = np.array([10.0, 10.0])

    # Begun anew at 400 ms; that one lasts until its end, and is judged.
    assert stream.ends_ms[:2] == [400, 8_400]
    assert stream.judged[0].measured.round_ms == 8_000


def test_turns_that_come_seldom_judge_what_is_urgent_all_the_same() -> None:
    stream = Stream()
    stream.rates = HOT
    stream.now_ms, stream.counted = 550, 550 * HOT

    stream.run(550)

    assert stream.decided_ms == [550]
