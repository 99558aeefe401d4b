"""Collects what gRPC leaves of calls when it is large.

Each call leaves a few objects in a cycle, and what its request took in native memory goes when they
do. Python counts objects, not bytes: at the services' thresholds (`interpreter`) the collector
comes by once in thousands of calls. Sixty searches of 6 MB, eight times, left a merger with 3.5 GB.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

# A round is worth its time when so many bytes are gone. It takes requests of open calls for old,
# which then wait for a longer one: so it waits until few are open, but not for ever.
ENDED_BYTES_MIN = 64 << 20
ENDED_BYTES_MAX = 512 << 20
OPEN_SHARE = 8
# Bytes that rounds over young objects may have taken for old, until all objects are looked through.
# That takes up to a second where millions of queries are known.
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
        """A call has a request of so many bytes."""
        self._open += size

    def end(self, size: int) -> None:
        """Such a call has ended; collects when enough of them have."""
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
