"""Searches slices for rows that satisfy a region and a text.

There are three ways to search a sealed slice, and the one with the least estimated cost is taken:
read the runs of rows that the region may hold according to the tree; read the posting lists of the
rarest terms; or read the parts of these lists that lie in the runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.memory import prefetch
from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.store.slice_region import (
    SHAPE_BOX,
    is_any_near,
    meets_node,
    point_inside,
)
from sirocco.kernels.store.slice_runs import collect_runs
from sirocco.kernels.store.slice_table import (
    FIRST_SEQ,
    LAST_SEQ,
    is_outside,
    is_within,
    search_columns,
)
from sirocco.kernels.store.slice_text import (
    choose_anchors,
    number_hashes,
    only_term,
    text_holds,
)

__all__ = ["collect_runs", "is_any_near", "is_due", "search_sealed"]

# Estimates, nanoseconds: a row read in order, the same with its terms, a posting whose row is
# anywhere, a posting within runs, and the search for a run's place in a list.
_ROW_NS = 2.0
_TEXT_NS = 8.0
_POSTING_NS = 15.0
_NEAR_POSTING_NS = 10.0
_FIND_NS = 60.0
# With at most this many postings the tree is not tried.
_FEW_POSTINGS = 24
_AHEAD = 8

_F8 = types.Array(types.float64, 1, "C", readonly=True)
_F4 = types.Array(types.float32, 1, "C", readonly=True)
_I8 = types.Array(types.int64, 1, "C", readonly=True)
_U8 = types.Array(types.uint64, 1, "C", readonly=True)
_OUT = types.Array(types.uint32, 1, "C")


@kernel(inline=True)
def is_due(life: Any, arrivals_ms: Any, seqs: Any, row: Any) -> Any:
    """Checks arrival and number of a row; `life` is (whether to, from, up to, before)."""
    return life[0] == 0 or (
        (arrivals_ms[row] >= life[1])
        & (arrivals_ms[row] <= life[2])
        & (np.int64(seqs[row]) < life[3])
    )


@kernel(inline=True)
def _lower_bound(values: Any, begin: Any, end: Any, value: Any) -> Any:
    """Returns the first place in values[begin:end], ascending, that is not below a value."""
    step = np.int64(1)
    low = np.int64(begin)
    high = low
    while high < end and values[high] < value:
        low = high + 1
        high += step
        step *= 2
    high = min(high, np.int64(end))
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _read_lists(
    columns: Any, region: Any, life: Any, text: Any, posting_offsets: Any, postings: Any,
    found_max: Any, out: Any,
) -> Any:  # fmt: skip
    """Reads the posting lists of all anchors; see `search_sealed`."""
    # Outside of the loops: each time that an array comes out of a tuple its owners are counted.
    lon, lat, arrivals_ms, seqs, term_offsets, terms = columns
    words, values = region
    numbers, anchors, only = text
    conjunctions = words[3]
    found = np.int64(0)
    for i in range(anchors.shape[0]):
        if anchors[i] < 0:
            continue
        begin = np.int64(posting_offsets[numbers[anchors[i]]])
        end = np.int64(posting_offsets[numbers[anchors[i]] + 1])
        for k in range(begin - _AHEAD, end):
            if k + _AHEAD < end:
                prefetch(lon, np.int64(postings[k + _AHEAD]))
                prefetch(lat, np.int64(postings[k + _AHEAD]))
            if k < begin:
                continue
            row = np.int64(postings[k])
            if (
                point_inside(words, values, lon[row], lat[row])
                and is_due(life, arrivals_ms, seqs, row)
                and text_holds(
                    words, conjunctions, numbers, anchors, only, term_offsets, terms, row, i
                )
            ):
                if found == out.shape[0]:
                    return np.int64(-1)
                out[found] = row
                found += 1
                if found == found_max:
                    return found
    return found


@kernel
def _read_lists_among(
    columns: Any, region: Any, life: Any, text: Any, posting_offsets: Any, postings: Any,
    runs: Any, run_count: Any, found_max: Any, out: Any,
) -> Any:  # fmt: skip
    """Reads the parts of all anchors' lists that lie in the runs; see `search_sealed`."""
    lon, lat, arrivals_ms, seqs, term_offsets, terms = columns
    words, values = region
    numbers, anchors, only = text
    conjunctions = words[3]
    # One term in one box, the most frequent search: each row is written, then counted or not,
    # since a processor cannot predict whether a row near the border lies inside.
    is_plain = words[0] == SHAPE_BOX and words[1] == 1 and only >= 0 and life[0] == 0
    west, south, east, north = values[0], values[1], values[2], values[3]
    found = np.int64(0)
    for i in range(anchors.shape[0]):
        if anchors[i] < 0:
            continue
        at = np.int64(posting_offsets[numbers[anchors[i]]])
        end = np.int64(posting_offsets[numbers[anchors[i]] + 1])
        for run in range(run_count):
            at = _lower_bound(postings, at, end, runs[3 * run])
            if is_plain:
                begin = at
                at = _lower_bound(postings, begin, end, runs[3 * run + 1])
                covers = runs[3 * run + 2] != 0
                for k in range(begin, at):
                    row = np.int64(postings[k])
                    if found == out.shape[0]:
                        return np.int64(-1)
                    out[found] = row
                    found += np.int64(
                        covers
                        | (
                            (lon[row] >= west)
                            & (lat[row] >= south)
                            & (lon[row] <= east)
                            & (lat[row] <= north)
                        )
                    )
                    if found == found_max:
                        return found
                continue
            while at < end and np.int64(postings[at]) < runs[3 * run + 1]:
                row = np.int64(postings[at])
                at += 1
                if (
                    (runs[3 * run + 2] != 0 or point_inside(words, values, lon[row], lat[row]))
                    and is_due(life, arrivals_ms, seqs, row)
                    and text_holds(
                        words, conjunctions, numbers, anchors, only, term_offsets, terms, row, i
                    )
                ):
                    if found == out.shape[0]:
                        return np.int64(-1)
                    out[found] = row
                    found += 1
                    if found == found_max:
                        return found
            if at == end:
                break
    return found


