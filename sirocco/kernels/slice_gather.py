"""Taking stored objects out of slices, with all that is kept of them.

One call for rows of any slices in any order: most answers hold a few objects out of each slice,
and a dozen array operations a slice would cost more than finding them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.compiled import kernel
from sirocco.kernels.slice_seal import COUNT_LONG, TERM_BITS, TERM_MASK
from sirocco.kernels.slice_table import (
    ADDRESSES,
    COUNTS,
    FIRST_SEQ,
    IS_ACTIVE,
    TS_ARRIVAL,
    TS_DELTA,
    TS_FORM,
    TS_MISSING,
    f8_at,
    i4_at,
    i8_at,
    u1_at,
    u2_at,
    u4_at,
    u8_at,
)

__all__ = ["copy_plain", "copy_ragged", "measure_ragged"]

_MISSING_TS = -(1 << 63)
# Places of addresses in a row of the table.
_TERM_OFFSETS = ADDRESSES + 4
_TERMS = ADDRESSES + 5
_VOCABULARY = ADDRESSES + 6
_LENGTHS = ADDRESSES + 16
_TS = ADDRESSES + 17
_LONG_PLACES = ADDRESSES + 18
_LONG_COUNTS = ADDRESSES + 19
# Offsets and bytes of string ids, texts, attributes.
_BYTES = ADDRESSES + 20

_TABLE = types.Array(types.int64, 2, "C", readonly=True)
_I8_IN = types.Array(types.int64, 1, "C", readonly=True)
_F8 = types.Array(types.float64, 1, "C")
_I8 = types.Array(types.int64, 1, "C")
_I4 = types.Array(types.int32, 1, "C")
_U8 = types.Array(types.uint64, 1, "C")
_U2 = types.Array(types.uint16, 1, "C")
_U1 = types.Array(types.uint8, 1, "C")


@kernel(inline=True)
def _event_time(source: Any, row: Any, n: Any, arrival_ms: Any) -> Any:
    form = source[TS_FORM]
    if form == TS_MISSING:
        return np.int64(_MISSING_TS)
    if form == TS_ARRIVAL:
        return arrival_ms
    if form == TS_DELTA:
        return arrival_ms + np.int64(i4_at(source[_TS], n)[row])
    return i8_at(source[_TS], n)[row]


@kernel(
    types.void(_TABLE, _I8_IN, _I8_IN, _U8, _F8, _F8, _I8, _U8, _U8, _I8, _I8, _I4)
)  # fmt: skip
def copy_plain(
    table: Any,
    numbers: Any,
    rows: Any,
    out_ids: Any,
    out_lon: Any,
    out_lat: Any,
    out_ts: Any,
    out_sessions: Any,
    out_numbers: Any,
    out_arrivals_ms: Any,
    out_seqs: Any,
    out_lengths: Any,
) -> None:
    """Copies the columns of one value an object.

    Args:
        table: i8[s, TABLE_WORDS], see `slice_table`.
        numbers: i8[m], row of the table, rows: i8[m], row of that slice.
        out_ids, …: m values each, overwritten.
    """
    for i in range(rows.shape[0]):
        source = table[numbers[i]]
        row = rows[i]
        n = source[COUNTS]
        arrival_ms = i8_at(source[ADDRESSES + 2], n)[row]
        out_lon[i] = f8_at(source[ADDRESSES], n)[row]
        out_lat[i] = f8_at(source[ADDRESSES + 1], n)[row]
        out_ids[i] = u8_at(source[ADDRESSES + 11], n)[row]
        out_lengths[i] = i4_at(source[_LENGTHS], n)[row]
        out_arrivals_ms[i] = arrival_ms
        out_ts[i] = _event_time(source, row, n, arrival_ms)
        if source[IS_ACTIVE] != 0:
            out_sessions[i] = u8_at(source[ADDRESSES + 12], n)[row]
            out_numbers[i] = u8_at(source[ADDRESSES + 13], n)[row]
            out_seqs[i] = source[FIRST_SEQ] + row
        else:
            place = np.int64(u4_at(source[ADDRESSES + 12], n)[row])
            sessions = source[COUNTS + 5]
            low = np.uint64(u4_at(source[ADDRESSES + 13], n)[row])
            out_sessions[i] = u8_at(source[ADDRESSES + 14], sessions)[place]
            out_numbers[i] = u8_at(source[ADDRESSES + 15], sessions)[place] + low
            out_seqs[i] = source[FIRST_SEQ] + np.int64(u4_at(source[ADDRESSES + 3], n)[row])


@kernel(inline=True)
def _span(source: Any, address: Any, row: Any) -> Any:
    """Returns (begin, end) of a row's piece; `address` is the place of that of the offsets."""
    n = source[COUNTS]
    if source[address] == 0:
        return np.int64(0), np.int64(0)
    if source[IS_ACTIVE] != 0:
        wide = i8_at(source[address], n + 1)
        return wide[row], wide[row + 1]
    offsets = u4_at(source[address], n + 1)
    return np.int64(offsets[row]), np.int64(offsets[row + 1])


