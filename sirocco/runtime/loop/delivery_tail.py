"""The newest part of `deliveries`, read once and shared by all streams of a process."""

from __future__ import annotations

import asyncio
import logging
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from sirocco.protocol.contract.messages import DELIVERIES, Delivered
from sirocco.protocol.merger.delivery_parts import Part, RecordViews
from sirocco.protocol.merger.delivery_records import of_subscriber
from sirocco.runtime.loop.hops import HopReader
from sirocco.runtime.loop.limits import TAIL, TailLimits
from sirocco.telemetry.logging import event
from sirocco.transport.errors import Closed, OffsetOutOfRange, TransportError, TransportUnavailable
from sirocco.transport.log import Consumer, Headers, Log, Record

logger = logging.getLogger(__name__)

POLL_RECORDS_MAX = 64

# How long one poll of the log waits. A partition whose tail is opened joins the next one.
POLL_S = 0.1

# Pieces that are returned at once.
PIECES_MAX = 16

# What a piece takes besides its record's bytes: 3 to 6 KB for its columns, and each string of it. A
# trickle of single matches makes records of 160 bytes: counted by these alone, 32 MiB of them were
# 700 MiB.
PIECE_BYTES = 6_144
STRING_BYTES = 64

# And for views: 6 KB, and each subscriber in the table of rows.
VIEWS_BYTES = 6_144
ROW_BYTES = 128

# Once nothing has come for so long, all waiting streams wake: their clients may wait to know that
# they have everything.
SETTLED_S = 0.1

# Seconds for each waiting stream between two wake-ups of all, most of which find nothing. A stream
# takes a tenth of a millisecond to check. Without a bound, thousands of streams that check after
# each of some windows a second would leave the loop no time for anything else.
WAKE_S = 0.000_3


@dataclass(frozen=True, slots=True)
class TailRecord:
    """One record of `deliveries`.

    Attributes:
        next_offset: the offset after it.
        bytes_total: about how many bytes it takes in memory.
        headers: with places in traces.
        views: of a record in which several subscribers have matches.
    """

    offset: int
    next_offset: int
    delivered: Delivered
    bytes_total: int
    headers: Headers = ()
    views: RecordViews | None = None

    def part_of(self, subscriber: str) -> Part | None:
        """Returns the part for one subscriber; None when it has none."""
        if self.views is not None:
            return self.views.part_of(subscriber)
        return of_subscriber(self.delivered, subscriber)


