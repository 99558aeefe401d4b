"""Objects as lines of JSON: written from columns, read from files with bad lines separated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import orjson
import xxhash
from numpy.typing import NDArray

from sirocco.formats.rows import Row
from sirocco.loadgen.damage import DamagedFileError
from sirocco.loadgen.live_lines import (
    CHUNK_BYTES_MAX,
    LivePipe,
    NumberedLine,
    is_live,
    live_chunks,
)
from sirocco.model.errors import InvalidArgument, SiroccoError
from sirocco.model.json_text import may_exceed_64_bits
from sirocco.model.limits import DEFAULT_LIMITS
from sirocco.model.moments import moment_ms
from sirocco.model.objects import (
    MISSING_TS,
    Bytes,
    ObjectColumns,
    ObjectColumnsBuilder,
    Offsets,
    pack_bytes,
    parse_object,
)
from sirocco.runtime.process.gzip_files import DAMAGES, LINE_BYTES_MAX, cut_lines, open_packed

T = TypeVar("T")

_FIXED = ("id", "lon", "lat", "ts", "text")

# `orjson` writes a number that is not finite as null; this refuses it.
_write_finite = json.JSONEncoder(allow_nan=False).encode


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that could not be used.

    Attributes:
        file: Path as it was given.
        line: Number of the line, from 1.
        error: The error; names the field.
    """

    file: str
    line: int
    error: SiroccoError

    def members(self) -> dict[str, Any]:
        """Returns the line of the results that reports this."""
        return {"error": str(self.error), "file": self.file, "line": self.line}


@dataclass(frozen=True, slots=True, eq=False)
class ReadBatch:
    """Some lines of a file of objects.

    Attributes:
        objects: The good lines in order.
        lines: i8[n], line number of each object.
        bad: The other lines.
    """

    objects: ObjectColumns
    lines: NDArray[np.int64]
    bad: list[BadLine] = field(default_factory=list)


def numbered_lines(path: Path) -> Iterator[NumberedLine]:
    """Yields (line number, line) of all lines that are not blank.

    A line of more than `LINE_BYTES_MAX` is cut to one byte more than that.

    Raises:
        DamagedFileError: The file is gzip and cannot be unpacked to its end, or a line has no end.
        OSError: The file cannot be read.
    """
    number = 0
    with open_packed(path) as source:
        try:
            for read in cut_lines(source):
                number += 1
                line = read.removeprefix(b"\xef\xbb\xbf") if number == 1 else read
                if line and not line.isspace():
                    yield number, line
        except DAMAGES as error:
            raise DamagedFileError(path, number + 1, error) from None


def read_objects(
    path: Path, name: str, batch_rows: int = 4_096, *, pipe: LivePipe | None = None
) -> Iterator[ReadBatch]:
    """Reads a file or a pipe of objects, plain or gzip, in batches.

    Lines of a pipe do not wait for those that would fill a batch (see `live_lines`).

    Args:
        path: The file.
        name: The file's name in errors.
        batch_rows: Greatest number of lines of a batch.
        pipe: The same, if it is a pipe and open already.

    Raises:
        OSError: The file cannot be read.
    """
    damage: list[BadLine] = []
    if is_live(path):
        pipe = LivePipe(path) if pipe is None else pipe
        chunks = _until_damage(live_chunks(pipe, batch_rows, LINE_BYTES_MAX), name, damage)
    else:
        chunks = _full(_until_damage(numbered_lines(path), name, damage), batch_rows)
    for chunk in chunks:
        yield read_chunk(chunk, name)
    if damage:
        yield ReadBatch(ObjectColumnsBuilder().build(), np.empty(0, np.int64), damage)


def _full(lines: Iterator[NumberedLine], rows: int) -> Iterator[list[NumberedLine]]:
    """Yields lines in chunks of `rows`, or of as many as `CHUNK_BYTES_MAX` holds."""
    chunk: list[NumberedLine] = []
    size = 0
    for line in lines:
        chunk.append(line)
        size += len(line[1])
        if len(chunk) == rows or size > CHUNK_BYTES_MAX:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _until_damage(read: Iterator[T], name: str, damage: list[BadLine]) -> Iterator[T]:
    try:
        yield from read
    except DamagedFileError as error:
        damage.append(BadLine(name, error.line, InvalidArgument(str(error), field="object")))


