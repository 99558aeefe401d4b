"""Calls with JWTs at a real server, beside tokens of the file, and streams whose token ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc
import pytest
from sirocco_api.v1 import query_service_pb2 as pb
from sirocco_api.v1.query_service_pb2_grpc import (
    QueryServiceServicer,
    add_QueryServiceServicer_to_server,
)

from sirocco.model.access import Grant, digest_of, write_grant
from sirocco.runtime.grpc import authentication
from sirocco.runtime.grpc.authentication import Authenticated, JwtCaller, TokenFile, caller
from sirocco.runtime.grpc.edge import Edge
from sirocco.runtime.grpc.grpc_errors import streaming, unary
from sirocco.runtime.process.clock import now_ms
from tests.support.jwts import NOW_S, Issuer, Source, key, public, token

GET = "/sirocco.v1.QueryService/GetQuery"
BULK = "/sirocco.v1.QueryService/RegisterQueries"
PUBLISH_SCOPE = "sirocco:publish"


class Servicer(QueryServiceServicer):
    """Answers each request of a stream, and says who called."""

    def __init__(self) -> None:
        self.callers: list[Grant] = []
        self.open_streams = 0

    @unary
    async def GetQuery(  # noqa: N802
        self, request: pb.GetQueryRequest, context: Any
    ) -> pb.GetQueryResponse:
        self.callers.append(caller().grant)
        return pb.GetQueryResponse()

    @streaming
    async def RegisterQueries(  # noqa: N802
        self, requests: AsyncIterator[Any], context: Any
    ) -> AsyncIterator[pb.RegisterQueriesResponse]:
        self.open_streams += 1
        try:
            async for _ in requests:
                yield pb.RegisterQueriesResponse()
        finally:
            self.open_streams -= 1


class Server:
    """A server that takes tokens of one issuer, and perhaps of a file."""

    def __init__(self, channel: grpc.aio.Channel, issuer: Issuer, servicer: Servicer) -> None:
        self.channel = channel
        self.issuer = issuer
        self.servicer = servicer
        self.refused: list[str] = []

    async def get(self, presented: str) -> grpc.StatusCode:
        metadata = (("authorization", f"Bearer {presented}"),)
        try:
            await self.channel.unary_unary(GET)(b"", metadata=metadata)
        except grpc.aio.AioRpcError as error:
            return error.code()
        return grpc.StatusCode.OK

    def stream(self, presented: str) -> Any:
        metadata = (("authorization", f"Bearer {presented}"),)
        return self.channel.stream_stream(BULK)(metadata=metadata)


def served(
    monkeypatch: pytest.MonkeyPatch,
    test: Callable[[Server], Coroutine[Any, Any, None]],
    tokens: TokenFile | None = None,
) -> None:
    async def run() -> None:
        issuer, servicer = Issuer(), Servicer()
        monkeypatch.setattr(authentication, "now_ms", lambda: issuer.now_ms)
        refused: list[str] = []
        checks = (Authenticated(tokens, refused.append, issuer.tokens),)
        server = grpc.aio.server(interceptors=checks)
        add_QueryServiceServicer_to_server(servicer, Edge(server))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                found = Server(channel, issuer, servicer)
                found.refused = refused
                await test(found)
        finally:
            await server.stop(0)
        assert servicer.open_streams == 0

    asyncio.run(run())


def test_a_jwt_opens_what_its_claims_say(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(server: Server) -> None:
        assert await server.get(token()) is grpc.StatusCode.OK
        assert await server.get(token()) is grpc.StatusCode.OK
        assert {each.tenant for each in server.servicer.callers} == {"acme"}
        assert await server.get(token(scope=PUBLISH_SCOPE)) is grpc.StatusCode.PERMISSION_DENIED
        for bad in (token(aud="other"), token(made=key("ES256", "other")), "a.b.c", "abc"):
            assert await server.get(bad) is grpc.StatusCode.UNAUTHENTICATED
        assert server.refused == ["permission_denied"] + ["unauthenticated"] * 4
        assert len(server.servicer.callers) == 2

    served(monkeypatch, test)


def test_tokens_of_the_file_stay_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tokens"
    known = {"plain": "beta", "with.two.dots": "gamma"}
    lines = [
        write_grant(digest_of(each), Grant("k", tenant, frozenset({"query"})))
        for each, tenant in known.items()
    ]
    path.write_text("\n".join([*lines, '{"tenant": "acme", "queries": 5}']))
    tokens = TokenFile(path)

    async def test(server: Server) -> None:
        for each in (*known, token()):
            assert await server.get(each) is grpc.StatusCode.OK
        assert [each.tenant for each in server.servicer.callers] == ["beta", "gamma", "acme"]

    served(monkeypatch, test, tokens)
    issuer = Issuer()
    found = JwtCaller(issuer.tokens, issuer.take(token()), tokens)
    assert (found.limits.queries, found.is_open) == (5, False)


def test_a_stream_that_waits_ends_with_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(server: Server) -> None:
        # A quarter of a second before its end.
        server.issuer.now_ms = (NOW_S + 330) * 1_000 - 250
        call = server.stream(token())
        await call.write(pb.RegisterQueriesRequest().SerializeToString())
        assert await call.read() == b""
        with pytest.raises(grpc.aio.AioRpcError, match="token ann has expired") as caught:
            await call.read()
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED

    served(monkeypatch, test)


def test_a_stream_ends_when_its_key_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(server: Server) -> None:
        call = server.stream(token())
        request = pb.RegisterQueriesRequest().SerializeToString()
        await call.write(request)
        assert await call.read() == b""
        server.issuer.source.current = Source(public(key("ES256", "next"), "next")).current
        await call.write(request)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED

    served(monkeypatch, test)


def test_an_error_of_time_of_the_call_itself_is_none_of_the_token() -> None:
    async def failing() -> AsyncIterator[None]:
        raise TimeoutError
        yield

    async def run() -> None:
        issuer = Issuer()
        issuer.now_ms = now_ms()
        presented = token(exp=issuer.now_ms // 1_000 + 300)
        found = JwtCaller(issuer.tokens, issuer.take(presented), None)
        with pytest.raises(TimeoutError):
            await authentication.next_valid(failing(), found)

    asyncio.run(run())


def test_made_up_tokens_cost_their_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(server: Server) -> None:
        header, _, signature = token().split(".")
        codes = [await server.get(f"{header}.{each}.{signature}") for each in range(130)]
        assert codes[:100] == [grpc.StatusCode.UNAUTHENTICATED] * 100
        assert codes[101:] == [grpc.StatusCode.RESOURCE_EXHAUSTED] * 29

    served(monkeypatch, test)
