"""Addresses of the other processes, cached."""

from __future__ import annotations

import asyncio
import time

from sirocco.runtime.process.membership import MemberInfo, directory
from sirocco.transport.errors import TransportUnavailable
from sirocco.transport.map_store import MapStore

# A process keeps its address for life, so that only new ones have to be looked up. When one is
# unknown, all searches that need it would ask at once.
REFRESH_S = 0.2


class Members:
    """The cached directory of members; belongs to the gRPC loop."""

    def __init__(self, store: MapStore) -> None:
        self._store = store
        self._known: dict[str, MemberInfo] = {}
        self._read_s = float("-inf")
        self._reading: asyncio.Task[None] | None = None

    @property
    def addresses(self) -> list[str]:
        """Addresses of the known members for other services."""
        return [info.for_peers for info in self._known.values()]

    def get(self, member: str) -> MemberInfo | None:
        """Returns a member's entry; an unknown member will soon be looked up."""
        info = self._known.get(member)
        if info is None:
            self._look()
        return info

    async def load(self) -> None:
        """Returns when the directory has been read once."""
        while not self._known:
            self._look()
            if self._reading is None:
                return
            await asyncio.shield(self._reading)

    def _look(self) -> None:
        if self._reading is None and time.monotonic() - self._read_s >= REFRESH_S:
            self._reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        try:
            self._known = await asyncio.to_thread(directory, self._store)
        except TransportUnavailable:
            # The cache stays as it is; a caller that needs more asks again.
            pass
        finally:
            self._read_s = time.monotonic()
            self._reading = None
