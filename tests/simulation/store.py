"""The simulated map store (leases expire, all of it may be lost) and archive."""

from __future__ import annotations

from sirocco.transport.errors import TransportUnavailable
from tests.simulation.scheduler import Scheduler


class SimStore:
    """Leases in virtual time, and values.

    Attributes:
        down_until_ms: until when it does not answer.
        cut_until_ms: member → until when it does not answer that member.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._leases: dict[str, tuple[str, float]] = {}
        self._values: dict[str, bytes] = {}
        self.down_until_ms = 0.0
        self.cut_until_ms: dict[str, float] = {}

    def acquire(self, name: str, holder: str, ttl_ms: float) -> bool:
        """Takes or renews a lease; returns whether the holder has it now."""
        self.check(holder)
        now_ms = self._scheduler.now_ms
        former, ends_ms = self._leases.get(name, ("", 0.0))
        if former != holder and ends_ms > now_ms:
            return False
        self._leases[name] = holder, now_ms + ttl_ms
        return True

    def release(self, name: str, holder: str) -> None:
        """Releases a lease."""
        self.check(holder)
        if self._leases.get(name, ("", 0.0))[0] == holder:
            del self._leases[name]

    def holders(self, prefix: str) -> dict[str, str]:
        """Returns the holders of the live leases, by name."""
        self.check()
        now_ms = self._scheduler.now_ms
        return {
            name: holder
            for name, (holder, ends_ms) in self._leases.items()
            if name.startswith(prefix) and ends_ms > now_ms
        }

    def get(self, key: str) -> bytes | None:
        """Returns a value, or None."""
        self.check()
        return self._values.get(key)

    def put(self, key: str, value: bytes) -> None:
        """Writes a value."""
        self.check()
        self._values[key] = value

    def lose(self) -> None:
        """Deletes everything."""
        self._leases.clear()
        self._values.clear()

    def heal(self) -> None:
        """Answers all members from now on."""
        self.down_until_ms = 0.0
        self.cut_until_ms.clear()

    def is_cut(self, member: str) -> bool:
        """Returns whether a member is isolated: it reaches only the log."""
        return self._scheduler.now_ms < self.cut_until_ms.get(member, 0.0)

    def check(self, member: str = "") -> None:
        """Raises Unavailable if it does not answer a member."""
        if self._scheduler.now_ms < self.down_until_ms or self.is_cut(member):
            raise TransportUnavailable("the map store does not answer")


class SimArchive:
    """Blobs by name; an unfinished write leaves nothing.

    Attributes:
        is_slow: the blobs of a checkpoint are written one by one; otherwise all at one time.
        full_until_ms: until when it has no room for checkpoints.
    """

    def __init__(self, *, is_slow: bool = False) -> None:
        self.blobs: dict[str, bytes] = {}
        self.is_slow = is_slow
        self.full_until_ms = 0.0

    def write(self, name: str, contents: bytes) -> None:
        """Writes a blob; different contents under its name would end a real process."""
        held = self.blobs.setdefault(name, contents)
        assert held == contents, f"{name} is written again with other contents"
