"""Checks columns received from the wire, each in one pass over its column.

They check what other kernels assume: those have no bounds checks, and would read or write foreign
memory for values outside these bounds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.jit.compiled import kernel

__all__ = ["are_boxes", "are_counts_of", "are_rows_ascending", "is_outside", "widen_offsets"]

_F8_IN = types.Array(types.float64, 1, "C", readonly=True)
_F8_2_IN = types.Array(types.float64, 2, "C", readonly=True)
_I8 = types.Array(types.int64, 1, "C")
_I8_IN = types.Array(types.int64, 1, "C", readonly=True)
_U8_IN = types.Array(types.uint64, 1, "C", readonly=True)
_U4_IN = types.Array(types.uint32, 1, "C", readonly=True)
_I4_IN = types.Array(types.int32, 1, "C", readonly=True)
_U2_IN = types.Array(types.uint16, 1, "C", readonly=True)


@kernel(types.int64(_U4_IN, types.int64, _I8))
def widen_offsets(offsets: Any, least: Any, out: Any) -> Any:
    """Turns offsets of u4 into offsets of i8.

    Args:
        offsets: u4[n + 1].
        least: the least length of each piece.
        out: i8[n + 1], overwritten.

    Returns:
        The first place where a piece is shorter, or where the first one does not begin at 0; −1
        if all is well.
    """
    before = np.int64(-least)
    for i in range(offsets.shape[0]):
        offset = np.int64(offsets[i])
        if offset < before + least or (i == 0 and offset != 0):
            return i
        out[i] = offset
        before = offset
    return -1


@kernel(
    types.boolean(_F8_IN, types.float64, types.float64),
    types.boolean(_I8_IN, types.int64, types.int64),
    types.boolean(_U4_IN, types.int64, types.int64),
)
def is_outside(column: Any, least: Any, greatest: Any) -> Any:
    """Returns whether any value lies outside [least, greatest] or is NaN."""
    inside = True
    # No early exit: a loop without branches becomes vector instructions.
    for i in range(column.shape[0]):
        inside &= (column[i] >= least) & (column[i] <= greatest)
    return not inside


@kernel(types.boolean(_U8_IN, _I8_IN))
def are_rows_ascending(values: Any, offsets: Any) -> Any:
    """Returns whether each row's values ascend without repeats.

    Args:
        values: u8[v].
        offsets: i8[n + 1], from 0 to v, not falling.
    """
    for row in range(offsets.shape[0] - 1):
        for i in range(offsets[row] + 1, offsets[row + 1]):
            if values[i] <= values[i - 1]:
                return False
    return True


@kernel(types.boolean(_U2_IN, _I8_IN, _I4_IN))
def are_counts_of(counts: Any, offsets: Any, sums: Any) -> Any:
    """Returns whether no count is 0 and each row's counts add up to its sum.

    Args:
        counts: u2[v].
        offsets: i8[n + 1], from 0 to v, not falling.
        sums: i4[n].
    """
    sound = True
    for row in range(sums.shape[0]):
        total = np.int64(0)
        for i in range(offsets[row], offsets[row + 1]):
            sound &= counts[i] > 0
            total += np.int64(counts[i])
        sound &= total == sums[row]
    return sound


@kernel(types.boolean(_F8_2_IN))
def are_boxes(boxes: Any) -> Any:
    """Returns whether all rows (west, south, east, north; f8[b, 4]) are boxes of the world."""
    good = True
    for i in range(boxes.shape[0]):
        good &= (boxes[i, 0] >= -180.0) & (boxes[i, 0] <= boxes[i, 2]) & (boxes[i, 2] <= 180.0)
        good &= (boxes[i, 1] >= -90.0) & (boxes[i, 1] <= boxes[i, 3]) & (boxes[i, 3] <= 90.0)
    return good
