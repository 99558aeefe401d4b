"""Planted bugs in the execution of plans, and in evaluators that join and leave."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from sirocco.protocol.contract.effects import Effect, MembersSeen, SaveCheckpoint
from sirocco.protocol.coordinator.machine import CoordinatorMachine
from sirocco.protocol.evaluator.machine import EvaluatorMachine
from tests.simulation import services
from tests.simulation.plants import Plant


def _no_member_leaves(self: CoordinatorMachine, event: MembersSeen, now_ms: int) -> list[Effect]:
    staying = tuple(replace(member, is_leaving=False) for member in event.members)
    return _members(self, MembersSeen(staying, event.leading, event.departed), now_ms)


def _end_at_once(
    machine: EvaluatorMachine,
    look: Any,
    send: Any,
    can_take_over: Callable[[], bool],
    leave: Callable[[], None],
) -> Iterator[None]:
    is_leaving = [False]

    def leave_and_end() -> None:
        leave()
        is_leaving[0] = True

    for _ in _handing_over(machine, look, send, can_take_over, leave_and_end):
        if is_leaving[0]:
            return
        yield


def _save_in_silence(self: EvaluatorMachine, numbers: tuple[int, ...], now_ms: int) -> list[Effect]:
    effects = _save_some(self, numbers, now_ms)
    return [effect for effect in effects if isinstance(effect, SaveCheckpoint)]


_members = CoordinatorMachine._members
_handing_over = services.handing_over
_save_some = EvaluatorMachine._save_some

BALANCE_PLANTS = (
    Plant(
        "a leaving evaluator is given slots like the others",
        "scaling",
        ((CoordinatorMachine, "_members", _no_member_leaves),),
    ),
    Plant(
        "an evaluator that has announced its end ends at once",
        "scaling",
        ((services, "handing_over", _end_at_once),),
    ),
    Plant(
        "no marks precede the checkpoint of a slot that moves",
        "plans",
        ((EvaluatorMachine, "_save_some", _save_in_silence),),
    ),
)
