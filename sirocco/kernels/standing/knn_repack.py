"""Compacts posting lists when much of their memory is left over from longer ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.blocks import END, FREE_UNITS, block_class
from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.standing.pyramid import NO_BLOCK, POSTING_WORDS

__all__ = ["repack"]

_COUNT_MASK = 0x3FFFFFF

_U8 = types.Array(types.uint64, 1, "C")
_I8 = types.Array(types.int64, 1, "C")
_I4 = types.Array(types.int32, 1, "C")
_I4_IN = types.Array(types.int32, 1, "C", readonly=True)


@kernel(types.void(_U8, _I8, _I4_IN, _I4))
def repack(slots: Any, blocks: Any, source: Any, target: Any) -> None:
    """Copies all lists of a table into another array, one after the other.

    Args:
        slots: u8[2 · s], pairs (key, list), changed.
        blocks: i8[34], state of the blocks in `source`; becomes that of `target`.
        source: i4[…], postings.
        target: i4[…], with room for the blocks of all lists.
    """
    for size_class in range(END):
        blocks[size_class] = -1
    blocks[FREE_UNITS] = 0
    end = np.int64(0)
    for at in range(1, slots.shape[0], 2):
        value = slots[at]
        if value != np.uint64(0) and (value >> np.uint64(26)) & np.uint64(63) != NO_BLOCK:
            count = np.int64(value & np.uint64(_COUNT_MASK))
            size_class = block_class(count)
            first = np.int64(value >> np.uint64(32)) * POSTING_WORDS
            for i in range(count * POSTING_WORDS):
                target[end * POSTING_WORDS + i] = source[first + i]
            slots[at] = np.uint64((end << 32) | (size_class << 26) | count)
            end += 1 << size_class
    blocks[END] = end
