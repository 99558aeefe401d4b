"""Planted bugs in ownership, in time, and in endless waits."""

from __future__ import annotations

from typing import Any

from sirocco.protocol.contract.effects import Effect, Follow, Unfollow
from sirocco.protocol.contract.partition_ownership import Holdings
from sirocco.protocol.contract.positions import NO_TIME_MS, Reached
from sirocco.protocol.evaluator.machine import EvaluatorMachine
from sirocco.protocol.router.objects.intake_partition import IntakeRecord, Part, Source
from tests.simulation.plants import Plant

# A source whose time lags by more counts as a source without an owner.
LAG_MS = 3_000


def _let_nothing_go(self: Holdings) -> tuple[list[Effect], list[tuple[str, int]]]:
    held = dict(self.held)
    effects, lost = _reconcile(self)
    self.held.update({key: held[key] for key in lost})
    return [effect for effect in effects if not isinstance(effect, Unfollow)], []


def _time_of_known_sources(self: Reached, sources: int) -> int:
    return min(self.times_ms.values(), default=NO_TIME_MS)


def _time_of_the_live(self: Reached, sources: int) -> int:
    times_ms = [self.times_ms.get(source, NO_TIME_MS) for source in range(sources)]
    return min(time_ms for time_ms in times_ms if time_ms >= max(times_ms) - LAG_MS)


def _take_by_its_own_clock(
    self: Source, offset: int, taken: IntakeRecord, *, event_time: bool
) -> Part | None:
    self.received_ms = self.arrival_ms = NO_TIME_MS
    return _source_take(self, offset, taken, event_time=event_time)


def _source_state_without_map(self: Source) -> dict[str, Any]:
    return {name: column for name, column in _source_state(self).items() if name != "map_version"}


def _go_on_unread(self: EvaluatorMachine) -> list[Effect]:
    return [effect for effect in _go_on(self) if not isinstance(effect, Follow)]


_reconcile = Holdings._reconcile
_source_take = Source.take
_source_state = Source.state
_go_on = EvaluatorMachine._continue_steps

# Found within seconds.
RULE_PLANTS = (
    Plant(
        "a router forgets its map at a take-over",
        "changing-kills",
        ((Source, "state", _source_state_without_map),),
        first_seed=1,
    ),
    Plant(
        "a process continues with a Kafka partition that it has lost",
        "balancing",
        ((Holdings, "_reconcile", _let_nothing_go),),
    ),
    Plant(
        "a slot's time is that of the sources seen so far",
        "changing-kills",
        ((Reached, "time_ms", _time_of_known_sources),),
        first_seed=33,
    ),
    Plant(
        "a slot's time ignores sources that lag",
        "kill-router",
        ((Reached, "time_ms", _time_of_the_live),),
        first_seed=13,
    ),
    Plant(
        "objects arrive at the time of their router's clock",
        "storm",
        ((Source, "take", _take_by_its_own_clock),),
        first_seed=53,
    ),
    Plant(
        "a slot that was deferred during its steps is read no more",
        "ticks",
        ((EvaluatorMachine, "_continue_steps", _go_on_unread),),
        first_seed=34,
    ),
)
