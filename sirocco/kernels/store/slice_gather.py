"""Reads stored objects from slices, with all of their columns.

One call reads rows of any slices in any order: most answers hold a few objects of each slice, and
a dozen array operations for each slice would cost more than to find the objects.

Hardly any of these rows is in a cache. So columns with one value a row are copied one by one, for
all consecutive rows of a slice: a loop without branches loads a dozen rows from memory at once,
while a row whose length must be read first is loaded alone. The lengths of all pieces are read in
the same way beforehand, so that their bytes can be prefetched.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.memory import copy_run, prefetch
from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.store.slice_seal import COUNT_LONG, TERM_BITS, TERM_MASK
from sirocco.kernels.store.slice_table import (
    AT_ARRIVALS,
    AT_ATTRIBUTES,
    AT_IDS,
    AT_LAT,
    AT_LENGTHS,
    AT_LON,
    AT_LONG_COUNTS,
    AT_LONG_PLACES,
    AT_NAME_OFFSETS,
    AT_NAMES,
    AT_NUMBER_BASES,
    AT_NUMBERS,
    AT_ROW_COUNTS,
    AT_ROW_SESSIONS,
    AT_SEQS,
    AT_SESSION_ROWS,
    AT_SESSIONS,
    AT_TERM_OFFSETS,
    AT_TERMS,
    AT_TEXT,
    AT_TS,
    AT_VOCABULARY,
    FIRST_SEQ,
    IS_ACTIVE,
    N_LONG,
    N_ROWS,
    N_SESSIONS,
    N_WORDS,
    TS_ARRIVAL,
    TS_DELTA,
    TS_FORM,
    TS_PLAIN,
    f8_at,
    i4_at,
    i8_at,
    u1_at,
    u2_at,
    u4_at,
    u8_at,
)

__all__ = ["PIECES", "copy_plain", "copy_ragged", "measure_ragged"]

_MISSING_TS = -(1 << 63)

# Kinds of pieces of a row: terms, string id, text, attributes.
PIECES = 4

# Pieces to prefetch ahead: enough that one wait for memory covers many, few enough that they are
# still in the cache when they are copied.
_AHEAD = 8
_LINE_BYTES = 64

_TABLE = types.Array(types.int64, 2, "C", readonly=True)
_I8_IN = types.Array(types.int64, 1, "C", readonly=True)
_I8_2_IN = types.Array(types.int64, 2, "C", readonly=True)
_F8_2 = types.Array(types.float64, 2, "C")
_I8_2 = types.Array(types.int64, 2, "C")
_U8_2 = types.Array(types.uint64, 2, "C")
_I4 = types.Array(types.int32, 1, "C")
_U8 = types.Array(types.uint64, 1, "C")
_U2 = types.Array(types.uint16, 1, "C")
_U1 = types.Array(types.uint8, 1, "C")


@kernel(inline=True)
def _run_end(numbers: Any, begin: Any) -> Any:
    """Returns the end of the run of objects of one slice that begins at `begin`."""
    end = begin + 1
    while end < numbers.shape[0] and numbers[end] == numbers[begin]:
        end += 1
    return end


@kernel
def _take(column: Any, rows: Any, begin: Any, end: Any, out: Any) -> None:
    for i in range(begin, end):
        out[i] = column[rows[i]]


@kernel
def _take_ts(source: Any, rows: Any, begin: Any, end: Any, arrivals_ms: Any, out: Any) -> None:
    """Copies event times of the rows of one slice, whose arrivals have been copied."""
    form, n = source[TS_FORM], source[N_ROWS]
    if form == TS_PLAIN:
        _take(i8_at(source[AT_TS], n), rows, begin, end, out)
    elif form == TS_DELTA:
        deltas = i4_at(source[AT_TS], n)
        for i in range(begin, end):
            out[i] = arrivals_ms[i] + np.int64(deltas[rows[i]])
    elif form == TS_ARRIVAL:
        for i in range(begin, end):
            out[i] = arrivals_ms[i]
    else:
        for i in range(begin, end):
            out[i] = _MISSING_TS


@kernel
def _take_events(
    source: Any, rows: Any, begin: Any, end: Any, sessions: Any, numbers: Any, seqs: Any
) -> None:
    """Copies event keys and numbers within the slot of the rows of one slice."""
    first, n = source[FIRST_SEQ], source[N_ROWS]
    if source[IS_ACTIVE] != 0:
        _take(u8_at(source[AT_ROW_SESSIONS], n), rows, begin, end, sessions)
        _take(u8_at(source[AT_NUMBERS], n), rows, begin, end, numbers)
        for i in range(begin, end):
            seqs[i] = first + rows[i]
        return
    places = u4_at(source[AT_SESSION_ROWS], n)
    lows = u4_at(source[AT_NUMBERS], n)
    own_seqs = u4_at(source[AT_SEQS], n)
    own_sessions = u8_at(source[AT_SESSIONS], source[N_SESSIONS])
    bases = u8_at(source[AT_NUMBER_BASES], source[N_SESSIONS])
    for i in range(begin, end):
        place = np.int64(places[rows[i]])
        sessions[i] = own_sessions[place]
        numbers[i] = bases[place] + np.uint64(lows[rows[i]])
    for i in range(begin, end):
        seqs[i] = first + np.int64(own_seqs[rows[i]])


@kernel(types.void(_TABLE, _I8_IN, _I8_IN, _U8_2, _F8_2, _I8_2, _I4))
def copy_plain(
    table: Any,
    numbers: Any,
    rows: Any,
    out_keys: Any,
    out_places: Any,
    out_times: Any,
    out_lengths: Any,
) -> None:
    """Copies the columns with one value for each object.

    Args:
        table: i8[s, TABLE_WORDS], see `slice_table`.
        numbers: i8[m], row of the table.
        rows: i8[m], row of that slice.
        out_keys: u8[3, m], overwritten: ids, sessions, numbers.
        out_places: f8[2, m], overwritten: lon, lat.
        out_times: i8[3, m], overwritten: ts, arrivals_ms, seqs.
        out_lengths: i4[m], overwritten.
    """
    begin = 0
    while begin < rows.shape[0]:
        end = _run_end(numbers, begin)
        source = table[numbers[begin]]
        n = source[N_ROWS]
        _take(f8_at(source[AT_LON], n), rows, begin, end, out_places[0])
        _take(f8_at(source[AT_LAT], n), rows, begin, end, out_places[1])
        _take(u8_at(source[AT_IDS], n), rows, begin, end, out_keys[0])
        _take(i4_at(source[AT_LENGTHS], n), rows, begin, end, out_lengths)
        _take(i8_at(source[AT_ARRIVALS], n), rows, begin, end, out_times[1])
        _take_ts(source, rows, begin, end, out_times[1], out_times[0])
        _take_events(source, rows, begin, end, out_keys[1], out_keys[2], out_times[2])
        begin = end


@kernel
def _measure(edges: Any, rows: Any, begin: Any, end: Any, begins: Any, offsets: Any) -> None:
    """Finds pieces of the rows of one slice; `edges` (i8 or u4[n + 1]) are its offsets."""
    at = offsets[begin]
    for i in range(begin, end):
        first = np.int64(edges[rows[i]])
        at += np.int64(edges[rows[i] + 1]) - first
        begins[i] = first
        offsets[i + 1] = at


@kernel(types.void(_TABLE, _I8_IN, _I8_IN, _I8_2, _I8_2))
def measure_ragged(table: Any, numbers: Any, rows: Any, out_begins: Any, out_offsets: Any) -> None:
    """Finds the pieces that `copy_ragged` copies; those of a column without an address are empty.

    Args:
        table, numbers, rows: as in `copy_plain`.
        out_begins: i8[PIECES, m], overwritten: where each piece begins in its slice's column.
        out_offsets: i8[PIECES, m + 1], overwritten: where each piece begins in the output.
    """
    out_offsets[:, 0] = 0
    begin = 0
    while begin < rows.shape[0]:
        end = _run_end(numbers, begin)
        source = table[numbers[begin]]
        for piece in range(PIECES):
            address = AT_TERM_OFFSETS if piece == 0 else AT_NAME_OFFSETS + 2 * (piece - 1)
            begins, offsets = out_begins[piece], out_offsets[piece]
            if source[address] == 0:
                for i in range(begin, end):
                    begins[i] = 0
                    offsets[i + 1] = offsets[begin]
            elif source[IS_ACTIVE] != 0:
                edges = i8_at(source[address], source[N_ROWS] + 1)
                _measure(edges, rows, begin, end, begins, offsets)
            else:
                narrow = u4_at(source[address], source[N_ROWS] + 1)
                _measure(narrow, rows, begin, end, begins, offsets)
        begin = end


@kernel(inline=True)
def _prefetch_line(address: Any) -> None:
    """Prefetches the cache line of an address."""
    prefetch(u1_at(address, 1), 0)


@kernel
def _copy_bytes(
    table: Any, numbers: Any, address: Any, begins: Any, offsets: Any, out: Any
) -> None:
    """Copies pieces of bytes; `address` is the column of their address in a row of the table."""
    m = numbers.shape[0]
    if offsets[m] == 0:
        return
    for i in range(m):
        if i + _AHEAD < m and offsets[i + _AHEAD + 1] > offsets[i + _AHEAD]:
            first = table[numbers[i + _AHEAD], address] + begins[i + _AHEAD]
            _prefetch_line(first)
            _prefetch_line(first + _LINE_BYTES)
        count = offsets[i + 1] - offsets[i]
        if count > 0:
            data = u1_at(table[numbers[i], address] + begins[i], count)
            copy_run(data, count, out, offsets[i])


@kernel
def _long_count(source: Any, place: Any) -> Any:
    """Returns a term's count that does not fit into its word."""
    places = i8_at(source[AT_LONG_PLACES], source[N_LONG])
    low = np.int64(0)
    high = source[N_LONG] - 1
    while low < high:
        middle = (low + high) >> 1
        if places[middle] < place:
            low = middle + 1
        else:
            high = middle
    return i4_at(source[AT_LONG_COUNTS], source[N_LONG])[low]


