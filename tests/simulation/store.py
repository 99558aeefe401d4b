"""The simulated map store (leases that run out, all of it may be lost) and archive."""

from __future__ import annotations

from tests.simulation.scheduler import Scheduler


class UnreachableError(Exception):
    """The store does not answer."""


class SimStore:
    """Leases in virtual time.

    Attributes:
        down_until_ms: until when it does not answer.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._leases: dict[str, tuple[str, float]] = {}
        self.down_until_ms = 0.0

    def acquire(self, name: str, holder: str, ttl_ms: float) -> bool:
        """Takes or renews a lease; whether the holder has it now."""
        self._check()
        now_ms = self._scheduler.now_ms
        former, ends_ms = self._leases.get(name, ("", 0.0))
        if former != holder and ends_ms > now_ms:
            return False
        self._leases[name] = holder, now_ms + ttl_ms
        return True

    def release(self, name: str, holder: str) -> None:
        """Gives a lease back."""
        self._check()
        if self._leases.get(name, ("", 0.0))[0] == holder:
            del self._leases[name]

    def holders(self, prefix: str) -> list[str]:
        """Names of the live leases, without the prefix, in order."""
        self._check()
        now_ms = self._scheduler.now_ms
        return sorted(
            name.removeprefix(prefix)
            for name, (_, ends_ms) in self._leases.items()
            if name.startswith(prefix) and ends_ms > now_ms
        )

    def lose(self) -> None:
        """Everything is gone."""
        self._leases.clear()

    def _check(self) -> None:
        if self._scheduler.now_ms < self.down_until_ms:
            raise UnreachableError


class SimArchive:
    """Blobs by name; a write that did not end left nothing."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
