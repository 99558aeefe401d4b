"""Actions that have to wait until the log has all that was appended before them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable


class Barriers:
    """Numbers appends and runs actions once all earlier appends are acknowledged.

    Acknowledgements arrive in order within a Kafka partition but not between them, and from
    whichever thread polls the producer; actions run in the thread that calls `run_due`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0
        self._low = 0
        self._done: set[int] = set()
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def unacknowledged(self) -> int:
        """Number of appends that the log has not confirmed."""
        return self._next - self._low

    def begin(self) -> int:
        """Numbers an append that is about to be made."""
        with self._lock:
            number = self._next
            self._next += 1
        return number

    def end(self, number: int) -> None:
        """Notes that the log has this append."""
        with self._lock:
            self._done.add(number)
            while self._low in self._done:
                self._done.remove(self._low)
                self._low += 1

    def after_all(self, action: Callable[[], None]) -> None:
        """Runs the action once everything numbered so far is acknowledged."""
        self._waiting.append((self._next, action))

    def run_due(self) -> None:
        """Runs the actions that are due, in order."""
        while self._waiting and self._waiting[0][0] <= self._low:
            self._waiting.popleft()[1]()
