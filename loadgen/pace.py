"""Sending at a rate."""

from __future__ import annotations

import time
from collections.abc import Callable

# How far sending may lag and still catch up at full speed. Without a bound, a stall of a minute
# would be followed by a burst that measures only itself.
_LAG_S_MAX = 1.0


class Pace:
    """Releases items at a steady rate.

    Args:
        per_s: Items a second; None: no limit.
        clock_s: The time, seconds.
        sleep: Waits for some seconds.
    """

    def __init__(
        self,
        per_s: float | None,
        *,
        clock_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._per_s = per_s
        self._clock_s = clock_s
        self._sleep = sleep
        self._due_s = clock_s()

    def wait(self, count: int) -> float:
        """Waits until the next `count` items are due; returns when they were due.

        Durations counted from then include delays of the sender (coordinated omission).
        """
        now_s = self._clock_s()
        if self._per_s is None:
            return now_s
        due_s = max(self._due_s, now_s - _LAG_S_MAX)
        if due_s > now_s:
            self._sleep(due_s - now_s)
        self._due_s = due_s + count / self._per_s
        return due_s

    def batch_rows(self, most: int) -> int:
        """Returns how many items to send at a time for smooth sending: some 20 ms worth."""
        return most if self._per_s is None else max(1, min(most, int(self._per_s / 50)))
