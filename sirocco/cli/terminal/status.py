"""Exit status of a command."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit status of a command."""

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    BAD_LINES = 3
    UNAVAILABLE = 4
    INTERRUPTED = 130


class CommandError(Exception):
    """A command cannot continue; the message says what is wrong and what to do.

    Attributes:
        exit_code: Exit status of the command.
    """

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.USAGE) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def counted(count: int, one: str, several: str) -> str:
    """Returns a number with its noun: `1 query`, `2 queries`."""
    return f"{count:,} {one if count == 1 else several}"
