"""Counts terms in a sliding window: adds the objects that enter, subtracts those that leave.

Terms that some query counts one by one have a number of their own; all others share `BUCKETS`
numbers, assigned by a secret (`hash_placement`), since clients could choose words that share one.
A slice keeps the number of each entry of its vocabulary in two bytes (`mark_terms`). So to count a
term is one read of a table a quarter of the vocabulary's size and one addition, without a
comparison. `tally_terms` counts the terms of a region and a span of time by these numbers;
`move_counts` takes from these tallies the counts that one query keeps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.hash_placement import mix
from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.store.slice_region import SHAPE_BOX, is_any_near, point_inside
from sirocco.kernels.store.slice_runs import collect_runs
from sirocco.kernels.store.slice_seal import TERM_MASK
from sirocco.kernels.store.slice_table import (
    N_ROWS,
    N_WORDS,
    i8_at,
    is_outside,
    is_within,
    search_columns,
    u2_at,
)
from sirocco.kernels.store.slice_text import find_term

__all__ = [
    "BUCKETS",
    "BUCKET_BITS",
    "CODES_MAX",
    "bucket_terms",
    "count_hot",
    "mark_terms",
    "move_counts",
    "put_codes",
    "tally_terms",
]

BUCKET_BITS = 9
BUCKETS = 1 << BUCKET_BITS
# Numbers that fit two bytes: those of buckets, then those of single terms.
CODES_MAX = 1 << 16
_SHIFT = np.uint64(64 - BUCKET_BITS)

_F8 = types.Array(types.float64, 1, "C", readonly=True)
_F4 = types.Array(types.float32, 1, "C", readonly=True)
_I8 = types.Array(types.int64, 1, "C", readonly=True)
_I8_2D = types.Array(types.int64, 2, "C", readonly=True)
_U8 = types.Array(types.uint64, 1, "C", readonly=True)
_U2 = types.Array(types.uint16, 1, "C", readonly=True)
_U1 = types.Array(types.uint8, 1, "C", readonly=True)

# Rows that are selected before their terms are counted: neither loop has a branch.
_ROWS = 2_048
_PART_ROWS = 512
# Words of terms that are copied together before they are counted: a loop for each row would end at
# a different length each time, which a processor cannot predict.
_WORDS = 4_096
# Longer rows are counted separately.
_ROW_WORDS = 16
# Rows of the active slice that are tested together.
_NEAR_ROWS = 64
# Counters that are tested together: most belong to terms of other places.
_FOLD = 32
_NOWHERE = (1 << 63) - 1


@kernel(inline=True)
def _home_of(h: Any, mask: Any) -> Any:
    # Low bits: terms of one bucket share their highest bits.
    return np.int64(h & np.uint64(mask))


@kernel(inline=True)
def _code_of(term: Any, counted: Any) -> Any:
    """Returns the number of a term in an open table, or that of its bucket if it is not there."""
    hashes, codes, first, second = counted
    mask = np.int64(hashes.shape[0] - 1)
    h = mix(term, first, second)
    at = _home_of(h, mask)
    for _ in range(hashes.shape[0]):
        if codes[at] == 0:
            break
        if hashes[at] == term:
            return np.int64(codes[at])
        at = (at + 1) & mask
    return np.int64(h >> _SHIFT)


@kernel(types.void(_U8, types.uint64, types.uint64, types.uint16[::1]))
def bucket_terms(terms: Any, first: Any, second: Any, buckets: Any) -> None:
    """Writes the buckets (u2[m]) of terms (u8[m]); `first`, `second`: the secret."""
    for i in range(terms.shape[0]):
        buckets[i] = mix(terms[i], first, second) >> _SHIFT


@kernel(types.int64(_U8, _U2, types.uint64[::1], types.uint16[::1], types.uint64, types.uint64))
def put_codes(terms: Any, numbers: Any, hashes: Any, codes: Any, first: Any, second: Any) -> Any:
    """Adds terms (u8[m]) with their numbers (u2[m]) to an open table.

    Args:
        terms, numbers: none of them is in the table.
        hashes: u8[2^b], codes: u2[2^b], 0 where free; at least half of the table stays free.
        first, second: u8, the secret.

    Returns:
        0; −1 if the table is full.
    """
    mask = np.int64(hashes.shape[0] - 1)
    for i in range(terms.shape[0]):
        at = _home_of(mix(terms[i], first, second), mask)
        for _ in range(hashes.shape[0]):
            if codes[at] == 0:
                break
            at = (at + 1) & mask
        if codes[at] != 0:
            return -1
        hashes[at] = terms[i]
        codes[at] = numbers[i]
    return 0


@kernel(types.void(_U8, _U8, _U2, types.uint16[::1]))
def mark_terms(vocabulary: Any, terms: Any, numbers: Any, codes: Any) -> None:
    """Writes the numbers (u2[m]) of single terms (u8[m]) into the numbers of a vocabulary.

    Args:
        vocabulary: u8[v], ascending.
        terms, numbers: the vocabulary may lack some.
        codes: u2[v], the number of each entry.
    """
    for i in range(terms.shape[0]):
        place = find_term(vocabulary, terms[i])
        if place >= 0:
            codes[place] = numbers[i]


@kernel
def _count_found(waiting: Any, count: Any, lookup: Any, total: Any) -> Any:
    """Counts waiting[:count] in an open table while there is room; returns its number of terms."""
    _, found, found_counts, _, first, second = lookup
    last = np.int64(found.shape[0] - 1)
    for i in range(count):
        if 2 * total > last:
            break
        term = waiting[i]
        at = _home_of(mix(term, first, second), last)
        while found_counts[at] != 0 and found[at] != term:
            at = (at + 1) & last
        total += np.int64(found_counts[at] == 0)
        found[at] = term
        found_counts[at] += 1
    return total


@kernel
def _take_words(
    terms: Any, first: Any, last: Any, vocabulary: Any, codes: Any, sign: Any, tallies: Any,
    lookup: Any, total: Any,
) -> Any:  # fmt: skip
    """Counts terms[first:last] by number, or with `lookup` those of hot buckets one by one."""
    mask = np.uint32(TERM_MASK)
    hot, found, _, waiting, _, _ = lookup
    if found.shape[0] == 0:
        for k in range(first, last):
            tallies[codes[terms[k] & mask]] += sign
        return total
    for part in range(first, last, _WORDS):
        stop = min(last, np.int64(part + _WORDS))
        waits = np.int64(0)
        # No branch on the values read: each would wait for memory.
        for k in range(part, stop):
            number = terms[k] & mask
            waiting[waits] = number
            waits += np.int64(hot[codes[number]])
        for i in range(waits):
            waiting[i] = vocabulary[waiting[i]]
        total = _count_found(waiting, waits, lookup, total)
    return total


@kernel
def _take_rows(
    rows: Any, count: Any, term_offsets: Any, terms: Any, vocabulary: Any, codes: Any, sign: Any,
    tallies: Any, lookup: Any, in_line: Any, total: Any,
) -> Any:  # fmt: skip
    """Counts the terms of rows[:count]; see `_take_words`."""
    n = terms.shape[0]
    end = np.int64(0)
    for i in range(count):
        first = np.int64(term_offsets[rows[i]])
        last = np.int64(term_offsets[rows[i] + 1])
        if last - first > _ROW_WORDS or first + _ROW_WORDS > n:
            total = _take_words(
                terms, first, last, vocabulary, codes, sign, tallies, lookup, total
            )  # fmt: skip
            continue
        # Words beyond the row's end are overwritten by the next row.
        for j in range(_ROW_WORDS):
            in_line[end + j] = terms[first + j]
        end += last - first
        if end > _WORDS - _ROW_WORDS:
            total = _take_words(
                in_line, np.int64(0), end, vocabulary, codes, sign, tallies, lookup, total
            )  # fmt: skip
            end = np.int64(0)
    return _take_words(in_line, np.int64(0), end, vocabulary, codes, sign, tallies, lookup, total)


@kernel
def _choose_rows(
    begin: Any, end: Any, covers: Any, span: Any, lon: Any, lat: Any, arrivals_ms: Any, words: Any,
    values: Any, rows: Any, count: Any,
) -> Any:  # fmt: skip
    """Appends the rows of [begin, end) that count to rows[:count]; returns the new count."""
    from_ms, to_ms = span[0], span[1]
    if covers:
        for row in range(begin, end):
            rows[count] = row
            count += np.int64((arrivals_ms[row] >= from_ms) & (arrivals_ms[row] <= to_ms))
        return count
    if words[0] == SHAPE_BOX and words[1] == 1:
        west, south, east, north = values[0], values[1], values[2], values[3]
        for row in range(begin, end):
            rows[count] = row
            count += np.int64(
                (arrivals_ms[row] >= from_ms)
                & (arrivals_ms[row] <= to_ms)
                & (lon[row] >= west)
                & (lat[row] >= south)
                & (lon[row] <= east)
                & (lat[row] <= north)
            )
        return count
    for row in range(begin, end):
        if ((arrivals_ms[row] >= from_ms) & (arrivals_ms[row] <= to_ms)) and point_inside(
            words, values, lon[row], lat[row]
        ):
            rows[count] = row
            count += 1
    return count


@kernel
def _take_sealed(
    source: Any, codes: Any, span: Any, words: Any, values: Any, runs: Any, run_count: Any,
    tallies: Any, lookup: Any, rows: Any, in_line: Any, total: Any,
) -> Any:  # fmt: skip
    """Counts the rows of a slice's runs that arrived within a span; see `_take_words`."""
    lon, lat, arrivals_ms, _, term_offsets, terms, vocabulary, _, _, _, _ = search_columns(source)
    sign = np.int32(span[2])
    all_within = is_within(source, span[0], span[1], np.int64(_NOWHERE))
    count = np.int64(0)
    for run in range(run_count):
        begin, end = runs[3 * run], runs[3 * run + 1]
        covers = runs[3 * run + 2] != 0
        if covers and all_within:
            first, last = np.int64(term_offsets[begin]), np.int64(term_offsets[end])
            total = _take_words(
                terms, first, last, vocabulary, codes, sign, tallies, lookup, total
            )  # fmt: skip
            continue
        for part in range(begin, end, _PART_ROWS):
            # One more row is written than counts.
            if count + _PART_ROWS >= _ROWS:
                total = _take_rows(
                    rows, count, term_offsets, terms, vocabulary, codes, sign, tallies, lookup,
                    in_line, total,
                )  # fmt: skip
                count = np.int64(0)
            stop = min(end, np.int64(part + _PART_ROWS))
            count = _choose_rows(
                np.int64(part), stop, covers, span, lon, lat, arrivals_ms, words, values, rows,
                count,
            )  # fmt: skip
    return _take_rows(
        rows, count, term_offsets, terms, vocabulary, codes, sign, tallies, lookup, in_line, total
    )  # fmt: skip


