"""The error line of a failed command on standard error, and its exit status."""

from __future__ import annotations

from sirocco_client import (
    CursorExpired,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PartialResult,
    PermissionDenied,
    PublishFailed,
    SiroccoError,
    Unauthenticated,
    Unavailable,
    WindowTooLong,
)

from sirocco.cli.terminal.status import CommandError, ExitCode
from sirocco.local.invocation import program
from sirocco.local.process import LocalError, WrongUseError
from sirocco.model.errors import SiroccoError as EngineError


def describe(error: Exception) -> tuple[str, ExitCode]:
    """Returns the error as one line for the user, and the exit status."""
    match error:
        case CommandError():
            message, code = str(error), error.exit_code
        case WrongUseError():
            message, code = str(error), ExitCode.USAGE
        case LocalError():
            message, code = str(error), ExitCode.UNAVAILABLE
        case PublishFailed():
            message, code = str(error), describe(error.cause)[1]
        case Unavailable() | DeadlineExceeded():
            hint = f"is the cluster up? `{program()} local status` tells for one on this machine"
            message, code = f"{error} ({hint})", ExitCode.UNAVAILABLE
        case PartialResult():
            hint = "ask again, or with --allow-partial"
            message, code = f"{error} ({hint})", ExitCode.UNAVAILABLE
        case CursorExpired():
            hint = f"; go on from --cursor {error.earliest}" if error.earliest else ""
            message, code = f"{error}{hint}", ExitCode.USAGE
        case (
            InvalidArgument()
            | FailedPrecondition()
            | WindowTooLong()
            | NotFound()
            | Unauthenticated()
            | PermissionDenied()
        ):
            message, code = str(error), ExitCode.USAGE
        case SiroccoError() | EngineError():
            message, code = f"{error.code}: {error}", ExitCode.UNEXPECTED
        case OSError():
            message, code = str(error), ExitCode.USAGE
        case _:
            message, code = f"{type(error).__name__}: {error}", ExitCode.UNEXPECTED
    return message, code
