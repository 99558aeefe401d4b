"""Reflection: the contract of clients and nothing else, behind the token, bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha import reflection_pb2 as pb
from sirocco_api.v1 import errors_pb2, query_service_pb2
from sirocco_api.v1.errors_pb2 import Error

from sirocco.internal_api.v1 import owner_service_pb2
from sirocco.model.access import Grant
from sirocco.model.errors import Unauthenticated
from sirocco.runtime.grpc.authentication import Authenticated
from sirocco.runtime.grpc.edge import Edge
from sirocco.runtime.grpc.grpc_errors import ERROR_METADATA
from sirocco.runtime.grpc.reflection_service import (
    REQUEST_BYTES_MAX,
    TENANT_STREAMS_MAX,
    ReflectionFront,
    add_reflection,
)

V1 = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
V1ALPHA = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
QUERIES = query_service_pb2.DESCRIPTOR.services_by_name["QueryService"].full_name
# What the process knows as well.
OWNERS = owner_service_pb2.DESCRIPTOR.services_by_name["OwnerService"].full_name

Stream = Callable[..., Any]


class Tokens:
    """Replaces the file of tokens: `acme` is valid, for publishing alone."""

    class access:  # noqa: N801
        @staticmethod
        def grant(authorization: str, now_ms: int) -> Grant:
            if authorization != "acme":
                raise Unauthenticated("no token")
            return Grant("acme", "acme", frozenset({"publish"}), None)


def served(test: Callable[[Stream], Coroutine[Any, Any, None]], idle_s: float = 60.0) -> None:
    async def run() -> None:
        checks = (Authenticated(Tokens(), lambda _: None),)  # type: ignore[arg-type]
        server = grpc.aio.server(interceptors=checks)
        front = ReflectionFront((QUERIES,), lambda _: None, idle_s)
        add_reflection(front, Edge(server))
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        async with grpc.aio.insecure_channel(address) as channel:

            def stream(method: str = V1ALPHA, token: str = "acme") -> Any:
                opened = channel.stream_stream(
                    method,
                    pb.ServerReflectionRequest.SerializeToString,
                    pb.ServerReflectionResponse.FromString,
                )
                return opened(metadata=(("authorization", token),))

            try:
                await test(stream)
            finally:
                await server.stop(0)

    asyncio.run(run())


async def ask(call: Any, **request: Any) -> pb.ServerReflectionResponse:
    await call.write(pb.ServerReflectionRequest(**request))
    return await call.read()


async def failure(call: Any) -> tuple[grpc.StatusCode, errors_pb2.Error]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    details = dict(caught.value.trailing_metadata() or ()).get(ERROR_METADATA, b"")
    return caught.value.code(), errors_pb2.Error.FromString(details)


@pytest.mark.parametrize("method", [V1, V1ALPHA])
def test_the_contract_of_clients_is_shown(method: str) -> None:
    async def test(stream: Stream) -> None:
        call = stream(method)
        listed = await ask(call, list_services="")
        assert {each.name for each in listed.list_services_response.service} == {
            QUERIES,
            "grpc.reflection.v1alpha.ServerReflection",
        }
        # And what errors in trailers are made of.
        for symbol in (QUERIES, Error.DESCRIPTOR.full_name, "google.rpc.BadRequest"):
            found = await ask(call, file_containing_symbol=symbol)
            files = [
                FileDescriptorProto.FromString(each)
                for each in found.file_descriptor_response.file_descriptor_proto
            ]
            assert files[0].package == symbol.rpartition(".")[0]
            named = {name for each in files for name in each.dependency}
            assert named <= {each.name for each in files}
        call.cancel()

    served(test)


def test_the_contracts_between_services_are_not_shown() -> None:
    async def test(stream: Stream) -> None:
        call = stream()
        file = owner_service_pb2.DESCRIPTOR
        message = next(iter(file.message_types_by_name.values())).full_name
        requests: tuple[dict[str, Any], ...] = (
            {"file_containing_symbol": OWNERS},
            {"file_containing_symbol": message},
            {"file_by_filename": file.name},
            {"all_extension_numbers_of_type": message},
            {"file_containing_extension": {"containing_type": message, "extension_number": 1}},
        )
        for request in requests:
            answer = await ask(call, **request)
            assert answer.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
        call.cancel()

    served(test)


@pytest.mark.parametrize("name", ["", ".", "\0", "é.ü", f"{QUERIES}.", "x" * 900])
def test_impossible_names_are_not_found(name: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test(stream: Stream) -> None:
        call = stream()
        requests: tuple[dict[str, Any], ...] = (
            {"file_containing_symbol": name},
            {"file_by_filename": name},
            {"all_extension_numbers_of_type": name},
            *(
                {"file_containing_extension": {"containing_type": each, "extension_number": number}}
                for each in (name, Error.DESCRIPTOR.full_name)
                for number in (-(1 << 31), -1, 0, 1, (1 << 31) - 1)
            ),
        )
        for request in requests:
            answer = await ask(call, **request)
            assert answer.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
        answer = await ask(call)
        assert answer.error_response.error_code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
        call.cancel()

    served(test)
    assert not [record for record in caplog.records if record.name.startswith("sirocco")]


@pytest.mark.parametrize("method", [V1, V1ALPHA])
def test_it_needs_a_token_of_any_scope(method: str) -> None:
    async def test(stream: Stream) -> None:
        for token in ("", "guessed"):
            code, _ = await failure(stream(method, token))
            assert code is grpc.StatusCode.UNAUTHENTICATED

    served(test)


def test_long_requests_idle_streams_and_many_of_them_are_refused() -> None:
    async def test(stream: Stream) -> None:
        call = stream()
        await call.write(pb.ServerReflectionRequest(file_by_filename="x" * REQUEST_BYTES_MAX))
        code, error = await failure(call)
        assert (code, error.field) == (grpc.StatusCode.INVALID_ARGUMENT, "file_by_filename")
        held = [stream() for _ in range(TENANT_STREAMS_MAX)]
        for each in held:
            assert (await ask(each, list_services="")).HasField("list_services_response")
        more = stream()
        await more.write(pb.ServerReflectionRequest(list_services=""))
        code, error = await failure(more)
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "tenant acme" in error.message
        assert error.retry_after_ms > 0
        for each in held:
            code, _ = await failure(each)
            assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        # Their places are free again.
        assert (await ask(stream(), list_services="")).HasField("list_services_response")

    served(test, idle_s=1.0)
