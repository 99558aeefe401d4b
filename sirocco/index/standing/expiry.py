"""Expiry times of rows: sorted runs that are merged by size.

A heap of Python objects would take ten times the memory of the rows themselves, and buckets of one
length would be too many or too long. Runs take 12 bytes per row, whatever the lifetimes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

__all__ = ["ExpiryQueue"]

# Merging runs of this length takes a few milliseconds; longer ones would delay a batch.
_RUN_ROWS_MAX = 1 << 18


class ExpiryQueue:
    """Rows in the order in which their lifetimes end.

    Rows freed meanwhile stay until `keep`; the caller compares each with the row itself.
    """

    __slots__ = ("_next_ms", "_rows", "_times_ms")

    def __init__(self) -> None:
        self._times_ms: list[npt.NDArray[np.int64]] = []
        self._rows: list[npt.NDArray[np.int32]] = []
        self._next_ms: int | None = None

    def __len__(self) -> int:
        """Returns the number of lifetimes, those of freed rows among them."""
        return sum(len(rows) for rows in self._rows)

    @property
    def next_ms(self) -> int | None:
        """When the first lifetime ends; None if none does."""
        return self._next_ms

    @property
    def bytes_total(self) -> int:
        """Bytes of all runs."""
        return 12 * len(self)

    def add(self, rows: npt.NDArray[np.int32], expires_ms: npt.NDArray[np.int64]) -> None:
        """Adds rows; `rows` i4[k], `expires_ms` i8[k], k ≥ 1."""
        self._push(rows, expires_ms)
        while len(self._rows) > 1:
            last, previous = len(self._rows[-1]), len(self._rows[-2])
            if previous > 2 * last or previous + last > _RUN_ROWS_MAX:
                break
            times = np.concatenate([self._times_ms.pop(), self._times_ms.pop()])
            self._push(np.concatenate([self._rows.pop(), self._rows.pop()]), times)
        first = int(expires_ms.min())
        self._next_ms = first if self._next_ms is None else min(first, self._next_ms)

    def _push(self, rows: npt.NDArray[np.int32], times_ms: npt.NDArray[np.int64]) -> None:
        # A stable sort of two sorted runs is a merge.
        order = np.argsort(times_ms, kind="stable")
        self._times_ms.append(times_ms[order])
        self._rows.append(rows[order])

    def keep(
        self,
        are_wanted: Callable[[npt.NDArray[np.int32], npt.NDArray[np.int64]], npt.NDArray[np.bool_]],
    ) -> None:
        """Drops all but some lifetimes, and repeats of these.

        Args:
            are_wanted: returns which of some rows, with their times, are to be kept.
        """
        rows, times_ms = np.concatenate(self._rows), np.concatenate(self._times_ms)
        is_wanted = are_wanted(rows, times_ms)
        rows, times_ms = rows[is_wanted], times_ms[is_wanted]
        # A row that was used again for the same time is here twice.
        rows, first = np.unique(rows, return_index=True)
        times_ms = times_ms[first]
        self._rows, self._times_ms, self._next_ms = [], [], None
        for begin in range(0, len(rows), _RUN_ROWS_MAX):
            own = slice(begin, begin + _RUN_ROWS_MAX)
            self._push(rows[own], times_ms[own])
        if len(rows):
            self._next_ms = int(times_ms.min())

    def take_until(self, now_ms: int) -> npt.NDArray[np.int32]:
        """Removes and returns i4[k]: rows whose lifetime ends at `now_ms` or before."""
        if self._next_ms is None or now_ms < self._next_ms:
            return np.empty(0, np.int32)
        due: list[npt.NDArray[np.int32]] = []
        for i, times in enumerate(self._times_ms):
            end = int(np.searchsorted(times, now_ms, side="right"))
            due.append(self._rows[i][:end])
            # Views: a run keeps removed entries until it is merged or used up.
            self._times_ms[i] = times[end:]
            self._rows[i] = self._rows[i][end:]
        self._times_ms = [times for times in self._times_ms if len(times)]
        self._rows = [rows for rows in self._rows if len(rows)]
        heads = [int(times[0]) for times in self._times_ms]
        self._next_ms = min(heads) if heads else None
        return np.concatenate(due)
