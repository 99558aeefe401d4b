"""Blocks of 1, 2, 4, … units inside one growing array, with a free list for each size.

`state` i8[34]: [0, 32) first free block of each size class (−1: none), 32 units ever handed
out, 33 units in free lists. A free block keeps the next free block of its class in its first
word. The caller makes the array long enough; `take_block` returns −1 where it is not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sirocco.kernels.jit.compiled import kernel

__all__ = ["END", "FREE_UNITS", "block_class", "free_block", "new_block_state", "take_block"]

END = 32
FREE_UNITS = 33


def new_block_state() -> npt.NDArray[np.int64]:
    """Returns the state of an array without any block in use."""
    state = np.full(34, -1, np.int64)
    state[END] = 0
    state[FREE_UNITS] = 0
    return state


@kernel
def block_class(units: Any) -> Any:
    """Returns the least c with 2^c ≥ units ≥ 1."""
    size_class = 0
    while (1 << size_class) < units:
        size_class += 1
    return size_class


@kernel
def take_block(state: Any, words: Any, unit_words: Any, size_class: Any) -> Any:
    """Returns the first unit of a block of 2^size_class units, or −1 if the array is full.

    Args:
        state: i8[34], changed.
        words: i4[w], the array.
        unit_words: words of one unit.
        size_class: c of a block of 2^c units.
    """
    if size_class >= END:
        return np.int64(-1)
    head = state[size_class]
    if head >= 0:
        state[size_class] = words[head * unit_words]
        state[FREE_UNITS] -= 1 << size_class
        return head
    begin = state[END]
    end = begin + (1 << size_class)
    if end * unit_words > words.shape[0]:
        return np.int64(-1)
    state[END] = end
    return begin


@kernel
def free_block(state: Any, words: Any, unit_words: Any, size_class: Any, block: Any) -> None:
    """Puts a block back; arguments as in `take_block`."""
    words[block * unit_words] = state[size_class]
    state[size_class] = block
    state[FREE_UNITS] += 1 << size_class
