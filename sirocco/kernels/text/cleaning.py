"""Writes batches of UTF-8 texts normalised and casefolded, tokens apart from one another.

Between tokens, and after each row, is a zero byte for every character that belongs to none. Eight
ASCII bytes at a time are folded and classified by arithmetic within one word, other characters by
table (`characters`). Where characters may compose or change places, all from one that begins anew
to the next are normalised together (`normalising`).

In a script without spaces, each character with its marks is a unit: UNIT_FIRST stands before the
first of a run and UNIT_NEXT before each other one, two bytes that UTF-8 does not use. The units are
tokens, pairs of neighbours are terms.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.words import store_u64
from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.text.characters import (
    CLASS_SHIFT,
    CODE_MASK,
    COMBINING_SHIFT,
    EXPANDS,
    FLAG,
    HARD,
    LENGTHENS,
    MARK,
    OTHER,
    SEPARATES,
    SLOW,
    UNIT_FIRST,
    UNIT_NEXT,
    UNSPACED,
    UNSPACED_MARK,
)
from sirocco.kernels.text.normalising import begins_anew, composed, normalise_segment
from sirocco.kernels.text.utf8_characters import class_of, decode, entry_of, load_within, write

__all__ = ["CLEANED_BYTES", "CLEANED_ROW", "clean_rows"]

# Cleaned bytes for each byte and row of texts, unless segments need more.
CLEANED_BYTES, CLEANED_ROW = 3, 16

# The last character written: none of a token, of a word, of a unit, or half of a flag, which is
# written with its other half.
_NOTHING, _IN_WORD, _IN_UNIT, _HALF_FLAG = range(4)

_ONES = np.uint64(0x0101010101010101)
_HIGH_BITS = np.uint64(0x8080808080808080)
_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
# Adding 128 - c to a byte below 128 sets its high bit where the byte is at least c.
_FROM_UPPER_A = np.uint64(0x80 - 0x41) * _ONES
_PAST_UPPER_Z = np.uint64(0x80 - 0x5B) * _ONES
_FROM_LOWER_A = np.uint64(0x80 - 0x61) * _ONES
_PAST_LOWER_Z = np.uint64(0x80 - 0x7B) * _ONES
_FROM_0 = np.uint64(0x80 - 0x30) * _ONES
_PAST_9 = np.uint64(0x80 - 0x3A) * _ONES
_UNDERSCORES = np.uint64(0x5F) * _ONES

_U0, _U1, _U2, _U7, _U8 = (np.uint64(n) for n in (0, 1, 2, 7, 8))
_U48, _U56, _U80, _UFF = (np.uint64(n) for n in (48, 56, 0x80, 0xFF))

_FOLD_MASK, _CODE_MASK = np.uint64(CODE_MASK), np.uint64(0x1F_FFFF)
_CLASS_SHIFT, _COMBINING_SHIFT = np.uint64(CLASS_SHIFT), np.uint64(COMBINING_SHIFT)
_HARD, _EXPANDS, _SLOW = np.uint64(HARD), np.uint64(EXPANDS), np.uint64(SLOW)
# Of a character that was composed in passing.
_COMPOSED = np.uint64(1 << 32)
# What most characters lack is above the bits that they use.
_LEAST_UNEASY = _EXPANDS

_READ_ONLY_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_READ_ONLY_I8 = types.Array(types.int64, 1, "C", readonly=True)
_READ_ONLY_U2 = types.Array(types.uint16, 1, "C", readonly=True)
_READ_ONLY_I4 = types.Array(types.int32, 1, "C", readonly=True)
_READ_ONLY_U4 = types.Array(types.uint32, 1, "C", readonly=True)
_READ_ONLY_U8 = types.Array(types.uint64, 1, "C", readonly=True)
_READ_ONLY_ROWS = types.Array(types.uint16, 2, "C", readonly=True)
_READ_ONLY_TABLE = types.Array(types.uint32, 2, "C", readonly=True)


@kernel(inline=True)
def _clean_word(word: Any) -> Any:
    """Returns eight ASCII bytes casefolded, those outside of terms as zero."""
    upper = (word + _FROM_UPPER_A) & ~(word + _PAST_UPPER_Z) & _HIGH_BITS
    folded = word | (upper >> _U2)
    letter = (folded + _FROM_LOWER_A) & ~(folded + _PAST_LOWER_Z)
    digit = (word + _FROM_0) & ~(word + _PAST_9)
    underscore = ~((word ^ _UNDERSCORES) + _LOW_BITS)
    in_term = (letter | digit | underscore) & _HIGH_BITS
    # From one bit a byte to all of its low seven bits: ASCII uses no others.
    return folded & (in_term - (in_term >> _U7))


@kernel()
def _put(code: Any, class_: Any, state: Any, half: Any, out: Any, written: Any) -> Any:
    """Writes a character of a normalised text, with the borders of tokens before it.

    Args:
        code: the character.
        class_: its class.
        state: what the last character was, _NOTHING to _HALF_FLAG.
        half: the first half of a flag, where that was the last character.
        out: u1.
        written: i8, first free byte; where nothing was written last, the byte before is zero.

    Returns:
        (state, first free byte); the state after a half of a flag is _HALF_FLAG, with the code as
        `half`.
    """
    if class_ == SEPARATES:
        out[written] = 0
        return _NOTHING, written + 1
    if class_ in (MARK, LENGTHENS, UNSPACED_MARK):
        if state == _IN_UNIT and class_ == LENGTHENS:
            out[written] = UNIT_NEXT
            return _IN_UNIT, write(code, out, written + 1)
        if state in (_IN_WORD, _IN_UNIT):
            return state, write(code, out, written)
        class_ = UNSPACED if class_ == UNSPACED_MARK else OTHER
    if class_ == UNSPACED:
        if state == _IN_UNIT:
            out[written] = UNIT_NEXT
            return _IN_UNIT, write(code, out, written + 1)
        if state == _IN_WORD:
            out[written] = 0
            written += 1
        out[written] = UNIT_FIRST
        return _IN_UNIT, write(code, out, written + 1)
    if class_ == OTHER:
        if state == _IN_UNIT:
            out[written] = 0
            written += 1
        return _IN_WORD, write(code, out, written)
    if state in (_IN_WORD, _IN_UNIT):
        out[written] = 0
        written += 1
    if class_ == FLAG:
        if state != _HALF_FLAG:
            return _HALF_FLAG, written
        written = write(half, out, written)
    written = write(code, out, written)
    out[written] = 0
    return _NOTHING, written + 1


@kernel()
def _clean_characters(
    data: Any, first: Any, position: Any, end: Any, index: Any, blocks: Any, row_index: Any,
    row_blocks: Any, starts: Any, pool: Any, compositions: Any, parts: Any, out: Any, written: Any,
    room: Any, row_start: Any,
) -> Any:  # fmt: skip
    """Cleans the characters from a position to the end of the row that begins at `first`.

    The text before the position is ASCII. What may change together with characters before it is
    cleaned again, from the last character that begins anew.

    Returns:
        (position after the last byte written, whether there are units); the position is -1 where
        `room`, the end of the row's part of `out`, does not suffice.
    """
    has_units = False
    state = _NOTHING
    if written > row_start and out[written - 1] != 0:
        state = _IN_WORD
    half = _U0
    # The last character that begins anew: where it stands, and how it was before it was written.
    begun, begun_written, begun_state, begun_half = first, row_start, _NOTHING, _U0
    if position > first:
        begun, begun_written = position - 1, written - 1
        if begun_written > row_start and out[begun_written - 1] != 0:
            begun_state = _IN_WORD
    # That character, if it was written alone; the classes of the last mark after it, and of the
    # last that did not compose.
    single = np.uint64(out[written - 1]) if position > first else _U0
    last_class = blocking = _U0
    while position < end:
        word = load_within(data, position)
        if word & _HIGH_BITS == _U0 and position + 8 <= end:
            if state == _IN_UNIT:
                out[written] = 0
                written += 1
            word = _clean_word(word)
            store_u64(out, written, word)
            position += 8
            written += 8
            last_class = blocking = _U0
            single = word >> _U56
            begun, begun_written = position - 1, written - 1
            begun_state = _IN_WORD if word >> _U48 & _UFF != _U0 else _NOTHING
            state = _IN_WORD if single != _U0 else _NOTHING
            continue
        code, length = decode(word)
        entry = entry_of(code, index, blocks)
        if entry < _LEAST_UNEASY:
            last_class = blocking = _U0
            single = code ^ (entry & _FOLD_MASK)
            begun, begun_written, begun_state, begun_half = position, written, state, half
            position += length
            class_ = np.int64(entry >> _CLASS_SHIFT)
            # What `_put` does with the most frequent ones.
            if class_ - 1 < 2 and class_ > 0 and state <= _IN_WORD:
                # A letter or a mark.
                state = _IN_WORD
                written = write(single, out, written)
            elif class_ == SEPARATES:
                state = _NOTHING
                out[written] = 0
                written += 1
            elif class_ == UNSPACED and state == _IN_UNIT:
                out[written] = UNIT_NEXT
                written = write(single, out, written + 1)
            else:
                state, written = _put(single, class_, state, half, out, written)
                has_units |= state == _IN_UNIT
                half = single
            continue
        combining = entry >> _COMBINING_SHIFT
        is_slow = entry & _SLOW != _U0 or _U0 < combining < last_class
        if not is_slow and entry & _HARD != _U0:
            joined = _U0
            # What stands before may hold a mark itself, and has changed places then; not one that
            # was composed here.
            is_plain = single != _U0 and (
                single < _U80
                or single & _COMPOSED != _U0
                or row_blocks[np.uint64(row_index[single >> _U8]), single & _UFF] == 0
            )
            if is_plain and (blocking == _U0 or blocking < combining):
                joined = composed(single & _CODE_MASK, code, compositions)
            is_slow = not is_plain or min(joined, blocking) != _U0
            if joined != _U0 and not is_slow:
                class_ = class_of(entry_of(joined, index, blocks))
                if class_ == OTHER and begun_state <= _IN_WORD:
                    written = write(joined, out, begun_written)
                    state = _IN_WORD
                else:
                    state, written = _put(
                        joined, class_, begun_state, begun_half, out, begun_written
                    )
                    has_units |= state == _IN_UNIT
                    half = joined
                single = joined | _COMPOSED
                last_class = combining
                position += length
                continue
        if is_slow:
            if begins_anew(code, entry, index, blocks, row_index, row_blocks, starts, pool):
                begun, begun_written, begun_state, begun_half = position, written, state, half
            position, count = normalise_segment(
                data, begun, end, index, blocks, row_index, row_blocks, starts, pool,
                compositions, parts,
            )  # fmt: skip
            written, state, half = begun_written, begun_state, begun_half
            # Each takes at most four bytes and two borders.
            if written + 6 * count + 16 > room - 3 * (end - position):
                return np.int64(-1), has_units
            for k in range(count):
                class_ = class_of(entry_of(parts[k], index, blocks))
                state, written = _put(parts[k], class_, state, half, out, written)
                has_units |= state == _IN_UNIT
                half = parts[k]
            last_class = blocking = single = _U0
            continue
        if entry & _EXPANDS != _U0:
            row = np.int64(entry & _FOLD_MASK)
            position += length
            if starts[row] == starts[row + 1]:
                # As if it was not there, also between a letter and its mark.
                continue
            begun, begun_written = position - length, written
            begun_state, begun_half = state, half
            for k in range(starts[row], starts[row + 1]):
                mapped = np.uint64(pool[k])
                class_ = class_of(entry_of(mapped, index, blocks))
                state, written = _put(mapped, class_, state, half, out, written)
                has_units |= state == _IN_UNIT
                half = mapped
            last_class = blocking = single = _U0
            continue
        # A mark that composes with nothing before it, and is in order.
        last_class = blocking = combining
        if combining == _U0:
            single = _U0
        class_ = class_of(entry)
        position += length
        if class_ == MARK and state == _IN_WORD:
            written = write(code ^ (entry & _FOLD_MASK), out, written)
        else:
            state, written = _put(code ^ (entry & _FOLD_MASK), class_, state, half, out, written)
            has_units |= state == _IN_UNIT
    return written, has_units


@kernel(
    types.int64(
        _READ_ONLY_BYTES,
        _READ_ONLY_I8,
        _READ_ONLY_U2,
        _READ_ONLY_TABLE,
        _READ_ONLY_U2,
        _READ_ONLY_ROWS,
        _READ_ONLY_I4,
        _READ_ONLY_U4,
        _READ_ONLY_U8,
        types.uint64[::1],
        types.uint8[::1],
        types.int64[::1],
        types.int64[::1],
        types.boolean[::1],
    )
)
def clean_rows(
    data: Any,
    offsets: Any,
    index: Any,
    blocks: Any,
    row_index: Any,
    row_blocks: Any,
    starts: Any,
    pool: Any,
    compositions: Any,
    parts: Any,
    out: Any,
    begins: Any,
    ends: Any,
    has_units: Any,
) -> Any:
    """Writes texts normalised and casefolded, with zero bytes between tokens and after each row.

    Args:
        data: u1[b], valid UTF-8.
        offsets: i8[n + 1], ascending, within data.
        index, blocks, row_index, row_blocks, starts, pool, compositions: The character table.
        parts: u8, scratch, twice the bytes of the longest row and twice SCRATCH_MORE.
        out: u1, at least CLEANED_BYTES b + CLEANED_ROW (n + 1).
        begins, ends: i8[n], overwritten: the cleaned row is out[begin:end], its last byte is zero.
        has_units: bool[n], overwritten: whether the row has units.

    Returns:
        The bytes written; -1 where `out` is too short, since some characters become many.
    """
    written = 0
    rows = offsets.shape[0] - 1
    for row in range(rows):
        position, end = offsets[row], offsets[row + 1]
        start = written
        has_units[row] = False
        # What the rows after this one need is not for it.
        later = CLEANED_BYTES * (offsets[rows] - end) + CLEANED_ROW * (rows - row)
        while position < end:
            word = load_within(data, position)
            left = end - position
            if left < 8:
                word &= (_U1 << (_U8 * np.uint64(left))) - _U1
            if word & _HIGH_BITS == _U0:
                store_u64(out, written, _clean_word(word))
                advance = min(left, 8)
                position += advance
                written += advance
                continue
            written, has_units[row] = _clean_characters(
                data, offsets[row], position, end, index, blocks, row_index, row_blocks, starts,
                pool, compositions, parts, out, written, out.shape[0] - later, start,
            )  # fmt: skip
            if written < 0:
                return np.int64(-1)
            break
        out[written] = 0
        written += 1
        begins[row] = start
        ends[row] = written
    return written
