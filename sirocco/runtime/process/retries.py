"""Pauses between tries: growing, jittered, bounded."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from sirocco.transport.errors import AccessRefused, LogFull, TransportUnavailable

T = TypeVar("T")

FIRST_S = 0.05
FACTOR = 1.5
GREATEST_S = 2.0

# Tries of a transaction or a request to the log: with the pauses, longer than a broker's restart
# (about 10 s), shorter than a lease would be renewed for a dead loop.
RETRIES_MAX = 8
RETRY_MS_MIN = 100
RETRY_MS_MAX = 5_000


def pauses_s() -> Iterator[float]:
    """Yields pauses without end; the caller bounds the tries by count or by time.

    The jitter spreads the retries of callers that failed together.
    """
    pause_s = FIRST_S
    while True:
        yield pause_s * random.uniform(0.5, 1.5)
        pause_s = min(pause_s * FACTOR, GREATEST_S)


def retried(
    action: Callable[[], T],
    ending: threading.Event | None = None,
    pause_ms: float = RETRY_MS_MIN,
) -> T:
    """Retries an action that the log or the store refused for the moment, and only for that.

    Args:
        action: what is tried.
        ending: once it is set nothing is tried again.
        pause_ms: the first pause.
    """
    waiting = ending or threading.Event()
    for attempt in range(RETRIES_MAX):
        try:
            return action()
        except AccessRefused:
            raise
        except (TransportUnavailable, LogFull):
            pause_s = random.uniform(0.5, 1.5) * pause_ms / 1_000
            if attempt == RETRIES_MAX - 1 or waiting.wait(pause_s):
                raise
        pause_ms = min(2 * pause_ms, RETRY_MS_MAX)
    raise AssertionError("unreachable")
