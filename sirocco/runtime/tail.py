"""The newest stretch of `deliveries`, read once and shared by all streams of a process."""

from __future__ import annotations

import asyncio
import logging
import threading
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass

from sirocco.protocol.messages import DELIVERIES, Delivered
from sirocco.runtime.hops import HopReader
from sirocco.telemetry.logging import event
from sirocco.transport.errors import Closed, OffsetOutOfRange, TransportError, Unavailable
from sirocco.transport.log import Consumer, Log

logger = logging.getLogger(__name__)

# What is kept in memory for each Kafka partition. A stream that is further behind reads the log by
# itself: it delays only itself. Seconds of a full stream, minutes of a usual one.
KEPT_BYTES = 32 << 20

POLL_RECORDS_MAX = 64
POLL_S = 0.2

# Pieces that are handed out at once. A stream holds on to them while it waits for credit, when they
# are kept no longer here.
PIECES_MAX = 16

# Between tries to read what cannot be read: an alert's resolution, few lines in a log.
RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class Piece:
    """One record of `deliveries`, and the offset behind it."""

    offset: int
    next_offset: int
    delivered: Delivered
    bytes_total: int


class Tail:
    """The tail of one `deliveries` partition."""

    def __init__(self, log: Log, partition: int, loop: asyncio.AbstractEventLoop) -> None:
        self.partition = partition
        self._log = log
        self._loop = loop
        self._lock = threading.Lock()
        self._pieces: deque[Piece] = deque()
        self._bytes = 0
        _, self._end = log.bounds(DELIVERIES, partition)
        self._begin = self._end
        self._arrived: asyncio.Event = asyncio.Event()
        self._consumer = log.consumer(f"tail-{partition}")
        self._consumer.assign({(DELIVERIES, partition): self._end})
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"tail-{partition}", daemon=True)
        self._thread.start()

    @property
    def end(self) -> int:
        """The offset behind what has been read."""
        return self._end

    def after(self, offset: int, pieces_max: int = PIECES_MAX) -> tuple[list[Piece], int] | None:
        """What is kept from an offset on; None when the offset is before what is kept.

        Returns:
            Some pieces, and the offset up to which they are all there is: both as of one moment,
            since more may come between two questions.
        """
        with self._lock:
            if offset < self._begin:
                return None
            kept = self._pieces
            first = bisect_left(kept, offset, key=lambda piece: piece.offset)
            pieces = [kept[i] for i in range(first, min(first + pieces_max, len(kept)))]
            is_all = first + len(pieces) == len(kept)
            return pieces, max(offset, self._end) if is_all else pieces[-1].next_offset

    async def wait(self, offset: int, timeout_s: float) -> None:
        """Returns when there is something at or behind the offset, or after the time."""
        # Taken before the look: what arrives in between sets this very event.
        arrived = self._arrived
        if self._end > offset:
            return
        try:
            await asyncio.wait_for(arrived.wait(), timeout_s)
        except TimeoutError:
            return

    def close(self) -> None:
        """Stops reading."""
        self._stopping.set()
        self._thread.join(5)
        self._consumer.close()

    def _run(self) -> None:
        reader = HopReader(
            lambda letter: logger.warning(
                "record skipped", extra=event("record_skipped", offset=letter.offset)
            )
        )
        key = (DELIVERIES, self.partition)
        while not self._stopping.is_set():
            try:
                records = self._consumer.poll(POLL_RECORDS_MAX, POLL_S)
            except Unavailable:
                self._stopping.wait(POLL_S)
                continue
            except OffsetOutOfRange as error:
                # Truncated under a tail that stood still: go on where the log begins.
                self._consumer.seek(*key, error.earliest)
                self._forget(error.earliest)
                continue
            except Closed:
                return
            except TransportError as error:
                # Streams wait for this thread. What is wrong may pass, and is seen until then.
                extra = event("tail_failed", partition=self.partition, reason=str(error))
                logger.warning("deliveries cannot be read", extra=extra)
                self._stopping.wait(RETRY_S)
                continue
            sizes = {record.offset: len(record.value) for record in records}
            pieces = [
                Piece(e.offset, e.offset + 1, e.message, sizes[e.offset])
                for e in reader.entries(records)
                if isinstance(e.message, Delivered)
            ]
            self._keep(pieces, self._consumer.positions()[key])

    def _keep(self, pieces: list[Piece], end: int) -> None:
        with self._lock:
            for piece in pieces:
                self._pieces.append(piece)
                self._bytes += piece.bytes_total
            while self._bytes > KEPT_BYTES and len(self._pieces) > 1:
                gone = self._pieces.popleft()
                self._bytes -= gone.bytes_total
                self._begin = gone.next_offset
            is_new = end > self._end
            self._end = end
        if is_new:
            self._loop.call_soon_threadsafe(self._notify)

    def _forget(self, begin: int) -> None:
        with self._lock:
            self._pieces.clear()
            self._bytes, self._begin, self._end = 0, begin, begin

    def _notify(self) -> None:
        self._arrived.set()
        self._arrived = asyncio.Event()


def read_pieces(consumer: Consumer, reader: HopReader, max_records: int) -> list[Piece]:
    """Reads records for a stream that is behind the tail; blocks shortly.

    Raises:
        OffsetOutOfRange: where it stands is no longer kept.
    """
    records = consumer.poll(max_records, POLL_S)
    sizes = {record.offset: len(record.value) for record in records}
    return [
        Piece(entry.offset, entry.offset + 1, entry.message, sizes[entry.offset])
        for entry in reader.entries(records)
        if isinstance(entry.message, Delivered)
    ]
