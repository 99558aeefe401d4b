"""Reads lines of an open pipe: passes on those that have arrived, without waiting for more.

It polls the pipe and reads the available bytes directly. A buffered reader would wait for the end
of a line while complete lines are there, and hide from the poll what it holds.
"""

from __future__ import annotations

import select
import stat
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from io import FileIO
from pathlib import Path

from sirocco.loadgen.damage import DamagedFileError
from sirocco.runtime.process.gzip_files import ENDLESS_BYTES, EndlessLineError

NumberedLine = tuple[int, bytes]

# How long the first line of a chunk waits for others. People do not notice it, and of thousands of
# lines a second some hundred are still sent at a time.
LINGER_S = 0.05

# How long one wait takes at most. A signal that arrives just before a wait, or in another thread,
# does not end it: without a bound ^C would be noticed with the next line only.
_WAIT_S = 0.5

# The greatest content of a pipe, by Linux' default.
_READ_BYTES = 1 << 16

# Bytes that are unpacked at once. 64 KiB of gzip hold up to 64 MiB, and split into empty lines
# these take half a gigabyte.
_UNPACKED_BYTES = 1 << 18

_GZIP = b"\x1f\x8b"
_GZIP_WBITS = 31

# Some programs begin a file with it.
_MARK = b"\xef\xbb\xbf"


def is_live(path: Path) -> bool:
    """Returns whether a reader of a path may have to wait: a pipe, a terminal.

    Raises:
        OSError: There is no such path.
    """
    mode = path.stat().st_mode
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


# Bound of lines that are read together: processing takes several times their size, and four
# thousand lines of the greatest length are gigabytes, which a gzip of megabytes can hold.
CHUNK_BYTES_MAX = 16 << 20


def _is_ready(source: FileIO, timeout_s: float) -> bool:
    """Waits until there are bytes or the end of a pipe, and never for longer than `_WAIT_S`."""
    return bool(select.select([source], [], [], max(0.0, min(timeout_s, _WAIT_S)))[0])


class LivePipe:
    """An open pipe, and what was read of it already to see what it holds.

    Attributes:
        path: Its path.
        source: The pipe.
        begin: The first bytes that arrived, empty if it has ended before.
    """

    def __init__(self, path: Path) -> None:
        """Opens a pipe and waits for its first bytes.

        Raises:
            OSError: It cannot be read.
        """
        self.path = path
        self.source = path.open("rb", buffering=0)
        while not _is_ready(self.source, _WAIT_S):
            pass
        self.begin = self.source.read(_READ_BYTES) or b""

    def head(self) -> bytes:
        """Returns the first bytes, unpacked."""
        if not self.begin.startswith(_GZIP):
            return self.begin
        with suppress(zlib.error):
            return zlib.decompressobj(_GZIP_WBITS).decompress(self.begin, _READ_BYTES)
        return b""

    def pieces(self) -> Iterator[bytes]:
        """Yields all bytes as they arrive, unpacked.

        Raises:
            EOFError, zlib.error: The gzip is truncated or damaged; after the bytes before.
        """
        with self.source:
            pieces = _Pieces(self.source, self.begin)
            while not pieces.is_over:
                if piece := pieces.next(None):
                    yield piece


def live_chunks(pipe: LivePipe, rows_max: int, line_bytes_max: int) -> Iterator[list[NumberedLine]]:
    """Yields lines that are not blank in chunks, each `LINGER_S` after its first line arrived.

    Args:
        pipe: A pipe, plain or gzip.
        rows_max: Greatest number of lines of a chunk; a full one does not linger.
        line_bytes_max: A longer line is cut to one byte more than that.

    Raises:
        DamagedFileError: It is gzip and cannot be unpacked to its end, or a line has no end;
            after the lines before.
        OSError: It cannot be read.
    """
    lines = _Lines(line_bytes_max)
    chunk: list[NumberedLine] = []
    size = 0
    due_s = 0.0
    with pipe.source as source:
        pieces = _Pieces(source, pipe.begin)
        while not pieces.is_over:
            try:
                piece = pieces.next(due_s - time.monotonic() if chunk else None)
                lines.expect_end(piece)
            except (EOFError, zlib.error, EndlessLineError) as error:
                if chunk:
                    yield chunk
                raise DamagedFileError(pipe.path, lines.count + 1, error) from None
            for line in lines.of(piece, is_last=pieces.is_over):
                if not chunk:
                    due_s, size = time.monotonic() + LINGER_S, 0
                chunk.append(line)
                size += len(line[1])
                if len(chunk) == rows_max or size > CHUNK_BYTES_MAX:
                    yield chunk
                    chunk = []
            if chunk and time.monotonic() >= due_s:
                yield chunk
                chunk = []
    if chunk:
        yield chunk


