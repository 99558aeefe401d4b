"""A clock that jumps ahead by hours is not followed; drift and corrections are."""

from __future__ import annotations

import time

import pytest

from sirocco.runtime.process import clock
from sirocco.runtime.process.clock import JUMP_MAX_MS, BoundedWall

DAY_MS = 86_400_000


class Clocks:
    """The two clocks of a machine, set by the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall_ms, self.elapsed_ms = 1_700_000_000_000, 5_000
        monkeypatch.setattr(time, "time_ns", lambda: self.wall_ms * 1_000_000)
        monkeypatch.setattr(time, "clock_gettime_ns", lambda _: self.elapsed_ms * 1_000_000)

    def pass_ms(self, ms: int) -> None:
        self.wall_ms += ms
        self.elapsed_ms += ms


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


def test_a_jump_of_a_day_is_not_followed_and_time_continues(clocks: Clocks) -> None:
    wall = BoundedWall()
    begin_ms = wall.now_ms()
    clocks.wall_ms += DAY_MS
    clocks.pass_ms(250)
    assert wall.now_ms() == begin_ms + 250
    assert wall.held_ms == DAY_MS
    # Corrected: the clock is followed.
    clocks.wall_ms -= DAY_MS
    clocks.pass_ms(100)
    assert wall.now_ms() == clocks.wall_ms == begin_ms + 350
    assert wall.held_ms == 0


def test_drift_corrections_and_a_suspended_machine_are_followed(clocks: Clocks) -> None:
    wall = BoundedWall()
    for _ in range(10):
        # Many small corrections may add up to more.
        clocks.wall_ms += JUMP_MAX_MS // 2
        assert wall.now_ms() == clocks.wall_ms
    clocks.pass_ms(3 * DAY_MS)
    assert wall.now_ms() == clocks.wall_ms
    # Set back by a day, noticed, and corrected.
    clocks.wall_ms -= DAY_MS
    assert wall.now_ms() == clocks.wall_ms
    clocks.wall_ms += DAY_MS
    assert wall.now_ms() == clocks.wall_ms
    assert wall.held_ms == 0


def test_the_process_goes_by_it(clocks: Clocks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "_WALL", BoundedWall())
    begin_ms = clock.now_ms()
    clocks.wall_ms += DAY_MS
    assert clock.now_ms() == begin_ms
    assert clock.held_ms() == DAY_MS
