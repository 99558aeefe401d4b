"""CPU time of one thread, the best of some passes: others use the machine as well."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PASSES = 3


def seconds_of(once: Callable[[], T]) -> tuple[float, T]:
    """Returns the CPU seconds of one call, and what it returned."""
    start = time.thread_time()
    value = once()
    return time.thread_time() - start, value


def best_of(once: Callable[[], T], passes: int = PASSES) -> tuple[float, T]:
    """Returns the CPU seconds of the fastest of some calls, and what the last returned."""
    best, value = seconds_of(once)
    for _ in range(passes - 1):
        seconds, value = seconds_of(once)
        best = min(best, seconds)
    return best, value
