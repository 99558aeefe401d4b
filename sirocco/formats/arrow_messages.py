"""The messages of Arrow's IPC streams: what they unpack to, before Arrow reads one of them.

Arrow makes room for what metadata claim: buffers name the bytes to which they unpack, all buffers
may lie on the same bytes, columns without bytes have as many rows as they say, and one field may
stand in many places of the schema. (Columnar format 1.5: `Message.fbs`, `Schema.fbs`.)
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np

from sirocco.formats.flat_tables import FlatTable, damaged
from sirocco.model.errors import InvalidArgument
from sirocco.model.members import shown

# Before each message, and the length of its metadata; a length of 0 ends the stream.
_MARK = 0xFFFFFFFF
_HEAD = struct.Struct("<Ii")

# `Message`, its headers, `Schema`, `Field`, `RecordBatch` and `DictionaryBatch`: fields by number.
_KIND, _HEADER, _BODY_BYTES, _MESSAGE_TEXTS = 1, 2, 3, 4
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_ENDIANNESS, _FIELDS, _SCHEMA_TEXTS = 0, 1, 2
_NAME, _TYPE_KIND, _TYPE, _ENCODING, _CHILDREN, _FIELD_TEXTS = 0, 2, 3, 4, 5, 6
_ROWS, _NODES, _BUFFERS, _COMPRESSION = 0, 1, 2, 3
_ID, _DATA, _IS_DELTA = 0, 1, 2
_TIMEZONE = 1

# Types that are read: not unions, intervals, runs, and lists whose parts may overlap.
_TYPES = frozenset((*range(1, 11), 12, 13, *range(15, 22), 23, 24))
_TIMESTAMP = 10

_DEPTH_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLimits:
    """How much one stream may be.

    Attributes:
        bytes_total: of a batch with its dictionaries, unpacked.
        values: of the same. Each is one of Python's for a moment.
        batches: all batches may have so many times as much as one: each looks through its
            dictionaries anew.
        fields: of the schema, those within others included. Arrow takes some kilobytes for each.
        text_bytes: names and further texts of a message, each as often as it is referred to.
        columns: of all batches, those within others and of dictionaries included. Each takes 0.2
            ms, however few rows it has.
        messages: of the stream, also those without rows.
    """

    bytes_total: int = 40 << 20
    values: int = 1 << 22
    batches: int = 8
    fields: int = 10_000
    text_bytes: int = 1 << 20
    columns: int = 20_000
    messages: int = 10_000


LIMITS = StreamLimits()


@dataclass(frozen=True, slots=True)
class _Size:
    """What a batch unpacks to."""

    bytes_total: int = 0
    values: int = 0
    columns: int = 0

    def plus(self, other: _Size, times: int = 1) -> _Size:
        """Returns the sum of this and of so many others."""
        return _Size(
            self.bytes_total + times * other.bytes_total,
            self.values + times * other.values,
            self.columns + times * other.columns,
        )


_NOTHING = _Size()


class _Dictionaries:
    """The dictionaries that a batch has.

    Attributes:
        size: Of them, each as often as a column has it: columns look through them one by one.

    Args:
        uses: Id → columns that have it.
    """

    def __init__(self, uses: Mapping[int, int]) -> None:
        self.size = _NOTHING
        self._uses = uses
        self._sizes: dict[int, _Size] = {}

    def put(self, number: int, size: _Size) -> None:
        """Takes one in place of the one before."""
        times = max(1, self._uses.get(number, 0))
        before = self._sizes.get(number, _NOTHING)
        self.size = self.size.plus(before, -times).plus(size, times)
        self._sizes[number] = size


def check_stream(body: memoryview, limits: StreamLimits = LIMITS) -> None:
    """Refuses a stream that takes much more than it weighs.

    Args:
        body: the whole stream.
        limits: what it may be.

    Raises:
        InvalidArgument: It is such a stream, or is damaged; `field` is `body`, or a column.
    """
    at, count, is_ended = 0, 0, False
    dictionaries: _Dictionaries | None = None
    whole = _NOTHING
    while at < len(body) and not is_ended:
        count += 1
        if count > limits.messages:
            raise _too_much("messages", count, limits.messages)
        message, begin, is_ended = _message(body, at)
        if message is None:
            at = begin
            continue
        data = _body(body, begin, message)
        at = begin + len(data)
        header, kind = message.table(_HEADER), message.number(_KIND, "B")
        if header is None:
            raise damaged()
        _add_texts(message, _MESSAGE_TEXTS, 0, limits)
        if dictionaries is None:
            if kind != _SCHEMA:
                raise damaged()
            dictionaries = _Dictionaries(Counter(_dictionaries_of(header, limits)))
            continue
        if kind == _DICTIONARY:
            size = _dictionary(header, data)
            dictionaries.put(header.number(_ID, "q"), size)
            _check(dictionaries.size, limits)
        elif kind == _BATCH:
            size = _size(header, data).plus(dictionaries.size)
            _check(size, limits)
        else:
            raise damaged()
        whole = whole.plus(size)
        _check(whole, limits, limits.batches)
    if dictionaries is None:
        raise InvalidArgument("cannot be read as Arrow: no stream of IPC", field="body")
    if at < len(body):
        raise InvalidArgument("holds more after the end of its stream", field="body")


def _message(body: memoryview, at: int) -> tuple[FlatTable | None, int, bool]:
    """Returns a message's metadata, where they end, and whether the stream ends there."""
    if len(body) - at < _HEAD.size:
        raise InvalidArgument("is cut off", field="body")
    mark, length = _HEAD.unpack_from(body, at)
    begin = at + _HEAD.size
    if mark != _MARK or length < 0:
        raise InvalidArgument("cannot be read as Arrow: no stream of IPC", field="body")
    if length > len(body) - begin:
        raise InvalidArgument("is cut off", field="body")
    if length == 0:
        return None, begin, True
    return FlatTable.root(body[begin : begin + length]), begin + length, False


