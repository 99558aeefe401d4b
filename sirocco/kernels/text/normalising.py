"""Normalises those characters of a text that may compose or change places.

All from one that begins anew to the next are taken together (Unicode Standard Annex 15).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.text.characters import (
    CODE_MASK,
    COMBINING_SHIFT,
    COMPOSITIONS,
    EXPANDS,
    HARD,
    SLOW,
    composition_place,
)
from sirocco.kernels.text.utf8_characters import decode, entry_of, load_within

__all__ = ["SCRATCH_MORE", "begins_anew", "composed", "normalise_segment"]

# Room for the longest mapping of one character, 18 others.
SCRATCH_MORE = 64

_IOTA_BELOW, _IOTA = np.uint64(0x345), np.uint64(0x3B9)
# Hangul syllables are composed by rule (Unicode Standard, section 3.12).
_S_BASE, _L_BASE, _V_BASE, _T_BASE = (np.uint64(c) for c in (0xAC00, 0x1100, 0x1161, 0x11A7))
_S_COUNT, _L_COUNT, _V_COUNT, _T_COUNT = (np.uint64(n) for n in (11_172, 19, 21, 28))
_NT_COUNT = _V_COUNT * _T_COUNT
# Longer runs of marks are put in order by counting.
_MARKS_EXCHANGED_MAX = 32

_U0, _U1, _U8, _U21, _U24, _UFF = (np.uint64(n) for n in (0, 1, 8, 21, 24, 0xFF))
_FOLD_MASK, _CODE_MASK = np.uint64(CODE_MASK), np.uint64(0x1F_FFFF)
_COMBINING_SHIFT = np.uint64(COMBINING_SHIFT)
_HARD, _EXPANDS, _SLOW = np.uint64(HARD), np.uint64(EXPANDS), np.uint64(SLOW)
_POOL_MASK = np.uint64(0xFF_FFFF)


@kernel()
def composed(first: Any, second: Any, compositions: Any) -> Any:
    """Returns the character that two neighbours compose to, 0 where the table has none."""
    pair = first << _U21 | second
    place = composition_place(pair)
    while compositions[place] != _U0:
        if compositions[place] >> _U21 == pair:
            return compositions[place] & _CODE_MASK
        place = (place + 1) & (COMPOSITIONS - 1)
    return _U0


@kernel()
def _composed_by_rule(first: Any, second: Any) -> Any:
    """Returns the Hangul syllable that two neighbours compose to, 0 for others."""
    if first - _L_BASE < _L_COUNT and second - _V_BASE < _V_COUNT:
        return _S_BASE + ((first - _L_BASE) * _V_COUNT + second - _V_BASE) * _T_COUNT
    is_open = first - _S_BASE < _S_COUNT and (first - _S_BASE) % _T_COUNT == _U0
    if is_open and second - _T_BASE > _U0 and second - _T_BASE < _T_COUNT:
        return first + second - _T_BASE
    return _U0


@kernel()
def _decompose(
    code: Any, row_index: Any, row_blocks: Any, starts: Any, pool: Any, entry: Any,
    parts: Any, count: Any,
) -> Any:  # fmt: skip
    """Appends a character's decomposition, code points | class << 24; returns the new count."""
    if code - _S_BASE < _S_COUNT:
        place = code - _S_BASE
        parts[count] = _L_BASE + place // _NT_COUNT
        parts[count + 1] = _V_BASE + place % _NT_COUNT // _T_COUNT
        count += 2
        if place % _T_COUNT != _U0:
            parts[count] = _T_BASE + place % _T_COUNT
            count += 1
        return count
    row = np.int64(row_blocks[np.uint64(row_index[code >> _U8]), code & _UFF])
    if row == 0:
        parts[count] = code | entry >> _COMBINING_SHIFT << _U24
        return count + 1
    for k in range(starts[row], starts[row + 1]):
        parts[count] = pool[k]
        count += 1
    return count