@kernel
def _take_active(
    active: Any, rows: Any, span: Any, words: Any, values: Any, counted: Any, tallies: Any,
    lookup: Any, total: Any,
) -> Any:  # fmt: skip
    """Counts the rows of the active slice that arrived within a span; see `_take_words`."""
    lon, lat, arrivals_ms, term_offsets, terms = active
    hot, found, _, waiting, _, _ = lookup
    west, south, east, north = -180.0, -90.0, 180.0, 90.0
    if words[1] == 1:
        west, south, east, north = values[0], values[1], values[2], values[3]
    sign = np.int32(span[2])
    is_hot = found.shape[0] > 0
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
                code = _code_of(terms[k], counted)
                if not is_hot:
                    tallies[code] += sign
                elif hot[code] != 0:
                    waiting[0] = terms[k]
                    total = _count_found(waiting, np.int64(1), lookup, total)
    return total


@kernel
def _take_all(
    spans: Any, table: Any, addresses: Any, active: Any, rows: Any, words: Any, values: Any,
    quads: Any, counted: Any, tallies: Any, lookup: Any,
) -> Any:  # fmt: skip
    """Counts objects that arrived within spans; returns the number of terms (`_take_words`)."""
    total = np.int64(0)
    chosen = np.empty(_ROWS, np.int64)
    in_line = np.empty(_WORDS + _ROW_WORDS, np.uint32)
    for i in range(table.shape[0]):
        source = i8_at(table.ctypes.data + 8 * i * table.shape[1], table.shape[1])
        overlaps = False
        for j in range(spans.shape[0]):
            overlaps |= not is_outside(source, spans[j, 0], spans[j, 1], np.int64(_NOWHERE))
        if not overlaps:
            continue
        _, _, _, _, _, _, _, _, _, boxes, levels = search_columns(source)
        codes = u2_at(addresses[i], source[N_WORDS])
        runs, run_count, _ = collect_runs(
            words, values, quads, boxes, levels, source[N_ROWS], np.int64(1 << 62)
        )
        for j in range(spans.shape[0]):
            if not is_outside(source, spans[j, 0], spans[j, 1], np.int64(_NOWHERE)):
                total = _take_sealed(
                    source, codes, spans[j], words, values, runs, run_count, tallies, lookup,
                    chosen, in_line, total,
                )  # fmt: skip
    if rows > 0:
        # Usually none of its rows has left the window.
        oldest = active[2][:rows].min()
        for j in range(spans.shape[0]):
            if oldest <= spans[j, 1]:
                total = _take_active(
                    active, rows, spans[j], words, values, counted, tallies, lookup, total
                )  # fmt: skip
    return total