def _body(body: memoryview, begin: int, message: FlatTable) -> memoryview:
    size = message.number(_BODY_BYTES, "q")
    if size < 0:
        raise damaged()
    if size > len(body) - begin:
        raise InvalidArgument("is cut off", field="body")
    return body[begin : begin + size]


def _check(size: _Size, limits: StreamLimits, batches: int = 1) -> None:
    if size.values > batches * limits.values:
        raise _too_much("values", size.values, batches * limits.values)
    if size.bytes_total > batches * limits.bytes_total:
        raise _too_much("bytes unpacked", size.bytes_total, batches * limits.bytes_total)
    if size.columns > limits.columns:
        raise _too_much("columns in all batches", size.columns, limits.columns)


def _too_much(what: str, found: int, most: int) -> InvalidArgument:
    return InvalidArgument(
        f"has {found} {what}, at most {most} are allowed: send several", field="body"
    )


# --- the schema


def _dictionaries_of(schema: FlatTable, limits: StreamLimits) -> list[int]:
    """Checks a schema; returns the ids of dictionaries, each as often as a field has it."""
    if schema.number(_ENDIANNESS, "h"):
        raise InvalidArgument("is of big-endian numbers, which are not read", field="body")
    text_bytes = _add_texts(schema, _SCHEMA_TEXTS, 0, limits)
    encoded: list[int] = []
    count = 0
    # Depth first; the iterators of all levels.
    levels = [schema.tables(_FIELDS)]
    while levels:
        field = next(levels[-1], None)
        if field is None:
            levels.pop()
            continue
        count += 1
        if count > limits.fields:
            raise _too_much("fields", count, limits.fields)
        if len(levels) > _DEPTH_MAX:
            raise InvalidArgument("has a column that is nested too deeply", field="body")
        text_bytes = _add_field_texts(field, text_bytes, limits)
        encoding = field.table(_ENCODING)
        if encoding is not None:
            encoded.append(encoding.number(_ID, "q"))
        levels.append(field.tables(_CHILDREN))
    return encoded


def _add_field_texts(field: FlatTable, text_bytes: int, limits: StreamLimits) -> int:
    """Checks the type of a field; returns the bytes of texts with those of the field."""
    name = field.piece(_NAME)
    kind = field.number(_TYPE_KIND, "B")
    if kind not in _TYPES:
        text = bytes(name[:80]).decode(errors="replace")
        raise InvalidArgument(f"column {shown(text)} has a type that is not read", field=text)
    text_bytes += len(name)
    if kind == _TIMESTAMP and (type_ := field.table(_TYPE)) is not None:
        text_bytes += len(type_.piece(_TIMEZONE))
    return _add_texts(field, _FIELD_TEXTS, text_bytes, limits)


def _add_texts(table: FlatTable, number: int, text_bytes: int, limits: StreamLimits) -> int:
    """Returns the bytes of texts with those of a vector of `KeyValue`, each of which counts."""
    for pair in table.tables(number):
        text_bytes += len(pair.piece(0)) + len(pair.piece(1)) + 16
        if text_bytes > limits.text_bytes:
            break
    if text_bytes > limits.text_bytes:
        raise _too_much("bytes of names and metadata", text_bytes, limits.text_bytes)
    return text_bytes


# --- batches


def _dictionary(header: FlatTable, data: memoryview) -> _Size:
    # Each part is added to a copy of all before it.
    if header.number(_IS_DELTA, "B"):
        raise InvalidArgument("has a dictionary in several parts, which is not read", field="body")
    return _size(header.table(_DATA), data)


def _size(batch: FlatTable | None, data: memoryview) -> _Size:
    """Returns what a batch unpacks to: its buffers, each as often as it is referred to."""
    if batch is None:
        raise damaged()
    rows = batch.number(_ROWS, "q")
    lengths = np.frombuffer(batch.piece(_NODES, 16), "<i8")[::2]
    buffers = np.frombuffer(batch.piece(_BUFFERS, 16), "<i8").reshape(-1, 2)
    begins, sizes = buffers[:, 0], buffers[:, 1]
    # Differences, since sums of such numbers may be too large.
    if (
        min(chain((rows,), lengths.tolist())) < 0
        or (buffers < 0).any()
        or (sizes > len(data) - begins).any()
    ):
        raise damaged()
    # One by one: numbers of 64 bits are too large together.
    values = max(rows, sum(lengths.tolist()))
    if batch.table(_COMPRESSION) is None:
        bytes_total = sum(sizes.tolist())
    else:
        bytes_total = sum(_unpacked_bytes(data, *each) for each in buffers.tolist())
    return _Size(bytes_total, values, len(lengths))


def _unpacked_bytes(data: memoryview, begin: int, size: int) -> int:
    """Returns what a packed buffer claims to unpack to: its first 8 bytes; -1: it is as it is."""
    if size == 0:
        return 0
    if size < 8:
        raise damaged()
    (found,) = struct.unpack_from("<q", data, begin)
    if found < -1:
        raise damaged()
    return size - 8 if found == -1 else int(found)
