"""Errors of the engine ⇄ the proto `Error`, and the status of a failed call.

Status codes are strings here: only its adapters know the transport's library.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sirocco_api.v1 import errors_pb2 as pb

from sirocco.model.errors import (
    ERRORS_BY_CODE,
    OutOfRange,
    PartialResult,
    ResourceExhausted,
    SiroccoError,
)

# Codes are those of gRPC, but for one: with `PARTIAL_RESULT` a required part cannot be reached, and
# the details name it.
STATUS_NAMES: Mapping[type[SiroccoError], str] = MappingProxyType(
    {SiroccoError: SiroccoError.code}
    | {error: code for code, error in ERRORS_BY_CODE.items()}
    | {PartialResult: "UNAVAILABLE"}
)

# On the wire 0 means that a retry will not help, so a retryable error names some pause. A tenth of
# a second is longer than a busy front needs to drain a batch, and ten tries span less than a
# failover; clients lengthen it themselves.
RETRY_AFTER_MS = 100

# Bytes of UTF-8 of a message and of a field. An error is sent in trailers, of which clients accept
# up to 16 KB; a longer one would end the call as a broken connection, and be retried.
MESSAGE_BYTES_MAX = 1_000
FIELD_BYTES_MAX = 500


def shortened(text: str, bytes_max: int) -> str:
    """Returns a text that may be sent: not longer than `bytes_max`, without lone surrogates."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) > bytes_max:
        data = data[: bytes_max - 3].decode("utf-8", "ignore").encode() + "…".encode()
    return data.decode()


def status_name(error: SiroccoError) -> str:
    """Returns the name of an error's gRPC status code; that of its nearest known class."""
    return next(STATUS_NAMES[each] for each in type(error).__mro__ if each in STATUS_NAMES)


def put_error(message: pb.Error, error: SiroccoError) -> None:
    """Fills `message`."""
    message.code = error.code
    message.message = shortened(error.message, MESSAGE_BYTES_MAX)
    message.field = shortened(error.field or "", FIELD_BYTES_MAX)
    if error.retryable:
        wanted_ms = error.retry_after_ms if isinstance(error, ResourceExhausted) else None
        message.retry_after_ms = wanted_ms or RETRY_AFTER_MS
    if isinstance(error, OutOfRange):
        message.earliest_cursor = error.earliest or ""
        if error.earliest_ms is not None:
            message.earliest_ms = error.earliest_ms
    if isinstance(error, PartialResult):
        message.missing_slots.extend(error.missing_slots)


def write_error(error: SiroccoError) -> pb.Error:
    """Returns the message of an error."""
    message = pb.Error()
    put_error(message, error)
    return message


def read_error(message: pb.Error) -> SiroccoError:
    """Returns the error of a message; a code of a later version becomes the base class."""
    kind = ERRORS_BY_CODE.get(message.code, SiroccoError)
    field = message.field or None
    if kind is OutOfRange:
        return OutOfRange(
            message.message,
            field=field,
            earliest=message.earliest_cursor or None,
            earliest_ms=message.earliest_ms if message.HasField("earliest_ms") else None,
        )
    if kind is PartialResult:
        missing = tuple(message.missing_slots)
        return PartialResult(message.message, field=field, missing_slots=missing)
    if kind is ResourceExhausted:
        retry_after_ms = message.retry_after_ms or None
        return ResourceExhausted(message.message, field=field, retry_after_ms=retry_after_ms)
    return kind(message.message, field=field)