class Tail:
    """The tail of one `deliveries` partition; `Tails` fills it.

    Args:
        partition: the Kafka partition.
        end: offset from which on it keeps records.
        loop: of the streams that wait for more.
    """

    def __init__(self, partition: int, end: int, loop: asyncio.AbstractEventLoop) -> None:
        self.partition = partition
        self._loop = loop
        self._lock = threading.Lock()
        self._pieces: deque[TailRecord] = deque()
        self._bytes = 0
        self._begin = self._end = end
        # How often what the tail had not read was truncated.
        self._gaps = 0
        # Used in the loop alone: waiters by subscriber, up to where they were notified of records,
        # when the last of these came, and when all were woken last.
        self._waiting: dict[str, set[asyncio.Future[int]]] = {}
        self._waiting_count = 0
        self._notified_end = end
        self._moved_s = 0.0
        self._woken_s = 0.0
        self._settling: asyncio.TimerHandle | None = None

    @property
    def end(self) -> int:
        """The offset after what has been read."""
        return self._end

    def after(
        self, offset: int, pieces_max: int = PIECES_MAX
    ) -> tuple[list[TailRecord], int] | None:
        """Returns what is kept from an offset on; None when the offset is before what is kept.

        Returns:
            Some pieces, and the offset up to which they are complete. Both are as of one moment,
            since more may arrive between two calls.
        """
        with self._lock:
            if offset < self._begin:
                return None
            kept = self._pieces
            first = bisect_left(kept, offset, key=lambda piece: piece.offset)
            pieces = [kept[i] for i in range(first, min(first + pieces_max, len(kept)))]
            is_all = first + len(pieces) == len(kept)
            return pieces, max(offset, self._end) if is_all else pieces[-1].next_offset

    @property
    def is_settling(self) -> bool:
        """Whether all who wait will be woken, since something has come."""
        return self._settling is not None

    async def wait(self, offset: int, timeout_s: float, subscriber: str = "") -> int:
        """Returns when there is something for the subscriber at or after the offset.

        Also once nothing has come for anybody for a while, and after the time.

        Returns:
            The offset, or a later one: nothing between the two is for the subscriber.
        """
        loop = asyncio.get_running_loop()
        # No record is missed in between: `keep` wakes the waiters through this same loop.
        if self._end > offset:
            return offset
        waiter: asyncio.Future[int] = loop.create_future()
        timer = loop.call_later(timeout_s, self._pass, waiter)
        own = self._waiting.setdefault(subscriber, set())
        own.add(waiter)
        self._waiting_count += 1
        gaps = self._gaps
        try:
            found = await waiter
            # What was truncated may have been the subscriber's: it has to learn of that.
            return max(offset, found) if gaps == self._gaps else offset
        finally:
            timer.cancel()
            self._waiting_count -= 1
            own.discard(waiter)
            if not own and self._waiting.get(subscriber) is own:
                del self._waiting[subscriber]

    def keep(self, pieces: Iterable[TailRecord], end: int, kept_bytes: int) -> None:
        """Takes what was read up to `end`, and forgets the oldest beyond `kept_bytes`."""
        pieces = tuple(pieces)
        with self._lock:
            for piece in pieces:
                self._pieces.append(piece)
                self._bytes += piece.bytes_total
            while self._bytes > kept_bytes and len(self._pieces) > 1:
                gone = self._pieces.popleft()
                self._bytes -= gone.bytes_total
                self._begin = gone.next_offset
            is_new = end > self._end
            self._end = end
        if is_new:
            self._loop.call_soon_threadsafe(self._notify, pieces, end)

    def forget(self, begin: int) -> None:
        """Restarts at an offset: what was before it is truncated."""
        with self._lock:
            self._pieces.clear()
            self._bytes, self._begin, self._end = 0, begin, begin
            self._gaps += 1

    def _notify(self, pieces: Iterable[TailRecord], end: int) -> None:
        """Wakes waiters with new records at once, the others when nothing more comes."""
        for piece in pieces:
            for name in self._waiting.keys() & piece.delivered.queries.subscribers:
                for waiter in self._waiting[name]:
                    _wake(waiter, piece.offset)
        self._notified_end = end
        self._moved_s = self._loop.time()
        if self._settling is None:
            self._settling = self._loop.call_later(SETTLED_S, self._settle)

    def _settle(self) -> None:
        """Wakes all if nothing has come for a while, as often as the loop can bear."""
        now_s = self._loop.time()
        bearable_s = self._woken_s + self._waiting_count * WAKE_S
        due_s = max(self._moved_s + SETTLED_S, bearable_s)
        if now_s < due_s:
            self._settling = self._loop.call_at(due_s, self._settle)
            return
        self._settling = None
        self._woken_s = now_s
        for waiters in self._waiting.values():
            for waiter in waiters:
                self._pass(waiter)

    def _pass(self, waiter: asyncio.Future[int]) -> None:
        """Wakes a waiter for whom nothing has come."""
        _wake(waiter, self._notified_end)


def _wake(waiter: asyncio.Future[int], offset: int) -> None:
    if not waiter.done():
        waiter.set_result(offset)


