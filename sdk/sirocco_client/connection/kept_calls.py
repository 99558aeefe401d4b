"""Connections for calls that stay open.

A server takes 1,024 calls of one connection at a time. What is called beyond them waits in silence
until another call ends, which subscriptions do not. gRPC opens one connection to a server for all
channels of a process with equal options, whatever client they are of. So the calls that stay open
are counted for the process, and further ones get another connection. How many of them a server
takes is its own limit: it refuses what is more.
"""

from __future__ import annotations

import threading
from itertools import count

# Open calls of one connection. The rest of 1,024 is for calls that end by themselves: a server
# takes 128 bulk calls of a client, and about as many streams of searches.
KEPT_MAX = 768


class KeptCalls:
    """Counts the open calls of each connection. Safe to share between threads.

    Args:
        most: of one connection.
    """

    def __init__(self, most: int = KEPT_MAX) -> None:
        self._most = most
        # Of one thread twice: a call may be collected while its thread takes a place.
        self._lock = threading.RLock()
        self._open: dict[tuple[str, int], int] = {}

    def take(self, address: str) -> int:
        """Counts a call to a server; returns the number of the connection for it, from 0."""
        with self._lock:
            number = next(n for n in count() if self._open.get((address, n), 0) < self._most)
            self._open[address, number] = self._open.get((address, number), 0) + 1
            return number

    def has_open(self, address: str, number: int) -> bool:
        """Whether a connection has such calls."""
        return (address, number) in self._open

    def give_back(self, address: str, number: int) -> None:
        """Counts that a call has ended."""
        with self._lock:
            left = self._open[address, number] - 1
            if left:
                self._open[address, number] = left
            else:
                del self._open[address, number]


KEPT_CALLS = KeptCalls()
