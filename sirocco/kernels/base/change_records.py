"""Reads and writes records of the registry, many at a time, without building their messages.

Those are changes of plain queries, and removals of queries of any kind. The numbers of fields are
those of `registry_service.proto`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.plain_queries import read_query
from sirocco.kernels.base.wire_fields import (
    piece,
    put_number,
    put_piece,
    put_varint,
    put_word,
    varint,
    varint_bytes,
)
from sirocco.kernels.base.words import load_u64
from sirocco.kernels.jit.compiled import kernel

__all__ = [
    "CHANGE_NUMBERS",
    "FIXED_BYTES_MAX",
    "REMOVAL",
    "REMOVAL_BYTES_MAX",
    "read_changes",
    "write_changes",
    "write_removals",
]

# Bytes of a written change besides id, subscriber and text.
FIXED_BYTES_MAX = 192

# Bytes of a written removal: a handle and three numbers.
REMOVAL_BYTES_MAX = 42

# Columns of the numbers of a change: start_ms, expected_revision, epoch, since, start_given.
CHANGE_NUMBERS = 5

# What a record holds besides queries, whose kinds are those of `read_query`.
REMOVAL = 3

_U1_IN = types.Array(types.uint8, 1, "C", readonly=True)
_I8_IN = types.Array(types.int64, 1, "C", readonly=True)
_U8_IN = types.Array(types.uint64, 1, "C", readonly=True)
_F8_2_IN = types.Array(types.float64, 2, "C", readonly=True)
_B1_IN = types.Array(types.boolean, 1, "C", readonly=True)
_I8_2_IN = types.Array(types.int64, 2, "C", readonly=True)


@kernel(
    types.void(
        *(_U1_IN, _I8_IN, _I8_IN, types.uint8[::1], types.int64[:, ::1], types.float64[:, ::1]),
        *(types.uint64[:, ::1], types.int64[:, ::1]),
    )
)
def read_changes(
    data: Any,
    begins: Any,
    ends: Any,
    kinds: Any,
    spans: Any,
    boxes: Any,
    hashes: Any,
    numbers: Any,
) -> None:
    """Reads `ChangeRequest` messages of plain queries, and those that remove any query.

    Args:
        data, begins, ends, spans, boxes: as of `read_queries`.
        kinds: likewise, `REMOVAL` for a removal.
        hashes: u8[n, 2], overwritten: handle, digest.
        numbers: i8[n, CHANGE_NUMBERS], overwritten.
    """
    for row in range(kinds.shape[0]):
        kinds[row] = 0
        hashes[row, :] = np.uint64(0)
        numbers[row, :] = 0
        numbers[row, 3] = -1
        position, end, found = begins[row], ends[row], 0
        while position < end:
            tag = data[position]
            if tag in (0x09, 0x29):
                if position + 9 > end:
                    break
                hashes[row, 0 if tag == 0x09 else 1] = load_u64(data, position + 1)
                position += 9
            elif tag == 0x12 and found == 0:
                first, after = piece(data, position + 1, end)
                if after < 0:
                    break
                found = read_query(data, first, after, spans[row], boxes[row])
                if found == 0:
                    break
                position = after
            elif tag in (0x18, 0x20, 0x30, 0x50, 0x58):
                value, after = varint(data, position + 1, end)
                # A negative number of 0x58 would read like a missing one.
                if after < 0 or (tag == 0x58 and np.int64(value) < 0):
                    break
                column = 0
                if tag == 0x20:
                    column = 1
                elif tag == 0x30:
                    column = 2
                elif tag == 0x58:
                    column = 3
                elif tag == 0x50:
                    column = 4
                numbers[row, column] = np.int64(value)
                position = after
            else:
                break
        if position != end:
            continue
        kinds[row] = found
        # A probe has a digest.
        if (
            found == 0
            and hashes[row, 0] != 0
            and hashes[row, 1] == 0
            and numbers[row, 3] < 0
            and numbers[row, 4] == 0
        ):
            kinds[row] = REMOVAL


@kernel(
    types.void(
        *(_U1_IN, _I8_IN, _U1_IN, _I8_IN, _U1_IN, _I8_IN, _B1_IN, _F8_2_IN),
        *(_U8_IN, _U8_IN, _I8_2_IN, types.uint8[::1], types.int64[::1]),
    )
)
def write_changes(
    ids: Any,
    id_offsets: Any,
    names: Any,
    name_offsets: Any,
    texts: Any,
    text_offsets: Any,
    has_box: Any,
    boxes: Any,
    handles: Any,
    digests: Any,
    numbers: Any,
    out: Any,
    ends: Any,
) -> None:
    """Writes the `ChangeRequest` of each plain query, one behind the other.

    Args:
        ids, names, texts: u1, ids, subscribers, expressions; their offsets: i8[n + 1].
        has_box: b1[n]; boxes: f8[n, 4].
        handles, digests: u8[n].
        numbers: i8[n, CHANGE_NUMBERS].
        out: u1, overwritten: n * FIXED_BYTES_MAX bytes and those of ids, names and texts.
        ends: i8[n], overwritten: where each message ends.
    """
    at = np.int64(0)
    sides = boxes.view(np.uint64)
    for row in range(ends.shape[0]):
        rectangle = np.int64(0)
        if has_box[row]:
            for side in range(4):
                rectangle += 9 * np.int64(sides[row, side] != np.uint64(0))
        text = text_offsets[row + 1] - text_offsets[row]
        kind = np.int64(0)
        if has_box[row]:
            kind += 4 + rectangle
        if text:
            kind += 1 + varint_bytes(text) + text
        identity = id_offsets[row + 1] - id_offsets[row]
        name = name_offsets[row + 1] - name_offsets[row]
        query = 1 + varint_bytes(identity) + identity + 1 + varint_bytes(name) + name
        query += 3 + varint_bytes(kind) + kind
        at = put_word(out, at, 0x09, handles[row])
        out[at] = 0x12
        at = put_varint(out, at + 1, query)
        at = put_piece(out, at, 0x0A, ids, id_offsets[row], id_offsets[row + 1])
        at = put_piece(out, at, 0x12, names, name_offsets[row], name_offsets[row + 1])
        out[at] = 0x18
        out[at + 1] = 0x01
        out[at + 2] = 0x52
        at = put_varint(out, at + 3, kind)
        if has_box[row]:
            out[at] = 0x0A
            out[at + 1] = np.uint8(rectangle + 2)
            out[at + 2] = 0x0A
            out[at + 3] = np.uint8(rectangle)
            at += 4
            for side in range(4):
                at = put_word(out, at, 0x09 + 8 * side, sides[row, side])
        if text:
            at = put_piece(out, at, 0x12, texts, text_offsets[row], text_offsets[row + 1])
        at = put_number(out, at, 0x18, numbers[row, 0])
        at = put_number(out, at, 0x20, numbers[row, 1])
        at = put_word(out, at, 0x29, digests[row])
        at = put_number(out, at, 0x30, numbers[row, 2])
        at = put_number(out, at, 0x50, numbers[row, 4])
        if numbers[row, 3] >= 0:
            out[at] = 0x58
            at = put_varint(out, at + 1, numbers[row, 3])
        ends[row] = at


@kernel(types.void(_U8_IN, _I8_2_IN, types.uint8[::1], types.int64[::1]))
def write_removals(handles: Any, numbers: Any, out: Any, ends: Any) -> None:
    """Writes the `ChangeRequest` of each removal, one behind the other.

    Args:
        handles: u8[n].
        numbers: i8[n, 3]: start_ms, expected_revision, epoch.
        out: u1, overwritten: n * REMOVAL_BYTES_MAX bytes.
        ends: i8[n], overwritten: where each message ends.
    """
    at = np.int64(0)
    for row in range(ends.shape[0]):
        at = put_word(out, at, 0x09, handles[row])
        at = put_number(out, at, 0x18, numbers[row, 0])
        at = put_number(out, at, 0x20, numbers[row, 1])
        at = put_number(out, at, 0x30, numbers[row, 2])
        ends[row] = at