@kernel
def _copy_terms(
    source: Any, begin: Any, end: Any, out_terms: Any, out_counts: Any, at: Any
) -> None:
    """Copies the terms of one row; `begin`, `end` are places in its slice's `terms`."""
    if source[IS_ACTIVE] != 0:
        hashes = u8_at(source[AT_TERMS], end)
        counts = u2_at(source[AT_ROW_COUNTS], end)
        for k in range(end - begin):
            out_terms[at + k] = hashes[begin + k]
            out_counts[at + k] = counts[begin + k]
        return
    words = u4_at(source[AT_TERMS], end)
    vocabulary = u8_at(source[AT_VOCABULARY], source[N_WORDS])
    for k in range(end - begin):
        word = words[begin + k]
        count = np.int64(word >> np.uint32(TERM_BITS))
        if count == COUNT_LONG:
            count = np.int64(_long_count(source, begin + k))
        out_terms[at + k] = vocabulary[word & np.uint32(TERM_MASK)]
        out_counts[at + k] = count


@kernel
def _copy_all_terms(
    table: Any, numbers: Any, begins: Any, offsets: Any, out_terms: Any, out_counts: Any
) -> None:
    m = numbers.shape[0]
    if offsets[m] == 0:
        return
    for i in range(m):
        if i + _AHEAD < m:
            ahead = table[numbers[i + _AHEAD]]
            # Terms of an active slice are twice as wide, but recent, and so in a cache.
            _prefetch_line(ahead[AT_TERMS] + 4 * begins[i + _AHEAD])
        source = table[numbers[i]]
        count = offsets[i + 1] - offsets[i]
        _copy_terms(source, begins[i], begins[i] + count, out_terms, out_counts, offsets[i])


@kernel(types.void(_TABLE, _I8_IN, _I8_2_IN, _I8_2_IN, _U8, _U2, _U1, _U1, _U1))
def copy_ragged(
    table: Any,
    numbers: Any,
    begins: Any,
    offsets: Any,
    out_terms: Any,
    out_counts: Any,
    out_names: Any,
    out_text: Any,
    out_attributes: Any,
) -> None:
    """Copies terms, string ids, texts and attributes.

    Args:
        table, numbers: as in `copy_plain`.
        begins, offsets: as `measure_ragged` wrote them.
        out_terms: u8[t], overwritten.
        out_counts: u2[t], overwritten; the other outputs are u1[b], overwritten.
    """
    _copy_all_terms(table, numbers, begins[0], offsets[0], out_terms, out_counts)
    _copy_bytes(table, numbers, AT_NAMES, begins[1], offsets[1], out_names)
    _copy_bytes(table, numbers, AT_TEXT, begins[2], offsets[2], out_text)
    _copy_bytes(table, numbers, AT_ATTRIBUTES, begins[3], offsets[3], out_attributes)
