"""Files and pipes that may be packed with gzip, whatever their names."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from sirocco.model.limits import DEFAULT_LIMITS

_MAGIC = b"\x1f\x8b"

# One object at all limits, escaped at the worst (six bytes for one), and twice that. A longer line
# is no object, and reading all of it could take all memory: half a megabyte of gzip holds a line
# of half a gigabyte.
LINE_BYTES_MAX = 12 * (DEFAULT_LIMITS.text_bytes + DEFAULT_LIMITS.attribute_bytes)

# A line that is longer still is no text: a device such as /dev/zero would be read for ever.
ENDLESS_BYTES = 256 << 20


class EndlessLineError(ValueError):
    """A line has no end within `ENDLESS_BYTES`."""

    def __init__(self) -> None:
        super().__init__(f"the line has no end within {ENDLESS_BYTES >> 20} MiB; is this a text?")


# Errors of reading a file that is cut off, damaged, or no text.
DAMAGES = (EOFError, gzip.BadGzipFile, zlib.error, EndlessLineError)


def open_packed(path: Path) -> IO[bytes]:
    """Opens a file or a pipe, unpacking it if its content is gzip.

    Raises:
        OSError: It cannot be opened.
    """
    plain = path.open("rb")
    # Peeks instead of reading: a pipe does not go back.
    is_packed = plain.peek(2)[:2] == _MAGIC
    return cast(IO[bytes], gzip.GzipFile(fileobj=plain)) if is_packed else plain


def cut_lines(source: IO[bytes]) -> Iterator[bytes]:
    """Yields all lines; one of more than `LINE_BYTES_MAX` comes cut to one byte more than that.

    Raises:
        EndlessLineError: A line seems to have no end.
    """
    while line := source.readline(LINE_BYTES_MAX + 1):
        if len(line) > LINE_BYTES_MAX and not line.endswith(b"\n"):
            size = len(line)
            while (rest := source.readline(LINE_BYTES_MAX)) and not rest.endswith(b"\n"):
                size += len(rest)
                if size > ENDLESS_BYTES:
                    raise EndlessLineError
        yield line