@kernel
def _read_rows(
    columns: Any, region: Any, life: Any, text: Any, runs: Any, run_count: Any, found_max: Any,
    out: Any,
) -> Any:  # fmt: skip
    """Reads all rows of the runs; see `search_sealed`."""
    lon, lat, arrivals_ms, seqs, term_offsets, terms = columns
    words, values = region
    numbers, anchors, only = text
    conjunctions = words[3]
    is_plain = words[0] == SHAPE_BOX and words[1] == 1 and conjunctions == 0 and life[0] == 0
    west, south, east, north = values[0], values[1], values[2], values[3]
    found = np.int64(0)
    for run in range(run_count):
        covers = runs[3 * run + 2] != 0
        if covers and conjunctions == 0 and life[0] == 0:
            count = min(runs[3 * run + 1] - runs[3 * run], found_max - found)
            if found + count > out.shape[0]:
                return np.int64(-1)
            for k in range(count):
                out[found + k] = runs[3 * run] + k
            found += count
            if found == found_max:
                return found
            continue
        if is_plain:
            for row in range(runs[3 * run], runs[3 * run + 1]):
                if found == out.shape[0]:
                    return np.int64(-1)
                out[found] = row
                found += np.int64(
                    (lon[row] >= west)
                    & (lat[row] >= south)
                    & (lon[row] <= east)
                    & (lat[row] <= north)
                )
                if found == found_max:
                    return found
            continue
        for row in range(runs[3 * run], runs[3 * run + 1]):
            if (
                (covers or point_inside(words, values, lon[row], lat[row]))
                and is_due(life, arrivals_ms, seqs, row)
                and text_holds(
                    words, conjunctions, numbers, anchors, only, term_offsets, terms, row, -1
                )
            ):
                if found == out.shape[0]:
                    return np.int64(-1)
                out[found] = row
                found += 1
                if found == found_max:
                    return found
    return found


