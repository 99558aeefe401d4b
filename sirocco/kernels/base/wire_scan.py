"""Counts the elements of a protobuf message without building it, and finds excess elements."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.wire_fields import varint
from sirocco.kernels.jit.compiled import kernel

__all__ = [
    "DEPTH_MAX",
    "FIELDS_MAX",
    "MALFORMED",
    "OTHER",
    "OVER_BOUND",
    "OVER_TOTAL",
    "PACKED_FIXED_4",
    "PACKED_FIXED_8",
    "PACKED_VARINT",
    "SOUND",
    "STRINGS",
    "SUBMESSAGE",
    "scan_message",
]

# Results of a scan.
SOUND = 0
MALFORMED = 1
OVER_BOUND = 2
OVER_TOTAL = 3

# Kinds of fields: the content of a length-delimited piece with this number.
OTHER = 0
SUBMESSAGE = 1
STRINGS = 2
PACKED_VARINT = 3
PACKED_FIXED_4 = 4
PACKED_FIXED_8 = 5

# Greatest number of a field, and deepest nesting; tables are built for these and checked.
FIELDS_MAX = 64
DEPTH_MAX = 16

_U1_IN = types.Array(types.uint8, 1, "C", readonly=True)
_I1_2_IN = types.Array(types.int8, 2, "C", readonly=True)
_I4_2_IN = types.Array(types.int32, 2, "C", readonly=True)
_I8_2_IN = types.Array(types.int64, 2, "C", readonly=True)
_I8 = types.Array(types.int64, 1, "C")


@kernel(inline=True)
def _elements(data: Any, begin: Any, end: Any, kind: Any) -> Any:
    """Returns how many elements a length-delimited piece holds."""
    if kind == PACKED_FIXED_4:
        return (end - begin) // 4
    if kind == PACKED_FIXED_8:
        return (end - begin) // 8
    if kind != PACKED_VARINT:
        return np.int64(1)
    found = np.int64(0)
    for i in range(begin, end):
        found += np.int64(data[i] < 0x80)
    return found


@kernel(types.int64(_U1_IN, types.int64, _I1_2_IN, _I4_2_IN, _I8_2_IN, types.int64, _I8))
def scan_message(
    data: Any, root: Any, kinds: Any, children: Any, bounds: Any, total_max: Any, trace: Any
) -> Any:
    """Reads a message by the tables of its types.

    Each occurrence of a submessage and each element of a repeated field counts: for these a parser
    allocates memory. Text and bytes take no more memory than on the wire.

    Args:
        data: u1[n], the message.
        root: its type, a row of the tables.
        kinds: i1[types, FIELDS_MAX], kind of each field by its number.
        children: i4[types, FIELDS_MAX], type of a submessage.
        bounds: i8[types, FIELDS_MAX], occurrences of a field within one message; 0 for no bound.
        total_max: bound of the total count.
        trace: i8[3 + 2 * DEPTH_MAX], overwritten: the total count, the position and the depth
            where the scan ended, then a field number and its occurrence (from 0) for each depth.

    Returns:
        SOUND, MALFORMED, OVER_BOUND or OVER_TOTAL.
    """
    ends = np.zeros(DEPTH_MAX, np.int64)
    rows = np.zeros(DEPTH_MAX, np.int64)
    counts = np.zeros((DEPTH_MAX, FIELDS_MAX), np.int64)
    trace[:] = 0
    depth = 0
    ends[0] = data.shape[0]
    rows[0] = root
    position = np.int64(0)
    total = np.int64(0)
    while True:
        while depth > 0 and position >= ends[depth]:
            depth -= 1
        trace[0], trace[1], trace[2] = total, position, depth
        end = ends[depth]
        if position >= end:
            return SOUND
        tag, position = varint(data, position, end)
        number = np.int64(tag >> np.uint64(3))
        if position < 0 or number <= 0 or tag > np.uint64(0xFFFFFFFF):
            return MALFORMED
        wire = np.int64(tag & np.uint64(7))
        row = rows[depth]
        kind = np.int64(OTHER)
        if number < FIELDS_MAX:
            kind = np.int64(kinds[row, number])
        after = position
        if wire == 0:
            _, after = varint(data, position, end)
        elif wire == 1:
            after = position + 8
        elif wire == 5:
            after = position + 4
        elif wire == 2:
            length, position = varint(data, position, end)
            if position < 0 or length > np.uint64(end - position):
                return MALFORMED
            after = position + np.int64(length)
        else:
            # Groups, which our messages do not use, and undefined wire types.
            return MALFORMED
        if after < 0 or after > end:
            return MALFORMED
        if kind == OTHER or (wire != 2 and kind <= STRINGS):
            # An unknown field, or one with another wire type, is kept as it is.
            position = after
            continue
        found = np.int64(1)
        if wire == 2:
            found = _elements(data, position, after, kind)
        total += found
        trace[0] = total
        trace[3 + 2 * depth] = number
        trace[4 + 2 * depth] = counts[depth, number]
        counts[depth, number] += found
        if bounds[row, number] > 0 and counts[depth, number] > bounds[row, number]:
            return OVER_BOUND
        if total > total_max:
            return OVER_TOTAL
        if kind == SUBMESSAGE:
            if depth + 1 >= DEPTH_MAX:
                return MALFORMED
            depth += 1
            ends[depth] = after
            rows[depth] = children[row, number]
            counts[depth, :] = 0
        else:
            position = after
