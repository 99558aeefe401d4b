"""CSV and TSV with a header (RFC 4180).

Cells are text. Where a column is an attribute, what is written as a number or boolean of JSON is
one, so that `where` can compare it; an empty cell is missing. `007` stays text.
"""

from __future__ import annotations

import csv
import math
import re
from collections import deque
from collections.abc import Iterator
from typing import Any

from sirocco.formats.column_map import ChosenColumns, Columns, find_columns, joined
from sirocco.formats.rows import Row
from sirocco.model.errors import InvalidArgument
from sirocco.model.json_text import INTEGER_GREATEST, INTEGER_LEAST
from sirocco.model.members import shown

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,19})", re.ASCII)
_NUMBER = re.compile(
    r"-?(?:0|[1-9][0-9]{0,39})(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,3})?", re.ASCII
)
_BOOLEANS = {"true": True, "false": False}

# A quote that is not closed would take the rest of the file for one cell.
RECORD_BYTES_MAX = 1 << 20

# Lines after a quote that is not closed are read again, as records of their own, which may have
# such quotes too. All that is read again, as a multiple of what was read: a bound for the work.
_AGAIN_MAX = 4

_MARK = b"\xef\xbb\xbf"


def read_delimited(
    lines: Iterator[tuple[int, bytes]], chosen: ChosenColumns, delimiter: str | None = None
) -> Iterator[Row]:
    """Yields the objects of a table.

    Args:
        lines: (number, line) with the line's end, blank ones too: they may be part of a cell.
        chosen: Columns that the user named.
        delimiter: None: a semicolon if the header has some and no comma, else a comma.

    Raises:
        InvalidArgument: The header cannot be used; `field` is `header` or `map`.
    """
    source = _Lines(lines)
    header = source.header()
    if header is None:
        return
    if delimiter is None:
        delimiter = ";" if ";" in header and "," not in header else ","
    names = _names_of(header, delimiter)
    columns = find_columns(names, chosen)
    reader = _Reader(columns, len(names))
    while True:
        rows = csv.reader(source, delimiter=delimiter, strict=True)
        try:
            for cells in rows:
                number = source.take()
                if cells:
                    yield number, reader.members(cells)
            return
        except (csv.Error, _UnusableError) as error:
            for number in source.recover():
                yield number, InvalidArgument(str(error), field="object")


def _names_of(header: str, delimiter: str) -> list[str]:
    try:
        return [name.strip() for name in next(csv.reader([header], delimiter=delimiter), [])]
    except csv.Error as error:
        raise InvalidArgument(f"cannot be read: {error}", field="header") from None


class _UnusableError(Exception):
    """A line that the reader of cells must not see."""


class _Lines:
    """The lines as text, and those of the record that is being read."""

    def __init__(self, lines: Iterator[tuple[int, bytes]]) -> None:
        self._lines = lines
        self._again: deque[tuple[int, bytes]] = deque()
        self._record: list[tuple[int, bytes]] = []
        self._bytes = 0
        # Of all records so far, and of those lines that were read again.
        self._read_bytes = 0
        self._again_bytes = 0

    def header(self) -> str | None:
        """Returns the first line that is not blank; None if there is none."""
        for _, line in self._lines:
            text = line.removeprefix(_MARK)
            if text.strip():
                if len(text) > RECORD_BYTES_MAX:
                    raise InvalidArgument(
                        f"is longer than {RECORD_BYTES_MAX} bytes", field="header"
                    )
                try:
                    return text.decode()
                except UnicodeDecodeError as error:
                    raise InvalidArgument(_encoding(error), field="header") from None
        return None

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self._again:
            found = self._again.popleft()
            self._again_bytes += len(found[1])
        else:
            found = next(self._lines)
            self._read_bytes += len(found[1])
        self._record.append(found)
        self._bytes += len(found[1])
        if self._bytes > RECORD_BYTES_MAX:
            raise _UnusableError(f"is longer than {RECORD_BYTES_MAX} bytes: is a quote not closed?")
        try:
            text = found[1].decode()
        except UnicodeDecodeError as error:
            raise _UnusableError(_encoding(error)) from None
        if "\0" in text:
            raise _UnusableError("has a zero byte")
        return text

    def take(self) -> int:
        """Ends a record; returns the number of its first line."""
        number = self._record[0][0]
        self._record.clear()
        self._bytes = 0
        return number

    def recover(self) -> list[int]:
        """Ends a record that cannot be read; returns the numbers of the lines that are left out.

        It is the first one. The others are read again, as records of their own, within a bound.
        """
        numbers = [number for number, _ in self._record]
        if self._again_bytes + self._bytes <= _AGAIN_MAX * self._read_bytes:
            del numbers[1:]
            self._again.extendleft(reversed(self._record[1:]))
        self._record.clear()
        self._bytes = 0
        return numbers


def _encoding(error: UnicodeDecodeError) -> str:
    return f"is no UTF-8: byte {error.object[error.start]:#04x} at {error.start}"


class _Reader:
    """Turns rows of cells into members."""

    def __init__(self, columns: Columns, count: int) -> None:
        self._columns = columns
        self._count = count

    def members(self, cells: list[str]) -> dict[str, Any] | InvalidArgument:
        """Returns the members of a row, or why there are none."""
        columns = self._columns
        if len(cells) != self._count:
            return InvalidArgument(
                f"has {len(cells)} cells, the header has {self._count}", field="object"
            )
        members: dict[str, Any] = {}
        for place, name in columns.others:
            cell = cells[place]
            if cell:
                members[name] = value_of(cell)
        try:
            for name, number in (("lon", columns.lon), ("lat", columns.lat)):
                if number is not None and (cell := cells[number].strip()):
                    members[name] = _number(cell, name)
        except InvalidArgument as error:
            return error.with_traceback(None)
        if columns.id is not None and (cell := cells[columns.id].strip()):
            members["id"] = _id(cell)
        if columns.ts is not None and (cell := cells[columns.ts].strip()):
            # Else a moment, which the check of the object reads.
            members["ts"] = value_of(cell)
        if columns.text:
            members["text"] = joined([cells[place] for place in columns.text])
        return members


def value_of(cell: str) -> Any:
    """Returns what a cell says: a number or boolean of JSON, else its text."""
    if cell[0] in "-0123456789":
        if _INTEGER.fullmatch(cell):
            integer = int(cell)
            return integer if INTEGER_LEAST <= integer <= INTEGER_GREATEST else cell
        if _NUMBER.fullmatch(cell):
            number = float(cell)
            return number if math.isfinite(number) else cell
        return cell
    return _BOOLEANS.get(cell, cell)


def _number(cell: str, field: str) -> float:
    number = value_of(cell.removeprefix("+"))
    if isinstance(number, str | bool):
        raise InvalidArgument(f"{shown(cell)} is no number", field=field)
    return float(number)


def _id(cell: str) -> int | str:
    number = value_of(cell)
    return number if type(number) is int and number >= 0 else cell
