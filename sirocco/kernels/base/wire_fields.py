"""Fields of protobuf messages in arrays of bytes, as kernels read and write them."""

from __future__ import annotations

from typing import Any

import numpy as np

from sirocco.kernels.base.words import store_u64
from sirocco.kernels.jit.compiled import kernel

_SEVEN, _LOW_7, _MORE = np.uint64(7), np.uint64(0x7F), np.uint64(0x80)


@kernel(inline=True)
def varint(data: Any, position: Any, end: Any) -> Any:
    """Returns the value of a varint and the position after it; (0, -1) if there is none."""
    value = np.uint64(0)
    for i in range(10):
        if position + i >= end:
            return np.uint64(0), np.int64(-1)
        byte = np.uint64(data[position + i])
        value |= (byte & _LOW_7) << np.uint64(7 * i)
        if byte < _MORE:
            return value, np.int64(position + i + 1)
    return np.uint64(0), np.int64(-1)


@kernel
def piece(data: Any, position: Any, end: Any) -> Any:
    """Returns begin and end of a length-delimited piece; (-1, -1) if there is none."""
    length, begin = varint(data, position, end)
    if begin < 0 or length > np.uint64(end - begin):
        return np.int64(-1), np.int64(-1)
    return begin, np.int64(begin + np.int64(length))


@kernel(inline=True)
def copied(out: Any, at: Any, data: Any, begin: Any, end: Any) -> Any:
    """Copies bytes; returns the position after them."""
    for i in range(begin, end):
        out[at + i - begin] = data[i]
    return at + end - begin


@kernel(inline=True)
def put_varint(out: Any, at: Any, value: Any) -> Any:
    """Writes a varint; returns the position after it, as all that write here."""
    left = np.uint64(value)
    while left >= _MORE:
        out[at] = np.uint8((left & _LOW_7) | _MORE)
        left >>= _SEVEN
        at += 1
    out[at] = np.uint8(left)
    return at + 1


@kernel(inline=True)
def varint_bytes(value: Any) -> Any:
    """Returns how many bytes a varint takes."""
    left, count = np.uint64(value), np.int64(1)
    while left >= _MORE:
        left >>= _SEVEN
        count += 1
    return count


@kernel(inline=True)
def put_number(out: Any, at: Any, tag: Any, value: Any) -> Any:
    """Writes a varint field, nothing for 0."""
    if value == 0:
        return at
    out[at] = np.uint8(tag)
    return put_varint(out, at + 1, value)


@kernel(inline=True)
def put_word(out: Any, at: Any, tag: Any, value: Any) -> Any:
    """Writes a fixed field of eight bytes, nothing for 0."""
    if value == np.uint64(0):
        return at
    out[at] = np.uint8(tag)
    store_u64(out, at + 1, value)
    return at + 9


@kernel(inline=True)
def put_piece(out: Any, at: Any, tag: Any, data: Any, begin: Any, end: Any) -> Any:
    """Writes a length-delimited field."""
    out[at] = np.uint8(tag)
    at = put_varint(out, at + 1, end - begin)
    return copied(out, at, data, begin, end)
