"""Virtual time: a queue of actions, each at its time; equal times in the order of asking."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random


class Scheduler:
    """Runs actions in the order of their times.

    Attributes:
        now_ms: virtual time since the begin of the world.
        dice: the only source of chance in a world.
    """

    def __init__(self, seed: int) -> None:
        self.now_ms = 0.0
        self.dice = Random(seed)
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, time_ms: float, action: Callable[[], None]) -> None:
        """Runs an action at a time, or now if that is past."""
        self._count += 1
        heapq.heappush(self._queue, (max(time_ms, self.now_ms), self._count, action))

    def after(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Runs an action after a delay."""
        self.at(self.now_ms + delay_ms, action)

    def between(self, low_ms: float, high_ms: float) -> float:
        """A random duration."""
        return self.dice.uniform(low_ms, high_ms)

    def run_until(self, time_ms: float) -> None:
        """Runs all that is due up to a time."""
        while self._queue and self._queue[0][0] <= time_ms:
            self.now_ms, _, action = heapq.heappop(self._queue)
            action()
        self.now_ms = time_ms
