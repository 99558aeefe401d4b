"""The requests of turns, and the fate of a decision when some of it fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sirocco.model.errors import FailedPrecondition
from sirocco.protocol.contract.load_messages import ArrivalReport, LoadReport
from sirocco.protocol.contract.map_change import ChangePhase
from sirocco.protocol.coordinator.balance_requests import (
    Ask,
    AskArrivals,
    AskLoads,
    AskSamples,
    AskSlots,
    Ended,
    Move,
    ReadMemory,
    RoundResult,
    Save,
    SaveMemory,
)
from sirocco.protocol.coordinator.balance_rounds import ClusterState
from sirocco.protocol.coordinator.balance_turns import MET_LOOKS, Turns
from sirocco.protocol.coordinator.round_settings import LOOKS, RoundSettings
from sirocco.schemes.balance.base.view import LeafLoads, Memory, Plan, View
from tests.support.values import uniform_map

MAP = uniform_map(2, 2)
# Slots 0 and 1 have a leaf each.
IDS = np.array([leaf.id for leaf in MAP.leaves], np.int32)
REPORTS = {"a": LoadReport(MAP.version, (0, 1), IDS, LeafLoads(*[np.full(2, 9.0)] * 6))}
STANDING = ClusterState(
    leading=True,
    phase=ChangePhase.NONE,
    map=MAP,
    owners=("a", "a"),
    evaluators=("a", "b"),
    is_granting=False,
    routers=("r",),
)


class Away(Exception):  # noqa: N818 -- as the stores' own
    """The map store is unreachable."""


class Moving:
    """Moves one slot in every round."""

    name = "moving"

    def adjust(self, view: View, now_ms: int) -> Plan:
        return Plan(
            memory=view.memory, reason="PM", moves={0: "b"}, maximum_before=2.0, maximum_after=1.0
        )


class Coordinator:
    """Answers the requests of turns; one of them fails."""

    def __init__(
        self,
        failing: type | None = None,
        error: Exception | None = None,
        reports: dict[str, LoadReport] | None = None,
        standing: ClusterState = STANDING,
    ) -> None:
        self.now_ms = 0
        self.reports, self.standing = reports or REPORTS, standing
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
            case ReadMemory():
                return Memory()
            case AskLoads():
                return self.reports
            case AskArrivals():
                return {}
            case AskSlots():
                return {"a": (0, 1), "b": ()}
            case AskSamples():
                return []
        return None


@pytest.mark.parametrize("failing", [Save, Move])
def test_an_unfinished_request_is_not_under_way(failing: type) -> None:
    coordinator = Coordinator(failing, Away("the map store is away"))
    coordinator.turn(0)

    with pytest.raises(Away):
        coordinator.turn(1_000)

    assert coordinator.outcomes() == ["given up: the map store is away"]
    assert coordinator.turns.rounds.under_way is None
    assert coordinator.turns.rounds.moves_total == 0


def test_what_is_refused_ends_and_the_round_continues() -> None:
    coordinator = Coordinator(Move, FailedPrecondition("slot 0 has changed hands meanwhile"))
    coordinator.turn(0)

    coordinator.turn(1_000)

    assert coordinator.outcomes() == ["slot 0 has changed hands meanwhile"]
    assert isinstance(coordinator.asked[-1], RoundResult)


def test_a_memory_that_cannot_be_written_down_keeps_nothing_from_being_carried_out() -> None:
    coordinator = Coordinator(SaveMemory, Away("the map store is away"))
    coordinator.turn(0)

    with pytest.raises(Away):
        coordinator.turn(1_000)

    assert any(isinstance(ask, Move) for ask in coordinator.asked)
    assert coordinator.turns.rounds.under_way is not None
    assert coordinator.outcomes() == []


def of_two(objects: tuple[float, float], queries: tuple[float, float]) -> Coordinator:
    """Returns two evaluators with a slot each, under a scheme that needs samples."""
    reports = {}
    for slot, member in enumerate("ab"):
        row = MAP.slot_of_leaf == slot
        came, stand = np.full(1, objects[slot]), np.full(1, queries[slot])
        loads = LeafLoads(came, came, came, stand, came, stand)
        reports[member] = LoadReport(MAP.version, (slot,), IDS[row], loads)
    sampled = replace(STANDING, map=replace(MAP, scheme="qt-tree"), owners=("a", "b"))
    return Coordinator(reports=reports, standing=sampled)


def test_each_evaluator_is_requested_its_share_of_a_sample() -> None:
    coordinator = of_two((9_900.0, 100.0), (250.0, 750.0))
    coordinator.turn(0)

    coordinator.turn(1_000)

    (asked,) = (ask for ask in coordinator.asked if isinstance(ask, AskSamples))
    assert asked.sizes == {"a": (4_055, 1_024), "b": (64, 3_072)}


def test_no_sample_is_requested_that_decides_nothing() -> None:
    coordinator = of_two((0.6, 0.3), (250.0, 750.0))
    coordinator.turn(0)

    coordinator.turn(1_000)

    assert not any(isinstance(ask, AskSamples) for ask in coordinator.asked)


class Stream:
    """Two evaluators with a slot each, the objects that arrive, and those that they count."""

    INTERVAL_MS, LOOK_MS, STEP_MS = 8_000, 40, 10

    def __init__(self, plan: Plan | None = None) -> None:
        self.now_ms = 0
        # Objects a millisecond of each, and the greatest rate that it can process.
        self.rates, self.most = np.array([10.0, 10.0]), np.inf
        # The other, earlier work that they still have to do.
        self.waited = np.zeros(2)
        # The queries that an object of each meets, in units of its handling.
        self.meets = np.ones(2)
        self.counted, self.met, self.sent = np.zeros(2), np.zeros(2), np.zeros(2)
        self.owners, self.silent, self.version = ("a", "b"), "", MAP.version
        # The duration of a look, and when looks happened; when evaluators were asked in the round.
        self.takes_ms = 0
        self.looked_ms: list[int] = []
        self.counted_ms: list[int] = []
        self.ends_ms: list[int] = []
        self.decided: list[RoundResult] = []
        self.decided_ms: list[int] = []
        self.arrivals: list[float] = []
        self.plan = plan or Plan(
            memory=Memory(), reason="PM", moves={0: "b"}, maximum_before=2.0, maximum_after=1.0
        )
        settings = RoundSettings(self.INTERVAL_MS, 5_000, 2, 100, 1.2)
        clock: Callable[[], int] = lambda: self.now_ms  # noqa: E731
        self.turns = Turns(settings, clock, clock, lambda _: self)
        self.run(0)

    name = "moving"

    def adjust(self, view: View, now_ms: int) -> Plan:
        self.arrivals.append(float(view.loads.arrivals.sum()))
        return replace(self.plan, memory=view.memory)

    def run(self, until_ms: int) -> None:
        """Advances in steps."""
        while True:
            self._turn()
            if self.now_ms >= until_ms:
                return
            self.forget_started(self.STEP_MS)

    def forget_started(self, step_ms: int) -> None:
        self.now_ms += step_ms
        done = step_ms * (np.minimum(self.rates, self.most) + self.waited)
        self.sent += step_ms * self.rates
        self.counted += done
        self.met += done * self.meets

    def _turn(self) -> None:
        standing = ClusterState(
            leading=True,
            phase=ChangePhase.NONE,
            map=MAP,
            owners=self.owners,
            evaluators=("a", "b"),
            is_granting=False,
            routers=("r",),
        )
        turn = self.turns.turn(standing)
        try:
            ask = next(turn)
            while True:
                ask = turn.send(self._answer(ask))
        except StopIteration:
            pass

    def _answer(self, ask: Ask) -> Any:
        match ask:
            case ReadMemory():
                return Memory()
            case AskArrivals(routers):
                self.looked_ms.append(self.now_ms)
                self.now_ms += self.takes_ms
                reported = ArrivalReport(self.version, IDS, self.sent[MAP.slot_of_leaf].copy())
                return {one: reported for one in routers if one != self.silent}
            case AskLoads(_, ends_round):
                answers = self._load_reports()
                if ends_round:
                    self.counted[:] = self.met[:] = 0.0
                    self.ends_ms.append(self.now_ms)
                else:
                    self.counted_ms.append(self.now_ms)
                return {one: each for one, each in answers.items() if one != self.silent}
            case AskSlots():
                return {"a": (0,), "b": (1,)}
            case Move():
                self.decided_ms.append(self.now_ms)
            case RoundResult():
                self.decided.append(ask)
        return None

    def _load_reports(self) -> dict[str, LoadReport]:
        reported = {}
        for slot, member in enumerate("ab"):
            objects, met = (each[slot : slot + 1].copy() for each in (self.counted, self.met))
            loads = LeafLoads(objects, met, objects, objects, objects, objects)
            row = MAP.slot_of_leaf == slot
            reported[member] = LoadReport(MAP.version, (slot,), IDS[row], loads)
        return reported


HOT = np.array([30.0, 10.0])


def test_even_load_is_assessed_by_whole_rounds() -> None:
    stream = Stream()

    stream.run(24_000)

    assert stream.ends_ms == [8_000, 16_000, 24_000]
    assert stream.decided_ms == []


def test_uneven_load_that_is_not_urgent_is_assessed_by_whole_rounds() -> None:
    stream = Stream()
    stream.rates = np.array([13.0, 10.0 - 3.0])

    stream.run(16_000)

    assert stream.ends_ms == [8_000, 16_000]
    assert stream.decided_ms == [16_000]


def test_a_round_that_is_urgent_from_its_begin_ends_at_the_first_look() -> None:
    stream = Stream()
    stream.rates = HOT

    stream.run(40)

    assert stream.decided_ms == [40]
    assert [one.measured.round_ms for one in stream.decided] == [40]
    # As of a whole round: SWARM compares the arrivals of one round with those of the one before.
    assert stream.arrivals == [LOOKS * 40 * 40.0]


def test_load_that_becomes_urgent_in_a_round_is_assessed_by_later_objects() -> None:
    stream = Stream()
    stream.run(130)
    stream.rates = HOT

    stream.run(200)

    # Seen at 160 ms, where counting restarts; with 30 of 160 ms it would not be urgent.
    assert stream.ends_ms == [160, 200]
    assert stream.decided_ms == [200]
    assert stream.decided[0].measured.imbalance == pytest.approx(1.5)


def test_a_burst_between_two_looks_changes_nothing() -> None:
    stream = Stream()
    stream.run(90)
    stream.rates = HOT
    stream.run(120)
    stream.rates = np.array([10.0, 10.0])

    stream.run(9_000)

    assert stream.ends_ms == [120, 8_120]
    assert stream.decided_ms == []


def test_after_a_change_counting_restarts_and_is_assessed_at_the_first_look() -> None:
    stream = Stream()
    stream.rates = HOT
    stream.run(70)
    stream.owners = ("b", "b")
    stream.run(80)
    # It is over at 70 ms, when slot 0 has its new owner; the round from then on is a short one.
    stream.owners = ("a", "b")

    stream.run(130)

    assert stream.decided_ms[:1] == [40]
    assert len(stream.decided_ms) == 2


def test_what_cannot_be_relieved_is_not_tried_at_every_look() -> None:
    stream = Stream(Plan(memory=Memory()))
    stream.rates = HOT

    stream.run(16_120)

    assert stream.ends_ms == [40, 8_040, 8_080, 16_080, 16_120]
    assert [one.state for one in stream.decided] == ["nothing to change"] * 5


@pytest.mark.parametrize("silent", ["b", "r"])
def test_a_member_without_an_answer_keeps_the_round_open(silent: str) -> None:
    stream = Stream()
    stream.rates, stream.silent = HOT, silent
    stream.run(40)
    stream.silent = ""

    stream.run(240)

    # There is no look for five times as long; then all arrivals since 0 are seen at once.
    assert stream.ends_ms[:1] == stream.decided_ms[:1] == [240]


def test_few_objects_are_nothing_urgent() -> None:
    stream = Stream()
    stream.rates = HOT / 4_000

    stream.run(8_000)

    assert stream.ends_ms == [8_000]
    assert stream.decided_ms == []


def test_looks_that_take_long_are_rare() -> None:
    stream = Stream()
    stream.run(120)
    assert stream.looked_ms == [0, 40, 80, 120]
    stream.takes_ms = 20

    stream.run(600)

    # The first of them is over at 180 ms, and nine times as long passes until the next one.
    assert stream.looked_ms[4:] == [160, 360, 560]


def test_where_few_objects_come_several_looks_are_one() -> None:
    stream = Stream()
    stream.rates = HOT / 20

    # 100 objects take 50 ms; after 40 there were fewer, and the next look is five times as late.
    stream.run(240)

    assert stream.looked_ms == [0, 40, 240, 240]
    assert stream.ends_ms == stream.decided_ms == [240]

    later = Stream()
    later.rates = np.array([1.0, 1.0])
    later.run(250)
    later.rates = HOT / 20
    # Looks at 40, 240, 280 and 480 ms; judged by the arrivals after the last.
    later.run(720)

    assert later.ends_ms == [480, 720]
    assert later.decided[0].measured.imbalance == pytest.approx(1.5)


def test_what_comes_and_goes_between_looks_does_not_keep_rounds_from_ending() -> None:
    stream = Stream()
    for _ in range(120):
        stream.run(stream.now_ms + 40)
        stream.rates = HOT
        stream.run(stream.now_ms + 40)
        stream.rates = np.array([10.0, 10.0])

    # Restarted at 80 ms; that one lasts until its end, and is judged.
    assert stream.ends_ms[:2] == [80, 8_080]
    assert stream.decided[0].measured.round_ms == 8_000


def test_rare_turns_still_assess_urgent_load() -> None:
    stream = Stream()
    stream.rates = HOT
    stream.forget_started(550)

    stream.run(550)

    assert stream.decided_ms == [550]


def test_loads_are_what_came_not_what_an_evaluator_that_has_too_much_could_do() -> None:
    stream = Stream()
    stream.rates, stream.most = np.array([90.0, 10.0]), 30.0

    stream.run(40)

    (decided,) = stream.decided
    # By the work done it would be 1.5.
    assert decided.measured.imbalance == pytest.approx(1.8)
    assert decided.measured.loads.objects.tolist() == [3_600.0, 400.0]
    assert decided.measured.loads.met.tolist() == [3_600.0, 400.0]


def test_what_waited_and_is_worked_off_is_no_load() -> None:
    stream = Stream()
    stream.rates, stream.most = np.array([90.0, 10.0]), 30.0
    stream.run(30)
    stream.rates = np.array([10.0, 10.0])

    stream.waited = np.array([20.0, 0.0])
    stream.run(8_050)

    # By the work done it would be 1.5.
    assert stream.decided[-1].measured.round_ms == 8_000
    assert stream.decided[-1].measured.imbalance == pytest.approx(1.0)


def test_samples_are_requested_at_intervals_and_for_every_map() -> None:
    stream = Stream()
    stream.run(40 + MET_LOOKS * 40)
    assert stream.counted_ms == [40, 40 + MET_LOOKS * 40]

    # No more objects arrive there, but those of slot 0 begin to meet ten times as many.
    stream.meets = np.array([10.0, 1.0])
    stream.run(1_000)

    assert stream.decided_ms
    # Handling costs as much as an object's matches on average.
    assert stream.decided[0].measured.imbalance == pytest.approx(15.5 / 11)


def test_routers_with_another_map_report_nothing() -> None:
    stream = Stream()
    stream.rates, stream.version = HOT, MAP.version + 1

    stream.run(8_000)

    # Whole rounds are judged by the work that evaluators did.
    assert [one.measured.round_ms for one in stream.decided] == [8_000]
    assert stream.decided[0].measured.imbalance == pytest.approx(1.5)


def test_many_queries_to_copy_lengthen_the_rounds_before_a_change() -> None:
    stream = Stream(
        Plan(memory=Memory(), reason="split", map=replace(MAP, version=MAP.version + 1))
    )
    stream.rates = HOT
    stream.run(8_040)
    (decision,) = stream.turns.rounds.decisions
    assert decision.outcome == "under way"

    stream.turns.rounds.ended(4_000 + decision.at_ms)

    # A twentieth of the four seconds that it took.
    assert stream.turns.rounds.look_ms == 200
