"""Thrift's compact protocol, as far as Parquet's headers and footers need it.

Written by others: each value that is read takes a byte at least, and nothing nests deeply.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from sirocco.model.errors import InvalidArgument

# Which fields of a struct are kept: integers (None), `bytes`, structs, and lists of structs. Others
# are read over.
Shape: TypeAlias = Mapping[int, Any]

_DEPTH_MAX = 8

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
_INTEGERS = {4, 5, 6}


def read_struct(data: bytes, at: int, shape: Shape, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Returns fields of a struct by their numbers, and the place after it.

    Raises:
        IndexError: The data end before it.
        InvalidArgument: It is no such struct.
    """
    if depth > _DEPTH_MAX:
        raise unreadable("nested too deeply")
    fields: dict[int, Any] = {}
    number = 0
    while True:
        byte = data[at]
        at += 1
        if byte == 0:
            return fields, at
        kind = byte & 15
        if byte >> 4:
            number += byte >> 4
        else:
            number, at = _integer(data, at)
        wanted = shape.get(number, _NOTHING)
        if kind in _INTEGERS:
            found, at = _integer(data, at)
            if wanted is None:
                fields[number] = found
        elif kind == _STRUCT:
            is_kept = isinstance(wanted, Mapping)
            inner, at = read_struct(data, at, wanted if is_kept else {}, depth + 1)
            if is_kept:
                fields[number] = inner
        elif kind == _BINARY and wanted is bytes:
            length, begin = _varint(data, at)
            at = begin + length
            fields[number] = data[begin:at]
        elif kind == _LIST and isinstance(wanted, list):
            fields[number], at = _structs(data, at, wanted[0], depth)
        elif kind not in {_TRUE, _FALSE}:
            at = _after(data, at, kind, depth)


_NOTHING = object()


def _structs(data: bytes, at: int, shape: Shape, depth: int) -> tuple[list[dict[int, Any]], int]:
    count, kind, at = _list_head(data, at)
    if kind != _STRUCT:
        raise unreadable("a list of another kind")
    found = []
    for _ in range(count):
        one, at = read_struct(data, at, shape, depth + 1)
        found.append(one)
    return found, at


def _list_head(data: bytes, at: int) -> tuple[int, int, int]:
    count, kind = data[at] >> 4, data[at] & 15
    at += 1
    if count == 15:
        count, at = _varint(data, at)
    return count, kind, at


def _after(data: bytes, at: int, kind: int, depth: int) -> int:
    """Returns the place after a value of a kind; a boolean takes a byte, as in lists."""
    if depth > _DEPTH_MAX:
        raise unreadable("nested too deeply")
    if kind in _INTEGERS:
        return _integer(data, at)[1]
    if kind == _STRUCT:
        return read_struct(data, at, {}, depth)[1]
    if kind == _BINARY:
        length, at = _varint(data, at)
        return at + length
    if kind in {_LIST, _SET}:
        count, kind, at = _list_head(data, at)
        for _ in range(count):
            at = _after(data, at, kind, depth + 1)
            if at > len(data):
                raise IndexError
        return at
    if kind in {_TRUE, _FALSE, _BYTE}:
        return at + 1
    if kind == _DOUBLE:
        return at + 8
    raise unreadable("a value of no kind")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if number >> 64:
            raise unreadable("a damaged number")
        if byte < 0x80:
            return number, at
        shift += 7


def _integer(data: bytes, at: int) -> tuple[int, int]:
    number, at = _varint(data, at)
    return (number >> 1) ^ -(number & 1), at


def unreadable(reason: str) -> InvalidArgument:
    """Returns the error of a file that is none, or damaged."""
    return InvalidArgument(f"cannot be read as Parquet: {reason}", field="file")
