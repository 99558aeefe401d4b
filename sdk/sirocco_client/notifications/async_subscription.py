"""A subscription for asyncio: the twin of `subscription`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio

from sirocco_client.connection.async_waiting import was_call_cancelled
from sirocco_client.connection.channels import error_of
from sirocco_client.connection.connection import AsyncConnection
from sirocco_client.connection.contact import MERGER
from sirocco_client.connection.endpoints import Endpoints
from sirocco_client.connection.retry import Backoff
from sirocco_client.errors import DeadlineExceeded, FailedPrecondition, SiroccoError, Unavailable
from sirocco_client.notifications.decode import Delivery, NotificationBatch
from sirocco_client.notifications.receiving import Receiving


class AsyncSubscription:
    """The notifications of one subscriber, like `Subscription`. One task iterates.

    Cancelling a task that waits for a batch loses nothing: the next call continues after the last
    batch returned.
    """

    def __init__(
        self,
        state: Receiving,
        connection: AsyncConnection,
        merger_order: Callable[[str, float], Awaitable[Endpoints]],
        call_to: Callable[[str], Any],
        began: Callable[[AsyncSubscription], None],
    ) -> None:
        """Use `AsyncClient.subscribe`."""
        self._state = state
        # The client's time limit is also that for finding mergers, and for the first answer.
        self._connection = connection
        self._backoff = Backoff(connection.retry, random.random, reach_s=connection.timeout_s)
        # Why no merger is available.
        self._trouble: Unavailable | None = None
        self._merger_order = merger_order
        # Called before the stream is opened, so that the client can close it.
        self._began = began
        # Returns a call of `Receive` to an address, or a stream of a call that is shared.
        self._call_to = call_to
        self._mergers: Endpoints | None = None
        self._closed = asyncio.Event()
        self._address = ""
        self._call: Any = None
        # Batch that `open` read in advance.
        self._ahead: NotificationBatch | None = None
        self._is_reading = False

    def __repr__(self) -> str:
        """Shows the subscriber and the position."""
        connected = f"connected to {self._address}" if self._call is not None else "not connected"
        state = "closed" if self._closed.is_set() else connected
        return f"<AsyncSubscription of {self._state.subscriber!r} at {self.cursor!r}, {state}>"

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def cursor(self) -> str:
        """As `Subscription.cursor`."""
        return self._state.consumed

    async def open(self, timeout_s: float | None = None) -> None:
        """As `Subscription.open`."""
        wait_s = self._connection.seconds(timeout_s)
        try:
            async with asyncio.timeout(wait_s):
                while not self._state.is_placed and not self._closed.is_set():
                    self._ahead = await self._read()
        except TimeoutError:
            if self._trouble is not None:
                raise self._trouble from None
            raise DeadlineExceeded("no merger reported where the stream begins") from None

    async def batches(self) -> AsyncIterator[NotificationBatch]:
        """As `Subscription.batches`."""
        while (batch := await self.next_batch()) is not None:
            yield batch

    async def __aiter__(self) -> AsyncIterator[Delivery]:
        """As `Subscription.__iter__`."""
        async for batch in self.batches():
            for item in batch:
                if self._closed.is_set():
                    return
                yield item

    async def next_batch(self) -> NotificationBatch | None:
        """As `Subscription.next_batch`."""
        if self._is_reading:
            raise FailedPrecondition("another task reads this subscription; open one for each")
        self._is_reading = True
        try:
            return await self._next_batch()
        finally:
            self._is_reading = False

    async def _next_batch(self) -> NotificationBatch | None:
        if self._closed.is_set():
            return None
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            return ahead
        credit = self._state.done()
        if credit is not None and self._call is not None:
            # If the stream broke, reading reports the error, and a new stream begins with full
            # credit.
            try:
                with suppress(grpc.RpcError, asyncio.InvalidStateError):
                    await self._call.write(credit)
            except asyncio.CancelledError:
                if not was_call_cancelled():
                    raise
        while not self._closed.is_set():
            batch = await self._read()
            if batch is not None:
                return batch
        return None

    async def close(self) -> None:
        """Ends the stream and the iteration, from any task; calling it again does nothing."""
        self._closed.set()
        self._drop()

    def _drop(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.cancel()

    async def _read(self) -> NotificationBatch | None:
        """Reads one response, opening the stream if needed; None if the response holds no batch."""
        try:
            call = self._call or await self._open()
            response = await call.read()
            if response is grpc.aio.EOF:
                raise Unavailable("the server ended the stream")
        except asyncio.CancelledError:
            if not was_call_cancelled():
                # gRPC ends a call whose reader was cancelled.
                self._drop()
                raise
            await self._broken(Unavailable("the call was cancelled"))
            return None
        except (grpc.RpcError, grpc.aio.UsageError, SiroccoError) as failure:
            if self._call is None:
                # There was no merger.
                error = error_of(failure)
                self._trouble = error if isinstance(error, Unavailable) else None
                await self._broken(error)
            else:
                error = self._connection.contact.failed(self._address, MERGER, "Receive", failure)
                await self._broken(error)
            return None
        self._backoff.progressed()
        self._connection.contact.reached(self._address, MERGER)
        return self._state.received(response)

    async def _open(self) -> Any:
        self._began(self)
        self._backoff.begin()
        if self._mergers is None:
            self._mergers = await self._merger_order(
                self._state.subscriber, self._connection.timeout_s
            )
            if self._closed.is_set():
                # `close` found no call to end.
                raise Unavailable("the subscription is closed")
        self._address = self._mergers.current
        self._trouble = None
        call = self._call = self._call_to(self._address)
        await call.write(self._state.open_request())
        return call

    async def _broken(self, error: SiroccoError) -> None:
        """Prepares the next try, or raises."""
        self._drop()
        if self._closed.is_set():
            return
        pause_s = self._backoff.pause_s(error)
        if self._mergers is not None and self._mergers.failed(self._address):
            # All were tried: others may have started.
            self._mergers = None
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._closed.wait()
