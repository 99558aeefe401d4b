"""Admission: limits the data in flight between the front and the evaluators.

The only place that slows publishers down (docs/explanation/guarantees.md, Bounds). A front knows
the bytes that it accepted and, from the evaluators' descriptions, the position of each intake
partition that all slots have processed. While too much is in flight it stops reading from its
publishers, whose own windows then fill. A request that has waited long is refused with a pause: a
short delay goes unnoticed, a long one is reported.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from sirocco.model.errors import ResourceExhausted
from sirocco.protocol.contract.positions import offset_of
from sirocco.runtime.process.membership import MemberInfo
from sirocco.transport.errors import TransportUnavailable

# Pause for refused publishers: evaluators describe themselves once a second.
RETRY_AFTER_MS = 1_000


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """How much one front lets be in flight.

    Attributes:
        under_way_bytes_max: accepted and not yet processed. A second and a half at 300 k objects
            of 300 bytes a second: evaluators describe themselves once a second. It bounds the size
            of the memory log, and the time to process a backlog.
        waiting_bytes_max: of waiting requests, one per stream, up to 8 MiB each, which are in
            memory; beyond this, new ones are refused at once.
        shed_after_s: how long a request waits before its stream is ended: longer than a take-over,
            of which publishers need not know, shorter than callers' deadlines.
        look_s: pause between looks at the evaluators' progress.
    """

    under_way_bytes_max: int = 160 << 20
    waiting_bytes_max: int = 64 << 20
    shed_after_s: float = 10.0
    look_s: float = 0.25

    @property
    def watched_bytes_min(self) -> int:
        """From here on progress is checked: well before any request has to wait for it."""
        return self.under_way_bytes_max // 4


LIMITS = AdmissionLimits()


class Admission:
    """The bytes of one front that are in flight."""

    def __init__(
        self, members: Callable[[], dict[str, MemberInfo]], limits: AdmissionLimits = LIMITS
    ) -> None:
        self._members = members
        self._limits = limits
        # Intake partition → (offset, bytes) of each record in flight, oldest first.
        self._under_way: dict[int, deque[tuple[int, int]]] = {}
        # Bytes of these, and of admitted requests that are not yet in the log.
        self._bytes = 0
        # In order of arrival: the longest wait is served first.
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self._waiting_bytes = 0
        self._watching: asyncio.Task[None] | None = None

    @property
    def bytes_under_way(self) -> int:
        """Bytes accepted here that not all slots have processed."""
        return self._bytes

    async def room(self, size: int) -> None:
        """Returns when this many bytes may be accepted, and counts them.

        The caller later calls `appended` or `failed` for them.

        Raises:
            ResourceExhausted: There was no room for too long, or too many requests wait.
        """
        if self._bytes < self._limits.under_way_bytes_max and not self._waiting:
            self._count(size)
            return
        # One request may always wait, however large.
        if self._waiting and self._waiting_bytes + size > self._limits.waiting_bytes_max:
            raise _exhausted()
        self._look_on()
        let_in: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (let_in, size)
        self._waiting.append(entry)
        self._waiting_bytes += size
        try:
            await asyncio.wait([let_in], timeout=self._limits.shed_after_s)
        except asyncio.CancelledError:
            # The client disconnected, perhaps at this very moment.
            if let_in.done():
                self.failed(size)
            raise
        finally:
            if not let_in.done():
                self._waiting.remove(entry)
                self._waiting_bytes -= size
        if not let_in.done():
            raise _exhausted()

    def appended(self, partition: int, offset: int, size: int) -> None:
        """Records that an admitted request is in the log."""
        self._under_way.setdefault(partition, deque()).append((offset, size))

    def failed(self, size: int) -> None:
        """Records that an admitted request will not be in the log."""
        self._bytes -= size

    def _count(self, size: int) -> None:
        self._bytes += size
        if self._bytes >= self._limits.watched_bytes_min:
            self._look_on()

    def _look_on(self) -> None:
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while self._bytes >= self._limits.watched_bytes_min or self._waiting:
            # Without the map store the progress is unknown; it is asked again.
            with suppress(TransportUnavailable):
                self._release(taken(await asyncio.to_thread(self._members)))
            self._let_in()
            await asyncio.sleep(self._limits.look_s)

    def _let_in(self) -> None:
        while self._waiting and self._bytes < self._limits.under_way_bytes_max:
            let_in, size = self._waiting.popleft()
            self._waiting_bytes -= size
            self._bytes += size
            let_in.set_result(None)

    def _release(self, positions: dict[int, int]) -> None:
        for partition, records in self._under_way.items():
            end = offset_of(positions.get(partition, 0))
            while records and records[0][0] < end:
                self._bytes -= records.popleft()[1]


def _exhausted() -> ResourceExhausted:
    return ResourceExhausted(
        "more is published than is matched at the moment", retry_after_ms=RETRY_AFTER_MS
    )


def taken(members: dict[str, MemberInfo]) -> dict[int, int]:
    """Returns the position of each intake partition that all evaluators have processed."""
    positions: dict[int, int] = {}
    for member in members.values():
        for partition, position in member.taken.items():
            known = positions.get(int(partition), position)
            positions[int(partition)] = min(known, position)
    return positions
