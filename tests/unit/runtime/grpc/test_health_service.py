"""Health of a port: what it says, without a token, and that nobody can make it costly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2 as pb
from grpc_health.v1.health_pb2_grpc import HealthStub, add_HealthServicer_to_server
from sirocco_api.v1 import errors_pb2

from sirocco.model.errors import Unauthenticated
from sirocco.runtime.grpc.authentication import Authenticated
from sirocco.runtime.grpc.edge import Edge, EdgeLimits
from sirocco.runtime.grpc.grpc_errors import ERROR_METADATA
from sirocco.runtime.grpc.health_service import HealthFront
from sirocco.runtime.grpc.open_calls import OPEN, OpenLimits
from sirocco.runtime.grpc.server import RECEIVED_BYTES_MAX, SERVER_OPTIONS
from tests.support.never_read import requests_of_one_that_never_reads
from tests.support.waiting import until

QUERIES = "sirocco.v1.QueryService"
CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"
SERVING = pb.HealthCheckResponse.SERVING
NOT_SERVING = pb.HealthCheckResponse.NOT_SERVING
UNKNOWN = pb.HealthCheckResponse.SERVICE_UNKNOWN


class Tokens:
    """Replaces the file of tokens: none is valid."""

    class access:  # noqa: N801
        @staticmethod
        def grant(authorization: str, now_ms: int) -> Any:
            raise Unauthenticated("no token")


@dataclass
class Served:
    """A server with health behind an edge and tokens, for one test's loop."""

    edge: Edge
    counted: list[str]
    is_serving: bool = True
    looks: int = 0
    address: str = ""
    front: HealthFront = field(init=False)
    channel: grpc.aio.Channel = field(init=False)

    @property
    def stub(self) -> HealthStub:
        return HealthStub(self.channel)

    def looked(self) -> bool:
        self.looks += 1
        return self.is_serving


def served(test: Callable[[Served], Coroutine[Any, Any, None]], limits: OpenLimits = OPEN) -> None:
    async def run() -> None:
        refused: list[str] = []
        checks = (Authenticated(Tokens(), refused.append),)  # type: ignore[arg-type]
        server = grpc.aio.server(interceptors=checks, options=SERVER_OPTIONS)
        counted: list[str] = []
        edge = Edge(server, EdgeLimits(open=limits), counted.append)
        made = Served(edge, counted)
        front = HealthFront((QUERIES,), made.looked, look_s=0.01)
        add_HealthServicer_to_server(front, edge)
        made.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        async with grpc.aio.insecure_channel(made.address) as channel:
            made.front, made.channel = front, channel
            try:
                await test(made)
            finally:
                await server.stop(0)
        await until(lambda: edge.open.calls.held == edge.open.streams.held == 0)
        assert edge.calls.held == edge.budget.held == edge.unbegun.held == 0
        assert not refused

    asyncio.run(run())


def request(service: str) -> pb.HealthCheckRequest:
    return pb.HealthCheckRequest(service=service)


async def failure(call: Any) -> tuple[grpc.StatusCode, errors_pb2.Error]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    details = dict(caught.value.trailing_metadata() or ()).get(ERROR_METADATA, b"")
    return caught.value.code(), errors_pb2.Error.FromString(details)


def test_the_process_and_each_service_are_as_ready_as_the_process() -> None:
    async def test(server: Served) -> None:
        for is_serving, status in ((True, SERVING), (False, NOT_SERVING), (True, SERVING)):
            server.is_serving = is_serving
            for name in ("", QUERIES):
                assert (await server.stub.Check(request(name))).status == status
            found = (await server.stub.List(pb.HealthListRequest())).statuses
            assert {name: each.status for name, each in found.items()} == {
                "": status,
                QUERIES: status,
            }
        # Services between processes are not known, either.
        for name in ("sirocco.v1.OwnerService", "QueryService", "x" * 1_000):
            code, error = await failure(server.stub.Check(request(name)))
            assert (code, error.field) == (grpc.StatusCode.NOT_FOUND, "service")

    served(test)


def test_who_watches_is_told_each_change_and_the_end() -> None:
    async def test(server: Served) -> None:
        watches = [server.stub.Watch(request(name)) for name in ("", QUERIES, "else")]
        assert [(await each.read()).status for each in watches] == [SERVING, SERVING, UNKNOWN]
        for is_serving, status in ((False, NOT_SERVING), (True, SERVING)):
            server.is_serving = is_serving
            assert [(await each.read()).status for each in watches[:2]] == [status] * 2
        server.front.close()
        assert [(await each.read()).status for each in watches[:2]] == [NOT_SERVING] * 2
        assert [await each.read() for each in watches] == [grpc.aio.EOF] * 3
        assert [await each.code() for each in watches] == [grpc.StatusCode.OK] * 3

    served(test)


