"""CPU time of one thread, the best of some passes, since the machine is shared."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PASSES = 3


def seconds_of(once: Callable[[], T]) -> tuple[float, T]:
    """Returns the CPU seconds of one call, and its result."""
    start = time.thread_time()
    value = once()
    return time.thread_time() - start, value


def best_of(once: Callable[[], T], passes: int = PASSES) -> tuple[float, T]:
    """Returns the CPU seconds of the fastest of some calls, and the last result."""
    best, value = seconds_of(once)
    for _ in range(passes - 1):
        seconds, value = seconds_of(once)
        best = min(best, seconds)
    return best, value
