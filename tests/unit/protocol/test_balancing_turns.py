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
from sirocco.protocol.rounds import RoundSettings, Standing
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