class _Pieces:
    """The bytes of a pipe as they arrive, unpacked if they are gzip.

    Attributes:
        is_over: the pipe has ended, and all of it has been returned.
    """

    def __init__(self, source: FileIO, begin: bytes) -> None:
        self.is_over = False
        # Read by others; None: not any more.
        self._read: bytes | None = begin
        self._source = source
        self._begin: bytes | None = b""
        self._packed: zlib._Decompress | None = None
        # Read, but not unpacked yet; if the last piece was full, `_packed` may hold more.
        self._rest = b""
        self._is_full = False
        self._damage: zlib.error | None = None

    def next(self, timeout_s: float | None) -> bytes:
        """Waits for the next bytes; returns none if none arrive in time, or in `_WAIT_S`.

        Raises:
            EOFError, zlib.error: The gzip is truncated or damaged; after the bytes before.
        """
        if self._damage is not None:
            raise self._damage
        if self._packed is not None and (self._rest or self._is_full):
            return self._unpacked(self._packed)
        if self._read is not None:
            data, self._read = self._read, None
        elif not _is_ready(self._source, _WAIT_S if timeout_s is None else timeout_s):
            return b""
        else:
            data = self._source.read(_READ_BYTES) or b""
        self.is_over = not data
        if self._begin is not None:
            self._begin += data
            if len(self._begin) < len(_GZIP) and data:
                return b""
            data, self._begin = self._begin, None
            if data.startswith(_GZIP):
                self._packed = zlib.decompressobj(_GZIP_WBITS)
        if self._packed is None:
            return data
        self._rest = data
        if self.is_over and not self._packed.eof:
            raise EOFError("it ends before its end was marked")
        return self._unpacked(self._packed)

    def _unpacked(self, packed: zlib._Decompress) -> bytes:
        """Unpacks a piece of what was read."""
        if packed.eof:
            # Gzip files may follow each other, with zeros between.
            self._rest, self._is_full = self._rest.lstrip(b"\0"), False
            if not self._rest:
                return b""
            packed = self._packed = zlib.decompressobj(_GZIP_WBITS)
        before, data = packed.copy(), self._rest
        try:
            piece = packed.decompress(data, _UNPACKED_BYTES)
        except zlib.error as error:
            self._damage = error
            return _sound(before, data)
        self._is_full = len(piece) == _UNPACKED_BYTES
        self._rest = packed.unused_data if packed.eof else packed.unconsumed_tail
        return piece


def _sound(packed: zlib._Decompress, data: bytes) -> bytes:
    """Returns the data before the damage: a call that meets it returns nothing."""
    unpacked: list[bytes] = []
    with suppress(zlib.error):
        unpacked.extend(packed.decompress(bytes((byte,))) for byte in data)
    return b"".join(unpacked)


class _Lines:
    """Splits pieces into numbered lines.

    Attributes:
        count: lines so far, blank ones too.
    """

    def __init__(self, bytes_max: int) -> None:
        self.count = 0
        self._bytes_max = bytes_max
        self._rest = b""
        self._open_bytes = 0

    def expect_end(self, piece: bytes) -> None:
        """Refuses the next piece, if it continues a line that seems to have no end.

        Raises:
            EndlessLineError: It does.
        """
        self._open_bytes = 0 if b"\n" in piece else self._open_bytes + len(piece)
        if self._open_bytes > ENDLESS_BYTES:
            raise EndlessLineError

    def of(self, piece: bytes, *, is_last: bool) -> Iterator[NumberedLine]:
        """Yields the lines that end in a piece, or with it."""
        if not (piece or is_last):
            return
        if len(self._rest) > self._bytes_max + len(_MARK):
            # Nothing more of this line is kept.
            _, end, rest = piece.partition(b"\n")
            piece = end + rest
        lines = (self._rest + piece).split(b"\n")
        # The rest of a line that is too long is dropped.
        self._rest = lines.pop()[: self._bytes_max + 1 + len(_MARK)]
        if is_last and self._rest:
            lines.append(self._rest)
        if lines and self.count == 0:
            lines[0] = lines[0].removeprefix(_MARK)
        for line in lines:
            self.count += 1
            if line and not line.isspace():
                yield self.count, line[: self._bytes_max + 1]
