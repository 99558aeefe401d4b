"""Heaps of what is due at times that clients choose, perhaps in a thousand years.

What has become obsolete leaves when it is due. So that clients who change queries for ever fill no
memory, it leaves earlier where it is more than the rest.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

_OBSOLETE_MIN = 64


def push_due(
    heap: list[Any], entry: Any, current_max: int, is_current: Callable[[Any], bool]
) -> None:
    """Pushes an entry.

    Args:
        heap: entries, the earliest first.
        entry: it may be here already.
        current_max: how many entries may be current.
        is_current: whether an entry is not obsolete.
    """
    heapq.heappush(heap, entry)
    if len(heap) > 2 * current_max + _OBSOLETE_MIN:
        heap[:] = sorted({each for each in heap if is_current(each)})
