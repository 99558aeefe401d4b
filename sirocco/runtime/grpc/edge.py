"""The edge of a gRPC server: what happens to a message before a servicer sees it.

At every method of every service these are checked in order: the token (`authentication`, before
anything is read), a place among the calls under way, the size of the message, the memory it would
take against a budget of the tenant and the process, and its counts. Only then it is parsed.

gRPC reads and parses the request of a unary method before it calls the handler, for any caller. So
all methods are registered as methods that take a stream of bytes, which is the same on the wire:
nothing of a call is read until its handler asks for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from inspect import isasyncgenfunction
from typing import Any, TypeVar

import grpc

from sirocco.codec.wire import check_message, has_rows, parse_message, parse_rows
from sirocco.model.errors import DeadlineExceeded, InvalidArgument, SiroccoError
from sirocco.runtime.grpc.authentication import caller, is_open
from sirocco.runtime.grpc.call_garbage import CallGarbage
from sirocco.runtime.grpc.grpc_errors import abort
from sirocco.runtime.grpc.only_request import only_request
from sirocco.runtime.grpc.open_calls import OPEN, OpenCalls, OpenLimits
from sirocco.runtime.grpc.shares import Shares
from sirocco.runtime.grpc.tls import kind_of
from sirocco.runtime.grpc.unread_streams import in_time

# The greatest message either way: a publish of some thousand objects is below 1 MB.
MESSAGE_BYTES_MAX = 8 << 20

# Calls with a single request that are under way, of the process and of one tenant. Each may hold a
# message and its parsed form; streams of requests are bounded by their services.
CALLS_MAX = 1_024
TENANT_CALLS_MAX = 128

# Streams of requests whose client has not sent the first one, of the process and of one tenant.
# Each takes some 40 KB; services count those that have begun.
UNBEGUN_MAX = 4_096
TENANT_UNBEGUN_MAX = 1_024

# Memory of messages that are being read and checked, as they take it once parsed. A bulk request of
# 10,000 queries takes some 25 MB.
BUDGET_BYTES = 256 << 20
TENANT_BUDGET_BYTES = 96 << 20

# How long a message waits for room in the budget before its caller is asked to retry, and after
# what time.
ROOM_S = 5.0
RETRY_AFTER_MS = 200

# How long the request of a unary call, or the first one of a stream, may take to arrive; clients
# send it with the call.
REQUEST_S = 30.0

# How long a client may leave the answer of such a call unread.
UNREAD_MS = 30_000

# Methods with one answer, which may be large: a definition, a page of them, the leaves of a map,
# its bytes. For gRPC such a call is done once the answer waits to be sent, so a client that reads
# nothing and asks again and again would fill the memory with answers. These are therefore sent as
# streams of one message, which is the same on the wire: the call lasts until it is taken.
LARGE_ANSWERS = frozenset(
    {"DescribeBalance", "DescribeCluster", "DescribeMapChange", "GetQuery", "ListQueries"}
)

# Answers up to this size are bounded by the places of calls alone.
SMALL_ANSWER_BYTES = 16 << 10

_Inner = Callable[..., Any]
_Request = TypeVar("_Request")

_CONNECTION: ContextVar[str] = ContextVar("connection", default="")


def connection() -> str:
    """Returns the peer of the present call: the unit that shares capacity without tenants."""
    return _CONNECTION.get()


async def from_start(
    requests: AsyncIterator[_Request], begin_s: float = REQUEST_S
) -> AsyncIterator[_Request]:
    """Passes on the requests of a stream, whose client has to begin in time.

    Until its first request a service does not count it; the edge does.

    Args:
        requests: of the client.
        begin_s: how long the first one may take.

    Raises:
        DeadlineExceeded: The first request did not arrive in time.
    """
    each = aiter(requests)
    try:
        async with asyncio.timeout(begin_s):
            first = await anext(each)
    except TimeoutError:
        raise DeadlineExceeded("the first request did not arrive in time") from None
    except StopAsyncIteration:
        return
    yield first
    # A stream may wait for its next request for days.
    del first
    async for request in each:
        yield request
        del request


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeLimits:
    """How much a server takes at a time; see the constants above.

    Operators set the calls and the memory (`runtime.settings`).

    Attributes:
        connections: of one server; each takes some 20 KB, and a file of the process. Without a
            bound, anybody who reaches the port takes all files, and the process cannot reach Kafka
            any more.
        handshake_ms: for the handshake of a new connection, with TLS or without.
        open: of calls that need no token.
    """

    message_bytes: int = MESSAGE_BYTES_MAX
    calls: int = CALLS_MAX
    tenant_calls: int = TENANT_CALLS_MAX
    unbegun: int = UNBEGUN_MAX
    tenant_unbegun: int = TENANT_UNBEGUN_MAX
    budget_bytes: int = BUDGET_BYTES
    tenant_budget_bytes: int = TENANT_BUDGET_BYTES
    room_s: float = ROOM_S
    request_s: float = REQUEST_S
    unread_ms: int = UNREAD_MS
    connections: int = 8_192
    handshake_ms: int = 10_000
    open: OpenLimits = OPEN


EDGE = EdgeLimits()


def _shares(name: str, total: int, tenant_max: int) -> Shares:
    """Returns shares of a total; without tokens, one connection may use all that is free."""
    return Shares(name, total, tenant_max, RETRY_AFTER_MS, connection_max=total)


class Edge:
    """Takes the messages of a server's calls.

    Generated code adds services to it instead of the server.

    Args:
        server: the server behind it.
        limits: how much is taken at a time.
        count_refused: called with the reason whenever a call or a message is refused: `calls`,
            `late`, `memory`, `message` or `unread`.

    Attributes:
        calls: places of calls with a single request.
        unbegun: places of streams whose first request has not arrived.
        budget: bytes of messages that are being checked.
        open: calls that need no token.
    """

    def __init__(
        self,
        server: grpc.aio.Server,
        limits: EdgeLimits = EDGE,
        count_refused: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._server = server
        self.count_refused = count_refused
        self.limits = limits
        self.calls = _shares("calls", limits.calls, limits.tenant_calls)
        self.unbegun = _shares("streams without a request", limits.unbegun, limits.tenant_unbegun)
        self.budget = _shares("bytes of messages", limits.budget_bytes, limits.tenant_budget_bytes)
        self.garbage = CallGarbage()
        self.open = OpenCalls(limits.open, count_refused)

    def add_generic_rpc_handlers(self, _: object) -> None:
        """Ignores handlers of the same methods, which gRPC does not use beside registered ones."""

    def add_registered_method_handlers(
        self, service: str, handlers: Mapping[str, grpc.RpcMethodHandler]
    ) -> None:
        """See gRPC."""
        guarded = {
            name: self._guarded(f"/{service}/{name}", one)
            for name, one in handlers.items()
            if _is_implemented(one)
        }
        self._server.add_registered_method_handlers(service, guarded)

    def _guarded(self, path: str, handler: grpc.RpcMethodHandler) -> grpc.RpcMethodHandler:
        if is_open(path):
            return self.open.guarded(path, handler)
        # The deserializer of generated code is `FromString` of the class.
        method = _Method(self, path, handler.request_deserializer.__self__)
        inner = getattr(handler, kind_of(handler))
        is_streaming, serialize = handler.response_streaming, handler.response_serializer
        if handler.request_streaming:
            call = _of_stream(method, inner)
        elif not is_streaming and path.rpartition("/")[2] in LARGE_ANSWERS:
            call, is_streaming = _of_large_answer(method, inner, serialize), True
            serialize = None
        else:
            call = _of_one(method, inner)
        wrap = (
            grpc.stream_stream_rpc_method_handler
            if is_streaming
            else grpc.stream_unary_rpc_method_handler
        )
        return wrap(call, None, serialize)


def _is_implemented(handler: grpc.RpcMethodHandler) -> bool:
    """Whether a method is more than that of generated code, which raises and fills the log.

    gRPC answers calls of others as it answers those of methods that nobody knows.
    """
    return not getattr(handler, kind_of(handler)).__module__.endswith("_pb2_grpc")


@dataclass(slots=True)
class _Taken:
    """The request of a call, and what is held for it until the call ends.

    Attributes:
        tenant, peer: the caller.
        message: the request, once it is read.
        length: its bytes on the wire.
        size: bytes of the budget.
    """

    tenant: str
    peer: str
    message: Any = None
    length: int = 0
    size: int = 0


class _Method:
    """Reads the requests of one method."""

    def __init__(self, edge: Edge, path: str, message_type: Any) -> None:
        self.edge = edge
        self._path = path
        self._type = message_type

    async def take(self, raws: AsyncIterator[bytes]) -> _Taken:
        """Takes the request of a call that has a single one, and a place for the call.

        `give_back` returns both. Not a context manager: its two generators would take as long as
        all checks of a small request.
        """
        edge = self.edge
        taken = _Taken(caller().grant.tenant, connection())
        try:
            edge.calls.take(taken.tenant, peer=taken.peer)
        except SiroccoError:
            edge.count_refused("calls")
            raise
        try:
            within_s = edge.limits.request_s
            data = await only_request(raws, within_s, self._path, edge.count_refused)
            taken.length = len(data)
            edge.garbage.begin(len(data))
            message, taken.size = await self._taken(taken.tenant, taken.peer, data)
            taken.message = message
            # It is held as long as its call: otherwise a search or a wait of ten bytes could keep
            # megabytes from everybody else.
            message.DiscardUnknownFields()
            if spare := max(0, len(data) - message.ByteSize()):
                edge.budget.give_back(taken.tenant, spare, peer=taken.peer)
                taken.size -= spare
        except BaseException:
            self.give_back(taken)
            raise
        return taken

    def give_back(self, taken: _Taken) -> None:
        """Gives back what `take` took."""
        if taken.size:
            self.edge.budget.give_back(taken.tenant, taken.size, peer=taken.peer)
        self.edge.calls.give_back(taken.tenant, peer=taken.peer)
        self.edge.garbage.end(taken.length)

    async def _taken(self, tenant: str, peer: str, data: bytes) -> tuple[Any, int]:
        """Takes a message; the caller then gives back the bytes that it took from the budget."""
        edge, refused = self.edge, "message"
        try:
            is_sound, size = self._checked(data)
            refused = "memory"
            await edge.budget.wait(tenant, size, edge.limits.room_s, peer=peer)
            refused = "message"
            try:
                return await self._parsed(data, is_sound), size
            except BaseException:
                edge.budget.give_back(tenant, size, peer=peer)
                raise
        except SiroccoError:
            edge.count_refused(refused)
            raise

    @asynccontextmanager
    async def answer(self, size: int) -> AsyncIterator[None]:
        """Holds an answer until its client has taken it, within the budget of messages."""
        if size <= SMALL_ANSWER_BYTES:
            yield
            return
        tenant, peer, budget = caller().grant.tenant, connection(), self.edge.budget
        try:
            # It does not wait for room: what waits is in memory, too.
            budget.take(tenant, size, peer=peer)
        except SiroccoError:
            self.edge.count_refused("memory")
            raise
        try:
            yield
        finally:
            budget.give_back(tenant, size, peer=peer)

    async def stream(self, raws: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        """Yields the requests of a stream; each is counted until the next one is asked for."""
        tenant, peer = caller().grant.tenant, connection()
        data = await self._first(raws, tenant, peer)
        each = aiter(raws)
        while data is not None:
            message, size = await self._taken(tenant, peer, data)
            try:
                yield message
            finally:
                self.edge.budget.give_back(tenant, size, peer=peer)
            # A stream may wait for its next message for days.
            del data, message
            data = await anext(each, None)

    async def _first(self, raws: AsyncIterator[bytes], tenant: str, peer: str) -> bytes | None:
        """Waits for the first message of a stream, which has a place meanwhile; None: the end."""
        try:
            self.edge.unbegun.take(tenant, peer=peer)
        except SiroccoError:
            self.edge.count_refused("calls")
            raise
        try:
            # Not before there is a place: gRPC's iterator warns when it is dropped without a use.
            return await anext(aiter(raws), None)
        finally:
            self.edge.unbegun.give_back(tenant, peer=peer)

    def _checked(self, data: bytes) -> tuple[bool, int]:
        """Returns whether a message may be parsed as a whole, and what it takes in memory."""
        limit = self.edge.limits.message_bytes
        if len(data) > limit:
            raise InvalidArgument(
                f"a message of {len(data)} bytes to {self._path}, the limit is {limit}"
            )
        try:
            return True, check_message(data, self._type)
        except InvalidArgument:
            if has_rows(self._type):
                return False, 2 * len(data)
            raise

    async def _parsed(self, data: bytes, is_sound: bool) -> Any:
        if is_sound:
            try:
                return parse_message(data, self._type)
            except InvalidArgument:
                if not has_rows(self._type):
                    raise
        # Row by row, without the invalid ones.
        return await asyncio.to_thread(parse_rows, data, self._type)


def _of_one(method: _Method, inner: _Inner) -> _Inner:
    """Returns the handler of a method with a single request, as one that takes a stream."""

    async def single(raws: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> Any:
        _CONNECTION.set(context.peer())
        try:
            taken = await method.take(raws)
            try:
                return await inner(taken.message, context)
            finally:
                method.give_back(taken)
        except SiroccoError as error:
            await abort(context, error)

    async def stream(
        raws: AsyncIterator[bytes], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[Any]:
        _CONNECTION.set(context.peer())
        try:
            taken = await method.take(raws)
            try:
                async with aclosing(inner(taken.message, context)) as responses:
                    async for response in responses:
                        yield response
            finally:
                method.give_back(taken)
        except SiroccoError as error:
            await abort(context, error)

    return stream if isasyncgenfunction(inner) else single


def _of_large_answer(method: _Method, inner: _Inner, serialize: Callable[[Any], bytes]) -> _Inner:
    """Returns the handler of a method with one request and one large answer, as one of streams."""

    async def answers(
        raws: AsyncIterator[bytes], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[bytes]:
        taken = await method.take(raws)
        try:
            # Not the message itself, which takes several times its bytes.
            data = serialize(await inner(taken.message, context))
            async with method.answer(len(data)):
                yield data
        finally:
            method.give_back(taken)

    def count_unread() -> None:
        method.edge.count_refused("unread")

    async def stream(
        raws: AsyncIterator[bytes], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[Any]:
        _CONNECTION.set(context.peer())
        unread_ms = method.edge.limits.unread_ms
        try:
            async for answer in in_time(answers(raws, context), context, unread_ms, count_unread):
                yield answer
        except SiroccoError as error:
            await abort(context, error)

    return stream


def _of_stream(method: _Method, inner: _Inner) -> _Inner:
    """Returns the handler of a method that takes a stream, and checks each of its messages."""

    async def single(raws: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> Any:
        _CONNECTION.set(context.peer())
        try:
            return await inner(method.stream(raws), context)
        except SiroccoError as error:
            await abort(context, error)

    async def stream(
        raws: AsyncIterator[bytes], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[Any]:
        _CONNECTION.set(context.peer())
        try:
            async with aclosing(inner(method.stream(raws), context)) as responses:
                async for response in responses:
                    yield response
        except SiroccoError as error:
            await abort(context, error)

    return stream if isasyncgenfunction(inner) else single
