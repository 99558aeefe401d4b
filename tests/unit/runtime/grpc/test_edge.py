"""The edge of a gRPC server: token, places, budget, counts, and only then parsing."""

from __future__ import annotations

import asyncio
import gc
import sys
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from sirocco_api.v1 import errors_pb2
from sirocco_api.v1 import query_service_pb2 as pb
from sirocco_api.v1.query_service_pb2_grpc import (
    QueryServiceServicer,
    add_QueryServiceServicer_to_server,
)

from sirocco.codec.wire import PartlyRefused
from sirocco.model.access import Grant
from sirocco.model.errors import Unauthenticated
from sirocco.runtime.grpc import edge
from sirocco.runtime.grpc.authentication import Authenticated
from sirocco.runtime.grpc.edge import EDGE, MESSAGE_BYTES_MAX, Edge, EdgeLimits
from sirocco.runtime.grpc.grpc_errors import ERROR_METADATA, streaming, unary
from sirocco.runtime.grpc.server import (
    RECEIVED_BYTES_MAX,
    SERVER_OPTIONS,
    GrpcServer,
)
from sirocco.telemetry.metrics.process import REFUSED_AT_THE_EDGE
from tests.support.never_read import requests_of_one_that_never_reads
from tests.support.waiting import until

GET = "/sirocco.v1.QueryService/GetQuery"
REGISTER = "/sirocco.v1.QueryService/RegisterQuery"
BULK = "/sirocco.v1.QueryService/RegisterQueries"

# Two bytes a query: a parser allocates more than a hundred bytes for each.
EXPLOSION = b"\x0a\x00" * (3 << 20)


class Servicer(QueryServiceServicer):
    """Counts the calls that reach it."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.answer = pb.GetQueryResponse()

    @unary
    async def GetQuery(  # noqa: N802
        self, request: pb.GetQueryRequest, context: Any
    ) -> pb.GetQueryResponse:
        self.seen.append(request)
        await self.go_on.wait()
        return self.answer

    @unary
    async def RegisterQuery(  # noqa: N802
        self, request: pb.RegisterQueryRequest, context: Any
    ) -> pb.RegisterQueryResponse:
        self.seen.append(request)
        return pb.RegisterQueryResponse(revision=1)

    @streaming
    async def RegisterQueries(  # noqa: N802
        self, requests: AsyncIterator[Any], context: Any
    ) -> AsyncIterator[pb.RegisterQueriesResponse]:
        async for request in requests:
            self.seen.append(request)
            yield pb.RegisterQueriesResponse()


class Tokens:
    """Replaces the file of tokens: `acme` and `beta` are valid."""

    class access:  # noqa: N801
        @staticmethod
        def grant(authorization: str, now_ms: int) -> Grant:
            if authorization not in ("acme", "beta"):
                raise Unauthenticated("no token")
            return Grant(authorization, authorization, frozenset({"query"}), None)


@dataclass
class Served:
    """A server with an edge, for one test's loop."""

    address: str
    edge: Edge
    servicer: Servicer
    refused: list[str] = field(default_factory=list)
    counted: list[str] = field(default_factory=list)

    async def call(self, method: str, data: bytes, token: str = "acme", **options: Any) -> Any:
        async with grpc.aio.insecure_channel(
            self.address, options=(("grpc.max_send_message_length", -1),), **options
        ) as channel:
            metadata = (("authorization", token),) if token else ()
            if method == BULK:
                call = channel.stream_stream(method)(iter((data,)), metadata=metadata)
                return [answer async for answer in call]
            return await channel.unary_unary(method)(data, metadata=metadata)


