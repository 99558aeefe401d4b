"""Hands over the slots of an evaluator that is asked to end, without a gap or a repeat.

    checkpoints of all slots ─▶ "I leave" in the map store ─▶ runs until others have them ─▶ ends

A failure on the way costs time only: other evaluators take over what is left as after a kill.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from sirocco.protocol.contract.effects import Event, SaveRequest
from sirocco.protocol.contract.messages import SLOTS
from sirocco.protocol.evaluator.machine import EvaluatorMachine


def handing_over(
    machine: EvaluatorMachine,
    look: Callable[[Callable[[], Any]], Any],
    post: Callable[[Event], None],
    can_take_over: Callable[[], bool],
    leave: Callable[[], None],
) -> Iterator[None]:
    """Yields each time the caller should wait a moment; ends when there is nothing to wait for.

    Args:
        machine: whose slots they are.
        look: calls a function between two steps of the machine and returns its result.
        post: hands the machine an event.
        can_take_over: whether there is a leader, and another evaluator stays.
        leave: writes to the map store that this process wants to hand over all that it owns.
    """
    held = machine.holdings.held
    if not held or not can_take_over():
        return
    wanted = look(partial(offsets, machine, tuple(number for _, number in list(held))))
    post(SaveRequest(tuple(wanted)))
    while look(partial(unsaved, machine, wanted)):
        yield
    leave()
    while held:
        yield
        if not can_take_over():
            return


def offsets(machine: EvaluatorMachine, slots: tuple[int, ...]) -> dict[int, int]:
    """Returns the offsets of slots that can be saved; to be called between two steps.

    What lacks its past objects is not waited for: the next owner begins as this one did.
    """
    return {
        number: slot.offset
        for number, slot in machine.slots.items()
        if number in slots and not slot.past.lacks_slices
    }


def unsaved(machine: EvaluatorMachine, wanted: dict[int, int]) -> list[int]:
    """Returns the slots that are still here and lack a declared checkpoint at their offset."""
    checkpoints = machine.holdings.view.checkpoints
    waiting = []
    for number, offset in wanted.items():
        newest = checkpoints.get((SLOTS, number))
        reached = 0 if newest is None else newest.offset
        if number in machine.slots and reached < offset:
            waiting.append(number)
    return waiting