@kernel
def _search_slice(
    slice_row: Any, words: Any, values: Any, quads: Any, hashes: Any, numbers: Any, anchors: Any,
    arrival_from_ms: Any, arrival_to_ms: Any, seq_before: Any, found_max: Any, out: Any,
) -> Any:  # fmt: skip
    """Finds rows of one slice; returns how many, −1 if `out` is too short. See `search_sealed`."""
    (
        lon, lat, arrivals_ms, seqs, term_offsets, terms, vocabulary, posting_offsets, postings,
        boxes, levels,
    ) = search_columns(slice_row)  # fmt: skip
    n = np.int64(lon.shape[0])
    if not meets_node(words, quads, boxes, levels[levels.shape[0] - 1] - 1):
        return np.int64(0)
    conjunctions = words[3]
    listed = np.int64(0)
    if conjunctions > 0:
        number_hashes(vocabulary, hashes, numbers)
        listed = choose_anchors(words, words[4], conjunctions, numbers, posting_offsets, anchors)
        if listed == 0:
            return np.int64(0)
    columns = (lon, lat, arrivals_ms, seqs, term_offsets, terms)
    region = (words, values)
    checks = np.int64(not is_within(slice_row, arrival_from_ms, arrival_to_ms, seq_before))
    # Clamped first: either bound may be the greatest i8.
    before = min(seq_before, slice_row[LAST_SEQ] + 1) - slice_row[FIRST_SEQ]
    life = (checks, arrival_from_ms, arrival_to_ms, before)
    text = (numbers, anchors, only_term(words, words[4], conjunctions, numbers))

    if conjunctions > 0 and listed <= _FEW_POSTINGS:
        return _read_lists(columns, region, life, text, posting_offsets, postings, found_max, out)
    # To visit more nodes would cost more than to read the lists.
    visits_max = listed if conjunctions > 0 else np.int64(1 << 62)
    runs, run_count, run_rows = collect_runs(words, values, quads, boxes, levels, n, visits_max)
    if conjunctions > 0:
        share = np.float64(run_rows) / np.float64(n)
        scan_ns = np.float64(run_rows) * (_ROW_NS + _TEXT_NS)
        lists_ns = np.float64(listed) * _POSTING_NS
        among_ns = np.float64(run_count * conjunctions) * _FIND_NS
        among_ns += np.float64(listed) * share * _NEAR_POSTING_NS
        if run_count < 0 or lists_ns <= min(among_ns, scan_ns):
            return _read_lists(
                columns, region, life, text, posting_offsets, postings, found_max, out
            )
        if among_ns < scan_ns:
            return _read_lists_among(
                columns, region, life, text, posting_offsets, postings, runs, run_count,
                found_max, out,
            )  # fmt: skip
    return _read_rows(columns, region, life, text, runs, run_count, found_max, out)


@kernel(
    types.int64(
        types.Array(types.int64, 2, "C", readonly=True), types.int64, _I8, _F8, _F4, _U8,
        types.int64, types.int64, types.int64, types.int64, _OUT, types.Array(types.int64, 1, "C"),
    )
)  # fmt: skip
def search_sealed(
    table: Any,
    slices: Any,
    words: Any,
    values: Any,
    quads: Any,
    hashes: Any,
    arrival_from_ms: Any,
    arrival_to_ms: Any,
    seq_before: Any,
    found_max: Any,
    out: Any,
    counts: Any,
) -> Any:
    """Finds rows of sealed slices, from the last slice to the first.

    Args:
        table: i8[s, TABLE_WORDS], see `slice_table`.
        slices: how many of the first rows of the table are searched.
        words, values, quads: the condition, see `slice_region`; hashes: u8[m], its terms, see
            `slice_text`.
        arrival_from_ms, arrival_to_ms: bounds of arrivals, both inclusive.
        seq_before: bound of numbers within the slot, exclusive.
        found_max: stops after this many rows, at least 1.
        out: u4[r], overwritten: rows slice by slice, each once, in no order within a slice.
        counts: i8[s], overwritten: rows found in each slice that is done.

    Returns:
        The number of slices not searched because `out` has no room for the last one's rows; 0 when
        `found_max` was reached.
    """
    numbers = np.empty(hashes.shape[0], np.int64)
    anchors = np.empty(words[3], np.int64)
    found = np.int64(0)
    for i in range(slices - 1, -1, -1):
        counts[i] = 0
        if found == found_max or is_outside(table[i], arrival_from_ms, arrival_to_ms, seq_before):
            continue
        count = _search_slice(
            table[i], words, values, quads, hashes, numbers, anchors, arrival_from_ms,
            arrival_to_ms, seq_before, found_max - found, out[found:],
        )  # fmt: skip
        if count < 0:
            return i + 1
        counts[i] = count
        found += count
    return 0
