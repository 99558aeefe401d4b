"""Errors of the client, as one hierarchy without gRPC in it.

A server reports an error as a status code and a `sirocco.v1.Error`. `error_from_wire` turns them
into the class that `ERRORS_BY_CODE` names. `SiroccoError.retryable` tells whether the same call may
succeed later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


class SiroccoError(Exception):
    """Base class of all errors that the client raises on purpose.

    Attributes:
        message: What is wrong, without the field.
        field: Path of the input member that is wrong, such as `region.circle.radius_m`, or None.
        retry_after_ms: Pause before the next try that the server asks for; None if it names none.
        retryable: Whether the same call may succeed later.
        code: Stable name of the kind of error.
    """

    code: ClassVar[str] = "UNKNOWN"
    # Value of `retryable` if the server does not set it.
    may_pass: ClassVar[bool] = False
    # Members that `repr` shows beside the message, if present.
    shown: ClassVar[tuple[str, ...]] = ("field", "retry_after_ms")

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        retry_after_ms: int | None = None,
        retryable: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.retry_after_ms = retry_after_ms
        self.retryable = self.may_pass if retryable is None else retryable

    def __repr__(self) -> str:
        """Shows the field and other details of the error."""
        values = ((name, getattr(self, name)) for name in self.shown)
        members = [f"{name}={value!r}" for name, value in values if value not in (None, "", ())]
        return f"{type(self).__name__}({', '.join([repr(self.message), *members])})"

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class InvalidArgument(SiroccoError):  # noqa: N818 - these are named as the contract names them
    """The input is wrong, whatever the state of the system; `field` names the member."""

    code = "INVALID_ARGUMENT"


class NotFound(SiroccoError):  # noqa: N818
    """The named thing does not exist."""

    code = "NOT_FOUND"


class AlreadyExists(SiroccoError):  # noqa: N818
    """Another, unequal thing has this name."""

    code = "ALREADY_EXISTS"


class OutOfRange(SiroccoError):  # noqa: N818
    """A position is no longer stored, or not yet reached."""

    code = "OUT_OF_RANGE"


class WindowTooLong(OutOfRange):
    """The window of a search begins before the oldest stored object.

    Attributes:
        earliest_ms: Arrival of the oldest stored objects, epoch ms.
    """

    shown = (*OutOfRange.shown, "earliest_ms")

    def __init__(self, message: str, *, earliest_ms: int, field: str | None = None) -> None:
        super().__init__(message, field=field)
        self.earliest_ms = earliest_ms


class CursorExpired(OutOfRange):
    """The cursor points at notifications that are no longer stored.

    Attributes:
        earliest: The earliest cursor that still works; the notifications before it are lost. Empty
            if the server knows none.
    """

    shown = (*OutOfRange.shown, "earliest")

    def __init__(self, message: str, *, earliest: str, field: str | None = None) -> None:
        super().__init__(message, field=field)
        self.earliest = earliest


class ResourceExhausted(SiroccoError):  # noqa: N818
    """A quota or a queue is full, or a message is too large."""

    code = "RESOURCE_EXHAUSTED"
    may_pass = True


class FailedPrecondition(SiroccoError):  # noqa: N818
    """The system or the client is in a state that does not allow this call."""

    code = "FAILED_PRECONDITION"


class Unavailable(SiroccoError):  # noqa: N818
    """The server cannot be reached, or something that it needs cannot."""

    code = "UNAVAILABLE"
    may_pass = True


class Unauthenticated(SiroccoError):  # noqa: N818
    """The call carried no valid credentials."""

    code = "UNAUTHENTICATED"


class PermissionDenied(SiroccoError):  # noqa: N818
    """The caller is known and may not do this."""

    code = "PERMISSION_DENIED"


class DeadlineExceeded(SiroccoError):  # noqa: N818
    """The time for the call ran out; it may or may not have taken effect."""

    code = "DEADLINE_EXCEEDED"
    may_pass = True


class Internal(SiroccoError):  # noqa: N818
    """An invariant does not hold; this is a defect of Sirocco."""

    code = "INTERNAL"


class Unimplemented(SiroccoError):  # noqa: N818
    """The server does not know this call."""

    code = "UNIMPLEMENTED"


@dataclass(frozen=True, slots=True)
class Rejected:
    """One object that the server refused.

    Attributes:
        number: The object's number within its publisher, from 1.
        object: Its id, a number or a string.
        error: Why; `error.field` names the member.
    """

    number: int
    object: int | str
    error: SiroccoError


class ObjectsRejected(InvalidArgument):
    """Objects were refused since the last flush; all others are in the log.

    Attributes:
        count: How many were refused.
        rejections: The first of them, at most `PublishFlow.rejections_max`.
    """

    shown = (*InvalidArgument.shown, "count")

    def __init__(self, count: int, rejections: Sequence[Rejected]) -> None:
        first = rejections[0]
        super().__init__(
            f"{count} objects were refused, first number {first.number} "
            f"(id {first.object!r:.60}): {first.error}",
            field=first.error.field,
        )
        self.count = count
        self.rejections = tuple(rejections)


class PublishFailed(SiroccoError):  # noqa: N818
    """A publisher gave up; it accepts no more objects.

    Attributes:
        cause: Why the last try failed.
        acknowledged: Every object up to this number is in the log, or was refused.
        unacknowledged: Number of objects after it. Each may or may not be in the log.
    """

    shown = (*SiroccoError.shown, "acknowledged", "unacknowledged")

    def __init__(self, cause: SiroccoError, acknowledged: int, unacknowledged: int) -> None:
        super().__init__(
            f"{unacknowledged} objects are unacknowledged, numbers {acknowledged + 1} to "
            f"{acknowledged + unacknowledged}: {cause.message if cause.field else cause}",
            field=cause.field,
        )
        self.cause = cause
        self.acknowledged = acknowledged
        self.unacknowledged = unacknowledged

    @property
    def cause_code(self) -> str:
        """Code of the cause."""
        return self.cause.code
