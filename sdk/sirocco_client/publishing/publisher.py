"""A publisher for threads: a stream, a thread that keeps it open, and an `Outbox` between them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import grpc
from sirocco_api.v1.columns_pb2 import ObjectColumns
from sirocco_api.v1.publish_service_pb2 import PublishRequest, PublishResponse
from sirocco_api.v1.publish_service_pb2_grpc import PublishServiceStub

from sirocco_client.base.numbers import read_wait_s
from sirocco_client.connection.connection import Connection
from sirocco_client.connection.contact import ROUTER
from sirocco_client.connection.retry import Backoff
from sirocco_client.errors import (
    FailedPrecondition,
    Internal,
    Rejected,
    SiroccoError,
    Unavailable,
)
from sirocco_client.objects.columns import check_columns
from sirocco_client.objects.object import Object
from sirocco_client.publishing.flush import CLOSE_TIMEOUT_S, END_TIMEOUT_S, flush_wait_s
from sirocco_client.publishing.outbox import Outbox, PublishFlow, PublishResult
from sirocco_client.publishing.session import new_session


class Publisher:
    """Publishes objects, each exactly once unless it fails. Safe to share between threads.

    Its own thread sends objects in batches. After a break all unacknowledged objects are sent again
    under the same numbers, and the servers drop those they already have. A session that was idle
    for an hour is replaced, because servers forget sessions after a day.
    """

    def __init__(
        self,
        flow: PublishFlow,
        connection: Connection,
        on_rejected: Callable[[Rejected], None] | None,
    ) -> None:
        """Use `Client.publisher`."""
        self._outbox = Outbox(flow, new_session)
        self._connection = connection
        self._on_rejected = on_rejected
        # Guards the outbox and everything below.
        lock = threading.RLock()
        # Paused or flushing callers wait here;
        self._changed = threading.Condition(lock)
        # the thread and the stream's request iterator wait here.
        self._work = threading.Condition(lock)
        self._thread: threading.Thread | None = None
        self._stream = 0
        self._call: Any = None
        self._is_reporting = False
        self._reported = 0
        self._is_closing = False
        self._is_closed = False

    def __repr__(self) -> str:
        """Shows the progress."""
        with self._changed:
            return f"<Publisher: {self._outbox.state(is_closed=self._is_closed)}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close()
        except SiroccoError as second:
            # The error of the `with` body is the one to raise.
            error.add_note(f"and the publisher could not be closed cleanly: {second}")

    # --- what callers do ---------------------------------------------------------------------

    def publish(self, source: Mapping[str, Any] | Object) -> int:
        """Accepts an object; returns its number, from 1. Waits while too much is unacknowledged.

        Raises:
            InvalidArgument: It cannot be sent; `field` names the member. Nothing was accepted.
            PublishFailed: The publisher gave up.
        """
        with self._changed:
            self._admit()
            if self._outbox.add(source, time.monotonic()):
                self._wake()
            return self._outbox.added

    def publish_many(self, sources: Iterable[Mapping[str, Any] | Object]) -> int:
        """Accepts objects in order; returns their number. Lists and tuples are fastest.

        Raises:
            InvalidArgument: One cannot be sent; `field` is, for example, `objects[17].lon`. The
                objects before it were accepted.
            PublishFailed: The publisher gave up.
        """
        count = 0
        if not isinstance(sources, list | tuple):
            # The iterable may produce objects slowly: none waits for another.
            for source in sources:
                self.publish(source)
                count += 1
            return count
        while count < len(sources):
            with self._changed:
                self._admit()
                room = self._outbox.room()
                part: Sequence[Mapping[str, Any] | Object] = sources[count : count + room]
                wakes = True
                try:
                    wakes = self._outbox.add_many(part, count, time.monotonic())
                finally:
                    # Also after an error: the objects before it were accepted.
                    if wakes:
                        self._wake()
            count += len(part)
        return count

    def publish_columns(self, columns: ObjectColumns) -> int:
        """Accepts objects given as columns (see `columns.proto`); returns their number.

        Raises:
            InvalidArgument: The columns do not fit together; nothing was accepted.
            PublishFailed: The publisher gave up.
        """
        check_columns(columns)
        for part in self._outbox.split(columns):
            with self._changed:
                self._admit()
                self._outbox.add_columns(part, time.monotonic())
                self._wake()
        return int(columns.count)

    def flush(self, timeout_s: float | None = None) -> PublishResult:
        """Sends all accepted objects and waits until they are acknowledged.

        Args:
            timeout_s: How long to wait, seconds. None: as long as the stream is retried.

        Raises:
            ObjectsRejected: Objects were refused since the last flush, and there is no
                `on_rejected`. All others are in the log.
            DeadlineExceeded: Some objects are not acknowledged yet; sending continues.
            PublishFailed: The publisher gave up.
        """
        wait_s = read_wait_s(timeout_s, "timeout_s")
        deadline_s = None if wait_s is None else time.monotonic() + wait_s
        with self._changed:
            wanted = self._outbox.added
            self._outbox.seal(time.monotonic())
            if self._outbox.has_work:
                self._wake()
            while self._outbox.acknowledged < wanted or self._is_reporting:
                now_s, is_closed = time.monotonic(), self._is_closed
                self._changed.wait(
                    flush_wait_s(self._outbox, wanted, deadline_s, now_s, is_closed=is_closed)
                )
            self._outbox.raise_rejections()
            return self._outbox.result()

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Flushes and ends the stream; calling it again does nothing. Raises as `flush`."""
        # Before anything else: what is accepted is still to be sent.
        read_wait_s(timeout_s, "timeout_s")
        with self._changed:
            if self._is_closed:
                return
            # Callers that wait for room must see it.
            self._is_closing = True
            self._changed.notify_all()
        try:
            self.flush(timeout_s)
        finally:
            with self._changed:
                self._is_closed = True
                self._changed.notify_all()
                self._work.notify_all()
            self._end_thread()

    @property
    def acknowledged(self) -> int:
        """Every object up to this number is in the log, or was refused and reported."""
        with self._changed:
            return self._reported

    @property
    def position_token(self) -> str:
        """Pass it to a search to find at least the acknowledged objects; empty if there is none."""
        with self._changed:
            return self._outbox.result().position_token

    def _end_thread(self) -> None:
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        thread.join(END_TIMEOUT_S)
        with self._changed:
            if self._call is not None:
                self._call.cancel()
        thread.join(END_TIMEOUT_S)

    def _admit(self) -> None:
        while True:
            self._outbox.check()
            if self._is_closing:
                raise FailedPrecondition("the publisher is closed")
            if not self._outbox.is_paused:
                return
            self._changed.wait()

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="sirocco-publisher", daemon=True)
            self._thread.start()
        self._work.notify_all()

    # --- what the thread does ----------------------------------------------------------------

    def _run(self) -> None:
        backoff = Backoff(self._connection.retry, random.random, reach_s=self._connection.timeout_s)
        try:
            while self._await_work():
                backoff.begin()
                address = self._connection.routers.current
                error = self._converse(address, backoff)
                if error is None:
                    continue
                self._connection.routers.failed(address)
                pause_s = backoff.pause_s(error)
                with self._changed:
                    self._work.wait_for(lambda: self._is_closed, pause_s)
        except SiroccoError as error:
            self._give_up(error)
        except Exception as error:
            # Callers wait for this thread; they must receive any error that ends it.
            failure = Internal(f"the publisher's thread failed: {error!r}")
            failure.__cause__ = error
            self._give_up(failure)

    def _give_up(self, error: SiroccoError) -> None:
        with self._changed:
            self._outbox.fail(error)
            self._changed.notify_all()

    def _await_work(self) -> bool:
        with self._changed:
            while not self._is_closed:
                now_s = time.monotonic()
                if self._outbox.needs_stream(now_s):
                    return True
                self._work.wait(self._outbox.due_in_s(now_s))
            return False

    def _converse(self, address: str, backoff: Backoff) -> SiroccoError | None:
        """Runs one stream until it ends; returns the error, None for a normal end.

        Raises:
            Internal: The server breaks the contract.
            FailedPrecondition: The client was closed.
        """
        with self._changed:
            self._outbox.rewind()
            self._stream += 1
            generation = self._outbox.generation
            requests = self._requests(self._stream, generation)
        error: SiroccoError = Unavailable("the server ended the stream")
        try:
            call = self._open(address, requests)
            for response in call:
                backoff.progressed()
                self._connection.contact.reached(address, ROUTER)
                self._acknowledge(response)
        except grpc.RpcError as failure:
            error = self._connection.contact.failed(address, ROUTER, "Publish", failure)
        finally:
            with self._changed:
                call, self._call = self._call, None
                # Ends the request iterator, which may still wait for work.
                self._stream += 1
                self._work.notify_all()
            if call is not None:
                call.cancel()
        with self._changed:
            is_lost = self._outbox.has_work and not self._is_closed
            return error if is_lost and self._outbox.generation == generation else None

    def _open(self, address: str, requests: Iterator[PublishRequest]) -> Any:
        metadata = self._connection.metadata
        try:
            call = self._connection.kept_call(
                address,
                lambda channel: PublishServiceStub(channel).Publish(requests, metadata=metadata),
            )
        except ValueError as failure:
            raise FailedPrecondition(f"the client is closed: {failure}") from None
        with self._changed:
            self._call = call
        return call

    def _acknowledge(self, response: PublishResponse) -> None:
        with self._changed:
            refused = self._outbox.acknowledge(response, time.monotonic())
            if self._on_rejected is None:
                self._outbox.keep(refused)
                refused = []
            # `flush` waits until the last refused object was reported.
            reported = self._outbox.acknowledged
            self._is_reporting = bool(refused)
            if not refused:
                self._reported = reported
            self._changed.notify_all()
        if self._on_rejected is not None and refused:
            for each in refused:
                self._on_rejected(each)
            with self._changed:
                self._is_reporting = False
                self._reported = reported
                self._changed.notify_all()

    def _requests(self, stream: int, generation: int) -> Iterator[PublishRequest]:
        """Yields the requests of one stream, on a gRPC thread."""
        while True:
            with self._changed:
                while True:
                    if self._is_closed or self._stream != stream:
                        return
                    now_s = time.monotonic()
                    is_current = self._outbox.generation == generation
                    request = self._outbox.next_request(now_s) if is_current else None
                    if self._outbox.generation != generation:
                        return
                    if request is not None:
                        break
                    self._work.wait(self._outbox.due_in_s(now_s))
            yield request
