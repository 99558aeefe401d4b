"""Collects large remains of gRPC calls.

Each call leaves a few objects in a cycle, and the native memory of its request is freed with them.
Python counts objects, not bytes: at the services' thresholds (`process_tuning`) the collector runs
once in thousands of calls. Sixty searches of 6 MB, eight times, left a merger with 3.5 GB.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

# A collection is worth its time once so many bytes have ended. It ages requests of open calls,
# which then wait for a longer collection: so it waits until few are open, but not for ever.
ENDED_BYTES_MIN = 64 << 20
ENDED_BYTES_MAX = 512 << 20
OPEN_SHARE = 8
# Bytes that collections of young objects may have aged before all objects are collected. That takes
# up to a second where millions of queries are known.
AGED_BYTES = 512 << 20


class CallGarbage:
    """The requests of one server's calls.

    Args:
        collect: `gc.collect`, called with a generation.
    """

    def __init__(self, collect: Callable[[int], object] = gc.collect) -> None:
        self._collect = collect
        self._open = self._ended = self._aged = 0

    def begin(self, size: int) -> None:
        """Notes that a call has a request of so many bytes."""
        self._open += size

    def end(self, size: int) -> None:
        """Notes that such a call has ended; collects when enough of them have."""
        self._open -= size
        self._ended += size
        is_quiet = self._ended >= max(ENDED_BYTES_MIN, OPEN_SHARE * self._open)
        if not is_quiet and self._ended < ENDED_BYTES_MAX:
            return
        self._ended = 0
        self._aged += self._open
        if self._aged < AGED_BYTES:
            self._collect(1)
        else:
            self._aged = 0
            self._collect(2)
