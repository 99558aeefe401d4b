"""Publishes the records of Kafka topics, each exactly once.

A thread reads and decodes, the loop publishes. A place is committed when Sirocco has acknowledged
everything before it; what is read again after a crash, or after a partition has moved to another
instance, is published under the same numbers, and routers drop it (see `progress`).
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from confluent_kafka import KafkaException
from sirocco_client import AsyncNumberedPublisher, PublishFlow, Rejected, Retry
from sirocco_client.connection.retry import Backoff
from sirocco_client.errors import FailedPrecondition, Unavailable

from sirocco.model.errors import InvalidArgument
from sirocco.services.connector.runner import Parts
from sirocco.services.connector.sources.kafka_config import KafkaSourceSettings
from sirocco.services.connector.sources.kafka_reader import Batch, KafkaReader, Part
from sirocco.services.connector.sources.progress import PartitionProgress, Place
from sirocco.services.connector.sources.records import REASONS, REFUSED, Bad
from sirocco.telemetry.logging import event

logger = logging.getLogger(__name__)

T = TypeVar("T")

# The source has a bound of its own, over all partitions.
_FLOW = PublishFlow(outstanding_objects_max=1 << 30, outstanding_bytes_max=1 << 40)

# Tries of Kafka that fail: for hours, like those of the cluster.
_RETRY = Retry(attempts=5_000, initial_ms=200.0, longest_ms=10_000.0)

# In a longer pause of reading the partitions are paused, so that polling can continue: without it
# the group would expel this consumer.
_PAUSE_S = 1.0

# Between two lines about bad records.
_NOTE_S = 10.0


@dataclass(slots=True, eq=False)
class Partition:
    """One partition that this instance reads.

    Attributes:
        progress: How far it has come.
        publisher: Of its session.
        waiting: Number of the last object of each part on its way, its records, and their bytes.
    """

    progress: PartitionProgress
    publisher: AsyncNumberedPublisher
    waiting: deque[tuple[int, list[Any], int]] = field(default_factory=deque)

    @property
    def under_way_bytes(self) -> int:
        """Bytes of records that are not acknowledged."""
        return sum(size for _, _, size in self.waiting)

    def settle(self) -> int:
        """Forgets the records of parts that are acknowledged; returns how many there were."""
        count = 0
        acknowledged = self.publisher.acknowledged
        while self.waiting and self.waiting[0][0] <= acknowledged:
            count += len(self.waiting.popleft()[1])
        return count

    def record(self, number: int) -> Any:
        """Returns the record of an object on its way."""
        # Searched in halves: a cluster may refuse all objects of a batch.
        place = bisect_left(self.waiting, number, key=lambda part: part[0])
        assert place < len(self.waiting), f"number {number} is not on its way"
        _, records, _ = self.waiting[place]
        return records[bisect_left(records, number, key=lambda record: record.offset() + 1)]


class KafkaSource:
    """Reads topics and publishes what they hold. All of its methods belong to the loop."""

    def __init__(self, settings: KafkaSourceSettings, parts: Parts) -> None:
        self.name = settings.name
        self._settings = settings
        self._client = parts.client
        self._thread = ThreadPoolExecutor(1, f"source-{settings.name}")
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._acknowledged = asyncio.Event()
        self._is_reading = False
        self._noted_s = 0.0
        metrics = parts.metrics
        labels = {"side": "source", "name": self.name}
        self._records = metrics.records.labels(**labels)
        self._objects = metrics.objects.labels(**labels)
        self._empty = metrics.empty.labels(**labels)
        self._retries = metrics.retries.labels(**labels)
        self._lag = metrics.lag.labels(**labels)
        self._under_way = metrics.under_way_bytes.labels(**labels)
        self._dead = {
            reason: metrics.dead_letters.labels(**labels, reason=reason) for reason in REASONS
        }
        self._reader: KafkaReader | None = None

    @property
    def is_ready(self) -> bool:
        """Whether it reads; also without a partition, where others have all of them."""
        return self._is_reading

    async def run(self) -> None:
        """See `Runner.run`.

        Raises:
            SiroccoError: Its settings cannot work, or the cluster refuses it.
        """
        backoff = Backoff(_RETRY, random.random)
        try:
            while True:
                began_s = time.monotonic()
                try:
                    await self._read_on()
                except KafkaException as error:
                    self._is_reading = False
                    if time.monotonic() - began_s > 60:
                        backoff.progressed()
                    self._retries.inc()
                    pause_s = backoff.pause_s(Unavailable(str(error)))
                    logger.warning(str(error), extra=event("source_retries", source=self.name))
                    await asyncio.sleep(pause_s)
        finally:
            self._is_reading = False
            self._thread.shutdown(wait=False)

    # --- reading ------------------------------------------------------------------------------

    async def _read_on(self) -> None:
        """Reads with one client until it fails, or until this is cancelled."""
        loop = asyncio.get_running_loop()
        reader = KafkaReader(self._settings, _Host(self, loop))
        try:
            await self._in_thread(reader.open)
            self._reader = reader
            self._is_reading = True
            committed_s = time.monotonic()
            while True:
                await self._await_room(reader)
                batch = await self._in_thread(reader.poll)
                await self._publish(reader, batch)
                self._check(reader)
                if time.monotonic() - committed_s >= self._settings.commit_s:
                    await self._in_thread(reader.commit, self._places())
                    self._measure(reader)
                    committed_s = time.monotonic()
        finally:
            self._reader = None
            await self._end(reader)

    async def _in_thread(self, work: Any, *arguments: Any) -> Any:
        """Runs work in the thread; also when this is cancelled, the work ends before it returns."""
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._thread, work, *arguments)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            # Polls take a fraction of a second.
            await asyncio.wait((running,))
            if not running.cancelled():
                running.exception()
            raise

    async def _end(self, reader: KafkaReader) -> None:
        """Commits what is acknowledged within a moment, and leaves the group."""

        async def end() -> None:
            # Closing takes the partitions away, as when another instance gets them.
            await self._in_thread(reader.close)
            await self.release(list(self._partitions), 0.0)

        ending = asyncio.create_task(end())
        while not ending.done():
            try:
                await asyncio.shield(ending)
            except asyncio.CancelledError:
                if ending.done():
                    break

    async def _await_room(self, reader: KafkaReader) -> None:
        is_paused = False
        while self._bytes_under_way() >= self._settings.under_way_bytes:
            self._acknowledged.clear()
            try:
                await asyncio.wait_for(self._acknowledged.wait(), _PAUSE_S)
            except TimeoutError:
                if not is_paused:
                    await self._in_thread(reader.pause)
                    is_paused = True
                await self._publish(reader, await self._in_thread(reader.poll))
            self._check(reader)
        if is_paused:
            await self._in_thread(reader.resume)

    def _bytes_under_way(self) -> int:
        return sum(each.under_way_bytes for each in self._partitions.values())

    def _check(self, reader: KafkaReader) -> None:
        """Raises what ends the source."""
        for one in self._partitions.values():
            if (failure := one.publisher.failure) is not None:
                raise getattr(failure, "cause", failure)
        if reader.failure is not None:
            raise FailedPrecondition(f"dead letters of {self.name}: {reader.failure}")

    def _measure(self, reader: KafkaReader) -> None:
        read = {at: one.progress.read_to for at, one in self._partitions.items()}
        self._lag.set(
            sum(max(0, high - read[at]) for at, high in reader.ends.items() if at in read)
        )
        self._under_way.set(self._bytes_under_way())

    # --- publishing ---------------------------------------------------------------------------

    async def _publish(self, reader: KafkaReader, batch: Batch) -> None:
        for part in batch.parts:
            one = self._partitions.get(part.at)
            if one is None:
                # It has moved away since; its next owner reads it again.
                continue
            await self._publish_part(reader, one, part)
        for at, upto in batch.ends.items():
            if (one := self._partitions.get(at)) is not None:
                one.progress.read(upto)

    async def _publish_part(self, reader: KafkaReader, one: Partition, part: Part) -> None:
        decoded = part.decoded
        self._records.inc(part.count)
        self._empty.inc(decoded.empty)
        if decoded.objects is not None:
            one.waiting.append((decoded.numbers[-1], decoded.records, decoded.bytes_total))
            one.progress.published(decoded.numbers[-1])
            await one.publisher.publish_columns(decoded.objects, decoded.numbers)
        one.progress.read(part.upto)
        if decoded.bad:
            await self._put_aside(reader, part.at, decoded.bad)

    async def _put_aside(self, reader: KafkaReader, at: tuple[str, int], bad: list[Bad]) -> None:
        for each in bad:
            self._count(at, each)
        if not reader.has_dead_letters:
            return
        progress = self._partitions[at].progress
        for each in bad:
            progress.put_aside(each.record.offset())
        await self._in_thread(reader.put_aside, bad)

    def _count(self, at: tuple[str, int], bad: Bad) -> None:
        self._dead[bad.reason].inc()
        now_s = time.monotonic()
        # One line in a while: a topic may hold nothing else.
        if now_s - self._noted_s >= _NOTE_S:
            self._noted_s = now_s
            logger.warning(
                str(bad.error),
                extra=event(
                    "record_put_aside",
                    source=self.name,
                    topic=at[0],
                    partition=at[1],
                    offset=bad.record.offset(),
                    reason=bad.reason,
                ),
            )

    def _places(self) -> dict[tuple[str, int], Place]:
        """Returns what may be committed and was not yet."""
        found = {}
        for at, one in self._partitions.items():
            place = one.progress.place(one.publisher.acknowledged)
            if place != one.progress.committed:
                found[at] = place
                one.progress.committed = place
        return found

    # --- what the reader and the publishers report --------------------------------------------

    async def assign(self, places: dict[tuple[str, int], Place]) -> None:
        """Begins with partitions that this instance got."""
        for at, place in places.items():

            def refuse(one: Rejected, at: tuple[str, int] = at) -> None:
                self._refuse(at, one)

            publisher = self._client.numbered_publisher(
                place.session,
                place.number,
                on_rejected=refuse,
                on_acknowledged=self._settle,
                flow=_FLOW,
            )
            self._partitions[at] = Partition(PartitionProgress(place), publisher)
            logger.info(
                "",
                extra=event(
                    "partition_taken",
                    source=self.name,
                    topic=at[0],
                    partition=at[1],
                    offset=place.position,
                ),
            )

    async def release(
        self, partitions: list[tuple[str, int]], wait_s: float
    ) -> dict[tuple[str, int], Place]:
        """Ends with partitions, after acknowledgements; returns what may be committed."""
        found = [at for at in partitions if at in self._partitions]
        flushing = [
            asyncio.create_task(self._partitions[at].publisher.close(wait_s)) for at in found
        ]
        if flushing:
            await asyncio.wait(flushing)
        places = {}
        for at in found:
            one = self._partitions.pop(at)
            place = one.progress.place(one.publisher.acknowledged)
            if place != one.progress.committed:
                places[at] = place
        self._acknowledged.set()
        return places

    def written_aside(self, at: tuple[str, int], offset: int) -> None:
        """Records that the dead letters have a record."""
        if (one := self._partitions.get(at)) is not None:
            one.progress.is_aside(offset)

    def retried(self, reason: str) -> None:
        """Counts an attempt that failed."""
        self._retries.inc()
        logger.info(reason, extra=event("source_retries", source=self.name))

    def _settle(self) -> None:
        for one in self._partitions.values():
            self._objects.inc(one.settle())
        self._acknowledged.set()

    def _refuse(self, at: tuple[str, int], refused: Rejected) -> None:
        """Puts an object aside that the cluster refuses, while its publisher reports it."""
        one, reader = self._partitions.get(at), self._reader
        if one is None or reader is None:
            return
        error = InvalidArgument(refused.error.message, field=refused.error.field)
        bad = Bad(one.record(refused.number), REFUSED, error)
        self._count(at, bad)
        if reader.has_dead_letters:
            # Before its number counts as acknowledged.
            one.progress.put_aside(bad.record.offset())
            reader.put_aside_later(bad)


@dataclass(frozen=True, slots=True)
class _Host:
    """What the reader's thread asks of the source, on the loop."""

    source: KafkaSource
    loop: asyncio.AbstractEventLoop

    def assign(self, places: dict[tuple[str, int], Place]) -> None:
        """See `KafkaSource.assign`."""
        self._call(self.source.assign(places))

    def release(
        self, partitions: list[tuple[str, int]], wait_s: float
    ) -> dict[tuple[str, int], Place]:
        """See `KafkaSource.release`."""
        return self._call(self.source.release(partitions, wait_s))

    def written_aside(self, at: tuple[str, int], offset: int) -> None:
        """See `KafkaSource.written_aside`."""
        self.loop.call_soon_threadsafe(self.source.written_aside, at, offset)

    def retried(self, reason: str) -> None:
        """Counts an attempt that failed."""
        self.loop.call_soon_threadsafe(self.source.retried, reason)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        running: Future[T] = asyncio.run_coroutine_threadsafe(work, self.loop)
        return running.result()
