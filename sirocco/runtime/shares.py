"""How much of something bounded each tenant may hold at a time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from sirocco.model.errors import ResourceExhausted

# Between looks whether there is room again; only where something is exhausted.
LOOK_S = 0.02


class Shares:
    """A number of places, of which one tenant gets a part at most.

    Callers without a tenant (no tokens, an operator's) may have all places.

    Args:
        what: named in errors, such as "publish streams".
        whole_max: places of the process.
        part_max: places of one tenant.
        retry_after_ms: what a refused caller is asked to wait.
    """

    def __init__(self, what: str, whole_max: int, part_max: int, retry_after_ms: int) -> None:
        self.whole_max = whole_max
        self.part_max = min(part_max, whole_max)
        self._what = what
        self._retry_after_ms = retry_after_ms
        self._held: Counter[str] = Counter()
        self._whole = 0
        self._waiting: Counter[str] = Counter()

    @property
    def held(self) -> int:
        """Places that are taken."""
        return self._whole

    def held_by(self, tenant: str) -> int:
        """Places that one tenant has."""
        return self._held[tenant]

    def fits(self, tenant: str, amount: int = 1) -> bool:
        """Whether so many may be taken now; the first amount fits however large it is."""
        return self._fits_part(tenant, amount) and (
            not self._whole or self._whole + amount <= self.whole_max
        )

    def take(self, tenant: str, amount: int = 1) -> None:
        """Takes places.

        Raises:
            ResourceExhausted: the tenant has its part, or all are taken.
        """
        if not self.fits(tenant, amount):
            raise self._refusal(tenant, amount)
        self._held[tenant] += amount
        self._whole += amount

    async def wait(self, tenant: str, amount: int, timeout_s: float) -> None:
        """Takes places as soon as they are free.

        Raises:
            ResourceExhausted: they are not in time, or as many wait already as there are.
        """
        if not self.fits(tenant, amount):
            waits_max = self.part_max if tenant else self.whole_max
            if self._waiting[tenant] + amount > waits_max or self._waiting.total() > self.whole_max:
                raise self._refusal(tenant, amount)
            self._waiting[tenant] += amount
            try:
                end_s = time.monotonic() + timeout_s
                while not self.fits(tenant, amount) and time.monotonic() < end_s:
                    await asyncio.sleep(LOOK_S)
            finally:
                self._waiting[tenant] -= amount
                if not self._waiting[tenant]:
                    del self._waiting[tenant]
        self.take(tenant, amount)

    def give_back(self, tenant: str, amount: int = 1) -> None:
        """Gives places back."""
        self._whole -= amount
        self._held[tenant] -= amount
        if not self._held[tenant]:
            del self._held[tenant]

    @contextmanager
    def place(self, tenant: str, amount: int = 1) -> Iterator[None]:
        """Holds places for a while; raises as `take`."""
        self.take(tenant, amount)
        try:
            yield
        finally:
            self.give_back(tenant, amount)

    def _fits_part(self, tenant: str, amount: int) -> bool:
        held = self._held[tenant]
        return not tenant or not held or held + amount <= self.part_max

    def _refusal(self, tenant: str, amount: int) -> ResourceExhausted:
        if self._fits_part(tenant, amount):
            who, bound = "this process", self.whole_max
        else:
            who, bound = f"tenant {tenant}", self.part_max
        return ResourceExhausted(
            f"{who} has no room for more {self._what}, the limit is {bound}",
            retry_after_ms=self._retry_after_ms,
        )
