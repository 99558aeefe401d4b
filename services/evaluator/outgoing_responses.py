"""The responses on their way to one merger: those that wait together go in one message."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

import grpc

from sirocco.internal_api.v1 import slot_search_service_pb2 as pb

# Of one message, unless a single response is larger: a long one keeps all questions of the stream
# waiting.
GROUP_BYTES_MAX = 256 << 10
GROUP_MAX = 256


class OutgoingResponses:
    """Writes the responses of one stream; belongs to the gRPC loop.

    Args:
        write: writes one message. A call takes one at a time, and one that is being written cannot
            be withdrawn: to cancel that would break the stream for all other questions.
        broken: called once when a write has failed; only the merger can repair the loss.

    Attributes:
        takes_groups: whether the merger takes messages with several responses.
    """

    def __init__(
        self, write: Callable[[pb.SearchSlotsResponse], Awaitable[None]], broken: Callable[[], None]
    ) -> None:
        self.takes_groups = False
        self._write = write
        self._broken = broken
        self._waiting: deque[tuple[pb.SearchSlotsResponse, asyncio.Future[None] | None]] = deque()
        self._writing: asyncio.Task[None] | None = None
        self._is_closed = False

    def put(self, response: pb.SearchSlotsResponse) -> None:
        """Sends a response."""
        self._put(response, None)

    async def sent(self, response: pb.SearchSlotsResponse) -> None:
        """Sends a response, and returns when it is written, or will not be."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._put(response, written)
        await written

    def close(self) -> None:
        """Drops what waits."""
        self._is_closed = True
        self._drop()

    def _put(self, response: pb.SearchSlotsResponse, written: asyncio.Future[None] | None) -> None:
        if self._is_closed:
            if written is not None:
                written.set_result(None)
            return
        self._waiting.append((response, written))
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write_on())

    async def _write_on(self) -> None:
        try:
            while self._waiting:
                message, written = self._next()
                try:
                    await self._write(message)
                finally:
                    for each in written:
                        _settle(each)
        except (grpc.aio.BaseError, asyncio.InvalidStateError):
            self.close()
            self._broken()
        finally:
            self._writing = None

    def _next(self) -> tuple[pb.SearchSlotsResponse, list[asyncio.Future[None]]]:
        """Returns the next message, and the futures of what is in it."""
        message, written = self._waiting.popleft()
        futures = [] if written is None else [written]
        message.takes_groups = True
        if not self.takes_groups or not self._waiting:
            return message, futures
        size = message.ByteSize()
        while self._waiting and len(message.others) < GROUP_MAX:
            other, written = self._waiting[0]
            size += other.ByteSize()
            if size > GROUP_BYTES_MAX:
                break
            self._waiting.popleft()
            message.others.append(other)
            if written is not None:
                futures.append(written)
        return message, futures

    def _drop(self) -> None:
        while self._waiting:
            _, written = self._waiting.popleft()
            if written is not None:
                _settle(written)


def _settle(written: asyncio.Future[None]) -> None:
    if not written.done():
        written.set_result(None)