def served(test: Callable[[Served], Coroutine[Any, Any, None]], limits: EdgeLimits = EDGE) -> None:
    async def run() -> None:
        refused: list[str] = []
        counted: list[str] = []
        checks = (Authenticated(Tokens(), refused.append),)  # type: ignore[arg-type]
        server = grpc.aio.server(interceptors=checks, options=SERVER_OPTIONS)
        front, servicer = Edge(server, limits, counted.append), Servicer()
        add_QueryServiceServicer_to_server(servicer, front)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            await test(Served(f"127.0.0.1:{port}", front, servicer, refused, counted))
        finally:
            await server.stop(0)
        assert front.budget.held == 0
        assert front.calls.held == 0
        assert front.unbegun.held == 0
        assert set(counted) <= set(REFUSED_AT_THE_EDGE)

    asyncio.run(run())


async def failure(call: Coroutine[Any, Any, Any]) -> tuple[grpc.StatusCode, errors_pb2.Error]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    details = dict(caught.value.trailing_metadata() or ()).get(ERROR_METADATA, b"")
    return caught.value.code(), errors_pb2.Error.FromString(details)


def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns the sizes of messages checked or parsed from now on."""
    sizes: list[int] = []
    check = edge.check_message  # type: ignore[attr-defined]

    def counted(data: bytes, message_type: Any) -> int:
        sizes.append(len(data))
        return check(data, message_type)

    monkeypatch.setattr(edge, "check_message", counted)
    return sizes


@pytest.mark.parametrize("method", [GET, REGISTER, BULK])
def test_nothing_is_read_of_a_call_without_a_token(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = parsed(monkeypatch)

    async def test(server: Served) -> None:
        for token in ("", "guessed"):
            code, error = await failure(server.call(method, EXPLOSION, token))
            assert code is grpc.StatusCode.UNAUTHENTICATED
            assert error.code == "UNAUTHENTICATED"
        assert len(server.refused) == 2
        assert not server.servicer.seen

    served(test)
    assert not sizes


@pytest.mark.parametrize("method", [GET, REGISTER, BULK])
def test_compressed_messages_are_bounded_by_what_they_unpack_to(method: str) -> None:
    async def test(server: Served) -> None:
        gzip = {"compression": grpc.Compression.Gzip}
        code, _ = await failure(server.call(method, bytes(RECEIVED_BYTES_MAX + 1), **gzip))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        code, error = await failure(server.call(method, bytes(MESSAGE_BYTES_MAX + 1), **gzip))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert str(MESSAGE_BYTES_MAX) in error.message
        code, error = await failure(server.call(BULK, EXPLOSION, **gzip))
        assert (code, error.field) == (grpc.StatusCode.INVALID_ARGUMENT, "queries")
        code, _ = await failure(server.call(method, EXPLOSION, "", **gzip))
        assert code is grpc.StatusCode.UNAUTHENTICATED
        assert not server.servicer.seen

    served(test)


def test_calls_leave_no_iterator_to_the_loop() -> None:
    """The loop would close each in a task and a turn of its own, once it is garbage."""

    async def test(server: Served) -> None:
        left: list[Any] = []
        sys.set_asyncgen_hooks(finalizer=left.append)
        for method, request in ((GET, pb.GetQueryRequest()), (REGISTER, pb.RegisterQueryRequest())):
            await server.call(method, request.SerializeToString())
        # A call is a cycle of objects.
        gc.collect()
        assert len(server.servicer.seen) == 2
        assert not left

    served(test)


def test_what_explodes_is_refused_before_it_is_parsed() -> None:
    async def test(server: Served) -> None:
        code, error = await failure(server.call(BULK, EXPLOSION))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert error.field == "queries"
        query = b"\x52\x00\x5a\x00" * (1 << 20)
        data = b"\x0a\x80\x80\x80\x02" + query
        code, _ = await failure(server.call(REGISTER, data))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert not server.servicer.seen

    served(test)


@pytest.mark.parametrize("method", [GET, REGISTER, BULK])
@pytest.mark.parametrize("data", [b"\x0a", b"\x0a\x05abc", b"\xff" * 40, b"\x0b" * 300])
def test_what_cannot_be_decoded_is_an_invalid_argument(
    method: str, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(server: Served) -> None:
        code, error = await failure(server.call(method, data))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert error.code == "INVALID_ARGUMENT"

    served(test)
    # Besides those of gRPC, and of ended loops of other tests.
    ours = [record for record in caplog.records if record.name.startswith("sirocco")]
    assert not ours


def test_a_bad_row_of_many_is_passed_to_the_servicer() -> None:
    async def test(server: Served) -> None:
        request = pb.RegisterQueriesRequest()
        request.queries.add(id="a")
        request.queries.add().ranked.keywords.extend(["k"] * 2_000)
        assert len(await server.call(BULK, request.SerializeToString())) == 1
        (seen,) = server.servicer.seen
        assert isinstance(seen, PartlyRefused)
        assert list(seen.refused) == [1]

    served(test)


def test_messages_over_the_limit_are_refused_by_their_size() -> None:
    async def test(server: Served) -> None:
        for method in (GET, BULK):
            code, error = await failure(server.call(method, bytes(1_001)))
            assert code is grpc.StatusCode.INVALID_ARGUMENT
            assert "1001 bytes" in error.message
        await failure(server.call(GET, b"", "nobody"))
        # Calls without a valid token are counted elsewhere.
        assert server.counted == ["message"] * 2

    served(test, EdgeLimits(message_bytes=1_000))


def test_calls_under_way_are_bounded_for_a_tenant_and_all() -> None:
    async def test(server: Served) -> None:
        server.servicer.go_on.clear()
        held = [asyncio.create_task(server.call(GET, b"", "acme")) for _ in range(2)]
        await until(lambda: len(server.servicer.seen) >= 2)
        code, error = await failure(server.call(GET, b"", "acme"))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "tenant acme" in error.message
        assert error.retry_after_ms > 0
        held.append(asyncio.create_task(server.call(GET, b"", "beta")))
        await until(lambda: len(server.servicer.seen) >= 3)
        code, error = await failure(server.call(GET, b"", "beta"))
        assert "this process" in error.message
        server.servicer.go_on.set()
        await asyncio.gather(*held)
        await server.call(GET, b"", "acme")
        assert server.counted == ["calls"] * 2

    served(test, EdgeLimits(calls=3, tenant_calls=2))


def test_memory_of_messages_is_bounded_for_a_tenant() -> None:
    """One message always fits; a second one waits, and is refused if that does not help."""

    async def test(server: Served) -> None:
        server.servicer.go_on.clear()
        held = asyncio.create_task(server.call(GET, b"\x0a\x7f" + b"x" * 127))
        await until(lambda: server.servicer.seen)
        code, error = await failure(server.call(GET, b"\x0a\x7f" + b"x" * 127))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "bytes of messages" in error.message
        beta = asyncio.create_task(server.call(REGISTER, b"", "beta"))
        await asyncio.sleep(0)
        server.servicer.go_on.set()
        await beta
        await held
        assert server.counted == ["memory"]

    limits = EdgeLimits(budget_bytes=1 << 20, tenant_budget_bytes=128, room_s=0.05)
    served(test, limits)


def test_unknown_fields_are_not_held_during_a_call() -> None:
    """A search or a wait of a few bytes, with megabytes in an unknown field."""

    async def test(server: Served) -> None:
        server.servicer.go_on.clear()
        data = b"\x0a\x02q1" + b"\xfa\x3f\x80\x80\x40" + b"x" * (1 << 20)
        held = asyncio.create_task(server.call(GET, data))
        await until(lambda: server.servicer.seen)
        assert server.servicer.seen[0].id == "q1"
        assert server.servicer.seen[0].ByteSize() < 10
        assert 0 < server.edge.budget.held < 10_000
        server.servicer.go_on.set()
        await held

    served(test)


def test_a_request_that_does_not_come_ends_its_call() -> None:
    async def test(server: Served) -> None:
        async with grpc.aio.insecure_channel(server.address) as channel:
            call = channel.stream_unary(GET)(metadata=(("authorization", "acme"),))
            code, error = await failure(call)
            assert code is grpc.StatusCode.DEADLINE_EXCEEDED
            call = channel.stream_unary(GET)(iter(()), metadata=(("authorization", "acme"),))
            code, error = await failure(call)
            assert code is grpc.StatusCode.INVALID_ARGUMENT
            assert GET in error.message
        assert server.counted == ["late"] * 2

    served(test, EdgeLimits(request_s=0.05))


def test_unread_streams_are_bounded_for_a_tenant() -> None:
    async def test(server: Served) -> None:
        begun = pb.RegisterQueriesRequest().SerializeToString()
        async with grpc.aio.insecure_channel(server.address) as channel:

            def opened(token: str) -> Any:
                return channel.stream_stream(BULK)(metadata=(("authorization", token),))

            held = [opened("acme") for _ in range(2)]
            await until(lambda: server.edge.unbegun.held >= 2)
            code, error = await failure(opened("acme").read())
            assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert error.retry_after_ms > 0
            assert len(await server.call(BULK, begun, "beta")) == 1
            # A stream that has begun is not counted, however long it waits then.
            await held[0].write(begun)
            await held[0].read()
            assert server.edge.unbegun.held == 1
            assert len(await server.call(BULK, begun, "acme")) == 1
            for call in held:
                call.cancel()
            await until(lambda: not server.edge.unbegun.held)
        assert server.counted == ["calls"]

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", RuntimeWarning)
        served(test, EdgeLimits(unbegun=4, tenant_unbegun=2))
        gc.collect()
    # gRPC's iterator of the refused stream would complain that it was made and never used.
    assert not [each.message for each in warned if "never awaited" in str(each.message)]


def test_a_method_that_a_servicer_lacks_is_unimplemented_and_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each such call left a traceback of 2 kB."""

    async def test(server: Served) -> None:
        for method in ("UpdateQuery", "ListQueries", "UpdateQueries"):
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await server.call(f"/sirocco.v1.QueryService/{method}", b"")
            assert failed.value.code() is grpc.StatusCode.UNIMPLEMENTED

    served(test)
    assert not caplog.records


