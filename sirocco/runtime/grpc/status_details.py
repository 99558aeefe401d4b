"""Errors of the engine → `google.rpc.Status`, as gRPC clients of any language read them.

Our own `sirocco.v1.Error` has all that an error knows. These details have what the ecosystem has
words for: our code and what helps a program (`ErrorInfo`), the field (`BadRequest`), and when to
try again (`RetryInfo`). See `google/rpc/error_details.proto`.
"""

from __future__ import annotations

from google.rpc.code_pb2 import Code
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status
from sirocco_api.v1 import errors_pb2 as pb

from sirocco.codec.errors import MESSAGE_BYTES_MAX, shortened, status_name
from sirocco.model.errors import OutOfRange, PartialResult, SiroccoError

# Whose codes `ErrorInfo.reason` has.
DOMAIN = "sirocco.v1"

# Trailers stay below 8 KB: from there on clients refuse some of them, from 16 KB on all. So a
# message is repeated up to so many bytes, and longer values of `ErrorInfo` are left to our trailer.
REPEATED_BYTES_MAX = 100
VALUE_BYTES_MAX = 200


def write_status(error: SiroccoError, sent: pb.Error) -> Status:
    """Returns the status of an error with its details; code and message are those of the call.

    Args:
        error: what ends the call.
        sent: the same as `codec.errors.write_error` returns it, with bounded texts.
    """
    status = Status(
        code=Code.Value(status_name(error)), message=shortened(str(error), MESSAGE_BYTES_MAX)
    )
    info = ErrorInfo(reason=sent.code, domain=DOMAIN, metadata=_metadata(error))
    status.details.add().Pack(info)
    if sent.field:
        bad = BadRequest()
        bad.field_violations.add(
            field=sent.field,
            description=shortened(sent.message, REPEATED_BYTES_MAX),
            reason=sent.code,
        )
        status.details.add().Pack(bad)
    if sent.retry_after_ms:
        again = RetryInfo()
        again.retry_delay.FromMilliseconds(sent.retry_after_ms)
        status.details.add().Pack(again)
    return status


def _metadata(error: SiroccoError) -> dict[str, str]:
    """Returns what a program may need of an error besides its code, by names of our contract."""
    found: dict[str, object] = {}
    if isinstance(error, OutOfRange):
        found = {"earliest_cursor": error.earliest, "earliest_ms": error.earliest_ms}
    elif isinstance(error, PartialResult):
        found = {"missing_slots": ",".join(map(str, error.missing_slots)) or None}
    texts = {name: str(value) for name, value in found.items() if value is not None}
    return {name: text for name, text in texts.items() if len(text) <= VALUE_BYTES_MAX}
