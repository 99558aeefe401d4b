"""Finds the tokens of cleaned rows (`cleaning`), as places in the text.

64 bytes are turned into a bit mask; the ends of its runs of ones are those of tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sirocco.kernels.base.memory import trailing_zeros
from sirocco.kernels.base.words import load_u64, store_u64
from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.text.characters import UNIT_FIRST

__all__ = ["find_mixed_spans", "find_spans"]

_HIGH_BITS = np.uint64(0x8080808080808080)
_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
# Gathers the high bits of eight bytes in the top byte of the product.
_GATHER = np.uint64(0x0002040810204081)
_U0, _U1, _U7, _U8, _U32, _U56 = (np.uint64(n) for n in (0, 1, 7, 8, 32, 56))


@kernel(inline=True)
def _run_mask(data: Any, position: Any, words: Any) -> Any:
    """Returns a bit for each of 8 * words bytes (at most 64): whether the byte is not zero."""
    mask = _U0
    for k in range(words):
        word = load_u64(data, position + 8 * k)
        set_bytes = (((word & _LOW_BITS) + _LOW_BITS) | word) & _HIGH_BITS
        gathered = ((set_bytes >> _U7) * (_GATHER << _U7)) >> _U56
        mask |= gathered << (_U8 * np.uint64(k))
    return mask


@kernel(inline=True)
def find_spans(cleaned: Any, position: Any, end: Any, spans: Any, count: Any) -> Any:
    """Writes start << 32 | length of each term of a row; returns the new count."""
    is_open = False
    term_start = position
    while position < end:
        left = end - position
        mask = _run_mask(cleaned, position, min((left + 7) >> 3, 8))
        if left < 64:
            mask &= (_U1 << np.uint64(left)) - _U1
        before = (mask << _U1) | np.uint64(is_open)
        run_starts = mask & ~before
        run_ends = before & ~mask
        while run_ends:
            if not is_open:
                term_start = position + trailing_zeros(run_starts)
                run_starts &= run_starts - _U1
            is_open = False
            term_end = position + trailing_zeros(run_ends)
            run_ends &= run_ends - _U1
            spans[count] = np.uint64(term_start) << _U32 | np.uint64(term_end - term_start)
            count += 1
        if run_starts:
            term_start = position + trailing_zeros(run_starts)
            is_open = True
        position += 64
    return count


@kernel(inline=True)
def _copy(data: Any, start: Any, length: Any, target: Any) -> Any:
    """Copies bytes to a later place, with up to eight bytes beyond; returns their end."""
    for i in range(0, length, 8):
        store_u64(data, target + i, load_u64(data, start + i))
    return target + length


@kernel()
def find_mixed_spans(
    cleaned: Any, position: Any, end: Any, wants_units: Any, spans: Any, count: Any, tail: Any
) -> Any:
    """Does the same for a row with units.

    Args:
        cleaned: u1, the row is cleaned[position:end].
        position, end, spans, count: as above.
        wants_units: whether to find each unit; otherwise pairs of neighbours, which are written
            together from `tail` on, and units without neighbours.
        tail: i8, first free byte of `cleaned`.

    Returns:
        (new count, new tail).
    """
    while position < end:
        if cleaned[position] == 0:
            position += 1
            continue
        begin = position
        if cleaned[begin] != UNIT_FIRST:
            while cleaned[position] != 0:
                position += 1
            spans[count] = np.uint64(begin) << _U32 | np.uint64(position - begin)
            count += 1
            continue
        before = before_end = 0
        units = 0
        while cleaned[position] != 0:
            begin = position + 1
            # The first character tells its length; marks may follow.
            lead = cleaned[begin]
            position = begin + 1 + (lead >= 0xC0) + (lead >= 0xE0) + (lead >= 0xF0)
            while cleaned[position] != 0 and cleaned[position] < UNIT_FIRST:
                position += 1
            if wants_units or (units == 0 and cleaned[position] == 0):
                spans[count] = np.uint64(begin) << _U32 | np.uint64(position - begin)
                count += 1
            elif units > 0:
                length = before_end - before + position - begin
                spans[count] = np.uint64(tail) << _U32 | np.uint64(length)
                count += 1
                tail = _copy(cleaned, before, before_end - before, tail)
                tail = _copy(cleaned, begin, position - begin, tail)
            before, before_end = begin, position
            units += 1
    return count, tail
