"""The time, as everything above the pure core takes it: an argument."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Wall clock, epoch ms."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """A clock that never goes back, for intervals and deadlines within this process."""
    return time.monotonic_ns() // 1_000_000


class Steady:
    """Wall clock for whoever measures by it how long something is ago: it never goes back.

    Where the wall clock is set back, this one goes on at half its pace until that has come to it.
    Whoever waits for a time would else wait longer by as much as the clock was set back.
    """

    def __init__(self) -> None:
        # Where the two clocks stood when the wall clock was last the later one.
        self._wall_ms, self._at_ms = now_ms(), monotonic_ms()

    def now_ms(self) -> int:
        """Epoch ms."""
        wall_ms, at_ms = now_ms(), monotonic_ms()
        slow_ms = self._wall_ms + (at_ms - self._at_ms) // 2
        if wall_ms < slow_ms:
            return slow_ms
        self._wall_ms, self._at_ms = wall_ms, at_ms
        return wall_ms
