"""When which rows end: a calendar of buckets of one length."""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

__all__ = ["ExpiryCalendar", "end_of_bucket_ms"]

# A bucket's rows are checked one by one while the slot's time runs through it: a minute keeps
# both the number of buckets (1,440 a day) and the rows under check small.
BUCKET_MS = 60_000
# Rows that come one by one would otherwise take an array each, 30 times their own size.
_PARTS_MAX = 64


def end_of_bucket_ms(time_ms: int) -> int:
    """Returns the end of the bucket that holds a time."""
    return (time_ms // BUCKET_MS + 1) * BUCKET_MS


class ExpiryCalendar:
    """Rows by the minute in which their lifetime ends.

    Rows that were freed in the meantime stay in their bucket; who takes them out compares with
    the row itself.
    """

    __slots__ = ("_buckets", "_order")

    def __init__(self) -> None:
        self._buckets: dict[int, list[npt.NDArray[np.int32]]] = {}
        self._order: list[int] = []

    def add(self, rows: npt.NDArray[np.int32], expires_ms: npt.NDArray[np.int64]) -> None:
        """Enters rows; `rows` i4[k], `expires_ms` i8[k]."""
        minutes = expires_ms // BUCKET_MS
        for minute in np.unique(minutes).tolist():
            bucket = self._buckets.get(minute)
            if bucket is None:
                bucket = self._buckets[minute] = []
                heapq.heappush(self._order, minute)
            bucket.append(rows[minutes == minute])
            if len(bucket) >= _PARTS_MAX:
                self._buckets[minute] = [np.concatenate(bucket)]

    def take_due(self, now_ms: int) -> npt.NDArray[np.int32]:
        """Removes and returns i4[k]: rows of all buckets that have begun at `now_ms`."""
        due: list[npt.NDArray[np.int32]] = []
        while self._order and self._order[0] * BUCKET_MS <= now_ms:
            due.extend(self._buckets.pop(heapq.heappop(self._order)))
        return np.concatenate(due) if due else np.empty(0, np.int32)

    @property
    def next_ms(self) -> int | None:
        """Begin of the first bucket that still holds rows."""
        return self._order[0] * BUCKET_MS if self._order else None