def read_chunk(chunk: list[NumberedLine], name: str) -> ReadBatch:
    """Reads some lines together; `name` is the file's in errors."""
    try:
        if any(len(line) > LINE_BYTES_MAX for _, line in chunk):
            raise _NotPlainError
        objects = _columns_of([orjson.loads(line) for _, line in chunk])
        if len(objects.attributes) and may_exceed_64_bits(b"\n".join(line for _, line in chunk)):
            raise _NotPlainError
    except (orjson.JSONDecodeError, orjson.JSONEncodeError, _NotPlainError):
        return _read_singly(chunk, name)
    return ReadBatch(objects, np.array([number for number, _ in chunk], np.int64))


def read_members(rows: list[Row], name: str) -> ReadBatch:
    """Returns the objects of rows of any format; `name` is the file's in errors."""
    good = [(line, row) for line, row in rows if not isinstance(row, InvalidArgument)]
    bad = [BadLine(name, line, row) for line, row in rows if isinstance(row, InvalidArgument)]
    lines = [line for line, _ in good]
    try:
        objects = _columns_of([row for _, row in good])
    except (orjson.JSONEncodeError, UnicodeEncodeError, _NotPlainError):
        builder, lines = ObjectColumnsBuilder(), []
        for line, row in good:
            try:
                builder.add(parse_object(row))
            except InvalidArgument as error:
                bad.append(BadLine(name, line, error.with_traceback(None)))
            else:
                lines.append(line)
        objects = builder.build()
    bad.sort(key=attrgetter("line"))
    return ReadBatch(objects, np.array(lines, np.int64), bad)


def object_lines(batch: ObjectColumns) -> Iterator[bytes]:
    """Yields the objects of a batch as lines of JSON, without the line's end."""
    texts = texts_of(batch.text, batch.text_offsets)
    ids: list[int | str] = batch.ids.tolist()
    if len(batch.names):
        names = texts_of(batch.names, batch.name_offsets)
        ids = [name or number for name, number in zip(names, ids, strict=True)]
    attributes: list[str] = []
    if len(batch.attributes):
        attributes = texts_of(batch.attributes, batch.attribute_offsets)
    columns = zip(
        ids, batch.ts.tolist(), batch.lon.tolist(), batch.lat.tolist(), texts, strict=True
    )
    for row, (one, ts, lon, lat, text) in enumerate(columns):
        members: dict[str, Any] = {"id": one, "lon": lon, "lat": lat, "text": text}
        if ts != MISSING_TS:
            members["ts"] = ts
        line = orjson.dumps(members)
        if attributes and len(attributes[row]) > 2:
            line = line[:-1] + b"," + attributes[row].encode()[1:]
        yield line


def texts_of(data: Bytes, offsets: Offsets) -> list[str]:
    """Returns the rows of a byte column (UTF-8) as strings."""
    whole, ends = data.tobytes(), offsets.tolist()
    return [whole[a:b].decode() for a, b in pairwise(ends)]


class _NotPlainError(Exception):
    """A chunk has a row that must be read line by line."""


def _read_singly(chunk: list[NumberedLine], name: str) -> ReadBatch:
    builder, good, bad = ObjectColumnsBuilder(), [], []
    for number, line in chunk:
        try:
            if len(line) > LINE_BYTES_MAX:
                raise InvalidArgument(f"is longer than {LINE_BYTES_MAX} bytes", field="object")
            builder.add(parse_object(line))
        except InvalidArgument as error:
            # Its frames would hold the whole chunk, in a cycle, until the next garbage collection.
            bad.append(BadLine(name, number, error.with_traceback(None)))
        else:
            good.append(number)
    return ReadBatch(builder.build(), np.array(good, np.int64), bad)


