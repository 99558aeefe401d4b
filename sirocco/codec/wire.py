"""Checks of protobuf messages before they are parsed.

A parser allocates for each submessage and each element of a repeated field, even if these take two
bytes on the wire or less: eight compressed kilobytes of a client became a gigabyte. So one native
call scans the bytes first, and a message that would take too much is refused with the field.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from numpy.typing import NDArray

from sirocco.kernels.base.wire_scan import (
    DEPTH_MAX,
    FIELDS_MAX,
    MALFORMED,
    OTHER,
    OVER_BOUND,
    PACKED_FIXED_4,
    PACKED_FIXED_8,
    PACKED_VARINT,
    SOUND,
    STRINGS,
    SUBMESSAGE,
    scan_message,
)
from sirocco.model.errors import InvalidArgument

# Queries per request of the bulk call; the SDK sends 1,000.
QUERIES_MAX = 10_000

# Occurrences of repeated fields in one message. They limit a parser and the first Python lists made
# from its result to some ten megabytes; the reader of queries checks their contents, with lower
# limits.
BOUNDS: dict[str, int] = {
    "sirocco.v1.RegisterQueriesRequest.queries": QUERIES_MAX,
    "sirocco.v1.UpdateQueriesRequest.queries": QUERIES_MAX,
    "sirocco.v1.UnregisterQueriesRequest.ids": QUERIES_MAX,
    "sirocco.v1.ApplyChangesRequest.changes": QUERIES_MAX,
    "sirocco.v1.CountQueriesRequest.handles": 2 * QUERIES_MAX,
    "sirocco.v1.CountQueriesRequest.fingerprints": 2 * QUERIES_MAX,
    "sirocco.v1.RangeKind.events": 128,
    "sirocco.v1.KnnKind.events": 128,
    "sirocco.v1.TermsKind.events": 128,
    "sirocco.v1.RankedKind.events": 128,
    "sirocco.v1.RankedKind.keywords": 1_024,
    "sirocco.v1.Polygon.rings": 10_000,
    "sirocco.v1.Ring.coordinates": 40_000,
    "sirocco.v1.TellDetailsRequest.leaves": 65_536,
    "sirocco.v1.SaveSlotsRequest.slots": 65_536,
    "sirocco.v1.SearchManyRequest.searches": 1_024,
    "sirocco.v1.SearchSlotsRequest.others": 1_024,
    "sirocco.v1.ReceiveManyRequest.streams": 1_024,
    "sirocco.v1.WarmSlotsRequest.slots": 65_536,
}

# Bound of a repeated field not named above; tests check that all fields of requests are named.
OTHER_BOUND = 1_024

# Submessages and elements of one message together: 10,000 queries have some 60,000.
ELEMENTS_MAX = 262_144

# Largest memory of a parser for one of them, and of Python's access to it.
ELEMENT_BYTES = 256

# Shorter messages cannot hold too many elements.
SCANNED_BYTES_MIN = 128

_PACKED = {
    FieldDescriptor.TYPE_DOUBLE: PACKED_FIXED_8,
    FieldDescriptor.TYPE_FIXED64: PACKED_FIXED_8,
    FieldDescriptor.TYPE_SFIXED64: PACKED_FIXED_8,
    FieldDescriptor.TYPE_FLOAT: PACKED_FIXED_4,
    FieldDescriptor.TYPE_FIXED32: PACKED_FIXED_4,
    FieldDescriptor.TYPE_SFIXED32: PACKED_FIXED_4,
}

# Messages whose rows are refused one by one: the other rows are processed.
_ROWS = {
    "sirocco.v1.RegisterQueriesRequest": "queries",
    "sirocco.v1.UpdateQueriesRequest": "queries",
}

# Bound of one row of these, instead of `ELEMENTS_MAX`.
ROW_ELEMENTS_MAX = 65_536

# Fields of such a message that are not rows: each is a step of Python. Requests have two, and those
# of later versions a few more.
OTHER_FIELDS_MAX = 1_024

# Members of messages that do not appear in a field's path as clients know it.
_SILENT = frozenset({"query", "range", "knn", "terms", "ranked", "rings", "coordinates"})


@dataclass(frozen=True, slots=True)
class _Tables:
    """The kernel's tables for a message type and all types below it; row 0 is the type.

    Attributes:
        types: descriptor of each row.
        kinds, children, bounds: see `scan_message`.
    """

    types: list[Descriptor]
    kinds: NDArray[np.int8]
    children: NDArray[np.int32]
    bounds: NDArray[np.int64]


@functools.cache
def _tables(root: Descriptor) -> _Tables:
    types = [root]
    rows = {root.full_name: 0}
    cells: list[tuple[int, int, int, int, int]] = []
    for row, descriptor in enumerate(types):
        for each in descriptor.fields:
            kind, child, bound = _kind(each), 0, 0
            if kind == SUBMESSAGE:
                assert each.message_type is not None
                child = rows.setdefault(each.message_type.full_name, len(types))
                if child == len(types):
                    types.append(each.message_type)
            if each.is_repeated:
                bound = BOUNDS.get(each.full_name, OTHER_BOUND)
            cells.append((row, each.number, kind, child, bound))
    shape = (len(types), FIELDS_MAX)
    found = _Tables(
        types, np.zeros(shape, np.int8), np.zeros(shape, np.int32), np.zeros(shape, np.int64)
    )
    for row, number, kind, child, bound in cells:
        found.kinds[row, number] = kind
        found.children[row, number] = child
        found.bounds[row, number] = bound
    return found


def _kind(each: FieldDescriptor) -> int:
    if each.type == FieldDescriptor.TYPE_MESSAGE:
        return SUBMESSAGE
    if not each.is_repeated:
        return OTHER
    if each.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        return STRINGS
    return _PACKED.get(each.type, PACKED_VARINT)


def check_message(data: bytes, message_type: type[Any], elements_max: int = ELEMENTS_MAX) -> int:
    """Returns the maximum memory of a message once it is parsed, bytes.

    Args:
        data: the message.
        message_type: generated class.
        elements_max: bound of its submessages and elements.

    Raises:
        InvalidArgument: It is malformed, or holds more than a message may; `field` names the field.
    """
    if len(data) < SCANNED_BYTES_MIN:
        return len(data) + SCANNED_BYTES_MIN * ELEMENT_BYTES // 2
    tables = _tables(message_type.DESCRIPTOR)
    result, trace = _scanned(data, tables, elements_max)
    if result == SOUND:
        return len(data) + int(trace[0]) * ELEMENT_BYTES
    name = message_type.DESCRIPTOR.name
    if result == MALFORMED:
        raise InvalidArgument(f"is no {name}: malformed at byte {int(trace[1])} of {len(data)}")
    path, bound = _place(tables, trace)
    if result == OVER_BOUND:
        raise InvalidArgument(f"more than {bound} in one message", field=path)
    raise InvalidArgument(f"the message holds more than {elements_max} parts", field=path)


def elements_of(data: bytes, message_type: type[Any]) -> int:
    """Returns how many submessages and elements a message of this process holds.

    Args:
        data: the message, within the bounds of its fields.
        message_type: generated class.
    """
    result, trace = _scanned(data, _tables(message_type.DESCRIPTOR), len(data))
    assert result == SOUND
    return int(trace[0])


def _scanned(data: bytes, tables: _Tables, elements_max: int) -> tuple[int, NDArray[np.int64]]:
    """Returns the result of a scan, and its trace: see `scan_message`."""
    trace = np.zeros(3 + 2 * DEPTH_MAX, np.int64)
    result = scan_message(
        np.frombuffer(data, np.uint8),
        0,
        tables.kinds,
        tables.children,
        tables.bounds,
        elements_max,
        trace,
    )
    return result, trace


def _place(tables: _Tables, trace: NDArray[np.int64]) -> tuple[str, int]:
    """Returns the path of the field at which a scan ended, and its bound."""
    row, bound = 0, 0
    path = ""
    for depth in range(int(trace[2]) + 1):
        number, occurrence = trace[3 + 2 * depth : 5 + 2 * depth].tolist()
        each = tables.types[row].fields_by_number[number]
        bound = int(tables.bounds[row, number])
        if each.name not in _SILENT:
            path += f".{each.name}" if path else each.name
        if each.is_repeated and depth < trace[2]:
            path += f"[{occurrence}]"
        row = int(tables.children[row, number])
    return path, bound


def parse_message(data: bytes, message_type: type[Any]) -> Any:
    """Returns a checked message.

    Raises:
        InvalidArgument: It cannot be parsed.
    """
    try:
        return message_type.FromString(data)
    except Exception as error:
        # `DecodeError` of the installed implementation of protobuf.
        name = message_type.DESCRIPTOR.name
        raise InvalidArgument(f"is no {name}: {type(error).__name__}") from None


@dataclass(frozen=True, slots=True)
class PartlyRefused:
    """A message in which some rows were not parsed.

    Attributes:
        message: the message; refused rows are empty.
        refused: row → error.
    """

    message: Any
    refused: dict[int, InvalidArgument]


def has_rows(message_type: type[Any]) -> bool:
    """Whether the rows of such messages are refused one by one."""
    return message_type.DESCRIPTOR.full_name in _ROWS


def parse_rows(data: bytes, message_type: type[Any]) -> PartlyRefused:
    """Parses a message that was refused as a whole, without the rows that caused it.

    Raises:
        InvalidArgument: Single rows are not the cause.
    """
    descriptor = message_type.DESCRIPTOR
    rows = descriptor.fields_by_name[_ROWS[descriptor.full_name]]
    row_type = message_factory.GetMessageClass(rows.message_type)
    pieces: list[bytes] = []
    refused: dict[int, InvalidArgument] = {}
    count = others = 0
    for number, wire, begin, after in _fields(data, descriptor.name):
        if number != rows.number or wire != _LENGTH_DELIMITED:
            pieces.append(data[begin:after])
            others += 1
            if others > OTHER_FIELDS_MAX:
                raise InvalidArgument(f"more than {OTHER_FIELDS_MAX} fields beside {rows.name}")
            continue
        row = data[_varint(data, _varint(data, begin)[1])[1] : after]
        try:
            check_message(row, row_type, ROW_ELEMENTS_MAX)
            parse_message(row, row_type)
            pieces.append(data[begin:after])
        except InvalidArgument as error:
            refused[count] = error
            pieces.append(_tag(number) + b"\0")
        count += 1
        if count > BOUNDS[rows.full_name]:
            raise InvalidArgument(
                f"more than {BOUNDS[rows.full_name]} in one message", field=rows.name
            )
    rest = b"".join(pieces)
    check_message(rest, message_type)
    return PartlyRefused(parse_message(rest, message_type), refused)


_LENGTH_DELIMITED = 2
_VARINT = 0
_FIXED_BYTES = {1: 8, 5: 4}


def _tag(number: int) -> bytes:
    assert number < 16
    return bytes((number << 3 | _LENGTH_DELIMITED,))


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise InvalidArgument(f"malformed at byte {position} of {len(data)}")


def _fields(data: bytes, name: str) -> Iterator[tuple[int, int, int, int]]:
    """Yields (number, wire type, begin, end) of each field of the outermost message."""
    position = 0
    while position < len(data):
        begin = position
        tag, position = _varint(data, position)
        wire = tag & 7
        if wire == _VARINT:
            _, position = _varint(data, position)
        elif wire == _LENGTH_DELIMITED:
            length, position = _varint(data, position)
            position += length
        elif wire in _FIXED_BYTES:
            position += _FIXED_BYTES[wire]
        else:
            position = len(data) + 1
        if position > len(data):
            raise InvalidArgument(f"is no {name}: malformed at byte {begin} of {len(data)}")
        yield tag >> 3, wire, begin, position