def test_a_change_that_is_over_before_a_look_leaves_nobody_with_the_wrong_state() -> None:
    async def test(server: Served) -> None:
        first = server.stub.Watch(request(""))
        assert (await first.read()).status == SERVING
        # Nothing looks until the loop's next turn: the second one begins within a change.
        server.front._timer.cancel()  # type: ignore[union-attr]
        server.is_serving = False
        second = server.stub.Watch(request(""))
        status = (await second.read()).status
        server.is_serving = True
        server.front._look()
        server.is_serving = False
        server.front._look()
        for watch, before in ((first, SERVING), (second, status)):
            assert before == SERVING
            assert (await watch.read()).status == NOT_SERVING

    served(test)


def test_one_look_serves_all_who_watch_and_none_is_made_for_nobody() -> None:
    async def test(server: Served) -> None:
        watches = []
        # One after another: few requests are read at a time.
        for _ in range(50):
            watches.append(server.stub.Watch(request("")))
            await watches[-1].read()
        server.looks = 0
        timer = server.front._timer
        await until(lambda: server.front._timer is not timer)
        assert server.looks < 10
        for each in watches:
            each.cancel()
        await until(lambda: not server.front._watching)
        assert server.front._timer is not None
        assert server.front._timer.cancelled()

    served(test)


def test_requests_that_do_not_come_hold_few_places_for_a_short_time() -> None:
    async def test(server: Served) -> None:
        held = [server.channel.stream_unary(CHECK)() for _ in range(4)]
        await until(lambda: server.edge.open.calls.held >= 2)
        code, error = await failure(server.stub.Check(request("")))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert error.retry_after_ms > 0
        # Other calls have lost nothing.
        assert server.edge.calls.held == server.edge.unbegun.held == 0
        codes = [(await failure(each))[0].name for each in held]
        assert set(codes) == {"DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"}
        assert (await server.stub.Check(request(""))).status == SERVING
        assert set(server.counted) == {"calls", "late"}

    served(test, OpenLimits(calls=4, request_s=0.5))


def test_streams_are_bounded_and_leave_places_for_calls() -> None:
    async def test(server: Served) -> None:
        watches = [server.stub.Watch(request("")) for _ in range(4)]
        assert [(await each.read()).status for each in watches] == [SERVING] * 4
        code, error = await failure(server.stub.Watch(request("")).read())
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert error.retry_after_ms > 0
        assert server.edge.open.streams.held == 4
        assert (await server.stub.Check(request(""))).status == SERVING
        assert server.counted == ["calls"]

    served(test, OpenLimits(streams=8))


@pytest.mark.parametrize(
    "data", [b"\x0a\xff\x07" + b"x" * 1_023, bytes(RECEIVED_BYTES_MAX), b"\x0a", b"\xff" * 40]
)
def test_long_and_malformed_messages_are_refused(data: bytes) -> None:
    async def test(server: Served) -> None:
        options = (("grpc.max_send_message_length", -1),)
        async with grpc.aio.insecure_channel(server.address, options) as channel:
            for call in (channel.unary_unary(CHECK)(data), channel.unary_stream(WATCH)(data)):
                answered = call if isinstance(call, grpc.aio.UnaryUnaryCall) else call.read()
                code, error = await failure(answered)
                assert code is grpc.StatusCode.INVALID_ARGUMENT
                assert error.code == "INVALID_ARGUMENT"
        assert server.counted == ["message"] * 2

    served(test)


def test_answers_that_nobody_reads_are_few_and_end() -> None:
    async def test(server: Served) -> None:
        _, writer = await asyncio.open_connection(*server.address.split(":"))
        writer.write(requests_of_one_that_never_reads(server.address, CHECK, 60, window=0))
        writer.write(b"")
        await until(lambda: server.counted.count("calls") >= 60 - 16)
        assert 0 < server.edge.open.calls.held <= 16
        await until(lambda: server.edge.open.calls.held == 0)
        assert server.counted.count("unread") == 60 - server.counted.count("calls")
        assert (await server.stub.Check(request(""))).status == SERVING
        writer.close()

    served(test, OpenLimits(unread_ms=500))
