"""Calls of a real server in the audit log: changes, and refusals for rights and quotas."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from sirocco_api.v1 import query_service_pb2 as pb

from sirocco.model.errors import Internal, NotFound, ResourceExhausted
from sirocco.runtime.grpc import call_audit as module
from sirocco.runtime.grpc.call_audit import audited
from sirocco.runtime.grpc.grpc_errors import unary
from sirocco.telemetry.audit import AUDIT
from tests.support.jwts import token
from tests.unit.runtime.grpc.test_jwt_calls import Server, Servicer, served


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    AUDIT.set_level("all")
    caplog.set_level(logging.INFO, "sirocco.audit")
    yield caplog
    AUDIT.summarise()
    AUDIT.set_level("off")


def events(lines: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, Any]]]:
    return [(vars(record)["event"], vars(record)["fields"]) for record in lines.records]


@unary
async def removing(
    self: Servicer, request: pb.GetQueryRequest, context: Any
) -> pb.GetQueryResponse:
    """Stands in for a change: one id is unknown, one over its limit."""
    found = {"none": NotFound("no such query"), "full": ResourceExhausted("is full")}
    with audited("remove_query", [request.id]):
        if request.id in found:
            raise found[request.id]
    return pb.GetQueryResponse()


def test_refusals_name_the_caller(
    monkeypatch: pytest.MonkeyPatch, lines: pytest.LogCaptureFixture
) -> None:
    async def test(server: Server) -> None:
        assert await server.get(token()) is grpc.StatusCode.OK
        assert not lines.records
        for _ in range(3):
            assert (
                await server.get(token(scope="sirocco:publish"))
                is grpc.StatusCode.PERMISSION_DENIED
            )
        assert await server.get("a.b.c") is grpc.StatusCode.UNAUTHENTICATED
        (event, denied), (_, unknown) = events(lines)
        assert event == "audit_refusal"
        assert (denied["action"], denied["outcome"]) == ("GetQuery", "permission_denied")
        assert (denied["tenant"], denied["sub"]) == ("acme", "ann")
        assert denied["peer"].startswith("ipv4:127.0.0.1:")
        assert (unknown["tenant"], unknown["outcome"]) == ("", "unauthenticated")
        AUDIT.summarise()
        event, counted = events(lines)[-1]
        assert (event, counted["count"]) == ("audit_refusals", 2)

    served(monkeypatch, test)


def test_changes_and_quotas_of_a_call(
    monkeypatch: pytest.MonkeyPatch, lines: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Servicer, "GetQuery", removing)

    async def test(server: Server) -> None:
        metadata = (("authorization", f"Bearer {token()}"),)
        call = server.channel.unary_unary("/sirocco.v1.QueryService/GetQuery")
        await call(pb.GetQueryRequest(id="q\n").SerializeToString(), metadata=metadata)
        for name in ("none", "full"):
            with pytest.raises(grpc.aio.AioRpcError):
                await call(pb.GetQueryRequest(id=name).SerializeToString(), metadata=metadata)

    served(monkeypatch, test)
    found = [(event, fields["outcome"]) for event, fields in events(lines)]
    assert found == [
        ("audit_change", "ok"),
        ("audit_change", "not_found"),
        ("audit_change", "resource_exhausted"),
        ("audit_refusal", "resource_exhausted"),
    ]
    _, first = events(lines)[0]
    assert first["ids"] == ["q\\n"]
    assert (first["tenant"], first["sub"]) == ("acme", "ann")
    assert first["peer"].startswith("ipv4:")


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (asyncio.CancelledError(), "deadline_exceeded"),
        (ZeroDivisionError("secret"), "internal"),
        (Internal("x"), "internal"),
    ],
)
def test_a_change_of_unknown_outcome_is_written(
    error: BaseException, outcome: str, lines: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(type(error)), audited("register_query", ["a", "b"]):
        raise error
    [(_, fields)] = events(lines)
    assert (fields["ids"], fields["outcome"]) == (["a", "b"], outcome)
    assert "secret" not in str(fields)


def test_nothing_is_asked_where_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "who", None)
    with audited("register_query", ["a"]) as errors:
        errors[0] = NotFound("x")
