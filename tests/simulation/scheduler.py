"""Virtual time: a queue of actions, each with its time; those of equal time in order of request."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random


class Scheduler:
    """Runs actions in the order of their times.

    Attributes:
        now_ms: virtual time since the begin of the world.
        dice: the only source of randomness in a world.
    """

    def __init__(self, seed: int) -> None:
        self.now_ms = 0.0
        self.dice = Random(seed)
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, time_ms: float, action: Callable[[], None]) -> None:
        """Runs an action at a time, or now if that is past."""
        self._count += 1
        due_ms = time_ms if time_ms > self.now_ms else self.now_ms
        heapq.heappush(self._queue, (due_ms, self._count, action))

    def after(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Runs an action after a delay."""
        self.at(self.now_ms + delay_ms, action)

    def between(self, low_ms: float, high_ms: float) -> float:
        """Returns a random duration."""
        return low_ms + (high_ms - low_ms) * self.dice.random()

    def run_until(self, time_ms: float) -> None:
        """Runs all actions that are due up to a time."""
        queue, pop = self._queue, heapq.heappop
        while queue and queue[0][0] <= time_ms:
            self.now_ms, _, action = pop(queue)
            action()
        self.now_ms = time_ms
