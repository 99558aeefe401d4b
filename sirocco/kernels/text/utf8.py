"""Checks of UTF-8 over byte columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.words import load_u64
from sirocco.kernels.jit.compiled import kernel

__all__ = ["mark_invalid_utf8"]

_HIGH_BITS = np.uint64(0x8080808080808080)
_READ_ONLY_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_READ_ONLY_I8 = types.Array(types.int64, 1, "C", readonly=True)


@kernel
def _sequence_length(data: Any, position: Any, end: Any) -> Any:
    """Returns the bytes of the well-formed sequence at a position, 0 if there is none.

    Unicode 15, table 3-7: the second byte has a narrower range after E0, ED, F0 and F4.
    """
    lead = data[position]
    if lead < 0x80:
        return 1
    if lead < 0xC2 or lead > 0xF4:
        return 0
    length = 2 if lead < 0xE0 else (3 if lead < 0xF0 else 4)
    if position + length > end:
        return 0
    least, greatest = 0x80, 0xBF
    if lead == 0xE0:
        least = 0xA0
    elif lead == 0xED:
        greatest = 0x9F
    elif lead == 0xF0:
        least = 0x90
    elif lead == 0xF4:
        greatest = 0x8F
    if data[position + 1] < least or data[position + 1] > greatest:
        return 0
    for k in range(2, length):
        if data[position + k] & 0xC0 != 0x80:
            return 0
    return length


@kernel(types.int64(_READ_ONLY_BYTES, _READ_ONLY_I8, types.boolean[::1]))
def mark_invalid_utf8(data: Any, offsets: Any, invalid: Any) -> Any:
    """Marks the rows of a byte column that are not well-formed UTF-8.

    Args:
        data: u1[b].
        offsets: i8[n + 1], ascending, within data.
        invalid: bool[n], overwritten.

    Returns:
        i8, the number of marked rows.
    """
    count = 0
    for row in range(invalid.shape[0]):
        position, end = offsets[row], offsets[row + 1]
        is_invalid = False
        while position < end:
            if position + 8 <= end and load_u64(data, position) & _HIGH_BITS == 0:
                position += 8
                continue
            length = _sequence_length(data, position, end)
            if length == 0:
                is_invalid = True
                break
            position += length
        invalid[row] = is_invalid
        count += is_invalid
    return count
