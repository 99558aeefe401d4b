"""The subscriptions of one call: each with its own credit and end, in messages that they share.

A message costs both ends more than all that is done for one notification in it, so a client of
many subscribers gets what is ready at the same time together.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from sirocco_api.v1 import receive_service_pb2 as pb

from sirocco.codec.errors import put_error
from sirocco.model.errors import Internal, InvalidArgument, SiroccoError, Unavailable
from sirocco.services.merger.credit import Credit
from sirocco.telemetry.logging import event

logger = logging.getLogger(__name__)

# Of one message, unless a single response is larger: as much as a gateway's window holds.
GROUP_BYTES_MAX = 64 << 10
GROUP_MAX = 1_024

# Of responses that wait to be sent; beyond it streams wait with their next one.
WAITING_BYTES_MAX = 256 << 10
WAITING_MAX = 4 * GROUP_MAX


class Front(Protocol):
    """What serves the streams of a call's client."""

    def check(self, message: pb.Open) -> pb.Open:
        """Returns the checked request that opens a stream.

        Raises:
            SiroccoError: It is invalid.
        """

    def responses(
        self, opened: pb.Open, credit: Credit
    ) -> AsyncGenerator[pb.ReceiveResponse, None]:
        """Yields the responses of one stream, which has a place meanwhile."""


@dataclass(frozen=True, slots=True)
class _Open:
    credit: Credit
    task: asyncio.Task[None]


class ManyStreams:
    """The streams of one call; belongs to the gRPC loop.

    Args:
        front: serves them.
    """

    def __init__(self, front: Front) -> None:
        self._front = front
        self._open: dict[int, _Open] = {}
        # Each with its size, bytes.
        self._outgoing: deque[tuple[pb.NumberedReceived, int]] = deque()
        self._waiting_bytes = 0
        self._wake = asyncio.Event()
        self._room = asyncio.Event()

    async def messages(
        self, requests: AsyncIterator[pb.ReceiveManyRequest]
    ) -> AsyncIterator[pb.ReceiveManyResponse]:
        """Yields what the streams send, until the requests end or one of them is invalid."""
        reading = asyncio.create_task(self._read(requests))
        reading.add_done_callback(lambda _: self._wake.set())
        try:
            while not reading.done():
                while self._outgoing:
                    yield self._group()
                    self._room.set()
                self._wake.clear()
                if not reading.done():
                    await self._wake.wait()
            reading.result()
        finally:
            reading.cancel()
            for each in self._open.values():
                each.task.cancel()

    async def _read(self, requests: AsyncIterator[pb.ReceiveManyRequest]) -> None:
        async for request in requests:
            for each in request.streams:
                self._take(each)
            # The message is not held while the next one is waited for, which may take days.
            del request
            await self._until_room()

    def _take(self, each: pb.NumberedReceive) -> None:
        known = self._open.get(each.number)
        if not each.HasField("request"):
            if known is not None:
                del self._open[each.number]
                known.task.cancel()
            return
        try:
            if each.request.HasField("open"):
                if known is not None:
                    raise InvalidArgument("a stream is opened once", field="open")
                self._begin(each.number, each.request.open)
            elif known is not None:
                if not each.request.HasField("credit"):
                    raise InvalidArgument("is neither an opening nor credit", field="request")
                known.credit.add(each.request.credit.matches)
        except SiroccoError as error:
            if known is not None:
                known.credit.refuse(error)
            else:
                self._put(pb.NumberedReceived(number=each.number), error)

    def _begin(self, number: int, message: pb.Open) -> None:
        opened, credit = self._front.check(message), Credit.of(message)
        task = asyncio.create_task(self._serve(number, opened, credit))
        self._open[number] = _Open(credit, task)

    async def _serve(self, number: int, opened: pb.Open, credit: Credit) -> None:
        last: SiroccoError = Unavailable("the stream has ended")
        try:
            async with aclosing(self._front.responses(opened, credit)) as responses:
                async for response in responses:
                    self._put(pb.NumberedReceived(number=number, response=response))
                    del response
                    await self._until_room()
        except SiroccoError as error:
            last = error
        except Exception:
            logger.exception("stream failed", extra=event("call_failed", method="ReceiveMany"))
            last = Internal("unexpected error; see the server's log")
        self._put(pb.NumberedReceived(number=number), last)
        self._open.pop(number, None)

    @property
    def _is_full(self) -> bool:
        return self._waiting_bytes > WAITING_BYTES_MAX or len(self._outgoing) > WAITING_MAX

    async def _until_room(self) -> None:
        while self._is_full:
            self._room.clear()
            await self._room.wait()

    def _put(self, received: pb.NumberedReceived, error: SiroccoError | None = None) -> None:
        if error is not None:
            put_error(received.error, error)
        size = received.ByteSize()
        self._outgoing.append((received, size))
        self._waiting_bytes += size
        self._wake.set()

    def _group(self) -> pb.ReceiveManyResponse:
        """Returns the next message."""
        group: list[pb.NumberedReceived] = []
        total = 0
        while self._outgoing and len(group) < GROUP_MAX:
            received, size = self._outgoing[0]
            if group and total + size > GROUP_BYTES_MAX:
                break
            self._outgoing.popleft()
            total += size
            group.append(received)
        self._waiting_bytes -= total
        return pb.ReceiveManyResponse(streams=group)
