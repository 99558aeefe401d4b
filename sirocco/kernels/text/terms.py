"""Turns batches of UTF-8 texts into sorted, distinct hashes of their tokens or terms.

Two passes. `clean_rows` writes each text normalised and casefolded, with a zero byte for every
character that belongs to no token, and a zero byte after each row; eight ASCII bytes at a time are
folded and classified by arithmetic within one word, other characters by table (`characters`).
Where characters may compose or change places, all from one that begins anew to the next are
normalised together (`_normalise_segment`; Unicode Standard Annex 15). `collect_terms` turns 64
cleaned bytes into a bit mask, finds the runs of ones by their ends, hashes the runs, and sorts the
hashes of each row.

In a script without spaces, each character with its marks is a unit: UNIT_FIRST stands before the
first of a run and UNIT_NEXT before each other one, two bytes that UTF-8 does not use. The units are
tokens, pairs of neighbours are terms.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.keyed_hash import hash_first, hash_rest
from sirocco.kernels.base.memory import trailing_zeros
from sirocco.kernels.base.words import load_u64, store_u64
from sirocco.kernels.base.xxh3 import hash_1_to_3, hash_4_to_8, hash_span
from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.text.characters import (
    CLASS_SHIFT,
    CODE_MASK,
    COMBINING_SHIFT,
    COMPOSITIONS,
    EXPANDS,
    FLAG,
    HARD,
    LENGTHENS,
    MARK,
    OTHER,
    SEPARATES,
    SLOW,
    UNSPACED,
    UNSPACED_MARK,
    composition_place,
)

__all__ = [
    "CLEANED_BYTES",
    "CLEANED_ROW",
    "OTHERS_MORE",
    "SCRATCH_MORE",
    "UNIT_FIRST",
    "UNIT_NEXT",
    "clean_rows",
    "collect_keyed_terms",
    "collect_terms",
    "find_mixed_spans",
    "find_spans",
]

UNIT_FIRST, UNIT_NEXT = 0xFE, 0xFF

# Cleaned bytes for each byte and row of texts, unless segments need more.
CLEANED_BYTES, CLEANED_ROW = 3, 16
# Room for the longest mapping of one character, 18 others.
SCRATCH_MORE = 64

# The last character written: none of a token, of a word, of a unit, or half of a flag, which is
# written with its other half.
_NOTHING, _IN_WORD, _IN_UNIT, _HALF_FLAG = range(4)

_IOTA_BELOW, _IOTA = np.uint64(0x345), np.uint64(0x3B9)
# Hangul syllables are composed by rule (Unicode Standard, section 3.12).
_S_BASE, _L_BASE, _V_BASE, _T_BASE = (np.uint64(c) for c in (0xAC00, 0x1100, 0x1161, 0x11A7))
_S_COUNT, _L_COUNT, _V_COUNT, _T_COUNT = (np.uint64(n) for n in (11_172, 19, 21, 28))
_NT_COUNT = _V_COUNT * _T_COUNT
# Longer runs of marks are put in order by counting.
_MARKS_EXCHANGED_MAX = 32

# Greatest count of repeats that fits; texts within the limits stay below half of it.
_COUNT_MAX = 0xFFFF

# Rows with more terms than this are sorted by buckets: exchanges take quadratic time. So do buckets
# of words that somebody chose for their hashes, and longer rows are sorted by quicksort.
_EXCHANGE_MAX = 24
_BUCKETED_MAX = 256
_BUCKETS = 128
_BUCKET_SHIFT = np.uint64(57)
# Rows of the scratch `others` beside those of terms.
OTHERS_MORE = _BUCKETED_MAX

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
# Gathers the high bits of eight bytes in the top byte of the product.
_GATHER = np.uint64(0x0002040810204081)

_U0, _U1, _U2, _U4, _U6, _U7, _U8 = (np.uint64(n) for n in (0, 1, 2, 4, 6, 7, 8))
_U12, _U16, _U18, _U21, _U24 = (np.uint64(n) for n in (12, 16, 18, 21, 24))
_U32, _U48, _U56 = (np.uint64(n) for n in (32, 48, 56))
_U07, _U0F, _U1F, _U3F, _U7F, _UFF = (np.uint64(n) for n in (0x07, 0x0F, 0x1F, 0x3F, 0x7F, 0xFF))
_U10, _U20, _U80, _U800, _U10000 = (np.uint64(n) for n in (0x10, 0x20, 0x80, 0x800, 0x10000))
# First bytes of two, three and four byte sequences with their continuation bytes.
_LEAD_2, _LEAD_3, _LEAD_4 = (np.uint64(n) for n in (0x80C0, 0x8080E0, 0x808080F0))
_LENGTH_MASK = np.uint64(0xFFFF_FFFF)

_FOLD_MASK, _CODE_MASK = np.uint64(CODE_MASK), np.uint64(0x1F_FFFF)
_CLASS_SHIFT, _COMBINING_SHIFT = np.uint64(CLASS_SHIFT), np.uint64(COMBINING_SHIFT)
_HARD, _EXPANDS, _SLOW = np.uint64(HARD), np.uint64(EXPANDS), np.uint64(SLOW)
_POOL_MASK = np.uint64(0xFF_FFFF)
# Of a character that was composed in passing.
_COMPOSED = np.uint64(1 << 32)
# What most characters lack is above the bits that they use.
_LEAST_UNEASY = _EXPANDS

_READ_ONLY_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_READ_ONLY_I8 = types.Array(types.int64, 1, "C", readonly=True)
_READ_ONLY_U2 = types.Array(types.uint16, 1, "C", readonly=True)
_READ_ONLY_BOOL = types.Array(types.boolean, 1, "C", readonly=True)
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


@kernel(inline=True)
def _write(code: Any, out: Any, position: Any) -> Any:
    """Writes a code point as UTF-8.

    Overwrites up to eight bytes; returns the position after the code point.
    """
    low = code & _U3F
    if code < _U80:
        word, length = code, 1
    elif code < _U800:
        word, length = (code >> _U6) | (low << _U8) | _LEAD_2, 2
    elif code < _U10000:
        word = (code >> _U12) | ((code >> _U6 & _U3F) << _U8) | (low << _U16) | _LEAD_3
        length = 3
    else:
        word = (code >> _U18) | ((code >> _U12 & _U3F) << _U8)
        word |= ((code >> _U6 & _U3F) << _U16) | (low << _U24) | _LEAD_4
        length = 4
    store_u64(out, position, word)
    return position + length


@kernel(inline=True)
def _load_within(data: Any, position: Any) -> Any:
    """Returns the word at a position, with zero bytes beyond the end of the data."""
    if position + 8 <= data.shape[0]:
        return load_u64(data, position)
    word = _U0
    for k in range(data.shape[0] - position):
        word |= np.uint64(data[position + k]) << (_U8 * np.uint64(k))
    return word


@kernel(inline=True)
def _decode(word: Any) -> Any:
    """Returns (code point, bytes) of the UTF-8 sequence at the beginning of a word."""
    second = word >> _U8 & _U3F
    if word & _U80 == _U0:
        return word & _U7F, 1
    if word & _U20 == _U0:
        return (word & _U1F) << _U6 | second, 2
    third = word >> _U16 & _U3F
    if word & _U10 == _U0:
        return (word & _U0F) << _U12 | second << _U6 | third, 3
    fourth = word >> _U24 & _U3F
    return (word & _U07) << _U18 | second << _U12 | third << _U6 | fourth, 4


@kernel(inline=True)
def _entry_of(code: Any, index: Any, blocks: Any) -> Any:
    """Returns the entry of a code point."""
    return np.uint64(blocks[np.uint64(index[code >> _U8]), code & _UFF])


@kernel(inline=True)
def _class_of(entry: Any) -> Any:
    """Returns the class in an entry."""
    return np.int64(entry >> _CLASS_SHIFT & _U7)


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
            return _IN_UNIT, _write(code, out, written + 1)
        if state in (_IN_WORD, _IN_UNIT):
            return state, _write(code, out, written)
        class_ = UNSPACED if class_ == UNSPACED_MARK else OTHER
    if class_ == UNSPACED:
        if state == _IN_UNIT:
            out[written] = UNIT_NEXT
            return _IN_UNIT, _write(code, out, written + 1)
        if state == _IN_WORD:
            out[written] = 0
            written += 1
        out[written] = UNIT_FIRST
        return _IN_UNIT, _write(code, out, written + 1)
    if class_ == OTHER:
        if state == _IN_UNIT:
            out[written] = 0
            written += 1
        return _IN_WORD, _write(code, out, written)
    if state in (_IN_WORD, _IN_UNIT):
        out[written] = 0
        written += 1
    if class_ == FLAG:
        if state != _HALF_FLAG:
            return _HALF_FLAG, written
        written = _write(half, out, written)
    written = _write(code, out, written)
    out[written] = 0
    return _NOTHING, written + 1


@kernel()
def _composed(first: Any, second: Any, compositions: Any) -> Any:
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
def _begins_anew(
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
    return _entry_of(first & _POOL_MASK, index, blocks) & _HARD == _U0


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
            composed = _composed_by_rule(parts[starter], code)
            if composed == _U0:
                composed = _composed(parts[starter], code, compositions)
            if composed != _U0:
                parts[starter] = composed
                continue
        if class_ == 0:
            starter, last = kept, np.int64(-1)
        else:
            last = class_
        parts[kept] = code
        kept += 1
    return kept


@kernel()
def _normalise_segment(
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
        code, length = _decode(_load_within(data, position))
        entry = _entry_of(code, index, blocks)
        if not is_first and _begins_anew(
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
    composed, count = count, 0
    for k in range(composed):
        code = parts[half + k]
        entry = _entry_of(code, index, blocks)
        first = count
        count = _decompose(code, row_index, row_blocks, starts, pool, entry, parts, count)
        for i in range(first, count):
            if parts[i] & _POOL_MASK == _IOTA_BELOW:
                parts[i] = _IOTA
    _order_marks(parts, count, parts[half:])
    return position, _compose(parts, count, compositions)


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
        word = _load_within(data, position)
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
        code, length = _decode(word)
        entry = _entry_of(code, index, blocks)
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
                written = _write(single, out, written)
            elif class_ == SEPARATES:
                state = _NOTHING
                out[written] = 0
                written += 1
            elif class_ == UNSPACED and state == _IN_UNIT:
                out[written] = UNIT_NEXT
                written = _write(single, out, written + 1)
            else:
                state, written = _put(single, class_, state, half, out, written)
                has_units |= state == _IN_UNIT
                half = single
            continue
        combining = entry >> _COMBINING_SHIFT
        is_slow = entry & _SLOW != _U0 or _U0 < combining < last_class
        if not is_slow and entry & _HARD != _U0:
            composed = _U0
            # What stands before may hold a mark itself, and has changed places then; not one that
            # was composed here.
            is_plain = single != _U0 and (
                single < _U80
                or single & _COMPOSED != _U0
                or row_blocks[np.uint64(row_index[single >> _U8]), single & _UFF] == 0
            )
            if is_plain and (blocking == _U0 or blocking < combining):
                composed = _composed(single & _CODE_MASK, code, compositions)
            is_slow = not is_plain or min(composed, blocking) != _U0
            if composed != _U0 and not is_slow:
                class_ = _class_of(_entry_of(composed, index, blocks))
                if class_ == OTHER and begun_state <= _IN_WORD:
                    written = _write(composed, out, begun_written)
                    state = _IN_WORD
                else:
                    state, written = _put(
                        composed, class_, begun_state, begun_half, out, begun_written
                    )
                    has_units |= state == _IN_UNIT
                    half = composed
                single = composed | _COMPOSED
                last_class = combining
                position += length
                continue
        if is_slow:
            if _begins_anew(code, entry, index, blocks, row_index, row_blocks, starts, pool):
                begun, begun_written, begun_state, begun_half = position, written, state, half
            position, count = _normalise_segment(
                data, begun, end, index, blocks, row_index, row_blocks, starts, pool,
                compositions, parts,
            )  # fmt: skip
            written, state, half = begun_written, begun_state, begun_half
            # Each takes at most four bytes and two borders.
            if written + 6 * count + 16 > room - 3 * (end - position):
                return np.int64(-1), has_units
            for k in range(count):
                class_ = _class_of(_entry_of(parts[k], index, blocks))
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
                class_ = _class_of(_entry_of(mapped, index, blocks))
                state, written = _put(mapped, class_, state, half, out, written)
                has_units |= state == _IN_UNIT
                half = mapped
            last_class = blocking = single = _U0
            continue
        # A mark that composes with nothing before it, and is in order.
        last_class = blocking = combining
        if combining == _U0:
            single = _U0
        class_ = _class_of(entry)
        position += length
        if class_ == MARK and state == _IN_WORD:
            written = _write(code ^ (entry & _FOLD_MASK), out, written)
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
            word = _load_within(data, position)
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


@kernel(inline=True)
def _hash_spans(cleaned: Any, terms: Any, count: Any, others: Any) -> None:
    """Replaces the spans terms[:count] by hashes.

    The formula depends on the length, which a processor cannot predict. So the formula for four
    to eight bytes is applied to all. The others are noted without a branch, shorter ones from the
    front of `others` and longer ones from its back, and hashed again afterwards.
    """
    short_count, long_place = 0, others.shape[0] - 1
    for i in range(count):
        span = terms[i]
        length = span & _LENGTH_MASK
        others[short_count, 0] = others[long_place, 0] = span
        others[short_count, 1] = others[long_place, 1] = np.uint64(i)
        short_count += length < _U4
        long_place -= length > _U8
        terms[i] = hash_4_to_8(load_u64(cleaned, np.int64(span >> _U32)), length)
    for k in range(short_count):
        span = others[k, 0]
        word = load_u64(cleaned, np.int64(span >> _U32))
        terms[others[k, 1]] = hash_1_to_3(word, span & _LENGTH_MASK)
    for k in range(long_place + 1, others.shape[0]):
        span = others[k, 0]
        start, length = np.int64(span >> _U32), np.int64(span & _LENGTH_MASK)
        terms[others[k, 1]] = hash_span(cleaned, start, length)


@kernel(inline=True)
def _exchange_sort(terms: Any, first: Any, stop: Any) -> None:
    """Sorts terms[first:stop] by insertion, with exchanges along the whole row.

    That is more work than to stop at the right place, but half the time, since there is no
    unpredictable branch.
    """
    for i in range(first + 1, stop):
        greater = terms[i]
        for j in range(first, i):
            lesser = min(terms[j], greater)
            greater = max(terms[j], greater)
            terms[j] = lesser
        terms[i] = greater


@kernel()
def _sort_by_buckets(terms: Any, first: Any, stop: Any, spare: Any) -> None:
    """Sorts more of them: by the first bits, which differ for most, then by insertion."""
    for b in range(_BUCKETS + 1):
        spare[b, 1] = _U0
    for i in range(first, stop):
        spare[i - first, 0] = terms[i]
        spare[np.int64(terms[i] >> _BUCKET_SHIFT) + 1, 1] += _U1
    for b in range(_BUCKETS):
        spare[b + 1, 1] += spare[b, 1]
    for i in range(stop - first):
        term = spare[i, 0]
        bucket = np.int64(term >> _BUCKET_SHIFT)
        terms[first + np.int64(spare[bucket, 1])] = term
        spare[bucket, 1] += _U1
    for i in range(first + 1, stop):
        term = terms[i]
        k = i
        while k > first and terms[k - 1] > term:
            terms[k] = terms[k - 1]
            k -= 1
        terms[k] = term


@kernel(inline=True)
def _sort_distinct(terms: Any, first: Any, stop: Any, counts: Any, kept: Any, spare: Any) -> Any:
    """Sorts terms[first:stop], moves them to `kept` without repeats; returns their end.

    The number of repeats of each is written to the same place of `counts`.
    """
    if stop - first > _BUCKETED_MAX:
        terms[first:stop].sort()
    elif stop - first > _EXCHANGE_MAX:
        _sort_by_buckets(terms, first, stop, spare)
    else:
        _exchange_sort(terms, first, stop)
    if first == stop:
        return kept
    last = terms[first]
    terms[kept] = last
    counts[kept] = 1
    kept += 1
    run = first
    for i in range(first + 1, stop):
        term = terms[i]
        is_new = term != last
        terms[kept] = term
        kept += is_new
        # Written again with each repeat: needs neither a branch nor a load of the last store.
        run = i if is_new else run
        counts[kept - 1] = min(i - run + 1, _COUNT_MAX)
        last = term
    return kept


@kernel(
    types.int64(
        types.uint8[::1],
        _READ_ONLY_I8,
        _READ_ONLY_I8,
        _READ_ONLY_BOOL,
        types.boolean,
        types.int64,
        types.uint64[::1],
        types.uint64[:, ::1],
        types.int64[::1],
        types.int32[::1],
        types.uint16[::1],
    )
)
def collect_terms(
    cleaned: Any,
    starts: Any,
    ends: Any,
    has_units: Any,
    wants_units: Any,
    tail: Any,
    terms: Any,
    others: Any,
    offsets: Any,
    lengths: Any,
    counts: Any,
) -> Any:
    """Hashes the terms of cleaned rows; sorts them and removes repeats within each row.

    Args:
        cleaned: u1, with 64 readable bytes after the last row; where there are units, as many
            bytes more as all rows have, twice.
        starts, ends, has_units: i8[n], i8[n], bool[n]: rows as `clean_rows` left them.
        wants_units: whether to collect tokens: each unit by itself. Otherwise terms.
        tail: i8, the end of all rows in `cleaned`.
        terms: u8, overwritten; more than half as long as all rows together.
        others: u8[m, 2], scratch, OTHERS_MORE rows longer than `terms`.
        offsets: i8[n + 1], overwritten: the terms of row r are terms[offsets[r]:offsets[r + 1]].
        lengths: i4[n], overwritten with the number of tokens, repeats included.
        counts: u2, as long as `terms`, overwritten: how often the row holds each term.

    Returns:
        The number of terms written.
    """
    count = 0
    for row in range(starts.shape[0]):
        first = count
        if has_units[row]:
            count, tail = find_mixed_spans(
                cleaned, starts[row], ends[row], wants_units, terms, count, tail
            )
        else:
            count = find_spans(cleaned, starts[row], ends[row], terms, count)
        lengths[row] = count - first
    _hash_spans(cleaned, terms, count, others)
    first = kept = 0
    offsets[0] = 0
    for row in range(starts.shape[0]):
        stop = first + lengths[row]
        kept = _sort_distinct(terms, first, stop, counts, kept, others)
        offsets[row + 1] = kept
        first = stop
    return kept


@kernel(
    types.int64(
        types.uint8[::1],
        _READ_ONLY_I8,
        _READ_ONLY_I8,
        _READ_ONLY_BOOL,
        types.boolean,
        types.int64,
        types.Array(types.uint64, 1, "C", readonly=True),
        types.uint64[::1],
        types.uint64[:, ::1],
        types.int64[::1],
        types.int32[::1],
        types.uint16[::1],
    )
)
def collect_keyed_terms(
    cleaned: Any,
    starts: Any,
    ends: Any,
    has_units: Any,
    wants_units: Any,
    tail: Any,
    key: Any,
    terms: Any,
    others: Any,
    offsets: Any,
    lengths: Any,
    counts: Any,
) -> Any:
    """Does the same as `collect_terms`, with the hash of a secret key (`keyed_hash`).

    Args:
        all others: as in `collect_terms`.
        key: u8[KEY_WORDS].

    Returns:
        The number of terms written.
    """
    count = 0
    for row in range(starts.shape[0]):
        first = count
        if has_units[row]:
            count, tail = find_mixed_spans(
                cleaned, starts[row], ends[row], wants_units, terms, count, tail
            )
        else:
            count = find_spans(cleaned, starts[row], ends[row], terms, count)
        lengths[row] = count - first
    # As in `_hash_spans`: longer words are noted without a branch, and hashed again afterwards.
    long_count = np.int64(0)
    for i in range(count):
        span = terms[i]
        start, length = np.int64(span >> _U32), np.int64(span & _LENGTH_MASK)
        others[long_count, 0] = span
        others[long_count, 1] = np.uint64(i)
        long_count += length > 8
        terms[i] = hash_first(cleaned, start, length, key)
    for k in range(long_count):
        span, at = others[k, 0], np.int64(others[k, 1])
        start, length = np.int64(span >> _U32), np.int64(span & _LENGTH_MASK)
        terms[at] = hash_rest(terms[at], cleaned, start, length, key)
    first = kept = 0
    offsets[0] = 0
    for row in range(starts.shape[0]):
        stop = first + lengths[row]
        kept = _sort_distinct(terms, first, stop, counts, kept, others)
        offsets[row + 1] = kept
        first = stop
    return kept
