"""Files and pipes that may be packed with gzip, whatever their names."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import IO, cast

_MAGIC = b"\x1f\x8b"

# Errors of reading a packed file that is cut off or damaged.
DAMAGES = (EOFError, gzip.BadGzipFile, zlib.error)


def open_packed(path: Path) -> IO[bytes]:
    """Opens a file or a pipe, unpacking it if its content is gzip.

    Raises:
        OSError: It cannot be opened.
    """
    plain = path.open("rb")
    # Peeks instead of reading: a pipe does not go back.
    is_packed = plain.peek(2)[:2] == _MAGIC
    return cast(IO[bytes], gzip.GzipFile(fileobj=plain)) if is_packed else plain
