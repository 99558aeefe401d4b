"""Multiplies and absorbs conjunctions, bit masks of which a disjunctive form consists.

Term number i has bit 2i where it is positive and bit 2i + 1 where it is negative. Word 0 of a
mask holds the lowest bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.jit.compiled import kernel

__all__ = ["TOO_MANY", "absorb_masks", "multiply_masks"]

# Returned instead of a number of masks.
TOO_MANY = -1

_U8_2 = types.Array(types.uint64, 2, "C")
_U8_2_IN = types.Array(types.uint64, 2, "C", readonly=True)
_I4 = types.Array(types.int32, 1, "C")
_I8 = types.Array(types.int64, 1, "C")

_POSITIVE = np.uint64(0x5555555555555555)


@kernel(inline=True)
def _mixed(value: Any) -> Any:
    """Returns the finaliser of SplitMix64."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@kernel(types.int64(_U8_2_IN, _U8_2_IN, types.uint64, _U8_2, _I4))
def multiply_masks(left: Any, right: Any, secret: Any, products: Any, table: Any) -> Any:
    """Finds the distinct unions of two sets of masks, without contradictions.

    Args:
        left, right: u8[l, w], u8[r, w], masks.
        secret: of the process, so that clients cannot foresee a product's place in the table.
        products: u8[p, w], overwritten.
        table: i4[a power of two, at least 2p], overwritten.

    Returns:
        Their number; TOO_MANY if that is more than p.
    """
    words = left.shape[1]
    size = table.shape[0]
    table[:] = -1
    mask = np.empty(words, np.uint64)
    count = 0
    for a in range(left.shape[0]):
        for b in range(right.shape[0]):
            clash = np.uint64(0)
            key = secret
            for w in range(words):
                word = left[a, w] | right[b, w]
                clash |= word & (word >> np.uint64(1)) & _POSITIVE
                mask[w] = word
                key = _mixed(key ^ word)
            if clash:
                continue
            slot = np.int64(key & np.uint64(size - 1))
            is_known = False
            for _ in range(size):
                row = table[slot]
                if row < 0:
                    break
                is_known = True
                for w in range(words):
                    if products[row, w] != mask[w]:
                        is_known = False
                        break
                if is_known:
                    break
                slot = (slot + 1) & (size - 1)
            if is_known:
                continue
            if count >= products.shape[0] or table[slot] >= 0:
                return TOO_MANY
            for w in range(words):
                products[count, w] = mask[w]
            table[slot] = count
            count += 1
    return count


@kernel(inline=True)
def _bits(word: Any) -> Any:
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + (
        (word >> np.uint64(2)) & np.uint64(0x3333333333333333)
    )
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@kernel(inline=True)
def _is_after(masks: Any, counts: Any, a: Any, b: Any) -> Any:
    """Returns whether row a comes after row b: by the number of bits, then as numbers."""
    if counts[a] != counts[b]:
        return counts[a] > counts[b]
    for i in range(masks.shape[1]):
        w = masks.shape[1] - 1 - i
        if masks[a, w] != masks[b, w]:
            return masks[a, w] > masks[b, w]
    return False


@kernel(inline=True)
def _ordered(masks: Any, counts: Any) -> Any:
    """Returns the rows in order (merge sort with runs of growing length)."""
    n = masks.shape[0]
    order = np.arange(n)
    other = np.empty(n, np.int64)
    width = 1
    while width < n:
        for begin in range(0, n, 2 * width):
            middle = min(begin + width, n)
            end = min(begin + 2 * width, n)
            i, j = begin, middle
            for at in range(begin, end):
                if i < middle and (j >= end or not _is_after(masks, counts, order[i], order[j])):
                    other[at] = order[i]
                    i += 1
                else:
                    other[at] = order[j]
                    j += 1
        order, other = other, order
        width *= 2
    return order


@kernel(types.int64(_U8_2_IN, types.int64, _I8, _I8))
def absorb_masks(masks: Any, steps_max: Any, kept: Any, spent: Any) -> Any:
    """Finds the masks of which no other is a subset.

    Args:
        masks: u8[n, w], distinct.
        steps_max: greatest number of comparisons; a mask costs one for each mask kept before it.
        kept: i8[n], overwritten: rows that are kept, by their number of bits, then as numbers.
        spent: i8[1], overwritten: comparisons that were made.

    Returns:
        The number of rows kept; TOO_MANY if more comparisons are needed.
    """
    n, words = masks.shape
    counts = np.zeros(n, np.int64)
    for row in range(n):
        for w in range(words):
            counts[row] += _bits(masks[row, w])
    order = _ordered(masks, counts)
    count = 0
    spent[0] = 0
    for at in range(n):
        row = order[at]
        spent[0] += count
        if spent[0] > steps_max:
            return TOO_MANY
        is_absorbed = False
        for k in range(count):
            other = kept[k]
            is_absorbed = True
            for w in range(words):
                if masks[other, w] & ~masks[row, w]:
                    is_absorbed = False
                    break
            if is_absorbed:
                break
        if not is_absorbed:
            kept[count] = row
            count += 1
    return count
