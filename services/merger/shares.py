"""Places for streams and searches: a bounded number, and no caller gets all of them.

A caller (a tenant, or one connection if there are no tokens) may hold as many places as are free:
alone it gets half of them, two callers a third each, and a newcomer always finds some. All
connections of one host together may hold three times the free places, and each connection without a
place one more, until an eighth of all is left for other hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sirocco.model.errors import ResourceExhausted
from sirocco.runtime.grpc.shares import HOST_SHARE, OTHERS_PART, host_of


class Places:
    """The places of one kind in a process; belongs to the gRPC loop.

    Args:
        noun: name of what takes a place, for messages.
        places: their number.
        retry_after_ms: pause for a refused caller.
        refused: called with the limit that refused a caller: `process`, `share` or `tenant`.
    """

    def __init__(
        self, noun: str, places: int, retry_after_ms: int, refused: Callable[[str], None]
    ) -> None:
        self._noun = noun
        self._places = places
        self._retry_after_ms = retry_after_ms
        self._refused = refused
        self._held: dict[str, int] = {}
        self.taken = 0

    @contextmanager
    def one(self, tenant: str, tenants_most: int | None, peer: str) -> Iterator[None]:
        """Holds a place for a caller.

        Args:
            tenant: tenant of the token; empty for the operator's, or without tokens.
            tenants_most: places that the tenant may hold; None: no limit.
            peer: the connection, as gRPC names it.

        Raises:
            ResourceExhausted: no place is free for this caller now.
        """
        shares = {f"tenant {tenant}": 1} if tenant else {peer: 1, host_of(peer): HOST_SHARE}
        held = self._held
        free = self._places - self.taken
        # The first key is the caller's own.
        own = held.get(next(iter(shares)), 0)
        if tenant and tenants_most is not None and own >= tenants_most:
            raise self._full("tenant", f"the tenant has its {tenants_most} {self._noun}")
        if free <= 0:
            raise self._full("process", f"{self._places} {self._noun} are under way")
        is_new = not own and free > self._places // OTHERS_PART
        for key, share in shares.items():
            has = held.get(key, 0)
            if has >= share * free and not is_new:
                raise self._full("share", f"the caller has {has} {self._noun}, its share of all")
        self.taken += 1
        for key in shares:
            held[key] = held.get(key, 0) + 1
        try:
            yield
        finally:
            self.taken -= 1
            for key in shares:
                held[key] -= 1
                if not held[key]:
                    del held[key]

    def _full(self, limit: str, why: str) -> ResourceExhausted:
        self._refused(limit)
        return ResourceExhausted(why, retry_after_ms=self._retry_after_ms)
