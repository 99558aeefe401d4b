"""Reads a file as a whole, within a bound: `/dev/zero` or the wrong file would fill the memory."""

from __future__ import annotations

import sys
from pathlib import Path

from sirocco.cli.terminal.status import CommandError

# A map of 131,072 leaves and all its text nodes, or a query at all limits, takes a part of it.
WHOLE_BYTES_MAX = 256 << 20


def read_whole(file: str | Path, bytes_max: int = WHOLE_BYTES_MAX) -> bytes:
    """Returns the content of a file; `-` is standard input.

    Raises:
        CommandError: It is larger than `bytes_max`.
        OSError: It cannot be read.
    """
    if file == "-":
        content = sys.stdin.buffer.read(bytes_max + 1)
    else:
        with Path(file).open("rb") as source:
            content = source.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise CommandError(f"{file}: is larger than {bytes_max} bytes")
    return content