@kernel()
def begins_anew(
    code: Any, entry: Any, index: Any, blocks: Any, row_index: Any, row_blocks: Any, starts: Any,
    pool: Any,
) -> Any:  # fmt: skip
    """Returns whether a character changes nothing before it, whatever that is."""
    if entry & _SLOW == _U0:
        if entry & _EXPANDS != _U0 and entry & _FOLD_MASK == _U1:
            return False
        return entry >> _COMBINING_SHIFT == _U0 and entry & _HARD == _U0
    row = np.int64(row_blocks[np.uint64(row_index[code >> _U8]), code & _UFF])
    if row == 0:
        return False
    first = np.uint64(pool[starts[row]])
    if first >> _U24 != _U0:
        return False
    return entry_of(first & _POOL_MASK, index, blocks) & _HARD == _U0


@kernel()
def _order_marks(parts: Any, count: Any, spare: Any) -> None:
    """Puts the marks of each run in the order of their classes; equal ones stay in order."""
    begin = 0
    while begin < count:
        if parts[begin] >> _U24 == _U0:
            begin += 1
            continue
        end = begin + 1
        while end < count and parts[end] >> _U24 != _U0:
            end += 1
        if end - begin <= _MARKS_EXCHANGED_MAX:
            for i in range(begin + 1, end):
                part = parts[i]
                k = i
                while k > begin and parts[k - 1] >> _U24 > part >> _U24:
                    parts[k] = parts[k - 1]
                    k -= 1
                parts[k] = part
        else:
            places = np.zeros(257, np.int64)
            for i in range(begin, end):
                places[np.int64(parts[i] >> _U24) + 1] += 1
            for c in range(256):
                places[c + 1] += places[c]
            for i in range(begin, end):
                class_ = np.int64(parts[i] >> _U24)
                spare[places[class_]] = parts[i]
                places[class_] += 1
            for i in range(begin, end):
                parts[i] = spare[i - begin]
        begin = end


@kernel()
def _compose(parts: Any, count: Any, compositions: Any) -> Any:
    """Composes ordered parts in place, to code points alone; returns their number."""
    kept = 0
    starter = -1
    # The class of the last part kept after the starter, -1 for none.
    last = np.int64(-1)
    for i in range(count):
        code, class_ = parts[i] & _POOL_MASK, np.int64(parts[i] >> _U24)
        if starter >= 0 and last < class_:
            joined = _composed_by_rule(parts[starter], code)
            if joined == _U0:
                joined = composed(parts[starter], code, compositions)
            if joined != _U0:
                parts[starter] = joined
                continue
        if class_ == 0:
            starter, last = kept, np.int64(-1)
        else:
            last = class_
        parts[kept] = code
        kept += 1
    return kept


@kernel()
def normalise_segment(
    data: Any, position: Any, end: Any, index: Any, blocks: Any, row_index: Any, row_blocks: Any,
    starts: Any, pool: Any, compositions: Any, parts: Any,
) -> Any:  # fmt: skip
    """Normalises the characters from a position to the next that begins anew.

    Returns:
        (position of that one or the end, number of code points in `parts`).
    """
    half = parts.shape[0] // 2
    count = 0
    is_first = True
    while position < end:
        code, length = decode(load_within(data, position))
        entry = entry_of(code, index, blocks)
        if not is_first and begins_anew(
            code, entry, index, blocks, row_index, row_blocks, starts, pool
        ):
            break
        if count + SCRATCH_MORE // 2 > half:
            # Only bytes that are no text get here.
            position = end
            break
        is_first = False
        count = _decompose(code, row_index, row_blocks, starts, pool, entry, parts, count)
        position += length
    _order_marks(parts, count, parts[half:])
    has_iota = False
    for k in range(count):
        has_iota |= parts[k] & _POOL_MASK == _IOTA_BELOW
    count = _compose(parts, count, compositions)
    if not has_iota:
        return position, count
    # An iota below a letter folds to a letter after it, which takes the marks that are left.
    for k in range(count):
        parts[half + k] = parts[k]
    before, count = count, 0
    for k in range(before):
        code = parts[half + k]
        entry = entry_of(code, index, blocks)
        first = count
        count = _decompose(code, row_index, row_blocks, starts, pool, entry, parts, count)
        for i in range(first, count):
            if parts[i] & _POOL_MASK == _IOTA_BELOW:
                parts[i] = _IOTA
    _order_marks(parts, count, parts[half:])
    return position, _compose(parts, count, compositions)