class Tails:
    """The tails of all `deliveries` partitions that a process serves: one thread, one consumer.

    Args:
        log: where they are read.
        limits: how much is kept.
    """

    def __init__(self, log: Log, limits: TailLimits = TAIL) -> None:
        self._limits = limits
        self._log = log
        self._lock = threading.Lock()
        self._tails: dict[int, Tail] = {}
        # Opened, and not yet read by the thread.
        self._joining: list[Tail] = []
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def open(self, partition: int, loop: asyncio.AbstractEventLoop) -> Tail:
        """Returns the tail of a Kafka partition, a new one from the log's present end; blocks.

        Raises:
            Unavailable: the log did not answer.
        """
        with self._lock:
            if (known := self._tails.get(partition)) is not None:
                return known
        _, end = self._log.bounds(DELIVERIES, partition)
        with self._lock:
            if (known := self._tails.get(partition)) is not None:
                return known
            tail = self._tails[partition] = Tail(partition, end, loop)
            # It is read from exactly `end` on, whenever the thread takes it up.
            self._joining.append(tail)
            if self._thread is None and not self._stopping.is_set():
                self._thread = threading.Thread(target=self._run, name="tails", daemon=True)
                self._thread.start()
        return tail

    def close(self) -> None:
        """Stops reading."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(5)

    def _run(self) -> None:
        consumer: Consumer | None = None
        reader = HopReader(
            lambda letter: logger.warning(
                "record cannot be read; it is skipped",
                extra=event("record_skipped", offset=letter.offset),
            )
        )
        try:
            while not self._stopping.is_set():
                try:
                    if consumer is None:
                        consumer = self._log.consumer("tails")
                    self._join(consumer)
                    self._read(consumer, reader)
                except TransportUnavailable:
                    self._stopping.wait(POLL_S)
                except Closed:
                    return
                except TransportError as error:
                    # Streams wait for this thread. The error may pass, and is visible until then.
                    extra = event("tail_failed", reason=str(error))
                    logger.warning("deliveries cannot be read; trying again", extra=extra)
                    self._stopping.wait(self._limits.retry_s)
        finally:
            if consumer is not None:
                consumer.close()

    def _join(self, consumer: Consumer) -> None:
        with self._lock:
            joining = list(self._joining)
        if joining:
            consumer.add({(DELIVERIES, tail.partition): tail.end for tail in joining})
            with self._lock:
                del self._joining[: len(joining)]

    def _read(self, consumer: Consumer, reader: HopReader) -> None:
        try:
            records = consumer.poll(POLL_RECORDS_MAX, POLL_S)
        except OffsetOutOfRange as error:
            # Truncated under a tail that stood still: continue where the log begins.
            consumer.seek(DELIVERIES, error.partition, error.earliest)
            self._tails[error.partition].forget(error.earliest)
            return
        pieces = pieces_of(records, reader)
        positions = consumer.positions()
        limits = self._limits
        kept_bytes = min(limits.kept_bytes, limits.kept_bytes_total // max(1, len(positions)))
        for (_, partition), position in positions.items():
            tail = self._tails[partition]
            if (own := pieces.get(partition)) or position > tail.end:
                tail.keep(own or (), position, kept_bytes)


def pieces_of(records: list[Record], reader: HopReader) -> dict[int, list[TailRecord]]:
    """Returns the pieces among records, by Kafka partition."""
    found = {(record.partition, record.offset): record for record in records}
    pieces: dict[int, list[TailRecord]] = {}
    for entry in reader.entries(records):
        if isinstance(entry.message, Delivered):
            record = found[entry.partition, entry.offset]
            headers = record.headers if len(record.headers) > 1 else ()
            views = RecordViews.of(entry.message)
            size = len(record.value) + _bytes_beside(entry.message)
            if views is not None:
                size += VIEWS_BYTES + ROW_BYTES * len(views.rows)
            piece = TailRecord(entry.offset, entry.offset + 1, entry.message, size, headers, views)
            pieces.setdefault(entry.partition, []).append(piece)
    return pieces


def _bytes_beside(delivered: Delivered) -> int:
    """Returns the most bytes that a record takes in memory besides those of its value."""
    names = delivered.queries
    return PIECE_BYTES + STRING_BYTES * (len(names.subscribers) + len(names.specs or ()))