@kernel(types.void(_TABLE, _I8_IN, _I8_IN, _I8, _I8, _I8, _I8))
def measure_ragged(
    table: Any,
    numbers: Any,
    rows: Any,
    out_term_offsets: Any,
    out_name_offsets: Any,
    out_text_offsets: Any,
    out_attribute_offsets: Any,
) -> None:
    """Writes the offsets (i8[m + 1] each) of what `copy_ragged` copies."""
    terms = np.int64(0)
    names = np.int64(0)
    text = np.int64(0)
    attributes = np.int64(0)
    for i in range(rows.shape[0]):
        source = table[numbers[i]]
        out_term_offsets[i] = terms
        out_name_offsets[i] = names
        out_text_offsets[i] = text
        out_attribute_offsets[i] = attributes
        begin, end = _span(source, _TERM_OFFSETS, rows[i])
        terms += end - begin
        begin, end = _span(source, _BYTES, rows[i])
        names += end - begin
        begin, end = _span(source, _BYTES + 2, rows[i])
        text += end - begin
        begin, end = _span(source, _BYTES + 4, rows[i])
        attributes += end - begin
    m = rows.shape[0]
    out_term_offsets[m] = terms
    out_name_offsets[m] = names
    out_text_offsets[m] = text
    out_attribute_offsets[m] = attributes


@kernel
def _copy_bytes(source: Any, address: Any, row: Any, out: Any, at: Any) -> None:
    begin, end = _span(source, address, row)
    data = u1_at(source[address + 1], end)
    for k in range(end - begin):
        out[at + k] = data[begin + k]


@kernel
def _long_count(source: Any, place: Any) -> Any:
    """Returns the count of a term that does not fit its word."""
    places = i8_at(source[_LONG_PLACES], source[COUNTS + 6])
    low = np.int64(0)
    high = source[COUNTS + 6] - 1
    while low < high:
        middle = (low + high) >> 1
        if places[middle] < place:
            low = middle + 1
        else:
            high = middle
    return i4_at(source[_LONG_COUNTS], source[COUNTS + 6])[low]


@kernel
def _copy_terms(source: Any, row: Any, out_terms: Any, out_counts: Any, at: Any) -> None:
    begin, end = _span(source, _TERM_OFFSETS, row)
    if source[IS_ACTIVE] != 0:
        hashes = u8_at(source[_TERMS], end)
        counts = u2_at(source[_VOCABULARY], end)
        for k in range(end - begin):
            out_terms[at + k] = hashes[begin + k]
            out_counts[at + k] = counts[begin + k]
        return
    words = u4_at(source[_TERMS], end)
    vocabulary = u8_at(source[_VOCABULARY], source[COUNTS + 2])
    for k in range(end - begin):
        word = words[begin + k]
        count = np.int64(word >> np.uint32(TERM_BITS))
        if count == COUNT_LONG:
            count = np.int64(_long_count(source, begin + k))
        out_terms[at + k] = vocabulary[word & np.uint32(TERM_MASK)]
        out_counts[at + k] = count


@kernel(
    types.void(
        _TABLE, _I8_IN, _I8_IN, _I8_IN, _U8, _U2, _I8_IN, _U1, _I8_IN, _U1, _I8_IN, _U1,
    )
)  # fmt: skip
def copy_ragged(
    table: Any,
    numbers: Any,
    rows: Any,
    term_offsets: Any,
    out_terms: Any,
    out_counts: Any,
    name_offsets: Any,
    out_names: Any,
    text_offsets: Any,
    out_text: Any,
    attribute_offsets: Any,
    out_attributes: Any,
) -> None:
    """Copies terms, string ids, texts and attributes; offsets as `measure_ragged` wrote them."""
    for i in range(rows.shape[0]):
        source = table[numbers[i]]
        row = rows[i]
        _copy_terms(source, row, out_terms, out_counts, term_offsets[i])
        if name_offsets[i + 1] > name_offsets[i]:
            _copy_bytes(source, _BYTES, row, out_names, name_offsets[i])
        if text_offsets[i + 1] > text_offsets[i]:
            _copy_bytes(source, _BYTES + 2, row, out_text, text_offsets[i])
        if attribute_offsets[i + 1] > attribute_offsets[i]:
            _copy_bytes(source, _BYTES + 4, row, out_attributes, attribute_offsets[i])
