"""What publishers for asyncio have in common: a stream, and the task that keeps it open."""

from __future__ import annotations

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

import grpc
import grpc.aio
from sirocco_api.v1.publish_service_pb2_grpc import PublishServiceStub

from sirocco_client.connection.async_waiting import Signal, error_of_cancellation
from sirocco_client.connection.connection import AsyncConnection
from sirocco_client.connection.contact import ROUTER
from sirocco_client.connection.retry import Backoff
from sirocco_client.errors import (
    FailedPrecondition,
    Internal,
    Rejected,
    SiroccoError,
    Unavailable,
)
from sirocco_client.publishing.flush import CLOSE_TIMEOUT_S


class Sending(Protocol):
    """The state of a publisher, as the task sees it; see `Outbox`."""

    @property
    def generation(self) -> int:
        """Grows when a new session begins."""

    @property
    def has_work(self) -> bool:
        """Whether anything still has to be sent or acknowledged."""

    @property
    def is_paused(self) -> bool:
        """Whether the caller has to wait before it adds more."""

    def needs_stream(self, now_s: float) -> bool:
        """Whether something has to be sent now."""

    def due_in_s(self, now_s: float) -> float | None:
        """Seconds until something has to be sent; None if nothing waits for that."""

    def next_request(self, now_s: float) -> Any:
        """Returns the next request, if there is one."""

    def rewind(self) -> None:
        """Prepares to resend after a broken stream."""

    def acknowledge(self, response: Any, now_s: float) -> list[Rejected]:
        """Processes an answer; returns the refused objects."""

    def fail(self, cause: SiroccoError) -> None:
        """Marks the publisher as failed."""

    def check(self) -> None:
        """Raises PublishFailed if the publisher has failed."""

    def state(self, *, is_closed: bool) -> str:
        """Describes the result so far in words."""


Box = TypeVar("Box", bound=Sending)


class AsyncPublishing(ABC, Generic[Box]):
    """What publishers for asyncio have in common: an outbox, a stream, and a task between them."""

    # The call of `PublishService` that is made.
    method = "Publish"

    def __init__(
        self,
        outbox: Box,
        connection: AsyncConnection,
        on_rejected: Callable[[Rejected], None] | None,
        reach_s: float | None,
    ) -> None:
        """Starts without a stream; `reach_s`: how long to try until the first answer."""
        self._outbox = outbox
        self._connection = connection
        self._on_rejected = on_rejected
        self._reach_s = reach_s
        # Paused or flushing callers wait for the first, the task for the second.
        self._changed = Signal()
        self._work = Signal()
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False
        self._is_closed = False

    def __repr__(self) -> str:
        """Shows the progress."""
        return f"<{type(self).__name__}: {self._outbox.state(is_closed=self._is_closed)}>"

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

    @abstractmethod
    async def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Flushes and ends the stream; calling it again does nothing."""

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
        backoff = Backoff(self._connection.retry, random.random, reach_s=self._reach_s)
        try:
            while not self._is_closed:
                now_s = time.monotonic()
                if not self._outbox.needs_stream(now_s):
                    await self._work.wait(self._outbox.due_in_s(now_s))
                    continue
                backoff.begin()
                address = self._connection.routers.current
                error = await self._converse(address, backoff)
                if error is None:
                    continue
                self._connection.routers.failed(address)
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
        # Not within what follows, whose errors are those of a call.
        self._connection.check_open()
        metadata = self._connection.metadata
        error: SiroccoError = Unavailable("the server ended the stream")
        writing: asyncio.Task[None] | None = None
        call: Any = None
        try:
            call = self._connection.kept_call(
                address,
                lambda channel: getattr(PublishServiceStub(channel), self.method)(
                    metadata=metadata
                ),
            )
            writing = asyncio.create_task(self._write(call, generation))
            while (response := await call.read()) is not grpc.aio.EOF:
                backoff.progressed()
                self._connection.contact.reached(address, ROUTER)
                self._acknowledge(response)
        except (grpc.RpcError, grpc.aio.UsageError) as failure:
            error = self._connection.contact.failed(address, ROUTER, self.method, failure)
        except asyncio.CancelledError:
            error = error_of_cancellation()
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

    def _acknowledge(self, response: Any) -> None:
        refused = self._outbox.acknowledge(response, time.monotonic())
        self._report(refused)
        self._changed.set()

    @abstractmethod
    def _report(self, refused: list[Rejected]) -> None:
        """Hands refused objects on, or keeps them for `flush`."""
