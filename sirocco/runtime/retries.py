"""Pauses between tries: growing, jittered, bounded."""

from __future__ import annotations

import random
from collections.abc import Iterator

FIRST_S = 0.05
FACTOR = 1.5
GREATEST_S = 2.0


def pauses_s() -> Iterator[float]:
    """Yields pauses without end; the caller bounds the tries by count or by time.

    The jitter keeps callers that failed together from coming back together.
    """
    pause_s = FIRST_S
    while True:
        yield pause_s * random.uniform(0.5, 1.5)
        pause_s = min(pause_s * FACTOR, GREATEST_S)
