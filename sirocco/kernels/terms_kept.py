"""Counts of terms that follow a window: what entered is added, what left is taken away.

The terms that were frequent are counted one by one; all others share `BUCKETS` counters by the
highest bits of their hashes, each a bound of every term in it. So what is kept of a window fits
into the first-level cache while it is counted, however many different terms the objects hold, and
slices with vocabularies of their own count into the same place.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.compiled import kernel
from sirocco.kernels.slice_region import is_any_near, point_inside
from sirocco.kernels.slice_runs import collect_runs
from sirocco.kernels.slice_seal import TERM_MASK
from sirocco.kernels.slice_table import COUNTS, i8_at, is_outside, is_within, search_columns

__all__ = ["BUCKETS", "BUCKET_BITS", "BUCKET_TERMS", "count_hot", "move_counts"]

BUCKET_BITS = 9
BUCKETS = 1 << BUCKET_BITS
# Terms of one bucket that can be counted one by one.
BUCKET_TERMS = 2
# Counters of a bucket: of the others, and of each of its terms.
_STRIDE = 4
_SHIFT = np.uint64(64 - BUCKET_BITS)

_F8 = types.Array(types.float64, 1, "C", readonly=True)
_F4 = types.Array(types.float32, 1, "C", readonly=True)
_I8 = types.Array(types.int64, 1, "C", readonly=True)
_I8_2D = types.Array(types.int64, 2, "C", readonly=True)
_U8 = types.Array(types.uint64, 1, "C", readonly=True)

_MIX = np.uint64(0x9E3779B97F4A7C15)
# Terms that are collected before they are looked up.
_WAITING = 4_096
# Rows of the active slice that are looked at together.
_NEAR_ROWS = 64
_NOWHERE = (1 << 63) - 1


@kernel(inline=True)
def _bucket_of(term: Any) -> Any:
    """Returns the bucket of a wire hash."""
    return np.int64(term >> _SHIFT)


@kernel(inline=True)
def _count(term: Any, sign: Any, keys: Any, counts: Any) -> Any:
    bucket = _bucket_of(term)
    place = (
        _STRIDE * bucket
        + np.int64(term == keys[BUCKET_TERMS * bucket])
        + 2 * np.int64(term == keys[BUCKET_TERMS * bucket + 1])
    )
    counts[place] += sign


@kernel
def _spread(kept: Any, kept_counts: Any, others: Any, keys: Any, counts: Any) -> None:
    """Lays the counters out by bucket."""
    for bucket in range(BUCKETS):
        # A hash of another bucket stands for no term.
        none = np.uint64(0) if bucket else ~np.uint64(0)
        keys[BUCKET_TERMS * bucket] = none
        keys[BUCKET_TERMS * bucket + 1] = none
        counts[_STRIDE * bucket] = others[bucket]
        counts[_STRIDE * bucket + 1] = 0
        counts[_STRIDE * bucket + 2] = 0
    for i in range(kept.shape[0]):
        bucket = _bucket_of(kept[i])
        place = np.int64(i > 0 and _bucket_of(kept[i - 1]) == bucket)
        keys[BUCKET_TERMS * bucket + place] = kept[i]
        counts[_STRIDE * bucket + 1 + place] = kept_counts[i]


@kernel
def _gather(kept: Any, kept_counts: Any, others: Any, counts: Any) -> None:
    """Takes the counters back."""
    for bucket in range(BUCKETS):
        others[bucket] = counts[_STRIDE * bucket]
    for i in range(kept.shape[0]):
        bucket = _bucket_of(kept[i])
        place = np.int64(i > 0 and _bucket_of(kept[i - 1]) == bucket)
        kept_counts[i] = counts[_STRIDE * bucket + 1 + place]


@kernel
def _count_found(waiting: Any, count: Any, found: Any, found_counts: Any, total: Any) -> Any:
    """Counts waiting[:count] in an open table while there is room; returns its number of terms."""
    last = np.int64(found.shape[0] - 1)
    for i in range(count):
        if 2 * total > last:
            break
        term = waiting[i]
        # The highest bits are those of few buckets.
        at = np.int64((term * _MIX) >> np.uint64(20)) & last
        while found_counts[at] != 0 and found[at] != term:
            at = (at + 1) & last
        total += np.int64(found_counts[at] == 0)
        found[at] = term
        found_counts[at] += 1
    return total


@kernel
def _take_sealed(
    source: Any, span: Any, words: Any, values: Any, runs: Any, run_count: Any, keys: Any,
    counts: Any, hot: Any, found: Any, found_counts: Any, total: Any,
) -> Any:  # fmt: skip
    """Counts the rows of a slice's runs that arrived within a span; returns `total`."""
    lon, lat, arrivals_ms, _, term_offsets, terms, vocabulary, _, _, _, _ = search_columns(source)
    from_ms, upto_ms = span[0], span[1]
    sign = np.int32(span[2])
    mask = np.uint32(TERM_MASK)
    is_hot = found.shape[0] > 0
    waiting = np.empty(_WAITING if is_hot else 0, np.uint64)
    waits = np.int64(0)
    all_within = is_within(source, from_ms, upto_ms, np.int64(_NOWHERE))
    for run in range(run_count):
        begin, end = runs[3 * run], runs[3 * run + 1]
        covers = runs[3 * run + 2] != 0
        all_count = covers and all_within
        # As many rows at once as surely count.
        stride = end - begin if all_count else np.int64(1)
        for row in range(begin, end, stride):
            if not all_count:
                if (arrivals_ms[row] < from_ms) | (arrivals_ms[row] > upto_ms):
                    continue
                if not covers and not point_inside(words, values, lon[row], lat[row]):
                    continue
            first, last = np.int64(term_offsets[row]), np.int64(term_offsets[row + stride])
            if not is_hot:
                for k in range(first, last):
                    _count(vocabulary[terms[k] & mask], sign, keys, counts)
                continue
            for part in range(first, last, _WAITING // 2):
                if waits > _WAITING // 2:
                    total = _count_found(waiting, waits, found, found_counts, total)
                    waits = np.int64(0)
                # Without a branch on what is read: each would wait for memory.
                stop = min(last, np.int64(part + _WAITING // 2))
                for k in range(part, stop):
                    term = vocabulary[terms[k] & mask]
                    waiting[waits] = term
                    waits += np.int64(hot[_bucket_of(term)])
    return _count_found(waiting, waits, found, found_counts, total)


@kernel
def _take_active(
    lon: Any, lat: Any, arrivals_ms: Any, term_offsets: Any, terms: Any, rows: Any, span: Any,
    words: Any, values: Any, keys: Any, counts: Any, hot: Any, found: Any, found_counts: Any,
    total: Any,
) -> Any:  # fmt: skip
    """Counts the rows of the active slice that arrived within a span; returns `total`."""
    west, south, east, north = -180.0, -90.0, 180.0, 90.0
    if words[1] == 1:
        west, south, east, north = values[0], values[1], values[2], values[3]
    sign = np.int32(span[2])
    is_hot = found.shape[0] > 0
    waiting = np.empty(1, np.uint64)
    for begin in range(0, rows, _NEAR_ROWS):
        end = min(begin + _NEAR_ROWS, rows)
        if not is_any_near(lon[begin:end], lat[begin:end], west, south, east, north):
            continue
        for row in range(begin, end):
            if (
                (lon[row] < west)
                | (lon[row] > east)
                | (arrivals_ms[row] < span[0])
                | (arrivals_ms[row] > span[1])
            ) or not point_inside(words, values, lon[row], lat[row]):
                continue
            for k in range(term_offsets[row], term_offsets[row + 1]):
                if not is_hot:
                    _count(terms[k], sign, keys, counts)
                elif hot[_bucket_of(terms[k])] != 0:
                    waiting[0] = terms[k]
                    total = _count_found(waiting, np.int64(1), found, found_counts, total)
    return total


@kernel
def _take_all(
    spans: Any, table: Any, active: Any, rows: Any, words: Any, values: Any, quads: Any,
    keys: Any, counts: Any, hot: Any, found: Any, found_counts: Any,
) -> Any:  # fmt: skip
    """Counts what arrived within spans: by bucket, or with `found`, the terms of hot buckets.

    Returns:
        How many terms were found.
    """
    total = np.int64(0)
    for i in range(table.shape[0]):
        source = i8_at(table.ctypes.data + 8 * i * table.shape[1], table.shape[1])
        is_met = False
        for j in range(spans.shape[0]):
            is_met |= not is_outside(source, spans[j, 0], spans[j, 1], np.int64(_NOWHERE))
        if not is_met:
            continue
        _, _, _, _, _, _, _, _, _, boxes, levels = search_columns(source)
        runs, run_count, _ = collect_runs(
            words, values, quads, boxes, levels, source[COUNTS], np.int64(1 << 62)
        )
        for j in range(spans.shape[0]):
            if not is_outside(source, spans[j, 0], spans[j, 1], np.int64(_NOWHERE)):
                total = _take_sealed(
                    source, spans[j], words, values, runs, run_count, keys, counts, hot, found,
                    found_counts, total,
                )  # fmt: skip
    lon, lat, arrivals_ms, term_offsets, terms = active
    for j in range(spans.shape[0]):
        # Nothing of it left the window, as a rule.
        if rows > 0 and arrivals_ms[:rows].min() <= spans[j, 1]:
            total = _take_active(
                lon, lat, arrivals_ms, term_offsets, terms, rows, spans[j], words, values, keys,
                counts, hot, found, found_counts, total,
            )  # fmt: skip
    return total


@kernel(
    types.int64(
        _I8_2D, _I8_2D, _F8, _F8, _I8, _I8, _U8, types.int64, _I8, _F8, _F4,
        _U8, types.int32[::1], types.int32[::1],
    )
)  # fmt: skip
def move_counts(
    spans: Any,
    table: Any,
    lon: Any,
    lat: Any,
    arrivals_ms: Any,
    term_offsets: Any,
    terms: Any,
    rows: Any,
    words: Any,
    values: Any,
    quads: Any,
    kept: Any,
    kept_counts: Any,
    others: Any,
) -> Any:
    """Counts the terms of a region's objects that arrived within spans of time.

    Args:
        spans: i8[m, 3], (first arrival, last arrival, what each object adds).
        table: i8[s, TABLE_WORDS], sealed slices, see `slice_table`.
        lon, lat, arrivals_ms, term_offsets, terms, rows: of the active slice, see `search_active`.
        words, values, quads: the region, see `slice_region`.
        kept: u8[t], ascending, at most BUCKET_TERMS of a bucket: counted one by one.
        kept_counts: i4[t], moved on.
        others: i4[BUCKETS], moved on: of each bucket, how often its other terms occur together.

    Returns:
        The greatest of `others`: no other term is in more objects.
    """
    keys = np.empty(BUCKET_TERMS * BUCKETS, np.uint64)
    none = np.empty(0, np.uint8)
    counts = np.empty(_STRIDE * BUCKETS, np.int32)
    _spread(kept, kept_counts, others, keys, counts)
    _take_all(
        spans, table, (lon, lat, arrivals_ms, term_offsets, terms), rows, words, values, quads,
        keys, counts, none, keys[:0], counts[:0],
    )  # fmt: skip
    _gather(kept, kept_counts, others, counts)
    bound = np.int64(0)
    for bucket in range(BUCKETS):
        bound = max(bound, np.int64(others[bucket]))
    return bound


@kernel(
    types.int64(
        _I8_2D, _I8_2D, _F8, _F8, _I8, _I8, _U8, types.int64, _I8, _F8, _F4,
        types.uint8[::1], types.uint64[::1], types.int32[::1],
    )
)  # fmt: skip
def count_hot(
    spans: Any,
    table: Any,
    lon: Any,
    lat: Any,
    arrivals_ms: Any,
    term_offsets: Any,
    terms: Any,
    rows: Any,
    words: Any,
    values: Any,
    quads: Any,
    hot: Any,
    found: Any,
    found_counts: Any,
) -> Any:
    """Counts the terms of some buckets one by one, in one table for all slices.

    Args:
        spans, table, lon, lat, arrivals_ms, term_offsets, terms, rows, words, values, quads: see
            `move_counts`; what each object adds is 1.
        hot: u1[BUCKETS], 1 for those buckets.
        found: u8[2^m], overwritten: terms, where `found_counts` is not 0.
        found_counts: i4[2^m], zeros, overwritten.

    Returns:
        How many terms there are; half the room or more: there was not enough.
    """
    none = np.empty(0, np.int32)
    return _take_all(
        spans, table, (lon, lat, arrivals_ms, term_offsets, terms), rows, words, values, quads,
        found[:0], none, hot, found, found_counts,
    )  # fmt: skip
