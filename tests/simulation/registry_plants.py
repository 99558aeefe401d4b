"""Bugs on purpose in the registry: what compaction left, what came in vain, what is over."""

from __future__ import annotations

from sirocco.protocol.effects import Effect
from sirocco.protocol.judging import Judging
from sirocco.protocol.messages import NO_REVISION, Change
from sirocco.protocol.restating import Restating
from sirocco.protocol.router import RouterMachine
from tests.simulation.plants import Plant


def _expects_none(self: Judging, change: Change, current: int) -> bool:
    return change.expected_revision == NO_REVISION != current and change.handle not in self._doubts


def _fit_where_removals_may_miss(
    self: Judging, change: Change, revision: int, current: int
) -> bool:
    if self.is_guessing and _expects_none(self, change, current):
        return self._missing.reaches_behind(self.restating.places.get(change.handle, current))
    return _fits(self, change, revision, current)


def _fit_as_if_nothing_missed(self: Judging, change: Change, revision: int, current: int) -> bool:
    return not _expects_none(self, change, current) and _fits(self, change, revision, current)


def _tick_as_if_awake(self: RouterMachine, now_ms: int) -> list[Effect]:
    self._ticked_ms, self._awake_ms = now_ms, 0
    return _tick(self, now_ms)


_fits = Judging._fits
_tick = RouterMachine._tick

REGISTRY_PLANTS = (
    Plant(
        "a change that expects none is in force where a removal may be missing",
        "gaps",
        ((Judging, "_fits", _fit_where_removals_may_miss),),
    ),
    Plant(
        "a change that expects none is void where a removal may be missing",
        "gaps",
        ((Judging, "_fits", _fit_as_if_nothing_missed),),
    ),
    Plant(
        "what is gone is not said to be behind a void change",
        "gaps",
        ((Restating, "deny", lambda self, changes, in_doubt: []),),
    ),
    Plant(
        "who was away removes at once what is over",
        "outage",
        ((RouterMachine, "_tick", _tick_as_if_awake),),
    ),
)
