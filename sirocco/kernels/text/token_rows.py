"""Finds the tokens of cleaned texts in order, and joins what texts hold.

The terms of a text (`terms`) are sorted; phrases need its tokens as they follow one another.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.keyed_hash import hash_first, hash_rest
from sirocco.kernels.base.xxh3 import hash_span
from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.text.spans import find_mixed_spans, find_spans

__all__ = ["append_patterns", "number_tokens"]

_U32, _LENGTH_MASK = np.uint64(32), np.uint64(0xFFFF_FFFF)

_READ_ONLY_BOOL = types.Array(types.boolean, 1, "C", readonly=True)
_READ_ONLY_I8 = types.Array(types.int64, 1, "C", readonly=True)
_READ_ONLY_U8 = types.Array(types.uint64, 1, "C", readonly=True)


@kernel(
    types.int64(
        types.uint8[::1],
        _READ_ONLY_I8,
        _READ_ONLY_I8,
        _READ_ONLY_BOOL,
        types.boolean,
        _READ_ONLY_U8,
        types.uint64[::1],
        types.uint64[::1],
        types.int64[::1],
    )
)
def number_tokens(
    cleaned: Any,
    begins: Any,
    ends: Any,
    has_units: Any,
    is_keyed: Any,
    key: Any,
    spans: Any,
    numbers: Any,
    offsets: Any,
) -> Any:
    """Finds the tokens of cleaned rows, in order, and their numbers.

    Args:
        cleaned, begins, ends, has_units: as of `clean_rows`.
        is_keyed: whether numbers are keyed hashes.
        key: u8[KEY_WORDS].
        spans: u8, overwritten: start << 32 | length of each token.
        numbers: u8, as long, overwritten.
        offsets: i8[n + 1], overwritten: the tokens of row r are those from offsets[r] on.

    Returns:
        The number of tokens.
    """
    count = 0
    offsets[0] = 0
    for row in range(begins.shape[0]):
        if has_units[row]:
            count, _ = find_mixed_spans(cleaned, begins[row], ends[row], True, spans, count, 0)
        else:
            count = find_spans(cleaned, begins[row], ends[row], spans, count)
        offsets[row + 1] = count
    for i in range(count):
        start, length = np.int64(spans[i] >> _U32), np.int64(spans[i] & _LENGTH_MASK)
        if is_keyed:
            numbers[i] = hash_first(cleaned, start, length, key)
            if length > 8:
                numbers[i] = hash_rest(numbers[i], cleaned, start, length, key)
        else:
            numbers[i] = hash_span(cleaned, start, length)
    return count


@kernel(
    types.void(
        _READ_ONLY_U8,
        types.Array(types.uint16, 1, "C", readonly=True),
        _READ_ONLY_I8,
        _READ_ONLY_U8,
        _READ_ONLY_I8,
        types.uint64[::1],
        types.uint16[::1],
        types.int64[::1],
    )
)
def append_patterns(
    terms: Any,
    counts: Any,
    offsets: Any,
    patterns: Any,
    pattern_offsets: Any,
    out_terms: Any,
    out_counts: Any,
    out_offsets: Any,
) -> None:
    """Writes the terms of each row with its patterns after them, each of which counts once.

    Args:
        terms: u8[t], counts: u2[t], offsets: i8[n + 1]: the terms of row r are
            terms[offsets[r]:offsets[r + 1]].
        patterns: u8[p], pattern_offsets: i8[n + 1]: likewise.
        out_terms, out_counts, out_offsets: overwritten; for all terms and patterns.
    """
    written = np.int64(0)
    out_offsets[0] = 0
    for row in range(offsets.shape[0] - 1):
        for i in range(offsets[row], offsets[row + 1]):
            out_terms[written], out_counts[written] = terms[i], counts[i]
            written += 1
        for i in range(pattern_offsets[row], pattern_offsets[row + 1]):
            out_terms[written], out_counts[written] = patterns[i], 1
            written += 1
        out_offsets[row + 1] = written
