"""The time, as everything above the pure core takes it: an argument."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Wall clock, epoch ms."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """A clock that never goes back, for intervals and deadlines within this process."""
    return time.monotonic_ns() // 1_000_000
