"""Balancing that depends on the time of day continues if the clock is set back."""

from __future__ import annotations

import time
from typing import Any

import pytest

from sirocco.protocol.coordinator.round_settings import RoundSettings
from sirocco.schemes.balance.base.view import Memory, Plan
from sirocco.services.coordinator.balance_rounds import Balancing
from tests.support.waiting import eventually

SETTINGS = RoundSettings(interval_ms=10, cooldown_ms=20, rounds=1, objects_min=1, imbalance_min=1.1)
MOVE = Plan(memory=Memory(), reason="PM", moves={0: "b"}, maximum_before=4.0, maximum_after=2.0)
WAIT_S = 120.0


def test_a_clock_that_is_set_back_does_not_lengthen_the_pause_after_a_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wall_ns, set_back_ns = time.time_ns, [0]
    monkeypatch.setattr(time, "time_ns", lambda: wall_ns() - set_back_ns[0])
    nobody: Any = None
    balancing = Balancing("c", SETTINGS, *[nobody] * 6)
    rounds, clock = balancing.rounds, balancing._turns._wall_ms

    def decides() -> bool:
        return rounds.decide(MOVE, ("a", "b"), 1_000.0, 2.0, clock())[0] is not None

    assert decides()
    rounds.ended(clock())
    set_back_ns[0] = 3_600_000_000_000
    eventually(decides)
