"""The time, which everything above the pure core takes as an argument."""

from __future__ import annotations

import logging
import time

from sirocco.telemetry.logging import event

logger = logging.getLogger(__name__)

# How far the wall clock of a running process may jump ahead. Time in the log never goes back: after
# a jump of a day all lifetimes of that day end, all windows are empty, and every step of the day is
# evaluated. Time servers correct a drift of seconds; a larger jump is somebody's error, which the
# process does not follow.
JUMP_MAX_MS = 3_600_000


class BoundedWall:
    """Wall clock that does not follow a large jump ahead of the monotonic clock.

    After such a jump it continues at the pace of the monotonic clock, until the wall clock is set
    back or the process is started again.

    Attributes:
        held_ms: by how much the wall clock was found to be ahead; 0 while it is followed.
    """

    def __init__(self) -> None:
        self.held_ms = 0
        self._ahead_ms = _wall_ms() - _elapsed_ms()

    def now_ms(self) -> int:
        """Returns epoch ms."""
        wall_ms, elapsed_ms = _wall_ms(), _elapsed_ms()
        jump_ms = wall_ms - elapsed_ms - self._ahead_ms
        if jump_ms > JUMP_MAX_MS:
            if not self.held_ms:
                logger.error(
                    "the clock jumped ahead; the process does not follow it",
                    extra=event("clock_jump", ms=jump_ms),
                )
            self.held_ms = jump_ms
            return elapsed_ms + self._ahead_ms
        # A clock that is set back and corrected later is where it was before.
        self._ahead_ms += max(0, jump_ms)
        self.held_ms = 0
        return wall_ms


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _elapsed_ms() -> int:
    """Returns ms since the machine started, with time in suspension where the system counts it."""
    return time.clock_gettime_ns(_ELAPSED) // 1_000_000


_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_WALL = BoundedWall()


def now_ms() -> int:
    """Returns the wall clock, epoch ms; see `BoundedWall`."""
    return _WALL.now_ms()


def held_ms() -> int:
    """Returns how far the wall clock is ahead of the process's time; 0 if it is followed."""
    return _WALL.held_ms


def monotonic_ms() -> int:
    """Returns a clock that never goes back, for intervals and deadlines within this process."""
    return time.monotonic_ns() // 1_000_000


class Steady:
    """Wall clock that never goes back, to measure how long ago something was.

    If the wall clock is set back, this one continues at half its pace until the wall clock has
    reached it. Otherwise everything that waits for a time would wait longer by as much.
    """

    def __init__(self) -> None:
        # The two clocks when the wall clock was last the later one.
        self._wall_ms, self._at_ms = now_ms(), monotonic_ms()

    def now_ms(self) -> int:
        """Returns epoch ms."""
        wall_ms, at_ms = now_ms(), monotonic_ms()
        slow_ms = self._wall_ms + (at_ms - self._at_ms) // 2
        if wall_ms < slow_ms:
            return slow_ms
        self._wall_ms, self._at_ms = wall_ms, at_ms
        return wall_ms
