"""Errors as clients of other languages read them: `google.rpc.Status`, beside our own trailer."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import Any, TypeVar
from urllib.parse import quote

import grpc
import pytest
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status
from sirocco_api.v1.errors_pb2 import Error

from sirocco.codec.errors import FIELD_BYTES_MAX, MESSAGE_BYTES_MAX, RETRY_AFTER_MS, write_error
from sirocco.model.errors import (
    ERRORS_BY_CODE,
    InvalidArgument,
    OutOfRange,
    PartialResult,
    ResourceExhausted,
    SiroccoError,
)
from sirocco.runtime.grpc.grpc_errors import ERROR_METADATA, STATUS_METADATA, abort, of_peer
from sirocco.runtime.grpc.status_details import DOMAIN, write_status

T = TypeVar("T", bound=Message)


def status_of(error: SiroccoError) -> Status:
    return write_status(error, write_error(error))


def detail(status: Status, kind: type[T]) -> T | None:
    """Returns the one detail of a kind; None without."""
    found = [each for each in status.details if each.Is(kind.DESCRIPTOR)]
    assert len(found) <= 1
    if not found:
        return None
    message = kind()
    found[0].Unpack(message)
    return message


def failed(error: SiroccoError) -> grpc.aio.AioRpcError:
    """Returns what a client gets of an error."""

    async def refuse(_: Any, context: grpc.aio.ServicerContext) -> None:
        await abort(context, error)

    async def run() -> grpc.aio.AioRpcError:
        server = grpc.aio.server()
        method = {"Refuse": grpc.unary_unary_rpc_method_handler(refuse)}
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("t", method)])
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary("/t/Refuse")(b"")
        await server.stop(0)
        return caught.value

    return asyncio.run(run())


async def rich(failure: grpc.aio.AioRpcError) -> Status | None:
    """Returns the status as `grpcio-status` reads it, which compares code and message."""

    class Call:
        trailing_metadata = staticmethod(failure.trailing_metadata)
        code = staticmethod(failure.code)
        details = staticmethod(failure.details)

    return rpc_status.from_call(Call)


@pytest.mark.parametrize("kind", [SiroccoError, *ERRORS_BY_CODE.values()])
def test_every_error_has_its_code_field_and_retry(kind: type[SiroccoError]) -> None:
    status = status_of(kind("is no number", field="region.circle.radius_m"))
    info, bad, again = (detail(status, each) for each in (ErrorInfo, BadRequest, RetryInfo))
    assert info is not None
    assert (info.reason, info.domain) == (kind.code, DOMAIN)
    assert bad is not None
    (violation,) = bad.field_violations
    assert (violation.field, violation.description) == ("region.circle.radius_m", "is no number")
    assert violation.reason == kind.code
    assert (again is not None) == kind.retryable
    assert again is None or again.retry_delay.ToMilliseconds() == RETRY_AFTER_MS
    assert detail(status_of(kind("x")), BadRequest) is None


def test_what_programs_need_of_some_errors_is_there() -> None:
    again = detail(status_of(ResourceExhausted("full", retry_after_ms=1_250)), RetryInfo)
    assert again is not None
    assert again.retry_delay.ToMilliseconds() == 1_250
    for error, metadata in (
        (OutOfRange("gone", earliest="c-7"), {"earliest_cursor": "c-7"}),
        (OutOfRange("old", earliest_ms=-5), {"earliest_ms": "-5"}),
        (PartialResult("some", missing_slots=(3, 7)), {"missing_slots": "3,7"}),
        # Half of a list, or of a cursor, would be wrong.
        (PartialResult("all", missing_slots=tuple(range(100))), {}),
        (InvalidArgument("wrong"), {}),
    ):
        info = detail(status_of(error), ErrorInfo)
        assert info is not None
        assert dict(info.metadata) == metadata


@pytest.mark.parametrize("text", ["is no number", "größer, 0 km²", "\udcff", "a\nb\0%"])
def test_a_client_of_any_language_reads_it_and_ours_stays(text: str) -> None:
    failure = failed(InvalidArgument(text, field="region[3].lon"))
    status = asyncio.run(rich(failure))
    assert status is not None
    bad = detail(status, BadRequest)
    assert bad is not None
    assert [each.field for each in bad.field_violations] == ["region[3].lon"]
    ours = dict(failure.trailing_metadata() or ())[ERROR_METADATA]
    assert Error.FromString(ours) == write_error(InvalidArgument(text, field="region[3].lon"))
    read = of_peer(failure)
    assert (type(read), read.field) == (InvalidArgument, "region[3].lon")


@pytest.mark.parametrize(
    "error",
    [
        ResourceExhausted("𝄞" * MESSAGE_BYTES_MAX, field="é" * FIELD_BYTES_MAX),
        OutOfRange("\x01" * MESSAGE_BYTES_MAX, field="ü" * FIELD_BYTES_MAX, earliest="c" * 400),
    ],
)
def test_the_longest_errors_reach_every_client(error: SiroccoError) -> None:
    """Beyond 8 KB of trailers, gRPC refuses a part of the calls by chance."""
    failure = failed(error)
    assert failure.code().name == error.code
    assert asyncio.run(rich(failure)) is not None
    # As HTTP/2 counts them, and as they travel: bytes in base64, texts escaped.
    sent = [(name, b64encode(value)) for name, value in failure.trailing_metadata() or ()]
    sent.append(("grpc-message", quote(failure.details() or "").encode()))
    assert {name for name, _ in sent} >= {ERROR_METADATA, STATUS_METADATA}
    assert sum(32 + len(name) + len(value) for name, value in sent) < 8 << 10
