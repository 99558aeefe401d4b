"""Line number of each published object in its file."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray


class ObjectLines:
    """Line numbers by the objects' publishing numbers, kept as runs of neighbouring lines."""

    def __init__(self) -> None:
        self._first_numbers: list[int] = []
        self._first_lines: list[int] = []
        self._next_number = 1
        self._next_line = -1

    @property
    def count(self) -> int:
        """Number of added objects."""
        return self._next_number - 1

    def add(self, lines: NDArray[np.int64]) -> int:
        """Adds objects in the order of publication; returns the number of the first.

        Args:
            lines: i8[n], ascending line numbers.
        """
        first = self._next_number
        if len(lines):
            expected = np.concatenate([[self._next_line], lines[:-1] + 1])
            starts = np.flatnonzero(lines != expected)
            self._first_numbers += (starts + first).tolist()
            self._first_lines += lines[starts].tolist()
            self._next_number += len(lines)
            self._next_line = int(lines[-1]) + 1
        return first

    def line_of(self, number: int) -> int:
        """Returns the line of an added object."""
        run = bisect_right(self._first_numbers, number) - 1
        return self._first_lines[run] + number - self._first_numbers[run]
