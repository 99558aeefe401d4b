"""Limits how much of a bounded resource each caller may hold at a time.

A caller is a tenant, or one connection where there are no tokens. It may hold at most as much as is
free: alone it gets half of all, two of them a third each, and a new caller always finds something.
All connections of one host together may hold three times what is free. A connection that has
nothing may take one more, until an eighth of all is left for other hosts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache

from sirocco.model.errors import ResourceExhausted

# Interval between checks for free room; only while something is exhausted.
LOOK_S = 0.02

# How much more than what is free one host may hold through all its connections: a gateway serves
# many clients, and a machine that opens connection after connection still leaves a quarter.
HOST_SHARE = 3

# Connections that have nothing yet leave one part in so many when their host has its share: a
# client on one host with an attacker of a few connections is still served.
OTHERS_PART = 8

# Callers whose keys are kept: each call of a client takes places several times.
CALLERS = 1_024


class Shares:
    """A number of places, of which no caller gets all.

    Args:
        what: named in errors, such as "publish streams".
        whole_max: places of the process.
        part_max: places of one tenant.
        retry_after_ms: how long a refused caller is asked to wait.
        connection_max: places of one connection without a tenant; None: as many as a tenant's.
    """

    def __init__(
        self,
        what: str,
        whole_max: int,
        part_max: int,
        retry_after_ms: int,
        *,
        connection_max: int | None = None,
    ) -> None:
        self.whole_max = whole_max
        self.part_max = min(part_max, whole_max)
        self._connection_max = connection_max
        self._what = what
        self._retry_after_ms = retry_after_ms
        # Not counters: these call Python for each key that they lack.
        self._held: dict[str, int] = {}
        self._whole = 0
        self._waiting: dict[str, int] = {}
        self._waiting_whole = 0

    @property
    def held(self) -> int:
        """Number of places that are taken."""
        return self._whole

    def held_by(self, tenant: str, peer: str = "") -> int:
        """Returns how many places one caller has."""
        return self._held.get(_holder_of(tenant, peer), 0)

    def fits(self, tenant: str, amount: int = 1, *, peer: str = "") -> bool:
        """Whether so many may be taken now; the first amount fits however large it is."""
        free = self.whole_max - self._whole
        return (not self._whole or amount <= free) and self._is_within(tenant, amount, peer)

    def take(self, tenant: str, amount: int = 1, *, peer: str = "") -> None:
        """Takes places.

        Args:
            tenant: whose token the call has; empty for the operator's, or where there are none.
            amount: how many.
            peer: the connection, as gRPC names it; the caller where there is no tenant.

        Raises:
            ResourceExhausted: the caller has its share, or all are taken.
        """
        if not self.fits(tenant, amount, peer=peer):
            raise self._refusal(tenant, amount, peer)
        self._add(tenant, amount, peer)

    async def wait(self, tenant: str, amount: int, timeout_s: float, *, peer: str = "") -> None:
        """Takes places as soon as they are free; see `take`.

        Raises:
            ResourceExhausted: they are not free in time, or too many wait already.
        """
        if self.fits(tenant, amount, peer=peer):
            self._add(tenant, amount, peer)
            return
        with self._queued(tenant, amount, peer):
            end_s = time.monotonic() + timeout_s
            while not self.fits(tenant, amount, peer=peer) and time.monotonic() < end_s:
                await asyncio.sleep(LOOK_S)
        self.take(tenant, amount, peer=peer)

    def give_back(self, tenant: str, amount: int = 1, *, peer: str = "") -> None:
        """Gives places back."""
        self._whole -= amount
        for key in _keys(tenant, peer):
            _subtract(self._held, key, amount)

    @contextmanager
    def place(self, tenant: str, amount: int = 1, *, peer: str = "") -> Iterator[None]:
        """Holds places for a while; raises as `take`."""
        self.take(tenant, amount, peer=peer)
        try:
            yield
        finally:
            self.give_back(tenant, amount, peer=peer)

    def _add(self, tenant: str, amount: int, peer: str) -> None:
        for key in _keys(tenant, peer):
            self._held[key] = self._held.get(key, 0) + amount
        self._whole += amount

    @contextmanager
    def _queued(self, tenant: str, amount: int, peer: str) -> Iterator[None]:
        """Counts waiting callers: none may fill the queue either."""
        keys = _keys(tenant, peer)
        free = self.whole_max - self._waiting_whole
        for key, share in keys.items():
            if self._waiting.get(key, 0) + amount > min(
                self._most(key, tenant, peer), share * free
            ):
                raise self._refusal(tenant, amount, peer)
        self._waiting_whole += amount
        for key in keys:
            self._waiting[key] = self._waiting.get(key, 0) + amount
        try:
            yield
        finally:
            self._waiting_whole -= amount
            for key in keys:
                _subtract(self._waiting, key, amount)

    def _most(self, key: str, tenant: str, peer: str) -> int:
        """Returns the most that a caller, or a host, may ever have."""
        if tenant:
            return self.part_max
        if key != peer:
            return self.whole_max
        return self.part_max if self._connection_max is None else self._connection_max

    def _is_within(self, tenant: str, amount: int, peer: str) -> bool:
        """Whether an amount is within all shares that a caller takes from."""
        free = self.whole_max - self._whole
        is_new = not self._held.get(_holder_of(tenant, peer))
        if is_new and (tenant or free - amount >= self.whole_max // OTHERS_PART):
            return True
        for key, share in _keys(tenant, peer).items():
            held = self._held.get(key, 0)
            if held and held + amount > min(self._most(key, tenant, peer), share * free):
                return False
        return True

    def _refusal(self, tenant: str, amount: int, peer: str) -> ResourceExhausted:
        holder = _holder_of(tenant, peer)
        held, most = self._held.get(holder, 0), self._most(holder, tenant, peer)
        whose = f"tenant {tenant}" if tenant else "this caller"
        if held and held + amount > most:
            why = f"{whose} has no room for more {self._what}, the limit is {most}"
        elif self._whole + amount > self.whole_max:
            why = f"this process has no room for more {self._what}, the limit is {self.whole_max}"
        else:
            whose = whose if held else "the host of this caller"
            why = f"{whose} has its share of all {self._what}"
        return ResourceExhausted(why, retry_after_ms=self._retry_after_ms)


@lru_cache(maxsize=CALLERS)
def host_of(peer: str) -> str:
    """Returns the host of a connection, such as `ipv4:10.0.0.7` of `ipv4:10.0.0.7:41024`."""
    return peer.rpartition(":")[0] if peer.startswith(("ipv4:", "ipv6:")) else f"host {peer}"


def _holder_of(tenant: str, peer: str) -> str:
    return f"tenant {tenant}" if tenant else peer


@lru_cache(maxsize=CALLERS)
def _keys(tenant: str, peer: str) -> Mapping[str, int]:
    """Returns whose shares a caller takes from, and how many times what is free each may hold."""
    holder = _holder_of(tenant, peer)
    return {holder: 1} if tenant or not peer else {holder: 1, host_of(peer): HOST_SHARE}


def _subtract(counts: dict[str, int], key: str, amount: int) -> None:
    left = counts.get(key, 0) - amount
    if left:
        counts[key] = left
    else:
        counts.pop(key, None)
