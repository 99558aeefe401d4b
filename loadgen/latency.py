"""Measures the time from sending an object to receiving its notification."""

from __future__ import annotations

import math
import threading

import numpy as np
from numpy.typing import NDArray

# Buckets grow by 1 %: a percentile is exact to that, in 18 kB for any number of durations.
_GROWTH = 1.01
_LEAST_MS = 1e-3
_BUCKETS = 1 + math.ceil(math.log(3_600_000 / _LEAST_MS, _GROWTH))


class LatencyHistogram:
    """Counts of durations from 1 µs to an hour; others count at the nearest end."""

    def __init__(self) -> None:
        self._counts = np.zeros(_BUCKETS, np.int64)
        self._greatest_ms = 0.0

    def __len__(self) -> int:
        return int(self._counts.sum())

    def add(self, durations_ms: NDArray[np.float64]) -> None:
        """Counts durations, f8[n], milliseconds."""
        if not len(durations_ms):
            return
        self._greatest_ms = max(self._greatest_ms, float(durations_ms.max()))
        ratios = np.maximum(durations_ms, _LEAST_MS) / _LEAST_MS
        buckets = np.minimum(np.log(ratios) / math.log(_GROWTH), _BUCKETS - 1).astype(np.int64)
        self._counts += np.bincount(buckets, minlength=_BUCKETS)

    def percentile_ms(self, percent: float) -> float:
        """Returns the duration that `percent` of all do not exceed; 0 if there are none."""
        total = len(self)
        if not total:
            return 0.0
        wanted = max(1, math.ceil(total * percent / 100))
        bucket = int(np.searchsorted(np.cumsum(self._counts), wanted))
        return float(min(_LEAST_MS * _GROWTH ** (bucket + 1), self._greatest_ms))

    def summary_ms(self) -> dict[str, float]:
        """Returns p50, p95, p99 and max, milliseconds rounded to 1 µs."""
        figures = {f"p{percent}": self.percentile_ms(percent) for percent in (50, 95, 99)}
        figures["max"] = self._greatest_ms
        return {name: round(value, 3) for name, value in figures.items()}


class SendTimes:
    """Send times of the objects of one session, by number; two numbers for each batch."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._first_numbers = np.zeros(1024, np.uint64)
        self._at_s = np.zeros(1024)
        self._batches = 0

    def add(self, first_number: int, at_s: float) -> None:
        """Notes when the batch was sent whose first object has this number.

        Args:
            first_number: Greater than that of the batch before.
            at_s: On the clock of `durations_ms`.
        """
        with self._lock:
            if self._batches == len(self._at_s):
                self._first_numbers = np.concatenate([self._first_numbers] * 2)
                self._at_s = np.concatenate([self._at_s] * 2)
            self._first_numbers[self._batches] = first_number
            self._at_s[self._batches] = at_s
            self._batches += 1

    def durations_ms(self, numbers: NDArray[np.uint64], at_s: float) -> NDArray[np.float64]:
        """Returns f8[n]: milliseconds from the sending of objects to a time.

        Args:
            numbers: u8[n], numbers of sent objects.
            at_s: The time, on the clock of `add`.
        """
        with self._lock:
            first_numbers = self._first_numbers[: self._batches]
            batches = np.searchsorted(first_numbers, numbers, side="right") - 1
            return np.asarray((at_s - self._at_s[: self._batches][batches]) * 1000)
