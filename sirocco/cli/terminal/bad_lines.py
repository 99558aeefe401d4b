"""Reports bad lines of a file, in line order, with a limit on equal errors."""

from __future__ import annotations

import heapq
import threading
from collections import Counter
from collections.abc import Callable

from sirocco.cli.terminal.terminal import note

# Equal errors reported one by one; a file of a million lines without `lon` has one error.
EQUAL_MAX = 10

# Distinct errors that are counted; further ones are all reported.
_DIFFERENT_MAX = 10_000


class BadLines:
    """Reports bad lines on standard error. Safe to share between threads.

    Attributes:
        count: Number of bad lines.
    """

    def __init__(self, file: str, report: Callable[[str], None] = note) -> None:
        """Starts without bad lines; `file` is its name in errors."""
        self.count = 0
        self._file = file
        self._report = report
        self._equal: Counter[str] = Counter()
        self._waiting: list[tuple[int, str]] = []
        self._lock = threading.Lock()

    @property
    def waiting(self) -> int:
        """Number of bad lines not reported yet."""
        with self._lock:
            return len(self._waiting)

    def add(self, line: int, error: object) -> None:
        """Adds a bad line, to be reported when `settle` reaches it."""
        with self._lock:
            self.count += 1
            heapq.heappush(self._waiting, (line, str(error)))

    def settle(self, line: int | None = None) -> None:
        """Reports all bad lines up to `line` in order: all before it are known. None: all lines."""
        with self._lock:
            while self._waiting and (line is None or self._waiting[0][0] <= line):
                self._report_one(*heapq.heappop(self._waiting))

    def finish(self) -> None:
        """Reports the rest, and the number of equal errors not reported."""
        self.settle()
        for error, times in self._equal.items():
            if times > EQUAL_MAX:
                more = times - EQUAL_MAX
                lines = "1 more line" if more == 1 else f"{more:,} more lines"
                self._report(f"{self._file}: {lines}: {error}")

    def _report_one(self, line: int, error: str) -> None:
        if error in self._equal or len(self._equal) < _DIFFERENT_MAX:
            self._equal[error] += 1
            if self._equal[error] > EQUAL_MAX:
                return
        self._report(f"{self._file}:{line}: {error}")
