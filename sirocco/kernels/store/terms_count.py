"""Counts the terms of rows in a region, and of any rows: each row once for each of its terms."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.hash_placement import mix
from sirocco.kernels.base.memory import prefetch
from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.store.slice_region import point_inside
from sirocco.kernels.store.slice_runs import collect_runs
from sirocco.kernels.store.slice_seal import TERM_MASK
from sirocco.kernels.store.slice_table import (
    FIRST_SEQ,
    LAST_SEQ,
    N_ROWS,
    i8_at,
    is_outside,
    is_within,
    search_columns,
    u4_at,
)
from sirocco.kernels.store.slice_text import find_term
from sirocco.kernels.store.terms_nodes import NODE_ROWS, STRETCH_ROWS

__all__ = [
    "COUNTED_BY_BIN",
    "add_between",
    "add_counts_below",
    "add_row_terms",
    "count_between",
    "count_row_terms",
    "count_sealed",
    "hold_terms",
    "kth_count",
    "kth_sum",
    "look_up",
    "move_counts",
    "take_all_counts",
    "take_counts",
]

# With fewer rows, to count all of them is cheaper than to use the frequent terms' sums.
_ROWS_FEW = 1_024
# To sort the numbers of found terms takes as long as to scan this many times more counters.
_SORT_FACTOR = 50

# Rows or terms whose counters are prefetched: some hundred nanoseconds of work.
_AHEAD = 4

# Counts up to this have a bin of their own when the k-th greatest is looked for.
COUNTED_BY_BIN = 4_096

_F8 = types.Array(types.float64, 1, "C", readonly=True)
_F4 = types.Array(types.float32, 1, "C", readonly=True)
_I8 = types.Array(types.int64, 1, "C", readonly=True)
_I8_2D = types.Array(types.int64, 2, "C", readonly=True)
_U8 = types.Array(types.uint64, 1, "C", readonly=True)
_U4 = types.Array(types.uint32, 1, "C", readonly=True)
_I4 = types.Array(types.int32, 1, "C", readonly=True)
_I4_OUT = types.Array(types.int32, 1, "C")
_U4_OUT = types.Array(types.uint32, 1, "C")
_U8_OUT = types.Array(types.uint64, 1, "C")
_I8_OUT = types.Array(types.int64, 1, "C")


@kernel(inline=True)
def _count_words(terms: Any, first: Any, last: Any, counts: Any, found: Any, total: Any) -> Any:
    """Counts terms[first:last], appends new ones to `found`; returns its new length."""
    for k in range(first, last):
        number = np.int64(terms[k] & np.uint32(TERM_MASK))
        count = counts[number]
        found[total] = number
        total += count == 0
        counts[number] = count + 1
    return total


@kernel(inline=True)
def _counts_row(row: Any, covers: Any, words: Any, values: Any, columns: Any, life: Any) -> Any:
    """Returns whether a row lies in the region and within the bounds."""
    lon, lat, arrivals_ms, seqs = columns
    if not covers and not point_inside(words, values, lon[row], lat[row]):
        return False
    return life[0] == 0 or (
        (arrivals_ms[row] >= life[1])
        & (arrivals_ms[row] <= life[2])
        & (np.int64(seqs[row]) < life[3])
    )


@kernel
def _count_run(
    begin: Any, end: Any, covers: Any, words: Any, values: Any, columns: Any, life: Any,
    term_offsets: Any, terms: Any, counts: Any, found: Any, total: Any,
) -> Any:  # fmt: skip
    """Counts the rows of a run; see `_count_words`."""
    if covers and life[0] == 0:
        first = np.int64(term_offsets[begin])
        last = np.int64(term_offsets[end])
        return _count_words(terms, first, last, counts, found, total)
    for row in range(begin, end):
        if _counts_row(row, covers, words, values, columns, life):
            first = np.int64(term_offsets[row])
            last = np.int64(term_offsets[row + 1])
            total = _count_words(terms, first, last, counts, found, total)
    return total


@kernel
def _write_found(
    vocabulary: Any, counts: Any, found: Any, total: Any, out_hashes: Any, out_counts: Any,
    out_weights: Any, written: Any,
) -> Any:  # fmt: skip
    """Writes the counts, ascending by term, and clears them; returns the end."""
    if total * _SORT_FACTOR < vocabulary.shape[0]:
        found[:total].sort()
        for i in range(total):
            number = found[i]
            out_hashes[written] = vocabulary[number]
            out_counts[written] = counts[number]
            out_weights[written] = 0
            counts[number] = 0
            written += 1
        return written
    for number in range(vocabulary.shape[0]):
        if counts[number] != 0:
            out_hashes[written] = vocabulary[number]
            out_counts[written] = counts[number]
            out_weights[written] = 0
            counts[number] = 0
            written += 1
    return written


@kernel
def _count_frequent(
    source: Any, nodes: Any, runs: Any, run_count: Any, words: Any, values: Any, columns: Any,
    life: Any, counts: Any, found: Any, out_hashes: Any, out_counts: Any, out_weights: Any,
    written: Any,
) -> Any:  # fmt: skip
    """Counts the frequent terms of a slice; returns (the end, bound of others)."""
    _, _, _, _, term_offsets, terms, vocabulary, _, _, _, _ = search_columns(source)
    n = source[N_ROWS]
    f = nodes[0]
    frequent = i8_at(nodes[1], f)
    stretches = (n + STRETCH_ROWS - 1) // STRETCH_ROWS
    sums = u4_at(nodes[2], (stretches + 1) * f)
    rest = u4_at(nodes[3], (n + NODE_ROWS - 1) // NODE_ROWS)
    own = np.zeros(f, np.int64)
    total = np.int64(0)
    bound = np.int64(0)
    node = np.int64(-1)
    for run in range(run_count):
        begin = runs[3 * run]
        end = runs[3 * run + 1]
        covers = runs[3 * run + 2] != 0
        for other in range(max(node + 1, begin // NODE_ROWS), (end - 1) // NODE_ROWS + 1):
            bound += np.int64(rest[other])
            node = np.int64(other)
        first = (begin + STRETCH_ROWS - 1) // STRETCH_ROWS
        # The last stretch may be shorter than the others.
        last = stretches if end == n else end // STRETCH_ROWS
        if not covers or last <= first:
            total = _count_run(
                begin, end, covers, words, values, columns, life, term_offsets, terms, counts,
                found, total,
            )  # fmt: skip
            continue
        for i in range(f):
            own[i] += np.int64(sums[last * f + i] - sums[first * f + i])
        total = _count_run(
            begin, first * STRETCH_ROWS, covers, words, values, columns, life, term_offsets,
            terms, counts, found, total,
        )  # fmt: skip
        total = _count_run(
            min(end, last * STRETCH_ROWS), end, covers, words, values, columns, life,
            term_offsets, terms, counts, found, total,
        )  # fmt: skip
    for i in range(f):
        number = frequent[i]
        count = own[i] + counts[number]
        if count > 0:
            out_hashes[written] = vocabulary[number]
            out_counts[written] = count
            # Counted exactly: none of the slice's bound remains for this term.
            out_weights[written] = bound
            written += 1
    for i in range(total):
        counts[found[i]] = 0
    return written, bound


@kernel(
    types.void(
        _I8_2D, _I8_2D, _I8, _F8, _F4, types.int64, types.int64, types.int64, types.int32[::1],
        types.int64[::1], types.uint64[::1], types.int64[::1], types.int64[::1], types.int64[::1],
        types.int64[::1],
    )
)  # fmt: skip
def count_sealed(
    table: Any,
    nodes: Any,
    words: Any,
    values: Any,
    quads: Any,
    arrival_from_ms: Any,
    arrival_to_ms: Any,
    seq_before: Any,
    counts: Any,
    found: Any,
    out_hashes: Any,
    out_counts: Any,
    out_weights: Any,
    begins: Any,
    bounds: Any,
) -> None:
    """Counts the terms of sealed slices in a region.

    Args:
        table: i8[s, TABLE_WORDS], see `slice_table`.
        nodes: i8[s, 4], see `NodeCounts.row`, for slices of which only the frequent terms are
            counted; zeros for the others.
        words, values, quads: the region, see `slice_region`.
        arrival_from_ms, arrival_to_ms: bounds of arrivals, both inclusive.
        seq_before: bound of numbers within the slot, exclusive.
        counts: i4[v], zeros before and after; v is the size of the largest vocabulary.
        found: i8[v + 1], overwritten.
        out_hashes: u8[e], out_counts, out_weights: i8[e], overwritten: a list for each slice,
            ascending by hash. The weight of a frequent term is the bound of its slice.
        begins: i8[s + 1], overwritten: where each list begins, and the end.
        bounds: i8[s], overwritten: no term outside the list of the slice has more rows.
    """
    life = np.empty(4, np.int64)
    written = np.int64(0)
    begins[0] = 0
    for i in range(table.shape[0]):
        source = i8_at(table.ctypes.data + 8 * i * table.shape[1], table.shape[1])
        bounds[i] = 0
        begins[i + 1] = written
        if is_outside(source, arrival_from_ms, arrival_to_ms, seq_before):
            continue
        life[0] = not is_within(source, arrival_from_ms, arrival_to_ms, seq_before)
        life[1] = arrival_from_ms
        life[2] = arrival_to_ms
        # Clamped first: either bound may be the greatest i8.
        life[3] = min(seq_before, source[LAST_SEQ] + 1) - source[FIRST_SEQ]
        (
            lon, lat, arrivals_ms, seqs, term_offsets, terms, vocabulary, posting_offsets, _,
            boxes, levels,
        ) = search_columns(source)  # fmt: skip
        n = source[N_ROWS]
        runs, run_count, run_rows = collect_runs(
            words, values, quads, boxes, levels, n, np.int64(1 << 62)
        )
        columns = (lon, lat, arrivals_ms, seqs)
        if nodes[i, 0] != 0 and life[0] == 0 and run_rows >= _ROWS_FEW:
            written, bounds[i] = _count_frequent(
                source, nodes[i], runs, run_count, words, values, columns, life, counts, found,
                out_hashes, out_counts, out_weights, written,
            )  # fmt: skip
        elif run_count == 1 and run_rows == n and runs[2] != 0 and life[0] == 0:
            # All rows count: the counts are the lengths of the posting lists.
            for number in range(vocabulary.shape[0]):
                out_hashes[written] = vocabulary[number]
                out_counts[written] = np.int64(
                    posting_offsets[number + 1] - posting_offsets[number]
                )
                out_weights[written] = 0
                written += 1
        else:
            total = np.int64(0)
            for run in range(run_count):
                total = _count_run(
                    runs[3 * run], runs[3 * run + 1], runs[3 * run + 2] != 0, words, values,
                    columns, life, term_offsets, terms, counts, found, total,
                )  # fmt: skip
            written = _write_found(
                vocabulary, counts, found, total, out_hashes, out_counts, out_weights, written
            )
        begins[i + 1] = written


@kernel(types.void(_I8_2D, _I8_2D, _I8, _F8, _F4, _U8, types.int64[::1]))
def hold_terms(
    table: Any, nodes: Any, words: Any, values: Any, quads: Any, hashes: Any, totals: Any
) -> None:
    """Adds to the totals of some terms how many rows of a region hold them, by posting lists.

    Args:
        table: i8[s, TABLE_WORDS], slices that lie within the bounds.
        nodes: i8[s, 4]; the frequent terms of a slice have been counted there.
        words, values, quads: the region, see `slice_region`.
        hashes: u8[m], totals: i8[m], added to.
    """
    for i in range(table.shape[0]):
        source = i8_at(table.ctypes.data + 8 * i * table.shape[1], table.shape[1])
        (
            lon, lat, _, _, _, _, vocabulary, posting_offsets, postings, boxes, levels,
        ) = search_columns(source)  # fmt: skip
        frequent = i8_at(nodes[i, 1], nodes[i, 0])
        runs, run_count, _ = collect_runs(
            words, values, quads, boxes, levels, source[N_ROWS], np.int64(1 << 62)
        )
        for j in range(hashes.shape[0]):
            number = find_term(vocabulary, hashes[j])
            place = np.searchsorted(frequent, number)
            if number < 0 or (place < frequent.shape[0] and frequent[place] == number):
                continue
            at = np.int64(posting_offsets[number])
            stop = np.int64(posting_offsets[number + 1])
            for run in range(run_count):
                at += np.searchsorted(postings[at:stop], np.uint32(runs[3 * run]))
                while at < stop and np.int64(postings[at]) < runs[3 * run + 1]:
                    row = np.int64(postings[at])
                    totals[j] += runs[3 * run + 2] != 0 or point_inside(
                        words, values, lon[row], lat[row]
                    )
                    at += 1


# Any rows --------------------------------------------------------------------------------------
#
# The terms of any rows, for all slices and slots of a search. A slice numbers its terms, so its
# rows are counted by number; sums over several slices are in one hash table.


@kernel(types.int64(_U4, _U4, _I8, _I4_OUT, _U4_OUT))
def count_row_terms(term_offsets: Any, terms: Any, rows: Any, counts: Any, found: Any) -> Any:
    """Counts how many of some rows of a slice hold each term of its vocabulary.

    Args:
        term_offsets, terms: of the slice.
        rows: i8[k].
        counts: i4[v], zeros; written.
        found: u4[m], m > v and m > the terms of a row; overwritten with the numbers of the terms.

    Returns:
        How many terms were found.
    """
    total = np.int64(0)
    for i in range(-_AHEAD, rows.shape[0]):
        if i + _AHEAD < rows.shape[0]:
            later = rows[i + _AHEAD]
            for k in range(term_offsets[later], term_offsets[later + 1]):
                prefetch(counts, np.int64(terms[k] & TERM_MASK))
        if i < 0:
            continue
        row = rows[i]
        for k in range(term_offsets[row], term_offsets[row + 1]):
            number = np.int64(terms[k] & TERM_MASK)
            count = counts[number]
            found[total] = np.uint32(number)
            total += np.int64(count == 0)
            counts[number] = count + 1
    return total


@kernel(inline=True)
def _place(term: Any, keys: Any, sums: Any, first: Any, second: Any) -> Any:
    """Returns the place of a term in the table, or the free place where it belongs.

    The table is never full. A place is free while its sum is 0.
    """
    mask = np.int64(keys.shape[0] - 1)
    place = np.int64(mix(term, first, second)) & mask
    while sums[place] != 0 and keys[place] != term:
        place = (place + 1) & mask
    return place


@kernel(types.void(_I4_OUT, _U4, _I4_OUT))
def take_counts(counts: Any, numbers: Any, taken: Any) -> None:
    """Moves the counts of some terms of a slice.

    Args:
        counts: i4[v]; set to 0.
        numbers: u4[f], the terms.
        taken: i4[f], overwritten.
    """
    for i in range(numbers.shape[0]):
        taken[i] = counts[numbers[i]]
        counts[numbers[i]] = 0


@kernel(types.void(_I4_OUT, _U4_OUT, _I4_OUT))
def take_all_counts(counts: Any, numbers: Any, taken: Any) -> None:
    """Moves all counts of a slice.

    Args:
        counts: i4[v]; set to 0.
        numbers: u4[f + 1], with f the number of counts above 0; overwritten with these terms,
            ascending, and one more.
        taken: i4[f + 1], overwritten.
    """
    place = np.int64(0)
    # Each is written, then counted or not: a processor cannot predict which terms were found.
    for number in range(counts.shape[0]):
        count = counts[number]
        numbers[place] = np.uint32(number)
        taken[place] = count
        place += np.int64(count != 0)
    counts[:] = 0


@kernel(types.int64(_I4, types.int64, types.int64))
def count_between(counts: Any, least: Any, below: Any) -> Any:
    """Returns how many counts are at least `least`, and below `below`."""
    total = np.int64(0)
    for i in range(counts.shape[0]):
        total += np.int64((counts[i] >= least) & (counts[i] < below))
    return total


@kernel(
    types.int64(
        _U8, _U4, _I4, types.int64, types.int64, _U8_OUT, _I8_OUT, types.uint64, types.uint64
    )
)  # fmt: skip
def add_between(
    vocabulary: Any, numbers: Any, counts: Any, least: Any, below: Any, keys: Any, sums: Any,
    first: Any, second: Any,
) -> Any:  # fmt: skip
    """Adds those terms of a slice to a table whose counts are between two bounds.

    Args:
        vocabulary: u8[v], the terms of the slice.
        numbers, counts: u4[f], i4[f].
        least, below: the bounds.
        keys, sums: u8[n], i8[n], the table; n is a power of two, above the terms that it will hold.
        first, second: its secret.

    Returns:
        How many terms are new.
    """
    fresh = np.int64(0)
    mask = np.int64(keys.shape[0] - 1)
    for i in range(-_AHEAD, numbers.shape[0]):
        if i + _AHEAD < numbers.shape[0] and least <= counts[i + _AHEAD] < below:
            ahead = vocabulary[numbers[i + _AHEAD]]
            prefetch(sums, np.int64(mix(ahead, first, second)) & mask)
        if i < 0 or counts[i] < least or counts[i] >= below:
            continue
        term = vocabulary[numbers[i]]
        place = _place(term, keys, sums, first, second)
        fresh += np.int64(sums[place] == 0)
        keys[place] = term
        sums[place] += counts[i]
    return fresh


@kernel(types.void(_U8, _U8, _U4, _I4, types.int64, _I8_OUT))
def add_counts_below(
    terms: Any, vocabulary: Any, numbers: Any, counts: Any, below: Any, sums: Any
) -> None:
    """Adds to the sum of each of some terms its count in a slice if that is below a bound.

    Args:
        terms: u8[m].
        vocabulary: u8[v], the terms of the slice, ascending.
        numbers, counts: u4[f], ascending, and i4[f].
        below: the bound.
        sums: i8[m], added to.
    """
    for i in range(terms.shape[0]):
        number = find_term(vocabulary, terms[i])
        if number < 0:
            continue
        place = np.searchsorted(numbers, np.uint32(number))
        if place < numbers.shape[0] and numbers[place] == number and counts[place] < below:
            sums[i] += counts[place]


@kernel(types.int64(_I8, _U8, _I8, _U8_OUT, _I8_OUT, types.uint64, types.uint64))
def add_row_terms(
    term_offsets: Any, terms: Any, rows: Any, keys: Any, sums: Any, first: Any, second: Any
) -> Any:
    """Adds the terms of rows of an active slice to a table, each term of a row once.

    Args:
        term_offsets, terms: of the slice.
        rows: i8[k].
        keys, sums, first, second: see `add_between`; the table is larger than all of these terms.

    Returns:
        How many terms are new.
    """
    fresh = np.int64(0)
    mask = np.int64(keys.shape[0] - 1)
    for i in range(-_AHEAD, rows.shape[0]):
        if i + _AHEAD < rows.shape[0]:
            later = rows[i + _AHEAD]
            for k in range(term_offsets[later], term_offsets[later + 1]):
                place = np.int64(mix(terms[k], first, second)) & mask
                prefetch(sums, place)
                prefetch(keys, place)
        if i < 0:
            continue
        for k in range(term_offsets[rows[i]], term_offsets[rows[i] + 1]):
            place = _place(terms[k], keys, sums, first, second)
            fresh += np.int64(sums[place] == 0)
            keys[place] = terms[k]
            sums[place] += 1
    return fresh


@kernel(types.void(_U8, _I8, _U8_OUT, _I8_OUT, types.uint64, types.uint64))
def move_counts(
    old_keys: Any, old_sums: Any, keys: Any, sums: Any, first: Any, second: Any
) -> None:
    """Adds the terms of one table to another one, which is large enough."""
    for i in range(old_keys.shape[0]):
        if old_sums[i] != 0:
            place = _place(old_keys[i], keys, sums, first, second)
            keys[place] = old_keys[i]
            sums[place] += old_sums[i]


@kernel(types.void(_U8, _U8, _I8, types.uint64, types.uint64, _I8_OUT))
def look_up(terms: Any, keys: Any, sums: Any, first: Any, second: Any, out: Any) -> None:
    """Writes the sum of each of some terms, 0 for unknown ones.

    Args:
        terms: u8[m].
        keys, sums, first, second: the table.
        out: i8[m], overwritten.
    """
    for i in range(terms.shape[0]):
        out[i] = sums[_place(terms[i], keys, sums, first, second)]


@kernel
def _kth(counts: Any, k: Any, bins: Any) -> Any:
    for i in range(counts.shape[0]):
        bins[min(counts[i], COUNTED_BY_BIN)] += 1
    left = k
    for count in range(COUNTED_BY_BIN, 0, -1):
        left -= bins[count]
        if left <= 0:
            return np.int64(count)
    return np.int64(1)


@kernel(types.int64(_I8, types.int64, _I8_OUT))
def kth_sum(sums: Any, k: Any, bins: Any) -> Any:
    """Returns the k-th greatest sum of a table, or a lower value that at least k terms reach.

    Args:
        sums: i8[n], 0 where a place is free.
        k: at least 1.
        bins: i8[COUNTED_BY_BIN + 1], zeros; written.

    Returns:
        The k-th greatest sum, 1 if there are fewer. If it is COUNTED_BY_BIN or more: this.
    """
    return _kth(sums, k, bins)


@kernel(types.int64(_I4, types.int64, _I8_OUT))
def kth_count(counts: Any, k: Any, bins: Any) -> Any:
    """Does the same for the counts of a slice (i4[f])."""
    return _kth(counts, k, bins)
