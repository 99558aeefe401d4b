"""Admission: how much may be on its way between the front and the evaluators.

The only place where the stream is held up (DESIGN.md 4). A front knows the bytes that it appended
and, from the evaluators' descriptions, how far each intake partition has been taken by all slots.
While too much is under way it stops reading from its publishers, whose own windows then fill.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from sirocco.protocol.positions import offset_of
from sirocco.runtime.membership import MemberInfo
from sirocco.transport.errors import Unavailable

# A second and a half at 300 k objects of 300 bytes a second: evaluators describe themselves once a
# second. It bounds what the memory log holds, and how long a backlog takes to work off.
UNDER_WAY_BYTES_MAX = 160 << 20

# From here on it is looked how far the evaluators are: well before anybody has to wait for that.
WATCHED_BYTES_MIN = UNDER_WAY_BYTES_MAX // 4

LOOK_S = 0.25


class Admission:
    """The bytes of one front that are under way."""

    def __init__(self, members: Callable[[], dict[str, MemberInfo]]) -> None:
        self._members = members
        # Intake partition → (offset, bytes) of each record under way, oldest first.
        self._under_way: dict[int, deque[tuple[int, int]]] = {}
        self._bytes = 0
        self._room = asyncio.Condition()
        self._watching: asyncio.Task[None] | None = None

    @property
    def bytes_under_way(self) -> int:
        """Appended here and not yet taken by all slots."""
        return self._bytes

    def appended(self, partition: int, offset: int, size: int) -> None:
        """The log has a record of this front."""
        self._under_way.setdefault(partition, deque()).append((offset, size))
        self._bytes += size
        if self._bytes >= WATCHED_BYTES_MIN:
            self._look_on()

    async def room(self) -> None:
        """Returns when more may be taken from publishers."""
        if self._bytes < UNDER_WAY_BYTES_MAX:
            return
        self._look_on()
        async with self._room:
            await self._room.wait_for(lambda: self._bytes < UNDER_WAY_BYTES_MAX)

    def _look_on(self) -> None:
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while self._bytes >= WATCHED_BYTES_MIN:
            # Without the map store nobody can tell; it is asked again.
            with suppress(Unavailable):
                self._release(taken(await asyncio.to_thread(self._members)))
            async with self._room:
                self._room.notify_all()
            await asyncio.sleep(LOOK_S)

    def _release(self, positions: dict[int, int]) -> None:
        for partition, records in self._under_way.items():
            upto = offset_of(positions.get(partition, 0))
            while records and records[0][0] < upto:
                self._bytes -= records.popleft()[1]


def taken(members: dict[str, MemberInfo]) -> dict[int, int]:
    """The position of each intake partition that all evaluators have taken."""
    positions: dict[int, int] = {}
    for member in members.values():
        for partition, position in member.taken.items():
            known = positions.get(int(partition), position)
            positions[int(partition)] = min(known, position)
    return positions
