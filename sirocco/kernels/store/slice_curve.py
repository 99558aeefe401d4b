"""Orders points along a Hilbert curve over the whole world.

The curve visits 2^24 × 2^24 cells of the longitudes and latitudes (2.4 m × 1.2 m at the equator).
It is the same for all slices, so that sorted slices merge as sorted lists do. Unlike a Z-order
curve, a Hilbert curve never jumps: the box of a stretch is little larger than its content (Kamel,
Faloutsos, Hilbert R-tree, VLDB 1994, section 3).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from sirocco.kernels.jit.compiled import kernel

__all__ = ["CURVE_LEVELS", "curve_keys", "curve_order"]

CURVE_LEVELS = 24
_DIGIT_BITS = 12
_DIGITS = 2 * CURVE_LEVELS // _DIGIT_BITS

_F8_IN = types.Array(types.float64, 1, "C", readonly=True)
_U8 = types.Array(types.uint64, 1, "C")
_U8_IN = types.Array(types.uint64, 1, "C", readonly=True)
_U4 = types.Array(types.uint32, 1, "C")


def _step(state: int, x: int, y: int) -> tuple[int, int]:
    """Goes down one level; returns (state, digit).

    A state is the orientation of the curve in a cell: bit 1, axes swapped; bit 0, both coordinates
    mirrored.
    """
    a, b = x ^ (state & 1), y ^ (state & 1)
    if state >> 1:
        a, b = b, a
    return state if b else state ^ (2 | a), (3 * a) ^ b


def _turns() -> NDArray[np.uint8]:
    """Returns the table of the curve's automaton, three levels at a time.

    Returns:
        u1[256]: for (state, three bits of x, three bits of y) six bits of the key, and the next
        state above them.
    """
    table = np.empty(256, np.uint8)
    for i in range(256):
        state, key = i >> 6, 0
        for down in (2, 1, 0):
            state, digit = _step(state, i >> (3 + down) & 1, i >> down & 1)
            key = key << 2 | digit
        table[i] = state << 6 | key
    return table


_TURNS = _turns()


@kernel(inline=True)
def _cell(value: Any, least: Any, extent: Any) -> Any:
    """Returns the column (or row) of a coordinate, clamped."""
    scaled = (value - least) / extent * np.float64(1 << CURVE_LEVELS)
    return np.uint64(max(0.0, min(scaled, np.float64((1 << CURVE_LEVELS) - 1))))


@kernel(types.void(_F8_IN, _F8_IN, _U8))
def curve_keys(lon: Any, lat: Any, keys: Any) -> None:
    """Writes the position of each point along the curve.

    Args:
        lon, lat: f8[n], degrees.
        keys: u8[n], overwritten, 48 bits.
    """
    for i in range(lon.shape[0]):
        x = _cell(lon[i], -180.0, 360.0)
        y = _cell(lat[i], -90.0, 180.0)
        state = np.uint64(0)
        key = np.uint64(0)
        for down in range(CURVE_LEVELS - 3, -1, -3):
            place = (
                (state & np.uint64(0xC0))
                | (((x >> np.uint64(down)) & np.uint64(7)) << np.uint64(3))
                | ((y >> np.uint64(down)) & np.uint64(7))
            )
            state = np.uint64(_TURNS[place])
            key = (key << np.uint64(6)) | (state & np.uint64(63))
        keys[i] = key


@kernel(types.void(_U8_IN, _U4))
def curve_order(keys: Any, order: Any) -> None:
    """Sorts rows by their keys, stably (radix sort, least digit first).

    Args:
        keys: u8[n], below 2^48.
        order: u4[n], overwritten: numbers of the rows in ascending order of their keys.
    """
    n = keys.shape[0]
    counts = np.zeros((_DIGITS, 1 << _DIGIT_BITS), np.int64)
    is_sorted = True
    mask = np.uint64((1 << _DIGIT_BITS) - 1)
    for i in range(n):
        order[i] = i
        key = keys[i]
        is_sorted &= i == 0 or keys[i - 1] <= key
        for digit in range(_DIGITS):
            counts[digit, (key >> np.uint64(_DIGIT_BITS * digit)) & mask] += 1
    if is_sorted:
        return
    keys_from = keys.copy()
    keys_to = np.empty(n, np.uint64)
    order_from = order.copy()
    order_to = np.empty(n, np.uint32)
    for digit in range(_DIGITS):
        down = np.uint64(_DIGIT_BITS * digit)
        if counts[digit, (keys_from[0] >> down) & mask] == n:
            continue
        end = 0
        for value in range(1 << _DIGIT_BITS):
            count = counts[digit, value]
            counts[digit, value] = end
            end += count
        for i in range(n):
            value = (keys_from[i] >> down) & mask
            at = counts[digit, value]
            counts[digit, value] = at + 1
            keys_to[at] = keys_from[i]
            order_to[at] = order_from[i]
        keys_from, keys_to = keys_to, keys_from
        order_from, order_to = order_to, order_from
    for i in range(n):
        order[i] = order_from[i]
