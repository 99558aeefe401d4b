"""Appends that a caller awaits: from coroutines of the gRPC loop to the log and back."""

from __future__ import annotations

import asyncio
import threading

from sirocco.model import errors
from sirocco.protocol.contract.messages import Message
from sirocco.runtime.loop.hops import HopWriter
from sirocco.transport.errors import AppendFailed, FencedError, LogFull, RecordTooLarge
from sirocco.transport.log import Headers, Log

# How long a client should wait when the log's queue is full: it drains at tens of MB a second.
RETRY_AFTER_MS = 200

# How long the thread sleeps for the next append, and waits for an acknowledgement after it.
IDLE_S = 0.2
POLL_S = 0.05


class Appender:
    """A separate producer for the front, polled by a thread of its own.

    So the front's latency does not depend on the back's batches.

    Attributes:
        failure: why nothing can be appended any more; ends the process.
    """

    def __init__(self, log: Log, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Without a wait in `append`: it would block the loop that answers all clients.
        self._producer = log.producer(name, append_wait_s=0.0)
        self._writer = HopWriter(self._producer, self._appended)
        self.failure: Exception | None = None
        self._futures: dict[int, asyncio.Future[int]] = {}
        self._next = 0
        self._stopping = threading.Event()
        self._appending = threading.Event()
        self._thread = threading.Thread(target=self._poll, name=f"{name}-acks", daemon=True)
        self._thread.start()

    def append(
        self, topic: str, partition: int, message: Message, headers: Headers = ()
    ) -> asyncio.Future[int]:
        """Appends a record; to be called in the loop. The future has its offset.

        `headers`: as of `HopWriter.append`.

        Raises:
            errors.ResourceExhausted: the queue to the log is full.
            errors.InvalidArgument: the record is larger than the log takes.
            errors.Unavailable: nothing can be appended any more.
        """
        number = self._next
        self._next += 1
        try:
            self._writer.append(topic, partition, message, number, headers)
        except LogFull as error:
            raise errors.ResourceExhausted(
                "the log takes no more at the moment", retry_after_ms=RETRY_AFTER_MS
            ) from error
        except RecordTooLarge as error:
            raise errors.InvalidArgument(str(error), field="objects") from error
        except (AppendFailed, FencedError) as error:
            # Also if the client found it out itself, without a record.
            self.failure = error
            raise errors.Unavailable(f"the log does not take the record: {error}") from error
        # Acknowledgements arrive through the loop too, so not before this.
        future: asyncio.Future[int] = self._loop.create_future()
        self._futures[number] = future
        self._appending.set()
        return future

    def close(self) -> None:
        """Waits for what is under way, then ends."""
        self._stopping.set()
        self._thread.join(10)
        self._producer.close()

    def _poll(self) -> None:
        while not self._stopping.is_set() or self._producer.pending:
            if not self._producer.pending:
                self._appending.wait(IDLE_S)
                self._appending.clear()
            self._producer.poll(POLL_S)

    def _appended(self, number: int, error: Exception | None, offset: int) -> None:
        self._loop.call_soon_threadsafe(self._settle, number, error, offset)

    def _settle(self, number: int, error: Exception | None, offset: int) -> None:
        if error is not None:
            # The producer is unusable: a record after a gap must not be appended.
            self.failure = error
        future = self._futures.pop(number, None)
        if future is None or future.done():
            return
        if error is None:
            future.set_result(offset)
        else:
            future.set_exception(errors.Unavailable(f"the log did not take the record: {error}"))
