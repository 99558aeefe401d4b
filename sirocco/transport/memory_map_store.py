"""A map store inside one process, for the embedded cluster and for tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def _monotonic_ms() -> float:
    return time.monotonic() * 1000.0


class MemoryMapStore:
    """`MapStore` in two dicts.

    Args:
        now_ms: a monotone clock; tests pass their own to let leases expire.
    """

    def __init__(self, now_ms: Callable[[], float] = _monotonic_ms) -> None:
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._leases: dict[str, tuple[str, float]] = {}
        self._values: dict[str, tuple[bytes, float | None]] = {}

    def acquire(self, name: str, holder: str, ttl_ms: int) -> bool:
        """See `MapStore.acquire`."""
        with self._lock:
            if self._holder(name) not in (None, holder):
                return False
            self._leases[name] = (holder, self._now_ms() + ttl_ms)
            return True

    def renew(self, name: str, holder: str, ttl_ms: int) -> bool:
        """See `MapStore.renew`."""
        with self._lock:
            if self._holder(name) != holder:
                return False
            self._leases[name] = (holder, self._now_ms() + ttl_ms)
            return True

    def release(self, name: str, holder: str) -> bool:
        """See `MapStore.release`."""
        with self._lock:
            if self._holder(name) != holder:
                return False
            del self._leases[name]
            return True

    def holders(self, prefix: str) -> dict[str, str]:
        """See `MapStore.holders`."""
        with self._lock:
            live = {name: self._holder(name) for name in list(self._leases)}
        return {
            name: holder
            for name, holder in live.items()
            if holder is not None and name.startswith(prefix)
        }

    def put(self, key: str, value: bytes, *, ttl_ms: int | None = None) -> None:
        """See `MapStore.put`."""
        with self._lock:
            self._values[key] = (value, None if ttl_ms is None else self._now_ms() + ttl_ms)

    def get(self, key: str) -> bytes | None:
        """See `MapStore.get`."""
        with self._lock:
            return self._value(key)

    def delete(self, key: str) -> None:
        """See `MapStore.delete`."""
        with self._lock:
            self._values.pop(key, None)

    def scan(self, prefix: str) -> dict[str, bytes]:
        """See `MapStore.scan`."""
        with self._lock:
            live = {key: self._value(key) for key in list(self._values)}
        return {
            key: value
            for key, value in live.items()
            if value is not None and key.startswith(prefix)
        }

    def close(self) -> None:
        """See `MapStore.close`; nothing to free."""

    def _holder(self, name: str) -> str | None:
        """Returns the live holder of a lease; drops an expired one. The lock is held."""
        found = self._leases.get(name)
        if found is None:
            return None
        if found[1] <= self._now_ms():
            del self._leases[name]
            return None
        return found[0]

    def _value(self, key: str) -> bytes | None:
        """Returns the live value of a key; drops an expired one. The lock is held."""
        found = self._values.get(key)
        if found is None:
            return None
        if found[1] is not None and found[1] <= self._now_ms():
            del self._values[key]
            return None
        return found[0]
