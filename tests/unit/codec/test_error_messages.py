"""Errors on the wire."""

from __future__ import annotations

import pytest
from sirocco_api.v1 import errors_pb2 as pb

from sirocco.codec.checkpoint import CorruptCheckpoint
from sirocco.codec.errors import (
    MESSAGE_BYTES_MAX,
    STATUS_NAMES,
    read_error,
    shortened,
    status_name,
    write_error,
)
from sirocco.model.errors import (
    ERRORS_BY_CODE,
    InvalidArgument,
    OutOfRange,
    PartialResult,
    ResourceExhausted,
    SiroccoError,
    Unavailable,
)


@pytest.mark.parametrize("kind", ERRORS_BY_CODE.values())
def test_every_error_travels(kind: type[SiroccoError]) -> None:
    again = read_error(write_error(kind("it is so", field="a.b")))
    assert type(again) is kind
    assert (again.message, again.field) == ("it is so", "a.b")
    assert read_error(write_error(kind("x"))).field is None


def test_details_travel() -> None:
    again = read_error(write_error(OutOfRange("gone", earliest="c-7")))
    assert isinstance(again, OutOfRange)
    assert again.earliest == "c-7"
    old = read_error(write_error(OutOfRange("old", field="window", earliest_ms=-5)))
    assert isinstance(old, OutOfRange)
    assert (old.earliest, old.earliest_ms) == (None, -5)
    partial = read_error(write_error(PartialResult("some", missing_slots=(3, 7))))
    assert isinstance(partial, PartialResult)
    assert partial.missing_slots == (3, 7)
    full = read_error(write_error(ResourceExhausted("full", retry_after_ms=70)))
    assert isinstance(full, ResourceExhausted)
    assert full.retry_after_ms == 70


def test_only_transient_errors_hold_a_retry_time() -> None:
    for kind in ERRORS_BY_CODE.values():
        assert (write_error(kind("x")).retry_after_ms > 0) == kind.retryable
    assert write_error(Unavailable("x")).retry_after_ms == 100


def test_an_unknown_code_is_the_root_class() -> None:
    assert type(read_error(pb.Error(code="FROM_LATER", message="m"))) is SiroccoError


def test_every_class_has_a_status_that_grpc_knows() -> None:
    grpc = pytest.importorskip("grpc")
    known = {code.name for code in grpc.StatusCode}
    assert set(STATUS_NAMES) == {SiroccoError, *ERRORS_BY_CODE.values()}
    assert set(STATUS_NAMES.values()) <= known
    assert status_name(CorruptCheckpoint("x")) == "INTERNAL"
    assert status_name(SiroccoError("x")) == "UNKNOWN"


@pytest.mark.parametrize("text", ["x" * 100_000, "é" * 5_000, "\U0001f525" * 5_000, "a\ud800b"])
def test_errors_stay_short_enough_for_trailers(text: str) -> None:
    """A longer message broke the call, which was then retried until its time was over."""
    message = write_error(InvalidArgument(text, field=text))
    assert message.ByteSize() < 2_000
    again = read_error(pb.Error.FromString(message.SerializeToString()))
    assert again.message[0] == text[0]
    assert len(shortened(str(again), MESSAGE_BYTES_MAX).encode()) <= MESSAGE_BYTES_MAX
