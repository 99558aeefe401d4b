"""The engine's errors are raised by the client with the same meaning."""

from __future__ import annotations

import pickle
import threading

import grpc
import pytest
from sirocco_api.v1.errors_pb2 import Error
from sirocco_client import (
    CursorExpired,
    InvalidArgument,
    OutOfRange,
    PartialResult,
    ResourceExhausted,
    SiroccoError,
    Tls,
    Unavailable,
    WindowTooLong,
    errors,
)
from sirocco_client.connection.channels import ERROR_METADATA, ChannelSettings
from sirocco_client.connection.error_messages import (
    ERRORS_BY_CODE,
    error_from_message,
    error_from_wire,
)
from sirocco_client.connection.retry import Backoff, Retry

from sirocco.codec.errors import status_name, write_error
from sirocco.model import errors as engine
from sirocco.runtime.grpc import grpc_errors
from sirocco.runtime.grpc.server import KEEPALIVE_MIN_MS


@pytest.mark.parametrize("code", sorted(engine.ERRORS_BY_CODE))
def test_the_engines_errors_are_known(code: str) -> None:
    thrown = engine.ERRORS_BY_CODE[code]("why", field="region.rect")
    message = write_error(thrown)
    for found in (
        error_from_message(message),
        error_from_wire(status_name(thrown), "other", message.SerializeToString()),
    ):
        assert type(found) is ERRORS_BY_CODE[code]
        assert (found.message, found.field) == ("why", "region.rect")
        assert found.retryable == thrown.retryable
        assert str(found) == "region.rect: why"
    # Without details the status alone has to suffice.
    bare = error_from_wire(status_name(thrown), "text", None)
    if code in ("INTERNAL", "PARTIAL_RESULT"):
        assert type(bare) is Unavailable
    else:
        assert type(bare) is ERRORS_BY_CODE[code]
        assert bare.retryable == thrown.retryable


def test_both_tables_name_the_same_errors() -> None:
    """The client may not import the engine's table; only its own errors are beside it."""
    assert set(ERRORS_BY_CODE) - set(engine.ERRORS_BY_CODE) == {"UNIMPLEMENTED"}
    for code, kind in engine.ERRORS_BY_CODE.items():
        own = ERRORS_BY_CODE[code]
        assert (own.__name__, own.code, own.may_pass) == (kind.__name__, code, kind.retryable)


def test_details_travel_where_the_engine_puts_them() -> None:
    assert ERROR_METADATA == grpc_errors.ERROR_METADATA


def test_expired_cursors_and_hints() -> None:
    expired = error_from_message(Error(code="OUT_OF_RANGE", message="m", earliest_cursor="2.40"))
    assert isinstance(expired, CursorExpired)
    assert isinstance(expired, OutOfRange)
    assert expired.earliest == "2.40"
    too_long = error_from_message(Error(code="OUT_OF_RANGE", message="m", earliest_ms=0))
    assert isinstance(too_long, WindowTooLong)
    assert too_long.earliest_ms == 0
    partial = error_from_message(Error(code="PARTIAL_RESULT", missing_slots=[3, 7]))
    assert isinstance(partial, PartialResult)
    assert partial.missing_slots == (3, 7)
    full = error_from_message(Error(code="RESOURCE_EXHAUSTED", retry_after_ms=250))
    assert isinstance(full, ResourceExhausted)
    assert (full.retry_after_ms, full.retryable) == (250, True)
    assert not error_from_message(Error(code="RESOURCE_EXHAUSTED")).retryable
    assert type(error_from_message(Error(code="FROM_THE_FUTURE"))) is SiroccoError


@pytest.mark.parametrize("status", [each.name for each in grpc.StatusCode if each.value[0]])
def test_every_status_has_a_class(status: str) -> None:
    found = error_from_wire(status, "text", None)
    assert isinstance(found, SiroccoError)
    connection = ("UNKNOWN", "CANCELLED", "ABORTED", "INTERNAL", "DATA_LOSS", "UNAVAILABLE")
    assert isinstance(found, Unavailable) == (status in connection)


def test_details_that_are_none_leave_the_status() -> None:
    """They raised an error of Protobuf's, instead of one of ours."""
    found = error_from_wire("UNAVAILABLE", "gone", b"\xff\xff")
    assert (type(found), found.message) == (Unavailable, "gone")


def test_a_pause_that_a_server_asks_for_has_a_bound() -> None:
    """No thread can wait for 300 million years: an error of Python's ended the subscription."""
    asked = Unavailable("busy", retry_after_ms=2**63 - 1)
    pause_s = Backoff(Retry(), lambda: 1.0).pause_s(asked)
    assert pause_s < 100_000 < threading.TIMEOUT_MAX


def test_a_message_over_the_limit_is_not_sent_again() -> None:
    text = "SERVER: Received message larger than max (9000000 vs. 8388608)"
    assert not error_from_wire("RESOURCE_EXHAUSTED", text, None).retryable


def test_one_root_for_all() -> None:
    classes = [each for each in vars(errors).values() if isinstance(each, type)]
    found = [each for each in classes if issubclass(each, Exception)]
    assert len(found) > 14
    assert all(issubclass(each, SiroccoError) for each in found)


def test_errors_can_be_pickled() -> None:
    found = pickle.loads(pickle.dumps(InvalidArgument("why", field="lon")))
    assert (str(found), found.field) == ("lon: why", "lon")


def test_secrets_are_not_shown() -> None:
    settings = ChannelSettings(Tls(private_key=b"SECRET KEY"), token="SECRET")
    assert "SECRET" not in repr(settings)


def test_messages_have_a_bound_and_connections_are_watched() -> None:
    options = dict(ChannelSettings().options("127.0.0.1:7070"))
    assert options["grpc.max_receive_message_length"] == 8 << 20
    assert options["grpc.max_send_message_length"] == 8 << 20
    # No client waits longer for a paused router; servers accept pings at this rate.
    assert options["grpc.keepalive_time_ms"] >= 2 * KEEPALIVE_MIN_MS
    waits_ms = options["grpc.keepalive_time_ms"] + options["grpc.keepalive_timeout_ms"]
    assert waits_ms <= 20_000
    # Without it gRPC's own minute applies to pings (`test_silent_servers`).
    assert options["grpc.http2.ping_timeout_ms"] == options["grpc.keepalive_timeout_ms"]
