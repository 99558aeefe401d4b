"""Tells of bad lines of a file: in the order of lines, and equal ones only so often."""

from __future__ import annotations

import heapq
import threading
from collections import Counter
from collections.abc import Callable

from sirocco.cli.terminal.terminal import note

# Equal errors that are told one by one; a file of a million lines without `lon` has one error.
EQUAL_MAX = 10

# Different errors that are counted; beyond, each is told.
_DIFFERENT_MAX = 10_000


class BadLines:
    """Tells of bad lines on standard error. Safe to share between threads.

    Attributes:
        count: How many lines were bad.
    """

    def __init__(self, file: str, tell: Callable[[str], None] = note) -> None:
        """Begins without any; `file` is the name in errors."""
        self.count = 0
        self._file = file
        self._tell = tell
        self._equal: Counter[str] = Counter()
        self._waiting: list[tuple[int, str]] = []
        self._lock = threading.Lock()

    @property
    def waiting(self) -> int:
        """How many bad lines are not told yet."""
        with self._lock:
            return len(self._waiting)

    def add(self, line: int, error: object) -> None:
        """Takes a bad line, which is told when `settle` comes as far."""
        with self._lock:
            self.count += 1
            heapq.heappush(self._waiting, (line, str(error)))

    def settle(self, line: int | None = None) -> None:
        """Tells all bad lines up to one, in order: all before it are known. None: all lines."""
        with self._lock:
            while self._waiting and (line is None or self._waiting[0][0] <= line):
                self._tell_one(*heapq.heappop(self._waiting))

    def finish(self) -> None:
        """Tells the rest, and how many equal ones were not told."""
        self.settle()
        for error, times in self._equal.items():
            if times > EQUAL_MAX:
                more = times - EQUAL_MAX
                lines = "1 more line" if more == 1 else f"{more:,} more lines"
                self._tell(f"{self._file}: {lines}: {error}")

    def _tell_one(self, line: int, error: str) -> None:
        if error in self._equal or len(self._equal) < _DIFFERENT_MAX:
            self._equal[error] += 1
            if self._equal[error] > EQUAL_MAX:
                return
        self._tell(f"{self._file}:{line}: {error}")
