"""A publisher for asyncio: the twin of `publisher`, with a task instead of its thread."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio
from sirocco_api.v1.columns_pb2 import ObjectColumns
from sirocco_api.v1.publish_service_pb2 import PublishResponse
from sirocco_api.v1.publish_service_pb2_grpc import PublishServiceStub

from sirocco_client.async_waiting import Signal, was_call_cancelled
from sirocco_client.channels import Metadata
from sirocco_client.columns import check_columns
from sirocco_client.contact import ROUTER, Contact
from sirocco_client.endpoints import Endpoints
from sirocco_client.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    Rejected,
    SiroccoError,
    Unavailable,
)
from sirocco_client.numbers import read_wait_s
from sirocco_client.objects import Object
from sirocco_client.outbox import Outbox, PublishFlow, PublishResult
from sirocco_client.publisher import CLOSE_TIMEOUT_S, END_TIMEOUT_S
from sirocco_client.retry import Backoff, Retry


class AsyncPublisher:
    """Publishes objects as `Publisher` does. All of its methods belong to one event loop."""

    def __init__(
        self,
        flow: PublishFlow,
        retry: Retry,
        routers: Endpoints,
        channel: Callable[[str], grpc.aio.Channel],
        metadata: Metadata,
        new_session: Callable[[], int],
        on_rejected: Callable[[Rejected], None] | None,
        contact: Contact,
        reach_s: float,
    ) -> None:
        """Use `AsyncClient.publisher`."""
        self._outbox = Outbox(flow, new_session)
        self._retry = retry
        self._routers = routers
        self._channel = channel
        self._metadata = metadata
        self._on_rejected = on_rejected
        self._contact = contact
        self._reach_s = reach_s
        # Paused or flushing callers wait for the first, the task for the second.
        self._changed = Signal()
        self._work = Signal()
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False
        self._is_closed = False

    def __repr__(self) -> str:
        """Shows the progress."""
        return f"<AsyncPublisher: {self._outbox.state(is_closed=self._is_closed)}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self.close()
            return
        try:
            await self.close()
        except SiroccoError as second:
            # The error of the `async with` body is the one to raise.
            error.add_note(f"and the publisher could not be closed cleanly: {second}")

    # --- what callers do ---------------------------------------------------------------------

    async def publish(self, source: Mapping[str, Any] | Object) -> int:
        """As `Publisher.publish`."""
        await self._admit()
        if self._outbox.add(source, time.monotonic()):
            self._wake()
        return self._outbox.added

    async def publish_many(
        self,
        sources: Iterable[Mapping[str, Any] | Object] | AsyncIterable[Mapping[str, Any] | Object],
    ) -> int:
        """As `Publisher.publish_many`; also takes an asynchronous iterable."""
        count = 0
        if isinstance(sources, AsyncIterable):
            async for source in sources:
                await self.publish(source)
                count += 1
            return count
        if not isinstance(sources, list | tuple):
            for source in sources:
                await self.publish(source)
                count += 1
            return count
        while count < len(sources):
            await self._admit()
            part = sources[count : count + self._outbox.room()]
            wakes = True
            try:
                wakes = self._outbox.add_many(part, count, time.monotonic())
            finally:
                # Also after an error: the objects before it were accepted.
                if wakes:
                    self._wake()
            count += len(part)
        return count

    async def publish_columns(self, columns: ObjectColumns) -> int:
        """As `Publisher.publish_columns`."""
        check_columns(columns)
        for part in self._outbox.split(columns):
            await self._admit()
            self._outbox.add_columns(part, time.monotonic())
            self._wake()
        return int(columns.count)

    async def flush(self, timeout_s: float | None = None) -> PublishResult:
        """As `Publisher.flush`."""
        wait_s = read_wait_s(timeout_s, "timeout_s")
        deadline_s = None if wait_s is None else time.monotonic() + wait_s
        wanted = self._outbox.added
        self._outbox.seal(time.monotonic())
        if self._outbox.has_work:
            self._wake()
        while self._outbox.acknowledged < wanted:
            self._outbox.check()
            if self._is_closed:
                raise FailedPrecondition("the publisher is closed")
            left_s = None if deadline_s is None else deadline_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                missing = wanted - self._outbox.acknowledged
                raise DeadlineExceeded(f"{missing} objects are not acknowledged yet")
            await self._changed.wait(left_s)
        # `on_rejected` may have failed on the last answer.
        self._outbox.check()
        self._outbox.raise_rejections()
        return self._outbox.result()

    async def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """As `Publisher.close`."""
        # Before anything else: what is accepted is still to be sent.
        read_wait_s(timeout_s, "timeout_s")
        if self._is_closed:
            return
        # Callers that wait for room must see it.
        self._is_closing = True
        self._changed.set()
        try:
            await self.flush(timeout_s)
        finally:
            self._is_closed = True
            self._changed.set()
            self._work.set()
            if self._task is not None:
                # A finished stream ends by itself; if not, it is cancelled.
                await asyncio.wait((self._task,), timeout=END_TIMEOUT_S)
                self._task.cancel()
                await asyncio.wait((self._task,))

    @property
    def acknowledged(self) -> int:
        """As `Publisher.acknowledged`."""
        return self._outbox.acknowledged

    @property
    def position_token(self) -> str:
        """As `Publisher.position_token`."""
        return self._outbox.result().position_token

    async def _admit(self) -> None:
        while True:
            self._outbox.check()
            if self._is_closing:
                raise FailedPrecondition("the publisher is closed")
            if not self._outbox.is_paused:
                return
            await self._changed.wait()

    def _wake(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="sirocco-publisher")
        self._work.set()

    # --- what the task does ------------------------------------------------------------------

    async def _run(self) -> None:
        backoff = Backoff(self._retry, random.random, reach_s=self._reach_s)
        try:
            while not self._is_closed:
                now_s = time.monotonic()
                if not self._outbox.needs_stream(now_s):
                    await self._work.wait(self._outbox.due_in_s(now_s))
                    continue
                backoff.begin()
                address = self._routers.current
                error = await self._converse(address, backoff)
                if error is None:
                    continue
                self._routers.failed(address)
                await self._pause(backoff.pause_s(error))
        except SiroccoError as error:
            self._give_up(error)
        except Exception as error:
            # Callers wait for this task; they must receive any error that ends it.
            failure = Internal(f"the publisher's task failed: {error!r}")
            failure.__cause__ = error
            self._give_up(failure)

    def _give_up(self, error: SiroccoError) -> None:
        self._outbox.fail(error)
        self._changed.set()

    async def _pause(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while not self._is_closed and (left_s := until_s - time.monotonic()) > 0:
            await self._work.wait(left_s)

    async def _converse(self, address: str, backoff: Backoff) -> SiroccoError | None:
        """Runs one stream until it ends; returns the error, None for a normal end.

        Raises:
            Internal: The server breaks the contract.
            FailedPrecondition: The client was closed.
        """
        self._outbox.rewind()
        generation = self._outbox.generation
        channel = self._channel(address)
        error: SiroccoError = Unavailable("the server ended the stream")
        writing: asyncio.Task[None] | None = None
        call: Any = None
        try:
            call = PublishServiceStub(channel).Publish(metadata=self._metadata)
            writing = asyncio.create_task(self._write(call, generation))
            while (response := await call.read()) is not grpc.aio.EOF:
                backoff.progressed()
                self._contact.reached(address, ROUTER)
                self._acknowledge(response)
        except (grpc.RpcError, grpc.aio.UsageError) as failure:
            error = self._contact.failed(address, ROUTER, "Publish", failure)
        except asyncio.CancelledError:
            if not was_call_cancelled():
                raise
            error = Unavailable("the call was cancelled")
        finally:
            if writing is not None:
                writing.cancel()
            if call is not None:
                call.cancel()
        is_lost = self._outbox.has_work and not self._is_closed
        return error if is_lost and self._outbox.generation == generation else None

    async def _write(self, call: Any, generation: int) -> None:
        """Sends pending requests on one stream. The reader learns how the stream broke."""
        try:
            while not self._is_closed:
                now_s = time.monotonic()
                request = self._outbox.next_request(now_s)
                if self._outbox.generation != generation:
                    break
                if request is None:
                    await self._work.wait(self._outbox.due_in_s(now_s))
                else:
                    await call.write(request)
            await call.done_writing()
        except (grpc.RpcError, asyncio.InvalidStateError):
            return

    def _acknowledge(self, response: PublishResponse) -> None:
        refused = self._outbox.acknowledge(response, time.monotonic())
        if self._on_rejected is None:
            self._outbox.keep(refused)
        else:
            for each in refused:
                self._on_rejected(each)
        self._changed.set()
