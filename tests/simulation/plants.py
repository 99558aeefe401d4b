"""Bugs on purpose: the simulator has to find each of them, or it finds none of its kind."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from sirocco.protocol import router
from sirocco.protocol.effects import Effect, Loaded
from sirocco.protocol.evaluator import EvaluatorMachine
from sirocco.protocol.intake import IntakeRouter
from sirocco.protocol.merger import MergerMachine
from sirocco.protocol.messages import Installed, Taken
from sirocco.protocol.positions import Intervals, Reached
from sirocco.protocol.registry import Registry
from sirocco.protocol.sessions import SessionTable
from sirocco.protocol.slot import Changed, Slot
from tests.simulation.node import SOUND, Planted


@dataclass(frozen=True, slots=True)
class Plant:
    """One planted bug.

    Attributes:
        name: what is wrong.
        profile: the faults that bring it to light.
        patches: (class or module, name, what stands there instead).
        shell: bugs of the shell.
    """

    name: str
    profile: str
    patches: tuple[tuple[object, str, Any], ...] = ()
    shell: Planted = SOUND

    def planted(self) -> ExitStack:
        """While it is open the bug is there."""
        stack = ExitStack()
        for owner, name, wrong in self.patches:
            stack.enter_context(patch.object(owner, name, wrong))
        return stack


def _accept_with_gaps(self: Reached, intervals: Intervals) -> NDArray[np.int64]:
    filled = np.array(
        [
            min(begin, self.positions.get(source, 0))
            for source, begin in zip(
                intervals.sources.tolist(), intervals.begins.tolist(), strict=True
            )
        ],
        np.int64,
    )
    return _accept(self, Intervals(intervals.sources, filled, intervals.ends, intervals.times_ms))


def _accept_all(self: Reached, intervals: Intervals) -> NDArray[np.int64]:
    fresh_from = _accept(self, intervals)
    return np.minimum(fresh_from, intervals.begins)


def _take_with_gaps(self: SessionTable, record: Taken, received_ms: int) -> int:
    state = self.state()
    known = dict(zip(state["sessions"].tolist(), state["numbers"].tolist(), strict=True))
    last = known.get(record.session, record.acknowledged_to)
    if record.first_number > last + 1:
        fill = Taken(
            record.session,
            last + 1,
            record.first_number - last - 1,
            0,
            record.received_ms,
            record.objects.slice(0, 0),
            np.empty(0, np.uint32),
        )
        _take(self, fill, received_ms)
    return _take(self, record, received_ms)


def _take_repeats(self: SessionTable, record: Taken, received_ms: int) -> int:
    return min(0, _take(self, record, received_ms))


def _load_without_positions(self: MergerMachine, event: Loaded, now_ms: int) -> list[Effect]:
    state = None
    if event.state is not None:
        nothing = np.empty(0, np.int64)
        state = {**event.state, "slots": nothing, "positions": nothing, "times_ms": nothing}
    loaded = Loaded(event.topic, event.partition, event.epoch, event.offset, state)
    return _merger_loaded(self, loaded, now_ms)


def _install_all(self: Slot, offset: int, message: Installed, floor: int, changed: Changed) -> None:
    for family, rows in self.standing.names.find(message.names.handles)[0]:
        self.standing.end(family, rows[rows >= 0], offset)
    removed, self.removed = self.removed, {}
    _slot_install(self, offset, message, 0, changed)
    self.removed = removed


def _remove_without_memory(self: Slot, offset: int, message: Installed, changed: Changed) -> None:
    _slot_remove(self, offset, message, changed)
    self.removed.clear()


def _any_change(self: Registry, changes: list[Any]) -> list[Any]:
    return changes


def _from_memory(self: Registry, asked: list[Any], *, is_current: bool = False) -> list[Effect]:
    return _consider(self, asked, is_current=True)


_consider = Registry._consider
_accept = Reached.accept
_take = SessionTable.take
_merger_loaded = MergerMachine._loaded
_slot_install = Slot._install_queries
_slot_remove = Slot._remove_queries

PLANTS = (
    Plant(
        "an interval with a gap before it is accepted",
        "refuse",
        ((Reached, "accept", _accept_with_gaps),),
    ),
    Plant("repeats are not trimmed", "zombie", ((Reached, "accept", _accept_all),)),
    Plant(
        "a router's checkpoint is not preceded by marks",
        "kill-router",
        ((IntakeRouter, "marks", lambda self, partitions: []),),
    ),
    Plant(
        "an evaluator's checkpoint is not preceded by marks",
        "kill-evaluator",
        ((EvaluatorMachine, "_mark", lambda self, *args: []),),
    ),
    Plant(
        "numbers of a session are taken behind a gap",
        "refuse",
        ((SessionTable, "take", _take_with_gaps),),
    ),
    Plant(
        "resent numbers of a session are taken again",
        "zombie",
        ((SessionTable, "take", _take_repeats),),
    ),
    Plant(
        "a merger forgets positions at a take-over",
        "kill-merger",
        ((MergerMachine, "_loaded", _load_without_positions),),
    ),
    Plant(
        "a merger does not fence its predecessor",
        "fenced",
        (),
        Planted(never_fences=True),
    ),
    Plant(
        "a slot ignores the revisions of queries",
        "moving",
        ((Slot, "_install_queries", _install_all),),
    ),
    Plant(
        "a slot forgets removals at once",
        "moving",
        ((Slot, "_remove_queries", _remove_without_memory),),
    ),
    Plant(
        "changes of queries are valid whatever they replace",
        "moving",
        ((Registry, "_valid", _any_change),),
    ),
    Plant(
        "what is in force is not said again behind a void change",
        "storm",
        ((Registry, "restate", lambda self, offset, change: []),),
    ),
    Plant(
        "an owner of queries answers from memory",
        "kill-router",
        ((Registry, "_consider", _from_memory),),
    ),
    Plant(
        "an ended query is removed at once",
        "slow",
        ((router, "EXPIRY_GRACE_MS", 0),),
    ),
    Plant(
        "a merger that was fenced upon an old grant waits for ever",
        "fenced",
        ((MergerMachine, "_fenced", lambda self, event: []),),
    ),
    Plant(
        "checkpoints and answers do not wait for appends",
        "restart",
        (),
        Planted(skips_barriers=True),
    ),
    Plant(
        "objects are acknowledged before the log has them",
        "kill-router",
        (),
        Planted(acknowledges_early=True),
    ),
)
