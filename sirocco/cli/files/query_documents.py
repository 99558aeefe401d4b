"""Finds the queries of a file: one per line, or JSON over several lines, or an array.

A document begins at an incomplete line with `{` or `[`, and ends with its brackets. If it turns out
not to be a document, only its first line is bad, and reading continues at the next one.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator

import orjson

from sirocco.loadgen.live_lines import NumberedLine

# Bytes of a document; a line or an object of an array may be as long as `LINE_BYTES_MAX`.
_DOCUMENT_BYTES_MAX = 64 << 20

# Lines read in vain, in all, before the file counts as one of lines: otherwise a file of a million
# lines that each begin a document would be read a million times.
LOOKS_MAX = 200_000

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_BLANK = re.compile(r"[\s,]*")

_OPENING, _CLOSING = (b"{", b"["), (b"}", b"]")


def query_documents(
    lines: Iterator[NumberedLine], looks_max: int = LOOKS_MAX
) -> Iterator[NumberedLine]:
    """Yields the JSON text of each query with the number of its first line."""
    again: deque[NumberedLine] = deque()
    looks_left = looks_max
    while (first := _next(again, lines)) is not None:
        number, line = first
        if not _may_begin(line):
            yield number, line
            continue
        held = [first]
        if looks_left > 0 and _gather(held, again, lines):
            yield from _split(held)
        else:
            looks_left -= len(held)
            again.extendleft(reversed(held[1:]))
            yield number, line


def _next(again: deque[NumberedLine], lines: Iterator[NumberedLine]) -> NumberedLine | None:
    return again.popleft() if again else next(lines, None)


def _may_begin(line: bytes) -> bool:
    """Whether a line can begin a document that does not end on it."""
    if not line.lstrip().startswith(_OPENING):
        return False
    return line.lstrip().startswith(b"[") or not _is_whole(line)


def _is_whole(line: bytes) -> bool:
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return True


def _gather(
    held: list[NumberedLine], again: deque[NumberedLine], lines: Iterator[NumberedLine]
) -> bool:
    """Adds lines up to the end of a document; returns whether it has one.

    If it has none, the added lines must be read again.
    """
    first = held[0][1]
    in_array = first.lstrip().startswith(b"[")
    depth = size = 0
    line = first
    while True:
        rest = _STRING.sub(b"", line)
        size += len(line)
        if b'"' in rest or size > _DOCUMENT_BYTES_MAX:
            # A string does not continue over the end of a line.
            return False
        depth += sum(map(rest.count, _OPENING)) - sum(map(rest.count, _CLOSING))
        if depth <= 0:
            return depth == 0
        found = _next(again, lines)
        if found is None:
            return False
        held.append(found)
        line = found[1]
        if _begins_another(line, in_array=in_array):
            return False


def _begins_another(line: bytes, *, in_array: bool) -> bool:
    """Whether a line belongs to the document after an unfinished one, whose rest is lost."""
    if in_array:
        return line.startswith(b"[")
    # Documents of people and of programs are indented; a line with a whole query is a document.
    return line.startswith(_OPENING) or (b'"kind"' in line and _is_whole(line))


def _split(held: list[NumberedLine]) -> Iterator[NumberedLine]:
    """Yields the documents of a balanced text: an object, or those of an array."""
    raw = b"".join(line if line.endswith(b"\n") else line + b"\n" for _, line in held)
    whole = held[0][0], raw.strip()
    if not whole[1].startswith(b"["):
        yield whole
        return
    try:
        text = raw.decode()
        found = json.loads(text)
        if not found or not all(isinstance(one, dict) for one in found):
            raise ValueError("is no array of objects")
    except (ValueError, RecursionError):
        # Its reader reports the error.
        yield whole
        return
    decoder = json.JSONDecoder()
    row, end = 0, text.index("[") + 1
    line_end = text.index("\n")
    for _ in found:
        begin = _skip(text, end)
        _, end = decoder.raw_decode(text, begin)
        while begin > line_end:
            row, line_end = row + 1, text.index("\n", line_end + 1)
        yield held[row][0], text[begin:end].encode()


def _skip(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return at if found is None else found.end()