def test_every_server_has_an_edge() -> None:
    server = GrpcServer("127.0.0.1", 0)
    server.start([lambda to: add_QueryServiceServicer_to_server(Servicer(), to)])
    try:
        assert isinstance(server.edge, Edge)
    finally:
        server.stop()


def test_an_answer_whose_client_has_gone_is_given_up() -> None:
    async def test(server: Served) -> None:
        server.servicer.answer.ParseFromString(b"\x7a\x80\x80\x40" + bytes(1 << 20))
        _, writer = await asyncio.open_connection(*server.address.split(":"))
        writer.write(requests_of_one_that_never_reads(server.address, GET, 3))
        await until(lambda: server.edge.budget.held > 3 << 20)
        assert server.edge.calls.held == 3
        writer.close()
        await until(lambda: server.edge.calls.held == server.edge.budget.held == 0)
        assert "unread" not in server.counted

    served(test)


def test_unread_answers_are_bounded_and_end() -> None:
    limits = EdgeLimits(budget_bytes=16 << 20, tenant_budget_bytes=8 << 20, unread_ms=1_000)

    async def test(server: Served) -> None:
        # A field that the contract does not have.
        server.servicer.answer.ParseFromString(b"\x7a\x80\x80\x40" + bytes(1 << 20))
        _, writer = await asyncio.open_connection(*server.address.split(":"))
        writer.write(requests_of_one_that_never_reads(server.address, GET, 60))
        await writer.drain()

        await until(lambda: len(server.servicer.seen) == 60)
        await until(lambda: server.counted.count("memory") >= 52)
        assert 5 << 20 < server.edge.budget.held <= 8 << 20
        assert server.edge.calls.held <= 8
        await until(lambda: server.edge.calls.held == 0)
        assert server.counted.count("unread") == 60 - server.counted.count("memory")
        # Others are answered meanwhile and later, with the same bytes.
        answer = await server.call(GET, b"", "beta")
        assert len(answer) == (1 << 20) + 4
        writer.close()

    served(test, limits)
