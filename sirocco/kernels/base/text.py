"""Turns batches of UTF-8 texts into sorted, distinct hashes of their terms.

Two passes. `clean_rows` writes each text casefolded, with a zero byte for every character that
belongs to no term, and a zero byte after each row; eight ASCII bytes at a time are folded and
classified by arithmetic within one word, other characters by table. `collect_terms` turns 64
cleaned bytes into a bit mask, finds the runs of ones by their ends, hashes the runs, and sorts
the hashes of each row.

Layout of a table entry (u4):
    bits 0-17: code point exclusive-or its casefold; with EXPANDS the row of `expansions`
    bit 19, HOLDS: is composed already, with a mark before which another mark may belong
    bit 20, ALTERS: NFKC replaces it
    bit 21, IN_TERM: the casefolded character belongs to a term
    bit 22, HARD: may compose with the character before it; with ALTERS only NFKC can decide
    bit 23, EXPANDS: casefolds to several characters
    bits 24-31: canonical combining class

Layout of an entry of `compositions` (u8), a hash table from pairs of characters:
    bits 0-20: the composed character
    bits 21-41 and 42-62: the second and the first
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

__all__ = [
    "ALTERS",
    "BLOCK_COUNT",
    "CLASS_SHIFT",
    "COMPOSITIONS",
    "EXPANDS",
    "HARD",
    "HOLDS",
    "IN_TERM",
    "clean_rows",
    "collect_keyed_terms",
    "collect_terms",
    "composition_place",
    "join_rows",
    "separate_words",
]

FOLD_MASK = 0x3_FFFF
HOLDS = 1 << 19
ALTERS = 1 << 20
IN_TERM = 1 << 21
HARD = 1 << 22
EXPANDS = 1 << 23
CLASS_SHIFT = 24
# Four bytes of UTF-8 encode 21 bits, even where they are not valid.
BLOCK_COUNT = 1 << 13
# Entries of `compositions`; Unicode has fewer than 1,000 pairs.
COMPOSITIONS = 1 << 12

# Greatest count of repeats that fits; texts within the limits stay below half of it.
_COUNT_MAX = 0xFFFF

# Rows with more terms than this are sorted by quicksort: exchanges take quadratic time.
_EXCHANGE_MAX = 24

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
_U32, _U52, _U56 = (np.uint64(n) for n in (32, 52, 56))
_U07, _U0F, _U1F, _U3F, _U7F, _UFF = (np.uint64(n) for n in (0x07, 0x0F, 0x1F, 0x3F, 0x7F, 0xFF))
_U10, _U20, _U80, _U800, _U10000 = (np.uint64(n) for n in (0x10, 0x20, 0x80, 0x800, 0x10000))
# First bytes of two, three and four byte sequences with their continuation bytes.
_LEAD_2, _LEAD_3, _LEAD_4 = (np.uint64(n) for n in (0x80C0, 0x8080E0, 0x808080F0))
_LENGTH_MASK = np.uint64(0xFFFF_FFFF)
# The golden ratio: an odd number whose product spreads over the high bits.
_GOLDEN = np.uint64(0x9E37_79B9_7F4A_7C15)

_FOLD_MASK, _IN_TERM = np.uint64(FOLD_MASK), np.uint64(IN_TERM)
_HARD, _EXPANDS, _ALTERS = np.uint64(HARD), np.uint64(EXPANDS), np.uint64(ALTERS)
_UNSURE = np.uint64(ALTERS | HOLDS)
_CODE_MASK = np.uint64(0x1F_FFFF)
# HARD, EXPANDS and the combining class are above the bits that most characters use.
_LEAST_UNEASY = _HARD

_READ_ONLY_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_READ_ONLY_I8 = types.Array(types.int64, 1, "C", readonly=True)
_READ_ONLY_U2 = types.Array(types.uint16, 1, "C", readonly=True)
_READ_ONLY_U8 = types.Array(types.uint64, 1, "C", readonly=True)
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
def _write(code: Any, in_term: Any, out: Any, position: Any) -> Any:
    """Writes a code point as UTF-8, or one zero byte if it belongs to no term.

    Overwrites up to eight bytes; returns the position after the code point.
    """
    low = code & _U3F
    if not in_term:
        word, length = _U0, 1
    elif code < _U80:
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
def composition_place(pair: Any) -> Any:
    """Returns where the search for a pair, first << 21 | second, begins in `compositions`."""
    return np.int64(pair * _GOLDEN >> _U52)


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
def _clean_characters(
    data: Any,
    first: Any,
    position: Any,
    end: Any,
    is_normal: Any,
    index: Any,
    blocks: Any,
    expansions: Any,
    compositions: Any,
    out: Any,
    written: Any,
) -> Any:
    """Cleans the characters from a position to the end of the row that begins at `first`.

    The text before the position is ASCII. A character that composes with the starter just before
    it replaces the starter (Unicode Standard Annex 15, section 1.3); for any other change by
    normalisation the caller normalises the row.

    Returns:
        Position after the last byte written, or -1 where the row has to be normalised first.
    """
    # The classes of the last mark, and of the last that did not compose, after the starter.
    last_class = blocking = _U0
    # The last starter, composed so far, with its flags above; and where it was written.
    starter = np.uint64(data[position - 1]) if position > first else _U0
    starter_at = written - 1
    while position < end:
        word = _load_within(data, position)
        if word & _HIGH_BITS == _U0 and position + 8 <= end:
            store_u64(out, written, _clean_word(word))
            position += 8
            written += 8
            last_class = blocking = _U0
            starter, starter_at = word >> _U56, written - 1
            continue
        second = word >> _U8 & _U3F
        if word & _U80 == _U0:
            code, length = word & _U7F, 1
        elif word & _U20 == _U0:
            code, length = (word & _U1F) << _U6 | second, 2
        else:
            third = word >> _U16 & _U3F
            if word & _U10 == _U0:
                code, length = (word & _U0F) << _U12 | second << _U6 | third, 3
            else:
                fourth = word >> _U24 & _U3F
                code = (word & _U07) << _U18 | second << _U12 | third << _U6 | fourth
                length = 4
        entry = np.uint64(blocks[np.uint64(index[code >> _U8]), code & _UFF])
        if entry >= _LEAST_UNEASY:
            combining_class = entry >> _U24
            composed = _U0
            if not is_normal:
                if _U0 < combining_class < last_class:
                    return np.int64(-1)
                if entry & _HARD != _U0:
                    if ((entry & _ALTERS) | (starter >> _U2 & _UNSURE)) != _U0:
                        return np.int64(-1)
                    if blocking == _U0 or blocking < combining_class:
                        composed = _composed(starter, code, compositions)
                if composed != _U0:
                    code = composed
                    entry = np.uint64(blocks[np.uint64(index[code >> _U8]), code & _UFF])
                    if blocking != _U0 or entry & _HARD != _U0:
                        return np.int64(-1)
                    written = starter_at
            # Also of a mark that was composed: a later mark may belong before it.
            last_class = combining_class
            if combining_class == _U0 or composed != _U0:
                starter, starter_at = code, written
                if composed == _U0:
                    starter |= (entry & _UNSURE) << _U2
                blocking = _U0
            else:
                blocking = combining_class
            if entry & _EXPANDS != _U0:
                row = entry & _FOLD_MASK
                for k in range(4):
                    folded = np.uint64(expansions[row, k])
                    if folded != _U0:
                        entry = np.uint64(blocks[np.uint64(index[folded >> _U8]), folded & _UFF])
                        written = _write(folded, entry & _IN_TERM != _U0, out, written)
                position += length
                continue
        else:
            last_class = blocking = _U0
            starter, starter_at = code | (entry & _UNSURE) << _U2, written
        written = _write(code ^ (entry & _FOLD_MASK), entry & _IN_TERM != _U0, out, written)
        position += length
    return written


@kernel(
    types.Tuple((types.int64, types.int64))(
        _READ_ONLY_BYTES,
        _READ_ONLY_I8,
        _READ_ONLY_I8,
        types.boolean,
        _READ_ONLY_U2,
        _READ_ONLY_TABLE,
        _READ_ONLY_TABLE,
        _READ_ONLY_U8,
        types.uint8[::1],
        types.int64,
        types.int64[::1],
        types.int64[::1],
        types.int64[::1],
    )
)
def clean_rows(
    data: Any,
    offsets: Any,
    targets: Any,
    is_normal: Any,
    index: Any,
    blocks: Any,
    expansions: Any,
    compositions: Any,
    out: Any,
    written: Any,
    starts: Any,
    ends: Any,
    hard_rows: Any,
) -> Any:
    """Writes texts casefolded, with zero bytes between terms and after each row.

    Args:
        data: u1[b], valid UTF-8.
        offsets: i8[n + 1], ascending, within data.
        targets: i8[n], the place of each row in `starts` and `ends`.
        is_normal: Whether the texts went through NFKC and casefold already.
        index, blocks, expansions, compositions: The character table.
        out: u1, from `written` on at least 3 b + n + 16 bytes (a character of two bytes may
            fold to six).
        written: i8, first free byte of `out`.
        starts, ends: i8[m], overwritten at `targets`: the cleaned row is out[start:end], its
            last byte is zero.
        hard_rows: i8[n], overwritten with the rows that have to be normalised first; they are
            empty in `out`.

    Returns:
        (first free byte of `out`, number of hard rows).
    """
    hard_count = 0
    for row in range(offsets.shape[0] - 1):
        position, end = offsets[row], offsets[row + 1]
        start = written
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
            written = _clean_characters(
                data, offsets[row], position, end, is_normal,
                index, blocks, expansions, compositions, out, written,
            )  # fmt: skip
            if written < 0:
                hard_rows[hard_count] = row
                hard_count += 1
                written = start
            break
        out[written] = 0
        written += 1
        starts[targets[row]] = start
        ends[targets[row]] = written
    return written, hard_count


@kernel(
    types.void(
        _READ_ONLY_BYTES,
        _READ_ONLY_I8,
        _READ_ONLY_I8,
        types.uint8[::1],
        types.int64[::1],
        types.uint8[::1],
        types.int64[::1],
    )
)
def separate_words(
    data: Any,
    offsets: Any,
    rows: Any,
    plain: Any,
    plain_offsets: Any,
    foreign: Any,
    foreign_offsets: Any,
) -> None:
    """Separates the ASCII words of rows, which are already normalised, from the others.

    A word ends at a space or control character; it is copied with a space after it. The words
    of each row that are not ASCII are followed by one line feed.

    Args:
        data: u1[b].
        offsets: i8[n + 1].
        rows: i8[k], the rows to copy.
        plain, foreign: u1, each at least as long as the rows and 2 k bytes more.
        plain_offsets, foreign_offsets: i8[k + 1], overwritten.
    """
    plain_end = foreign_end = 0
    plain_offsets[0] = foreign_offsets[0] = 0
    for k in range(rows.shape[0]):
        position, end = offsets[rows[k]], offsets[rows[k] + 1]
        while position < end:
            word_end = position
            bits = 0
            while word_end < end and data[word_end] > 0x20:
                bits |= data[word_end]
                word_end += 1
            if bits & 0x80:
                for i in range(position, word_end):
                    foreign[foreign_end] = data[i]
                    foreign_end += 1
                foreign[foreign_end] = 0x20
                foreign_end += 1
            else:
                for i in range(position, word_end):
                    plain[plain_end] = data[i]
                    plain_end += 1
                plain[plain_end] = 0x20
                plain_end += 1
            position = word_end + 1
        foreign[foreign_end] = 0x0A
        foreign_end += 1
        plain_offsets[k + 1] = plain_end
        foreign_offsets[k + 1] = foreign_end


@kernel(
    types.void(
        _READ_ONLY_BYTES,
        _READ_ONLY_I8,
        _READ_ONLY_BYTES,
        _READ_ONLY_I8,
        types.uint8[::1],
        types.int64[::1],
    )
)
def join_rows(
    left: Any, left_offsets: Any, right: Any, right_offsets: Any, out: Any, out_offsets: Any
) -> None:
    """Writes each row of one byte column, followed by the same row of another.

    Args:
        left, right: u1.
        left_offsets, right_offsets: i8[k + 1].
        out: u1, as long as both together; overwritten.
        out_offsets: i8[k + 1], overwritten.
    """
    written = 0
    out_offsets[0] = 0
    for k in range(out_offsets.shape[0] - 1):
        for i in range(left_offsets[k], left_offsets[k + 1]):
            out[written] = left[i]
            written += 1
        for i in range(right_offsets[k], right_offsets[k + 1]):
            out[written] = right[i]
            written += 1
        out_offsets[k + 1] = written


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
def _find_spans(cleaned: Any, position: Any, end: Any, spans: Any, count: Any) -> Any:
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
def _sort_distinct(terms: Any, first: Any, stop: Any, counts: Any, kept: Any) -> Any:
    """Sorts terms[first:stop], moves them to `kept` without repeats; returns their end.

    The number of repeats of each is written to the same place of `counts`.
    """
    if stop - first > _EXCHANGE_MAX:
        terms[first:stop].sort()
    else:
        # Insertion by exchanges along the whole row: more work than to stop at the right place,
        # but half the time, since there is no unpredictable branch.
        for i in range(first + 1, stop):
            greater = terms[i]
            for j in range(first, i):
                lesser = min(terms[j], greater)
                greater = max(terms[j], greater)
                terms[j] = lesser
            terms[i] = greater
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
        _READ_ONLY_BYTES,
        _READ_ONLY_I8,
        _READ_ONLY_I8,
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
    terms: Any,
    others: Any,
    offsets: Any,
    lengths: Any,
    counts: Any,
) -> Any:
    """Hashes the terms of cleaned rows; sorts them and removes repeats within each row.

    Args:
        cleaned: u1, with 64 readable bytes after the last row.
        starts, ends: i8[n], rows as `clean_rows` left them.
        terms: u8, overwritten; more than half as long as all rows together.
        others: u8[m, 2], scratch, longer than `terms`.
        offsets: i8[n + 1], overwritten: the terms of row r are terms[offsets[r]:offsets[r + 1]].
        lengths: i4[n], overwritten with the number of tokens, repeats included.
        counts: u2, as long as `terms`, overwritten: how often the row holds each term.

    Returns:
        The number of terms written.
    """
    count = 0
    for row in range(starts.shape[0]):
        first = count
        count = _find_spans(cleaned, starts[row], ends[row], terms, count)
        lengths[row] = count - first
    _hash_spans(cleaned, terms, count, others)
    first = kept = 0
    offsets[0] = 0
    for row in range(starts.shape[0]):
        stop = first + lengths[row]
        kept = _sort_distinct(terms, first, stop, counts, kept)
        offsets[row + 1] = kept
        first = stop
    return kept


@kernel(
    types.int64(
        _READ_ONLY_BYTES,
        _READ_ONLY_I8,
        _READ_ONLY_I8,
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
    key: Any,
    terms: Any,
    others: Any,
    offsets: Any,
    lengths: Any,
    counts: Any,
) -> Any:
    """Does the same as `collect_terms`, with the hash of a secret key (`keyed_hash`).

    Args:
        cleaned, starts, ends, terms, others, offsets, lengths, counts: as in `collect_terms`.
        key: u8[KEY_WORDS].

    Returns:
        The number of terms written.
    """
    count = 0
    for row in range(starts.shape[0]):
        first = count
        count = _find_spans(cleaned, starts[row], ends[row], terms, count)
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
        kept = _sort_distinct(terms, first, stop, counts, kept)
        offsets[row + 1] = kept
        first = stop
    return kept
