"""The map store: leases and small values that all processes see.

Decisions are stored in the log (rule R4 of the design). This store is a view of it, so it may be
lost as a whole and written again. Redis in a cluster, memory in an embedded one.
"""

from __future__ import annotations

from typing import Protocol


class MapStore(Protocol):
    """Leases and latest-wins values. Thread-safe; every call ends within its timeout.

    All calls raise `TransportUnavailable` when the store does not answer after bounded retries.
    Every operation may be repeated without harm, so callers need not know whether it took effect.
    """

    def acquire(self, name: str, holder: str, ttl_ms: int) -> bool:
        """Takes a lease that is free, expired, or `holder`'s already (then it is renewed).

        Args:
            name: of the lease.
            holder: the process that takes it, unique per process start.
            ttl_ms: time to live from now.

        Returns:
            Whether `holder` has it now.
        """

    def renew(self, name: str, holder: str, ttl_ms: int) -> bool:
        """Prolongs a lease; false (and no change) when `holder` does not have it any more."""

    def release(self, name: str, holder: str) -> bool:
        """Gives a lease back; false (and no change) when `holder` does not have it."""

    def holders(self, prefix: str) -> dict[str, str]:
        """Returns the live leases whose names begin with `prefix`: name → holder."""

    def put(self, key: str, value: bytes, *, ttl_ms: int | None = None) -> None:
        """Writes a value, whatever was there; it vanishes after `ttl_ms` if given."""

    def get(self, key: str) -> bytes | None:
        """Returns the value of a key, or None."""

    def delete(self, key: str) -> None:
        """Removes a value, if there is one."""

    def scan(self, prefix: str) -> dict[str, bytes]:
        """Returns all values whose keys begin with `prefix`; not a snapshot."""

    def close(self) -> None:
        """Frees connections; leases expire by themselves."""
