"""Hashes the tokens or terms of cleaned texts (`cleaning`); sorts them, without repeats."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.keyed_hash import hash_first, hash_rest
from sirocco.kernels.base.words import load_u64
from sirocco.kernels.base.xxh3 import hash_1_to_3, hash_4_to_8, hash_span
from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.text.spans import find_mixed_spans, find_spans

__all__ = ["OTHERS_MORE", "collect_keyed_terms", "collect_terms"]

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

_U0, _U1, _U4, _U8, _U32 = (np.uint64(n) for n in (0, 1, 4, 8, 32))
_LENGTH_MASK = np.uint64(0xFFFF_FFFF)

_READ_ONLY_I8 = types.Array(types.int64, 1, "C", readonly=True)
_READ_ONLY_BOOL = types.Array(types.boolean, 1, "C", readonly=True)


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


@kernel(inline=True)
def _find_all(
    cleaned: Any, starts: Any, ends: Any, has_units: Any, wants_units: Any, tail: Any, spans: Any,
    lengths: Any,
) -> Any:  # fmt: skip
    """Writes the spans of all rows, and how many each has; returns the number of all."""
    count = 0
    for row in range(starts.shape[0]):
        first = count
        if has_units[row]:
            count, tail = find_mixed_spans(
                cleaned, starts[row], ends[row], wants_units, spans, count, tail
            )
        else:
            count = find_spans(cleaned, starts[row], ends[row], spans, count)
        lengths[row] = count - first
    return count


@kernel(inline=True)
def _keep_order(source: Any, count: Any, kept: Any) -> None:
    """Copies spans or hashes before they change, where they are wanted."""
    if kept.shape[0] > 0:
        kept[:count] = source[:count]


@kernel(inline=True)
def _sort_all(terms: Any, lengths: Any, offsets: Any, counts: Any, others: Any) -> Any:
    """Sorts the hashes of each row without repeats; returns the number of all that are left."""
    first = kept = 0
    offsets[0] = 0
    for row in range(lengths.shape[0]):
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
        types.uint64[::1],
        types.uint64[:, ::1],
        types.int64[::1],
        types.int32[::1],
        types.uint16[::1],
        types.uint64[::1],
        types.uint64[::1],
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
    spans: Any,
    numbers: Any,
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
        spans, numbers: u8, as long as `terms`, overwritten: start << 32 | length and hash of each
            token as they follow one another, repeats included; empty: not wanted.

    Returns:
        The number of terms written.
    """
    count = _find_all(cleaned, starts, ends, has_units, wants_units, tail, terms, lengths)
    _keep_order(terms, count, spans)
    _hash_spans(cleaned, terms, count, others)
    _keep_order(terms, count, numbers)
    return _sort_all(terms, lengths, offsets, counts, others)


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
        types.uint64[::1],
        types.uint64[::1],
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
    spans: Any,
    numbers: Any,
) -> Any:
    """Does the same as `collect_terms`, with the hash of a secret key (`keyed_hash`).

    Args:
        all others: as in `collect_terms`.
        key: u8[KEY_WORDS].

    Returns:
        The number of terms written.
    """
    count = _find_all(cleaned, starts, ends, has_units, wants_units, tail, terms, lengths)
    _keep_order(terms, count, spans)
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
    _keep_order(terms, count, numbers)
    return _sort_all(terms, lengths, offsets, counts, others)
