"""Line number of each published object in its file."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray


class ObjectLines:
    """Line numbers by the objects' publishing numbers, kept as runs of equal distances.

    Objects may also share a line, or begin some lines after each other.
    """

    def __init__(self) -> None:
        self._first_numbers: list[int] = []
        self._first_lines: list[int] = []
        self._next_number = 1
        self._steps: list[int] = []
        self._last = (0, 0)

    @property
    def count(self) -> int:
        """Number of added objects."""
        return self._next_number - 1

    def add(self, lines: NDArray[np.int64]) -> int:
        """Adds objects in the order of publication; returns the number of the first.

        Args:
            lines: i8[n], line numbers, none less than those before.
        """
        first = self._next_number
        if len(lines):
            last, step = self._last
            steps = np.diff(lines, prepend=last)
            starts = np.flatnonzero(np.diff(steps, prepend=step))
            self._first_numbers += (starts + first).tolist()
            self._first_lines += lines[starts].tolist()
            self._steps += steps[starts].tolist()
            self._next_number += len(lines)
            self._last = (int(lines[-1]), int(steps[-1]))
        return first

    def line_of(self, number: int) -> int:
        """Returns the line of an added object."""
        run = bisect_right(self._first_numbers, number) - 1
        return self._first_lines[run] + (number - self._first_numbers[run]) * self._steps[run]
