"""Numbers the terms of plain texts: words with single spaces or ` AND ` between them.

`base.plain_queries` recognises such texts, without reading their words.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.plain_queries import TEXT_BYTES_MAX, operator_of
from sirocco.kernels.base.words import load_u64, multiply_fold
from sirocco.kernels.base.xxh3 import hash_span
from sirocco.kernels.jit.compiled import kernel

__all__ = ["intern_terms"]

_U1_IN = types.Array(types.uint8, 1, "C", readonly=True)
_I8_IN = types.Array(types.int64, 1, "C", readonly=True)


@kernel(inline=True)
def _lower(byte: Any) -> Any:
    return byte + np.uint8(0x20) if byte >= 0x41 and byte <= 0x5A else byte


@kernel
def _compare(words: Any, a: Any, a_length: Any, b: Any, b_length: Any) -> Any:
    """Returns less than, equal to or more than 0, as bytes are ordered."""
    for i in range(min(a_length, b_length)):
        if words[a + i] != words[b + i]:
            return np.int64(words[a + i]) - np.int64(words[b + i])
    return a_length - b_length


@kernel
def _placed(line: Any, begin: Any, length: Any, first: Any, second: Any) -> Any:
    """Returns a hash of a word, which only a holder of the secret (two odd words) can predict."""
    found = first ^ np.uint64(length)
    for at in range(0, length, 8):
        block = load_u64(line, begin + at)
        if length - at < 8:
            block &= (np.uint64(1) << np.uint64(8 * (length - at))) - np.uint64(1)
        found = multiply_fold(found ^ block, second)
    return multiply_fold(found ^ second, first)


@kernel(
    types.int64(
        *(_U1_IN, _I8_IN, types.int64[::1], types.int32[::1], types.uint8[::1]),
        *(types.int64[::1], types.uint64[::1], types.uint64, types.uint64),
    )
)
def intern_terms(
    texts: Any,
    offsets: Any,
    term_offsets: Any,
    term_rows: Any,
    words: Any,
    word_offsets: Any,
    hashes: Any,
    first: Any,
    second: Any,
) -> Any:
    """Splits plain texts into their terms: distinct within a text, in order of their bytes.

    Args:
        texts: u1[b]; offsets: i8[n + 1].
        term_offsets: i8[n + 1], overwritten.
        term_rows: i4[t], overwritten: the word of each term; t as `(b + n) // 2 + n` at most.
        words: u1[b + 8], overwritten: distinct words, in order of appearance.
        word_offsets: i8[t + 1], overwritten.
        hashes: u8[t], overwritten: xxh3-64 of each word.
        first, second: of the process's secret: clients choose words, and know their hashes.

    Returns:
        How many words there are.
    """
    size = np.int64(16)
    while size < 2 * hashes.shape[0]:
        size *= 2
    table = np.zeros(size, np.int32)
    line = np.zeros(TEXT_BYTES_MAX + 16, np.uint8)
    begins = np.zeros(TEXT_BYTES_MAX, np.int64)
    lengths = np.zeros(TEXT_BYTES_MAX, np.int64)
    count, terms, used = np.int64(0), np.int64(0), np.int64(0)
    word_offsets[0] = 0
    term_offsets[0] = 0
    for row in range(offsets.shape[0] - 1):
        begin, length = offsets[row], offsets[row + 1] - offsets[row]
        held = np.int64(0)
        start = 0
        for i in range(length + 1):
            if i < length and texts[begin + i] != 0x20:
                line[i] = _lower(texts[begin + i])
                continue
            # A word ends. AND in capitals is the operator, a word in any other form.
            if operator_of(texts, begin + start, i - start) != 1:
                place = held
                is_new = i > start
                while place > 0 and is_new:
                    order = _compare(line, start, i - start, begins[place - 1], lengths[place - 1])
                    if order > 0:
                        break
                    is_new = order != 0
                    place -= 1
                if is_new:
                    for j in range(held, place, -1):
                        begins[j], lengths[j] = begins[j - 1], lengths[j - 1]
                    begins[place], lengths[place] = start, i - start
                    held += 1
            start = i + 1
        for j in range(held):
            hashed = hash_span(line, begins[j], lengths[j])
            placed = _placed(line, begins[j], lengths[j], first, second)
            slot = np.int64(placed & np.uint64(size - 1))
            word = np.int64(-1)
            while table[slot] > 0:
                other = np.int64(table[slot]) - 1
                if hashes[other] == hashed:
                    other_length = word_offsets[other + 1] - word_offsets[other]
                    is_same = other_length == lengths[j]
                    k = 0
                    while is_same and k < other_length:
                        is_same = words[word_offsets[other] + k] == line[begins[j] + k]
                        k += 1
                    if is_same:
                        word = other
                        break
                slot = (slot + 1) & (size - 1)
            if word < 0:
                word = count
                table[slot] = np.int32(count + 1)
                hashes[count] = hashed
                for k in range(lengths[j]):
                    words[used + k] = line[begins[j] + k]
                used += lengths[j]
                count += 1
                word_offsets[count] = used
            term_rows[terms] = np.int32(word)
            terms += 1
        term_offsets[row + 1] = terms
    return count
