"""Errors for truncated or damaged files, and for what is no text."""

from __future__ import annotations

from pathlib import Path


class DamagedFileError(OSError):
    """A gzip file is truncated or damaged, or a line has no end.

    Attributes:
        line: Number of the first line that could not be read.
    """

    def __init__(self, path: Path, line: int, reason: Exception) -> None:
        super().__init__(f"{path} is damaged from line {line} on: {reason}")
        self.line = line