def _columns_of(members: list[Any]) -> ObjectColumns:
    """Returns columns of rows that are all valid, several times faster than row by row.

    Raises:
        _NotPlainError: Not all rows are plain; it says nothing about single rows.
    """
    if not _types(members) <= {dict}:
        raise _NotPlainError
    try:
        ids, lon, lat = ([row[name] for row in members] for name in ("id", "lon", "lat"))
    except KeyError:
        raise _NotPlainError from None
    ts = _times_of(members)
    texts = [row.get("text", "") for row in members]
    plain = (
        _types(lon) <= {int, float}
        and _types(lat) <= {int, float}
        and _types(ts) <= {int}
        and _types(texts) <= {str}
        # A given value is out of range.
        and not any(row.get("ts") == MISSING_TS for row in members)
    )
    if not plain:
        raise _NotPlainError
    names, name_offsets = _names_of(ids)
    text, text_offsets = pack_bytes([one.encode() for one in texts])
    attributes, attribute_offsets = _attributes_of(members)
    try:
        columns = ObjectColumns(
            ids=np.array(ids, np.uint64),
            names=names,
            name_offsets=name_offsets,
            lon=np.array(lon, np.float64),
            lat=np.array(lat, np.float64),
            ts=np.array(ts, np.int64),
            text=text,
            text_offsets=text_offsets,
            attributes=attributes,
            attribute_offsets=attribute_offsets,
        )
    except OverflowError:
        raise _NotPlainError from None
    _refuse_limits(columns)
    return columns


def _times_of(members: list[Any]) -> list[Any]:
    """Returns the column of times, with those in ISO 8601 as epoch ms."""
    ts = [row.get("ts", MISSING_TS) for row in members]
    if str not in _types(ts):
        return ts
    try:
        return [moment_ms(each, "ts") if type(each) is str else each for each in ts]
    except InvalidArgument:
        raise _NotPlainError from None


def _types(values: list[Any]) -> set[type]:
    return set(map(type, values))


def _names_of(ids: list[Any]) -> tuple[Bytes, Offsets]:
    """Returns the column of string ids; replaces them in `ids` by their hashes."""
    found = _types(ids)
    if found <= {int}:
        return np.empty(0, np.uint8), np.zeros(len(ids) + 1, np.int64)
    if not found <= {int, str} or "" in ids:
        raise _NotPlainError
    names = [one.encode() if type(one) is str else b"" for one in ids]
    for row, name in enumerate(names):
        if name:
            ids[row] = xxhash.xxh3_64_intdigest(name)
    return pack_bytes(names)


def _attributes_of(members: list[Any]) -> tuple[Bytes, Offsets]:
    others = [{k: v for k, v in row.items() if k not in _FIXED} for row in members]
    if not any(others):
        return np.empty(0, np.uint8), np.zeros(len(members) + 1, np.int64)
    dumped = [orjson.dumps(other) if other else b"" for other in others]
    if any(one.count(b"[") + one.count(b"{") > DEFAULT_LIMITS.attribute_depth for one in dumped):
        # It may be nested too deeply.
        raise _NotPlainError
    nulls = [other for other, one in zip(others, dumped, strict=True) if b"null" in one]
    try:
        # Formats other than JSON have numbers that are not finite, and `1e400` is one to others.
        all(map(_write_finite, nulls))
    except ValueError:
        raise _NotPlainError from None
    return pack_bytes(dumped)


def _refuse_limits(columns: ObjectColumns) -> None:
    """Leaves rows over a limit to the reader of single lines, which has the error texts."""
    limits = DEFAULT_LIMITS
    ts = columns.ts[columns.ts != MISSING_TS]
    name_bytes = np.diff(columns.name_offsets)
    within = (
        bool((np.abs(columns.lon) <= 180).all())
        and bool((np.abs(columns.lat) <= 90).all())
        and bool((np.abs(ts) <= limits.ts_ms).all())
        and bool((name_bytes <= limits.id_bytes).all())
        and bool((np.diff(columns.text_offsets) <= limits.text_bytes).all())
        and bool((np.diff(columns.attribute_offsets) <= limits.attribute_bytes).all())
    )
    if not within:
        raise _NotPlainError
