"""A sink at work: reads a subscription, cuts blocks, has them written, begins again after failures.

One task. While a block is written the next messages are read, up to the limits of what may wait.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from sirocco_client import AsyncSubscription, CursorExpired, NotificationBatch
from sirocco_client.errors import SiroccoError as ClientError

from sirocco.runtime.process.clock import now_ms
from sirocco.services.connector.runner import Parts
from sirocco.services.connector.sinks.blocks import Block, BlockLimits, Blocks
from sirocco.services.connector.sinks.errors import SinkStopped, TargetUnavailable
from sirocco.services.connector.sinks.retries import pause_s
from sirocco.services.connector.sinks.rows import Place, Shape, rows_of
from sirocco.services.connector.sinks.state import Saved
from sirocco.services.connector.sinks.throttle import Throttle, ThrottleLimit
from sirocco.telemetry.logging import event

logger = logging.getLogger(__name__)

# Between two tries to reach the cluster or the target. The first comes soon, since most outages are
# short; the last ones well within the time in which a cursor stays valid.
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 30.0

# How often an instance that does not do the work looks whether it has to.
_STANDBY_S = 5.0

# A cursor is only refused as such where a state is met by a `subscriber` that is not its own.
_OTHER_SUBSCRIBER = "; the state is of another subscriber or cluster: give the sink another name"

# Without a block for so long, the loop still looks at the cursor of a silent subscriber.
_IDLE_S = 1.0

# Matches that the cluster may send ahead: a tenth of a second at the rates of the benchmarks.
_CREDIT = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """What every sink has.

    Attributes:
        name: In the configuration.
        subscriber: Whose notifications it hands on.
        from_earliest: Where a sink without a cursor begins: at the earliest notification that is
            kept, or at the present end.
        shape: Form of its rows.
        throttle: What passes; None: everything.
        blocks: How rows are gathered.
    """

    name: str
    subscriber: str
    from_earliest: bool
    shape: Shape
    throttle: ThrottleLimit | None
    blocks: BlockLimits


class Counts:
    """The metrics of one sink.

    Args:
        parts: of the process.
        name: of the sink.
    """

    def __init__(self, parts: Parts, name: str) -> None:
        metrics = parts.metrics
        self._metrics = metrics
        self.name = name
        self.delivered = metrics.records.labels("sink", name)
        self.retries = metrics.retries.labels("sink", name)
        self.held = metrics.lag.labels("sink", name)
        self.lag_s = metrics.sink_lag.labels(name)
        self.cursor_age_s = metrics.sink_cursor_age.labels(name)
        self.active = metrics.sink_active.labels(name)
        # From the start: an increase from nothing to 1 is none to Prometheus, and an alert waits.
        self.dropped("expired", 0)

    def dropped(self, reason: str, count: int = 1) -> None:
        """Counts notifications that are not handed on."""
        self._metrics.sink_dropped.labels(self.name, reason).inc(count)

    def dead(self, reason: str, count: int) -> None:
        """Counts dead letters."""
        self._metrics.dead_letters.labels("sink", self.name, reason).inc(count)


class Target(Protocol):
    """Where a sink writes."""

    @property
    def blocks_max(self) -> int:
        """Blocks that are given to `write` at once, at most."""

    async def open(self) -> Saved | None:
        """Connects, takes the work over, returns the state; None: this sink is new.

        Raises:
            TargetUnavailable: Not now.
            SinkStopped: Not at all.
        """

    async def write(self, blocks: Sequence[Block]) -> None:
        """Writes blocks in their order, and keeps the state after each; raises as `open`."""

    def stop(self) -> None:
        """Lets `write` return soon: before the next batch, or instead of another try."""

    async def is_free(self) -> bool:
        """Whether the work may be taken over, after another instance has taken it."""

    async def close(self) -> None:
        """Disconnects; what is not written is lost to this instance. Also after a failed `open`."""


class Sink:
    """A sink; see `runner.Runner`.

    Args:
        common: what every sink has.
        target: where it writes.
        parts: of the process.
        counts: metrics of the sink, which its target counts in, too.
        now: wall clock, ms.
    """

    def __init__(
        self,
        common: Common,
        target: Target,
        parts: Parts,
        counts: Counts,
        now: Callable[[], int] = now_ms,
    ) -> None:
        self._common = common
        self._target = target
        self._parts = parts
        self._counts = counts
        self._now = now
        self._is_ready = False
        self._failures = 0
        # Whether this sink has stopped, or another instance does its work: logged once.
        self._is_aside = False
        # What is being written, for the lag.
        self._writing_since_ms: int | None = None
        self._blocks: Blocks | None = None
        self._saved_s = time.monotonic()
        counts.lag_s.set_function(self._lag_s)
        counts.cursor_age_s.set_function(lambda: time.monotonic() - self._saved_s)
        counts.held.set_function(lambda: 0 if self._blocks is None else self._blocks.held)

    @property
    def name(self) -> str:
        """See `Runner`."""
        return self._common.name

    @property
    def is_ready(self) -> bool:
        """See `Runner`."""
        return self._is_ready

    async def run(self) -> None:
        """See `Runner`."""
        while True:
            try:
                await self._work()
            except TargetUnavailable as error:
                await self._pause(error, error.reason)
            except ClientError as error:
                if not error.retryable:
                    hint = _OTHER_SUBSCRIBER if error.field == "open.cursor" else ""
                    raise SinkStopped("refused", f"the cluster refuses: {error}{hint}") from error
                await self._pause(error, error.code)
            except SinkStopped as error:
                await self._stopped(error)

    async def _pause(self, error: Exception, reason: str) -> None:
        self._failures += 1
        self._counts.retries.inc()
        pause = pause_s(self._failures, _FIRST_PAUSE_S, _LONGEST_PAUSE_S, random.random)
        if self._failures == 1:
            logger.warning(str(error), extra=event("sink_retries", sink=self.name, kind=reason))
        # A short outage is none to those who ask whether this process works.
        self._is_ready = self._is_ready and self._failures < 5
        await asyncio.sleep(pause)

    async def _stopped(self, error: SinkStopped) -> None:
        """Waits until the sink may work again; for ever if its receiver is gone.

        The process continues: its other sinks and sources do not depend on this one.
        """
        if error.reason == "refused":
            raise error
        if not self._is_aside:
            logger.error(str(error), extra=event("sink_stopped", sink=self.name, kind=error.reason))
        self._is_aside = True
        if error.reason == "gone":
            self._is_ready = False
            await asyncio.Event().wait()
        self._is_ready = True
        while True:
            await asyncio.sleep(_STANDBY_S * (0.5 + random.random()))
            with suppress(TargetUnavailable):
                if await self._target.is_free():
                    return

    async def _work(self) -> None:
        """Works until something fails."""
        try:
            saved = await self._target.open()
            while True:
                try:
                    await self._follow(saved)
                except CursorExpired as error:
                    saved = self._expired(error)
        finally:
            self._counts.active.set(0)
            await _in_time(self._target.close(), self._parts.stop_s)

    def _expired(self, error: CursorExpired) -> Saved:
        if not error.earliest:
            raise SinkStopped("refused", f"the cursor is too old: {error}") from error
        # Nobody can bring back what the log does not have; what follows must not wait for that.
        self._counts.dropped("expired")
        logger.error(str(error), extra=event("sink_gap", sink=self.name, earliest=error.earliest))
        return Saved(Place(error.earliest))

    async def _follow(self, saved: Saved | None) -> None:
        common = self._common
        cursor = None if saved is None else saved.place.cursor
        subscription = self._parts.client.subscribe(
            common.subscriber, cursor, from_earliest=common.from_earliest, credit=_CREDIT
        )
        try:
            await subscription.open()
            is_new = saved is None
            begin = Saved(Place(subscription.cursor)) if saved is None else saved
            if is_new:
                # A restart before the first notification must not begin later.
                await self._target.write([Block((), begin)])
            self._counts.active.set(1)
            self._is_aside = False
            self._is_ready = True
            self._saved_s = time.monotonic()
            await self._loop(subscription, begin)
        finally:
            self._blocks = None
            await subscription.close()

    async def _loop(self, subscription: AsyncSubscription, begin: Saved) -> None:
        common = self._common
        limit = common.throttle
        throttle = None if limit is None else Throttle(limit, dict(begin.windows))
        shape = common.shape
        blocks = self._blocks = Blocks(
            common.blocks, begin, throttle, shape.form, shape.source, self._now()
        )
        skip = begin.place.skip
        reading: asyncio.Task[NotificationBatch | None] | None = None
        writing: asyncio.Task[None] | None = None
        try:
            while True:
                if reading is None and blocks.has_room:
                    reading = asyncio.create_task(subscription.next_batch())
                if writing is None and (cut := self._cut(blocks)):
                    writing = asyncio.create_task(self._write(cut))
                await self._wait(reading, writing, blocks)
                if reading is not None and reading.done():
                    batch = reading.result()
                    reading = None
                    if batch is None:
                        raise TargetUnavailable("closed", "the client is closed")
                    blocks.take(rows_of(batch, shape, self._now(), skip), self._now())
                    skip = 0
                elif writing is None and not skip and reading is not None:
                    # All that was received is written, and the place is that of the subscription.
                    blocks.moved(subscription.cursor)
                if writing is not None and writing.done():
                    writing.result()
                    writing = None
        except asyncio.CancelledError:
            self._target.stop()
            if writing is not None:
                await _in_time(writing, self._parts.stop_s)
            raise
        finally:
            await _end(reading, writing)

    def _cut(self, blocks: Blocks) -> list[Block]:
        found: list[Block] = []
        now = self._now()
        while len(found) < self._target.blocks_max and (block := blocks.cut(now)) is not None:
            found.append(block)
        return found

    async def _wait(
        self,
        reading: asyncio.Task[Any] | None,
        writing: asyncio.Task[Any] | None,
        blocks: Blocks,
    ) -> None:
        timeout_s = _IDLE_S
        now = self._now()
        if writing is None:
            timeout_s = min(timeout_s, max(0, blocks.due_ms(now) - now) / 1_000)
        tasks = [task for task in (reading, writing) if task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(timeout_s)

    async def _write(self, cut: Sequence[Block]) -> None:
        first = next((row for block in cut for row in block.rows), None)
        self._writing_since_ms = None if first is None else first.arrival_ms
        try:
            await self._target.write(cut)
        finally:
            self._writing_since_ms = None
        self._failures = 0
        self._saved_s = time.monotonic()
        self._counts.dropped("throttled", sum(block.dropped for block in cut))

    def _lag_s(self) -> float:
        """Age of the oldest notification that the target does not have."""
        since_ms = self._writing_since_ms
        if since_ms is None and self._blocks is not None:
            since_ms = self._blocks.oldest_ms
        return 0.0 if since_ms is None else max(0, self._now() - since_ms) / 1_000


async def _end(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancels tasks and waits for their ends."""
    found = [task for task in tasks if task is not None]
    for task in found:
        task.cancel()
    await asyncio.gather(*found, return_exceptions=True)


async def _in_time(work: Any, limit_s: float) -> None:
    """Waits for the end of something, for a limited time, and whatever it raises."""
    with suppress(TimeoutError, TargetUnavailable, SinkStopped):
        async with asyncio.timeout(limit_s):
            await asyncio.shield(work)