_WINDOW = (
    _I8_2D, _I8_2D, _I8, _F8, _F8, _I8, _I8, _U8, types.int64, _I8, _F8, _F4, _U8, _U2,
    types.uint64, types.uint64,
)  # fmt: skip


@kernel(types.void(*_WINDOW, types.int32[::1]))
def tally_terms(
    spans: Any,
    table: Any,
    addresses: Any,
    lon: Any,
    lat: Any,
    arrivals_ms: Any,
    term_offsets: Any,
    terms: Any,
    rows: Any,
    words: Any,
    values: Any,
    quads: Any,
    hashes: Any,
    codes: Any,
    first: Any,
    second: Any,
    tallies: Any,
) -> None:
    """Counts, by number, the terms of a region's objects that arrived within spans of time.

    Args:
        spans: i8[m, 3], (first arrival, last arrival, the amount that each object adds).
        table: i8[s, TABLE_WORDS], sealed slices, see `slice_table`.
        addresses: i8[s], where the numbers of their vocabularies lie, u2 each.
        lon, lat, arrivals_ms, term_offsets, terms, rows: of the active slice, see `search_active`.
        words, values, quads: the region, see `slice_region`.
        hashes, codes, first, second: the numbers of single terms, see `put_codes`.
        tallies: i4[BUCKETS + single terms], added to.
    """
    none = np.empty(0, np.uint64)
    lookup = np.empty(0, np.uint8), none, np.empty(0, np.int32), none, first, second
    active = lon, lat, arrivals_ms, term_offsets, terms
    found = _take_all(
        spans, table, addresses, active, rows, words, values, quads,
        (hashes, codes, first, second), tallies, lookup,
    )  # fmt: skip
    assert found == 0  # no term is counted one by one


