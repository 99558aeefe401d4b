"""A subscription for threads: iterated by the caller, resumed automatically after a break."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

import grpc
from sirocco_api.v1.receive_service_pb2 import ReceiveRequest
from sirocco_api.v1.receive_service_pb2_grpc import ReceiveServiceStub

from sirocco_client.connection.channels import error_of
from sirocco_client.connection.connection import Connection
from sirocco_client.connection.contact import MERGER
from sirocco_client.connection.endpoints import Endpoints
from sirocco_client.connection.retry import Backoff
from sirocco_client.errors import DeadlineExceeded, FailedPrecondition, SiroccoError, Unavailable
from sirocco_client.notifications.decode import Delivery, NotificationBatch
from sirocco_client.notifications.receiving import Receiving


class Subscription:
    """The notifications of one subscriber, as items or as batches.

    One thread iterates, any thread may close. The stream is read when the consumer asks for more. A
    slow consumer therefore holds at most its credit in memory and delays only itself. After a break
    the stream continues after the last batch read, on another merger if necessary: nothing is
    missed or repeated.
    """

    def __init__(
        self,
        state: Receiving,
        connection: Connection,
        merger_order: Callable[[str, float], Endpoints],
        began: Callable[[Subscription], None],
    ) -> None:
        """Use `Client.subscribe`."""
        self._state = state
        # The client's time limit is also that for finding mergers, and for the first answer.
        self._connection = connection
        self._backoff = Backoff(connection.retry, random.random, reach_s=connection.timeout_s)
        self._opening_until_s: float | None = None
        self._merger_order = merger_order
        # Called before the stream is opened, so that the client can close it.
        self._began = began
        self._mergers: Endpoints | None = None
        self._lock = threading.Lock()
        # Held by the thread that waits for a batch.
        self._reading = threading.Lock()
        self._is_closed = False
        # Set while reading is not allowed: after `close`, or since `open` took too long.
        self._halt = threading.Event()
        self._address = ""
        self._call: Any = None
        self._outgoing: SimpleQueue[ReceiveRequest | None] = SimpleQueue()
        # Batch that `open` read in advance.
        self._ahead: NotificationBatch | None = None

    def __repr__(self) -> str:
        """Shows the subscriber and the position."""
        connected = f"connected to {self._address}" if self._call is not None else "not connected"
        state = "closed" if self._is_closed else connected
        return f"<Subscription of {self._state.subscriber!r} at {self.cursor!r}, {state}>"

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def cursor(self) -> str:
        """Cursor to resume from without missing anything that the consumer has not finished.

        The consumer has finished a batch when it asks for the next one. Empty before the first
        answer.
        """
        return self._state.consumed

    def open(self, timeout_s: float | None = None) -> None:
        """Waits until the stream is open; objects published from now on are reported.

        Args:
            timeout_s: How long to wait, seconds. None: the client's time limit.

        Raises:
            CursorExpired: The cursor's notifications are no longer stored.
            Unavailable: No server could be reached in time.
            DeadlineExceeded: No merger answered in time.
            SiroccoError: The stream cannot be opened.
        """
        if self._state.is_placed or self._is_closed:
            return
        timeout_s = self._connection.seconds(timeout_s)
        self._opening_until_s = time.monotonic() + timeout_s
        timer = threading.Timer(timeout_s, self._stop_reading)
        timer.daemon = True
        timer.start()
        try:
            while not self._state.is_placed and not self._is_closed:
                self._ahead = self._read()
        finally:
            self._opening_until_s = None
            timer.cancel()
            timer.join()
            self._halt.clear()
            if self._is_closed:
                self._halt.set()

    def batches(self) -> Iterator[NotificationBatch]:
        """Yields batches until the subscription is closed; raises as `next_batch`."""
        while (batch := self.next_batch()) is not None:
            yield batch

    def __iter__(self) -> Iterator[Delivery]:
        """Yields items until the subscription is closed; raises as `next_batch`."""
        for batch in self.batches():
            for item in batch:
                if self._is_closed:
                    return
                yield item

    def next_batch(self) -> NotificationBatch | None:
        """Finishes the previous batch and waits for the next one; None once closed.

        Raises:
            CursorExpired: The next notifications are no longer stored; `earliest` is the cursor to
                continue from.
            FailedPrecondition: Another thread is waiting for a batch.
            Unavailable: No merger could be reached, for as long as `Retry` allows.
            SiroccoError: Any other error that the server reports.
        """
        if not self._reading.acquire(blocking=False):
            raise FailedPrecondition("another thread reads this subscription; open one for each")
        try:
            return self._next_batch()
        finally:
            self._reading.release()

    def _next_batch(self) -> NotificationBatch | None:
        if self._is_closed:
            return None
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            return ahead
        credit = self._state.done()
        if credit is not None:
            self._outgoing.put(credit)
        while not self._is_closed:
            batch = self._read()
            if batch is not None:
                return batch
        return None

    def close(self) -> None:
        """Ends the stream and the iteration, from any thread; calling it again does nothing."""
        self._is_closed = True
        self._stop_reading()

    def _stop_reading(self) -> None:
        self._halt.set()
        with self._lock:
            call = self._call
            self._outgoing.put(None)
        if call is not None:
            call.cancel()

    def _read(self) -> NotificationBatch | None:
        """Reads one response, opening the stream if needed; None if the response holds no batch."""
        try:
            call = self._call or self._open()
            response = next(call, None)
            if response is None:
                raise Unavailable("the server ended the stream")
        except (grpc.RpcError, ValueError, SiroccoError) as failure:
            # ValueError: the channel was closed meanwhile.
            if self._call is None or self._halt.is_set():
                # There was no merger, or this client ended the call.
                self._broken(error_of(failure))
            else:
                self._broken(
                    self._connection.contact.failed(self._address, MERGER, "Receive", failure)
                )
            return None
        self._backoff.progressed()
        self._connection.contact.reached(self._address, MERGER)
        return self._state.received(response)

    def _open(self) -> Any:
        self._began(self)
        self._backoff.begin()
        if self._mergers is None:
            until_s = self._opening_until_s
            left_s = self._connection.timeout_s if until_s is None else until_s - time.monotonic()
            self._mergers = self._merger_order(self._state.subscriber, max(left_s, 0.01))
        self._address = self._mergers.current
        metadata = self._connection.metadata
        with self._lock:
            self._outgoing = SimpleQueue()
            self._outgoing.put(self._state.open_request())
            requests = iter(self._outgoing.get, None)
            call = self._call = self._connection.kept_call(
                self._address,
                lambda channel: ReceiveServiceStub(channel).Receive(requests, metadata=metadata),
            )
        if self._halt.is_set():
            # The thread that set it may have looked before the call existed.
            call.cancel()
        return call

    def _broken(self, error: SiroccoError) -> None:
        """Prepares the next try, or raises."""
        with self._lock:
            call, self._call = self._call, None
            self._outgoing.put(None)
        if call is not None:
            call.cancel()
        if self._is_closed:
            return
        if self._halt.is_set():
            if call is None and isinstance(error, Unavailable):
                raise error
            raise DeadlineExceeded("no merger reported where the stream begins") from error
        pause_s = self._backoff.pause_s(error)
        if self._mergers is not None and self._mergers.failed(self._address):
            # All were tried: others may have started.
            self._mergers = None
        self._halt.wait(pause_s)
