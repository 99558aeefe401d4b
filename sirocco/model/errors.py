"""Errors for callers, as one hierarchy without any transport in it.

The names and codes are those of the public contract. One table elsewhere maps them to the status
codes of the transport; `retryable` tells whether the same call may succeed later without a change
by the caller.
"""

from __future__ import annotations

from typing import ClassVar, Self


class SiroccoError(Exception):
    """Base class of all errors that Sirocco raises on purpose.

    Attributes:
        message: What is wrong, one sentence, without the field.
        field: Path of the offending input member, such as `region.circle.radius_m`, or None.
        code: Stable name of the kind of error.
        retryable: Whether the same call may succeed later.
    """

    code: ClassVar[str] = "UNKNOWN"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message

    def within(self, outer: str) -> Self:
        """Prefixes the field with the path of an enclosing member, and returns the error."""
        if not self.field:
            self.field = outer
        else:
            self.field = outer + ("" if self.field.startswith("[") else ".") + self.field
        return self


class InvalidArgument(SiroccoError):  # noqa: N818 - named as the contract names it
    """The input is wrong, whatever the state of the system; `field` names the member."""

    code = "INVALID_ARGUMENT"


class NotFound(SiroccoError):  # noqa: N818
    """The named thing does not exist."""

    code = "NOT_FOUND"


class AlreadyExists(SiroccoError):  # noqa: N818
    """Another, unequal thing has this name."""

    code = "ALREADY_EXISTS"


class OutOfRange(SiroccoError):  # noqa: N818
    """A position or a time that is no longer stored, or not yet reached.

    Attributes:
        earliest: The earliest position (cursor) that can be read, None if unknown.
        earliest_ms: Earliest stored arrival, epoch ms, None if the error has another cause.
    """

    code = "OUT_OF_RANGE"

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        earliest: str | None = None,
        earliest_ms: int | None = None,
    ) -> None:
        super().__init__(message, field=field)
        self.earliest = earliest
        self.earliest_ms = earliest_ms


class ResourceExhausted(SiroccoError):  # noqa: N818
    """A quota or a queue is full.

    Attributes:
        retry_after_ms: How long to wait before the next try, None if the caller may choose.
    """

    code = "RESOURCE_EXHAUSTED"
    retryable = True

    def __init__(
        self, message: str, *, field: str | None = None, retry_after_ms: int | None = None
    ) -> None:
        super().__init__(message, field=field)
        self.retry_after_ms = retry_after_ms


class FailedPrecondition(SiroccoError):  # noqa: N818
    """The system is in a state that does not allow this call."""

    code = "FAILED_PRECONDITION"


class Unavailable(SiroccoError):  # noqa: N818
    """A required part cannot be reached now."""

    code = "UNAVAILABLE"
    retryable = True


class Unauthenticated(SiroccoError):  # noqa: N818
    """The call carried no valid credentials."""

    code = "UNAUTHENTICATED"


class PermissionDenied(SiroccoError):  # noqa: N818
    """The caller is known and may not do this."""

    code = "PERMISSION_DENIED"


class DeadlineExceeded(SiroccoError):  # noqa: N818
    """The time for the call ran out; it may or may not have taken effect."""

    code = "DEADLINE_EXCEEDED"
    retryable = True


class PartialResult(SiroccoError):  # noqa: N818
    """Some slots did not answer in time; the answers of the others were sent before.

    Attributes:
        missing_slots: The slots, ascending.
    """

    code = "PARTIAL_RESULT"
    retryable = True

    def __init__(
        self, message: str, *, field: str | None = None, missing_slots: tuple[int, ...] = ()
    ) -> None:
        super().__init__(message, field=field)
        self.missing_slots = missing_slots


class Internal(SiroccoError):  # noqa: N818
    """An invariant does not hold; this is a defect of Sirocco."""

    code = "INTERNAL"


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
    )
}
