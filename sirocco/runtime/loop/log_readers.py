"""Reads `deliveries` for streams that are behind the tail: a few readers serve any number of them.

A Kafka client costs four threads and up to 32 MiB that it reads ahead. Streams that are behind ask
for one stretch after the other and share a bounded number of clients. Streams that ask for the same
stretch, as after a merger's restart, share one read.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from sirocco.protocol.contract.messages import DELIVERIES
from sirocco.runtime.loop.delivery_tail import POLL_S, TailRecord, pieces_of
from sirocco.runtime.loop.hops import HopReader
from sirocco.transport.errors import OffsetOutOfRange
from sirocco.transport.log import Consumer, Log

# Clients of the log at a time. A stretch takes some 10 ms where a reader has to seek for it: four
# read some hundred stretches a second for streams that are all at different places.
READERS_MAX = 4

# Records of one stretch.
STRETCH_RECORDS = 16

# Bytes of the stretches read last, kept for others that ask for them.
KEPT_BYTES = 16 << 20

# How long a reader waits for the first record of a stretch. With Kafka the first answer after a
# seek may take longer than one poll.
READ_S = 1.0

# Without a request for this time the readers are closed.
REST_S = 2.0


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive records of one Kafka partition.

    Attributes:
        begin, end: offsets; the pieces are complete from `begin` up to `end`.
    """

    partition: int
    begin: int
    end: int
    pieces: list[TailRecord]

    @property
    def bytes_total(self) -> int:
        """About how many bytes its pieces take in memory."""
        return sum(piece.bytes_total for piece in self.pieces)

    def since(self, offset: int) -> Stretch:
        """Returns the part from an offset within it on."""
        pieces = [piece for piece in self.pieces if piece.offset >= offset]
        return Stretch(self.partition, offset, self.end, pieces)


class LogReaders:
    """The readers of a process.

    Args:
        log: where they read.
        readers_max: how many there are at most.
    """

    def __init__(self, log: Log, readers_max: int = READERS_MAX) -> None:
        self._log = log
        self._threads = ThreadPoolExecutor(readers_max, "deliveries")
        self._lock = threading.Lock()
        self._idle: list[_Reader] = []
        self._kept: deque[Stretch] = deque()
        self._kept_bytes = 0
        self._reading: dict[tuple[int, int], asyncio.Future[Stretch]] = {}
        self._requested_s = 0.0
        self._rest: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def read(self, partition: int, offset: int) -> Stretch:
        """Returns the records from an offset on; empty where none arrived in time.

        Raises:
            OffsetOutOfRange: it is no longer kept.
        """
        for stretch in self._kept:
            if stretch.partition == partition and stretch.begin <= offset < stretch.end:
                return stretch.since(offset)
        key = (partition, offset)
        if (reading := self._reading.get(key)) is None:
            loop = asyncio.get_running_loop()
            reading = loop.run_in_executor(self._threads, self._read, partition, offset)
            self._reading[key] = reading
            reading.add_done_callback(lambda done: self._note_read(key, done))
            self._requested_s = time.monotonic()
            if self._rest is None:
                self._rest = loop.call_later(REST_S, self._look_for_rest)
        # Others may wait for the same read, and a reading thread cannot be cancelled.
        return await asyncio.shield(reading)

    def close(self) -> None:
        """Ends all readers; waits for those that are reading."""
        self._is_closed = True
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._close_idle()

    def _note_read(self, key: tuple[int, int], done: asyncio.Future[Stretch]) -> None:
        self._reading.pop(key, None)
        if done.cancelled() or done.exception() is not None:
            return
        stretch = done.result()
        if stretch.pieces:
            self._kept.append(stretch)
            self._kept_bytes += stretch.bytes_total
        while self._kept_bytes > KEPT_BYTES:
            self._kept_bytes -= self._kept.popleft().bytes_total

    def _look_for_rest(self) -> None:
        loop = asyncio.get_running_loop()
        left_s = self._requested_s + REST_S - time.monotonic()
        if self._reading or left_s > 0:
            self._rest = loop.call_later(max(left_s, POLL_S), self._look_for_rest)
            return
        self._rest = None
        self._kept.clear()
        self._kept_bytes = 0
        if not self._is_closed:
            loop.run_in_executor(self._threads, self._close_idle)

    def _close_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for reader in idle:
            reader.close()

    def _read(self, partition: int, offset: int) -> Stretch:
        reader = self._take(partition, offset)
        is_sound = False
        try:
            stretch = reader.read(partition, offset)
            is_sound = True
            return stretch
        except OffsetOutOfRange:
            is_sound = True
            raise
        finally:
            if is_sound:
                with self._lock:
                    self._idle.append(reader)
            else:
                # The next request makes another reader: the state of this one is unknown.
                reader.close()

    def _take(self, partition: int, offset: int) -> _Reader:
        """Returns a reader for the calling thread; preferably one already at that offset."""
        with self._lock:
            for number, reader in enumerate(self._idle):
                if reader.at == (partition, offset):
                    return self._idle.pop(number)
            if self._idle:
                return self._idle.pop(0)
        return _Reader(self._log)


class _Reader:
    """One client of the log; used by one thread at a time."""

    def __init__(self, log: Log) -> None:
        self._consumer: Consumer = log.consumer("deliveries-reader")
        self._letters = HopReader(lambda _letter: None)
        self.at: tuple[int, int] | None = None

    def read(self, partition: int, offset: int) -> Stretch:
        key = (DELIVERIES, partition)
        is_there, self.at = self.at == (partition, offset), None
        if not is_there:
            self._consumer.assign({key: offset})
        end_s = time.monotonic() + READ_S
        while True:
            records = self._consumer.poll(STRETCH_RECORDS, POLL_S)
            position = self._consumer.positions()[key]
            if records or position > offset or time.monotonic() >= end_s:
                break
        self.at = (partition, position)
        pieces = pieces_of(records, self._letters).get(partition, [])
        return Stretch(partition, offset, position, pieces)

    def close(self) -> None:
        self._consumer.close()
