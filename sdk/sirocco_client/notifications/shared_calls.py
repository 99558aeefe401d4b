"""Calls that subscriptions share: one for each merger, instead of one for each subscription.

A message costs several times what is done for one notification in it. What is ready for many
subscriptions at the same time shares one here. Each has its own credit and its own end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
from sirocco_api.v1.receive_service_pb2 import (
    NumberedReceive,
    ReceiveManyRequest,
    ReceiveManyResponse,
    ReceiveRequest,
    ReceiveResponse,
)
from sirocco_api.v1.receive_service_pb2_grpc import ReceiveServiceStub

from sirocco_client.connection.connection import AsyncConnection
from sirocco_client.connection.contact import MERGER
from sirocco_client.connection.error_messages import error_from_message
from sirocco_client.errors import SiroccoError, Unavailable, Unimplemented

# Of one message to a merger.
REQUESTS_MAX = 1_024

# How long credit may wait for that of other streams: the rest of it is being used meanwhile.
CREDIT_S = 0.05

# What a broken call raises. InvalidStateError: written to a call that has already ended.
_BROKEN = (grpc.RpcError, grpc.aio.UsageError, asyncio.InvalidStateError, SiroccoError)


class SharedCalls:
    """The shared calls of one client.

    Args:
        connection: of the client.
    """

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._calls: dict[str, _SharedCall] = {}
        # Mergers that are older than shared calls.
        self._older: set[str] = set()

    def open(self, address: str) -> Any:
        """Returns a stream to a merger, in the form of a call of `Receive`."""
        if address in self._older:
            return self._call(address, "Receive")
        shared = self._calls.get(address)
        if shared is None:
            call = self._call(address, "ReceiveMany")
            shared = self._calls[address] = _SharedCall(call, lambda e: self._ended(address, e))
        return shared.stream()

    def _call(self, address: str, method: str) -> Any:
        metadata = self._connection.metadata
        return self._connection.kept_call(
            address, lambda channel: getattr(ReceiveServiceStub(channel), method)(metadata=metadata)
        )

    def _ended(self, address: str, failure: BaseException | None) -> SiroccoError:
        """Forgets a call; returns the error of the streams that it had."""
        del self._calls[address]
        if failure is None:
            return Unavailable("the call was cancelled")
        error = self._connection.contact.failed(address, MERGER, "ReceiveMany", failure)
        if isinstance(error, Unimplemented):
            self._older.add(address)
            return Unavailable("this merger shares no calls; the next one is not shared")
        return error


class _SharedCall:
    """One call.

    Args:
        call: of gRPC.
        ended: called with its failure, None if it was cancelled, when it takes nothing any more;
            returns the error for its streams.
    """

    def __init__(self, call: Any, ended: Callable[[BaseException | None], SiroccoError]) -> None:
        self._call = call
        self._ended = ended
        self._streams: dict[int, SharedStream] = {}
        self._count = 0
        self._outgoing: deque[NumberedReceive] = deque()
        self._is_open = True
        self._reading = asyncio.create_task(self._read(), name="sirocco-receive")
        self._writing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def stream(self) -> SharedStream:
        """Returns a new stream."""
        self._count += 1
        stream = self._streams[self._count] = SharedStream(self, self._count)
        return stream

    def send(self, number: int, request: ReceiveRequest | None, *, waits: bool = False) -> None:
        """Sends a request of a stream, or that it is closed; it may wait for others."""
        if not self._is_open:
            return
        self._outgoing.append(NumberedReceive(number=number, request=request))
        if not waits:
            self._begin_to_write()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(CREDIT_S, self._begin_to_write)

    def _begin_to_write(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writing is None and self._outgoing:
            self._writing = asyncio.create_task(self._write(), name="sirocco-receive-requests")

    def close(self, number: int) -> None:
        """Ends a stream, and with the last one the call."""
        if self._streams.pop(number, None) is None:
            return
        if self._streams:
            self.send(number, None)
        else:
            self._end(None)

    async def _write(self) -> None:
        try:
            while self._outgoing:
                count = min(len(self._outgoing), REQUESTS_MAX)
                streams = [self._outgoing.popleft() for _ in range(count)]
                await self._call.write(ReceiveManyRequest(streams=streams))
        except (*_BROKEN, asyncio.CancelledError):
            # The reader learns why.
            return
        finally:
            self._writing = None

    async def _read(self) -> None:
        try:
            while (response := await self._call.read()) is not grpc.aio.EOF:
                self._received(response)
                del response
            failure: BaseException | None = Unavailable("the server ended the stream")
        except _BROKEN as error:
            failure = error
        except asyncio.CancelledError:
            failure = None
        self._end(failure)

    def _received(self, message: ReceiveManyResponse) -> None:
        for each in message.streams:
            # It may have been closed meanwhile.
            stream = self._streams.get(each.number)
            if stream is None:
                continue
            if each.HasField("error"):
                del self._streams[each.number]
                stream.end(error_from_message(each.error))
            else:
                # A copy: a part of a message keeps all of it in memory.
                response = ReceiveResponse()
                response.CopyFrom(each.response)
                stream.put(response)
        if not self._streams:
            self._end(None)

    def _end(self, failure: BaseException | None) -> None:
        if not self._is_open:
            return
        self._is_open = False
        error = self._ended(failure)
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.end(error)
        self._outgoing.clear()
        self._begin_to_write()
        self._call.cancel()


class SharedStream:
    """One subscription's stream within a shared call; has what is used of a call of gRPC.

    Args:
        shared: its call.
        number: within it.
    """

    def __init__(self, shared: _SharedCall, number: int) -> None:
        self._shared = shared
        self._number = number
        self._arrived: deque[ReceiveResponse] = deque()
        self._error: SiroccoError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._credit = 0

    async def write(self, request: ReceiveRequest) -> None:
        """Sends a request, together with those of other streams."""
        if request.HasField("open"):
            self._credit = request.open.matches
        # More than the whole credit came at once: there may be much more of it.
        waits = request.HasField("credit") and request.credit.matches <= self._credit
        self._shared.send(self._number, request, waits=waits)

    async def read(self) -> ReceiveResponse:
        """Returns the next response. One task reads.

        Raises:
            SiroccoError: The stream has ended.
        """
        while not self._arrived:
            if self._error is not None:
                raise self._error
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._arrived.popleft()

    def cancel(self) -> None:
        """Ends the stream; what has arrived is dropped."""
        self._arrived.clear()
        self.end(Unavailable("the call was cancelled"))
        self._shared.close(self._number)

    def put(self, response: ReceiveResponse) -> None:
        """Takes what arrived."""
        if self._arrived and _is_place(response) and _is_place(self._arrived[-1]):
            # One comes each second as long as others get something, whether or not this one reads.
            self._arrived[-1] = response
        else:
            self._arrived.append(response)
        self._wake()

    def end(self, error: SiroccoError) -> None:
        """Ends the stream after what has arrived."""
        if self._error is None:
            self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _is_place(response: ReceiveResponse) -> bool:
    """Whether a response only says where the subscriber is; the next one says it anew."""
    return not response.matches.objects and not response.HasField("lists")