@kernel
def _fold(tallies: Any, buckets: Any, kept: Any, kept_counts: Any, others: Any) -> Any:
    """Adds the tallies to one query's counts, clears them; returns the greatest of `others`."""
    for i in range(kept.shape[0]):
        kept_counts[i] += tallies[kept[i]]
        tallies[kept[i]] = 0
    for begin in range(BUCKETS, tallies.shape[0], _FOLD):
        some = tallies[begin : begin + _FOLD]
        any_bits = np.int32(0)
        for i in range(some.shape[0]):
            any_bits |= some[i]
        if any_bits == 0:
            continue
        for i in range(some.shape[0]):
            others[buckets[begin - BUCKETS + i]] += some[i]
            some[i] = 0
    bound = np.int32(0)
    for bucket in range(BUCKETS):
        others[bucket] += tallies[bucket]
        tallies[bucket] = 0
        bound = max(bound, others[bucket])
    return np.int64(bound)


@kernel(
    types.int64(
        *_WINDOW, types.int32[::1], _U2, _U2, types.int32[::1], types.int32[::1],
    )
)  # fmt: skip
def move_counts(
    spans: Any,
    table: Any,
    addresses: Any,
    lon: Any,
    lat: Any,
    arrivals_ms: Any,
    term_offsets: Any,
    terms: Any,
    rows: Any,
    words: Any,
    values: Any,
    quads: Any,
    hashes: Any,
    codes: Any,
    first: Any,
    second: Any,
    tallies: Any,
    buckets: Any,
    kept: Any,
    kept_counts: Any,
    others: Any,
) -> Any:
    """Updates the counts of one query with the objects that arrived within spans.

    Args:
        spans, …, second: see `tally_terms`.
        tallies: i4[BUCKETS + single terms], zeros before and after.
        buckets: u2[single terms], the bucket of each.
        kept: u2[t], numbers of terms that the query counts one by one.
        kept_counts: i4[t], updated.
        others: i4[BUCKETS], updated: for each bucket, the total count of its other terms.

    Returns:
        The greatest of `others`: no other term is in more objects.
    """
    tally_terms(
        spans, table, addresses, lon, lat, arrivals_ms, term_offsets, terms, rows, words, values,
        quads, hashes, codes, first, second, tallies,
    )  # fmt: skip
    return _fold(tallies, buckets, kept, kept_counts, others)


@kernel(
    types.int64(*_WINDOW, _U1, types.uint64[::1], types.int32[::1])
)  # fmt: skip
def count_hot(
    spans: Any,
    table: Any,
    addresses: Any,
    lon: Any,
    lat: Any,
    arrivals_ms: Any,
    term_offsets: Any,
    terms: Any,
    rows: Any,
    words: Any,
    values: Any,
    quads: Any,
    hashes: Any,
    codes: Any,
    first: Any,
    second: Any,
    hot: Any,
    found: Any,
    found_counts: Any,
) -> Any:
    """Counts one by one the terms of some buckets that have no number of their own.

    Args:
        spans, …, second: see `tally_terms`; each object adds 1.
        hot: u1[BUCKETS + single terms], 1 for those buckets.
        found: u8[2^m], overwritten: terms, where `found_counts` is not 0.
        found_counts: i4[2^m], zeros, overwritten.

    Returns:
        The number of terms; half the room or more means that the room did not suffice.
    """
    lookup = hot, found, found_counts, np.empty(_WORDS, np.uint64), first, second
    active = lon, lat, arrivals_ms, term_offsets, terms
    return _take_all(
        spans, table, addresses, active, rows, words, values, quads,
        (hashes, codes, first, second), found_counts[:0], lookup,
    )  # fmt: skip
