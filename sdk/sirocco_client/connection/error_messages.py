"""Reads errors from messages of the server, or from the status of a failed call."""

from __future__ import annotations

from google.protobuf.message import DecodeError
from sirocco_api.v1.errors_pb2 import Error

from sirocco_client.errors import (
    AlreadyExists,
    CursorExpired,
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    OutOfRange,
    PermissionDenied,
    ResourceExhausted,
    SiroccoError,
    Unauthenticated,
    Unavailable,
    Unimplemented,
    WindowTooLong,
)
from sirocco_client.objects.answer import PartialResult

ERRORS_BY_CODE: dict[str, type[SiroccoError]] = {
    error.code: error
    for error in (
        InvalidArgument,
        NotFound,
        AlreadyExists,
        OutOfRange,
        ResourceExhausted,
        FailedPrecondition,
        Unavailable,
        Unauthenticated,
        PermissionDenied,
        DeadlineExceeded,
        PartialResult,
        Internal,
        Unimplemented,
    )
}

# Codes of a failing connection, proxy or stopping server, without an error of Sirocco: the call may
# be repeated elsewhere.
_CONNECTION_CODES = frozenset({"UNKNOWN", "CANCELLED", "ABORTED", "INTERNAL", "DATA_LOSS"})


def error_from_message(message: Error) -> SiroccoError:
    """Returns the error of a `sirocco.v1.Error`; an unknown code gives the base class."""
    field = message.field or None
    kind = ERRORS_BY_CODE.get(message.code, SiroccoError)
    if kind is OutOfRange and message.earliest_cursor:
        return CursorExpired(message.message, earliest=message.earliest_cursor, field=field)
    if kind is OutOfRange and message.HasField("earliest_ms"):
        return WindowTooLong(message.message, earliest_ms=message.earliest_ms, field=field)
    if kind is PartialResult:
        return PartialResult(
            message.message,
            field=field,
            retry_after_ms=message.retry_after_ms or None,
            missing_slots=message.missing_slots,
        )
    return kind(
        message.message,
        field=field,
        retry_after_ms=message.retry_after_ms or None,
        retryable=message.retry_after_ms > 0,
    )


def error_from_wire(status: str, text: str, details: bytes | None) -> SiroccoError:
    """Returns the error of a failed call.

    Args:
        status: Name of the gRPC status code.
        text: Its message.
        details: The serialised `sirocco.v1.Error`, None if there was none. What is none counts as
            none: it may be a proxy's.
    """
    if details is not None:
        try:
            return error_from_message(Error.FromString(details))
        except DecodeError:
            pass
    if status in _CONNECTION_CODES:
        return Unavailable(f"{text} ({status})")
    if status == "RESOURCE_EXHAUSTED" and "larger than max" in text:
        # gRPC's code for a message over the limit; it is as large next time.
        return ResourceExhausted(text, retryable=False)
    return ERRORS_BY_CODE.get(status, SiroccoError)(text)
