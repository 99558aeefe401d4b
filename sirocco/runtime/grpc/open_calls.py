"""Calls that need no token, as those of probes: few, short, and apart from all others.

With tokens, nothing of a call is read before its token is known. These calls are read for anybody
who reaches the port, so they have no share of what other calls use. gRPC reads a message of up to
16 MB before anybody can refuse it: few are read at a time, and none for long.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from inspect import isasyncgenfunction
from typing import Any

import grpc

from sirocco.codec.wire import check_message, parse_message
from sirocco.model.errors import InvalidArgument, SiroccoError
from sirocco.runtime.grpc.grpc_errors import abort
from sirocco.runtime.grpc.only_request import only_request
from sirocco.runtime.grpc.shares import Shares
from sirocco.runtime.grpc.tls import kind_of
from sirocco.runtime.grpc.unread_streams import in_time

# How long a refused caller is asked to wait.
RETRY_AFTER_MS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLimits:
    """How much of them a server takes at a time.

    Attributes:
        calls: whose request is being read, or whose only answer is being taken. Shares of 16 leave
            two to other hosts than the one that asks for all.
        streams: whose answer goes on.
        request_s: how long a request may take to arrive.
        message_bytes: of a request, which names a service.
        unread_ms: how long a client may leave an answer unread.
    """

    calls: int = 16
    streams: int = 256
    request_s: float = 5.0
    message_bytes: int = 1 << 10
    unread_ms: int = 5_000


OPEN = OpenLimits()


class OpenCalls:
    """Serves the methods of services that need no token.

    Args:
        limits: how much is taken at a time.
        count_refused: called with the reason whenever a call is refused, as by the edge.

    Attributes:
        calls, streams: places; one connection may have as many as are free.
    """

    def __init__(self, limits: OpenLimits, count_refused: Callable[[str], None]) -> None:
        self._limits = limits
        self._count_refused = count_refused
        self.calls = _places("calls without a token", limits.calls)
        self.streams = _places("streams without a token", limits.streams)

    def guarded(self, path: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        """Returns the handler of a method with one request, as one that takes and sends streams.

        On the wire they are the same. The call then lasts until its answer is taken, and counts.
        """
        message_type = handler.request_deserializer.__self__
        inner = getattr(handler, kind_of(handler))

        async def answers(
            raws: AsyncIterator[bytes], context: grpc.aio.ServicerContext
        ) -> AsyncIterator[Any]:
            with self._place(self.calls, context):
                request = await self._request(raws, path, message_type)
                if not isasyncgenfunction(inner):
                    yield await inner(request, context)
                    return
            with self._place(self.streams, context):
                async with aclosing(inner(request, context)) as responses:
                    async for response in responses:
                        yield response

        async def stream(
            raws: AsyncIterator[bytes], context: grpc.aio.ServicerContext
        ) -> AsyncIterator[Any]:
            found = answers(raws, context)
            try:
                async for each in in_time(found, context, self._limits.unread_ms, self._unread):
                    yield each
            except SiroccoError as error:
                await abort(context, error)

        return grpc.stream_stream_rpc_method_handler(stream, None, handler.response_serializer)

    async def _request(self, raws: AsyncIterator[bytes], path: str, message_type: Any) -> Any:
        limits = self._limits
        data = await only_request(raws, limits.request_s, path, self._count_refused)
        try:
            if len(data) > limits.message_bytes:
                raise InvalidArgument(
                    f"a message of {len(data)} bytes to {path}, the limit is {limits.message_bytes}"
                )
            check_message(data, message_type)
            return parse_message(data, message_type)
        except SiroccoError:
            self._count_refused("message")
            raise

    @contextmanager
    def _place(self, places: Shares, context: grpc.aio.ServicerContext) -> Iterator[None]:
        peer = context.peer()
        try:
            places.take("", peer=peer)
        except SiroccoError:
            self._count_refused("calls")
            raise
        try:
            yield
        finally:
            places.give_back("", peer=peer)

    def _unread(self) -> None:
        self._count_refused("unread")


def _places(what: str, count: int) -> Shares:
    return Shares(what, count, count, RETRY_AFTER_MS, connection_max=count)
