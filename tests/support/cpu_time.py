"""CPU times, which say something only beside another that was taken in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable


def cpu_ratio(
    action: Callable[[], object], reference: Callable[[], object], repeats: int = 5
) -> float:
    """Returns how many times the CPU time of `reference` an action takes.

    The two take turns, so that a slow moment of the machine meets both; the least of each counts.
    """
    taken_s: list[float] = []
    reference_s: list[float] = []
    for _ in range(repeats):
        taken_s.append(_cpu_seconds(action))
        reference_s.append(_cpu_seconds(reference))
    return min(taken_s) / min(reference_s)


def _cpu_seconds(action: Callable[[], object]) -> float:
    begin_s = time.thread_time()
    action()
    return time.thread_time() - begin_s
