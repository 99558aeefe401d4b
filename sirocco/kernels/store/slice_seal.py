"""Seals a slice: builds its vocabulary, rows of terms, posting lists and tree of boxes.

`sirocco/index/store/slices.py` describes the layout.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.hash_placement import mix
from sirocco.kernels.base.memory import prefetch
from sirocco.kernels.jit.compiled import kernel

__all__ = [
    "BLOCK_ROWS",
    "COUNT_LONG",
    "FANOUT",
    "TERM_BITS",
    "TERM_MASK",
    "fill_postings",
    "gather_pieces",
    "lay_boxes",
    "lay_terms",
    "number_terms",
    "rank_terms",
    "sum_lengths",
]

BLOCK_ROWS = 32
FANOUT = 16
TERM_BITS = 24
TERM_MASK = (1 << TERM_BITS) - 1
COUNT_LONG = 255

_AHEAD = 8

_I8 = types.Array(types.int64, 1, "C")
_I8_IN = types.Array(types.int64, 1, "C", readonly=True)
_I4 = types.Array(types.int32, 1, "C")
_I4_IN = types.Array(types.int32, 1, "C", readonly=True)
_U8 = types.Array(types.uint64, 1, "C")
_U8_IN = types.Array(types.uint64, 1, "C", readonly=True)
_U4 = types.Array(types.uint32, 1, "C")
_U4_IN = types.Array(types.uint32, 1, "C", readonly=True)
_U2_IN = types.Array(types.uint16, 1, "C", readonly=True)
_F8_IN = types.Array(types.float64, 1, "C", readonly=True)
_F4 = types.Array(types.float32, 1, "C")
_U1 = types.Array(types.uint8, 1, "C")
_U1_IN = types.Array(types.uint8, 1, "C", readonly=True)


@kernel(_U8(_U8_IN, _U4, types.uint64, types.uint64))
def number_terms(terms: Any, numbers: Any, first: Any, second: Any) -> Any:
    """Numbers distinct terms in order of their first appearance.

    Args:
        terms: u8[t], wire hashes.
        numbers: u4[t], overwritten.
        first, second: u8, a secret (see `hash_placement`).

    Returns:
        u8[v], the distinct hashes.
    """
    # Most slices have one distinct term in four; a table that grows is filled twice.
    bits = 10
    while (1 << bits) < terms.shape[0] >> 1:
        bits += 1
    table = np.zeros(1 << bits, np.uint32)
    distinct = np.empty(1 << (bits - 1), np.uint64)
    count = 0
    for i in range(terms.shape[0]):
        term = terms[i]
        mask = np.int64((1 << bits) - 1)
        h = mix(term, first, second)
        at = np.int64(h & np.uint64(mask))
        while table[at] != 0 and distinct[table[at] - 1] != term:
            at = (at + 1) & mask
        if table[at] != 0:
            numbers[i] = table[at] - 1
            continue
        if count == distinct.shape[0]:
            bits += 1
            mask = np.int64((1 << bits) - 1)
            table = np.zeros(1 << bits, np.uint32)
            longer = np.empty(2 * count, np.uint64)
            for k in range(count):
                longer[k] = distinct[k]
                at = np.int64(mix(distinct[k], first, second) & np.uint64(mask))
                while table[at] != 0:
                    at = (at + 1) & mask
                table[at] = k + 1
            distinct = longer
            at = np.int64(h & np.uint64(mask))
            while table[at] != 0:
                at = (at + 1) & mask
        distinct[count] = term
        numbers[i] = count
        count += 1
        table[at] = count
    return distinct[:count].copy()


@kernel(types.int64(_U8_IN, _U8_IN, _U4, types.uint64, types.uint64))
def rank_terms(distinct: Any, vocabulary: Any, ranks: Any, first: Any, second: Any) -> Any:
    """Finds the place of each term in the sorted vocabulary.

    Args:
        distinct: u8[v], wire hashes in any order, each once.
        vocabulary: u8[v], the same, ascending.
        ranks: u4[v], overwritten.
        first, second: u8, a secret (see `hash_placement`).

    Returns:
        0; −1 if the vocabulary lacks a term.
    """
    n = distinct.shape[0]
    bits = 1
    while (1 << bits) < 2 * n:
        bits += 1
    mask = np.int64((1 << bits) - 1)
    table = np.zeros(1 << bits, np.uint32)
    for i in range(n):
        at = np.int64(mix(vocabulary[i], first, second) & np.uint64(mask))
        while table[at] != 0:
            at = (at + 1) & mask
        table[at] = i + 1
    for i in range(n):
        at = np.int64(mix(distinct[i], first, second) & np.uint64(mask))
        while table[at] != 0 and vocabulary[table[at] - 1] != distinct[i]:
            at = (at + 1) & mask
        if table[at] == 0:
            return -1
        ranks[i] = table[at] - 1
    return 0


@kernel(types.void(_U4_IN, _I8_IN, _U4_IN, _U2_IN, _U4_IN, _U4, _U4, _U4))
def lay_terms(
    order: Any,
    offsets: Any,
    numbers: Any,
    counts: Any,
    ranks: Any,
    term_offsets: Any,
    terms: Any,
    frequencies: Any,
) -> None:
    """Writes the terms of rows in a new order, each with its count.

    Args:
        order: u4[n], the row for each place.
        offsets: i8[n + 1], numbers: u4[t], counts: u2[t]: terms of each row.
        ranks: u4[v], the final number of each term.
        term_offsets: u4[n + 1], terms: u4[t], overwritten.
        frequencies: u4[v], zeros before: rows with each term.
    """
    end = np.int64(0)
    term_offsets[0] = 0
    n = order.shape[0]
    for i in range(n):
        # The rows are anywhere in memory: they are prefetched some rows ahead, in two steps.
        if i + 2 * _AHEAD < n:
            prefetch(offsets, np.int64(order[i + 2 * _AHEAD]))
        if i + _AHEAD < n:
            ahead = offsets[order[i + _AHEAD]]
            prefetch(numbers, ahead)
            prefetch(counts, ahead)
        row = order[i]
        for k in range(offsets[row], offsets[row + 1]):
            term = ranks[numbers[k]]
            frequencies[term] += 1
            count = min(np.uint32(counts[k]), np.uint32(COUNT_LONG))
            terms[end] = term | (count << np.uint32(TERM_BITS))
            end += 1
        term_offsets[i + 1] = end


@kernel(types.void(_U1_IN, _I8_IN, _U4_IN, _U4, _U1))
def gather_pieces(data: Any, offsets: Any, order: Any, out_offsets: Any, out: Any) -> None:
    """Copies the bytes of rows in a new order.

    Args:
        data: u1[b], offsets: i8[n + 1].
        order: u4[n], the row for each place.
        out_offsets: u4[n + 1], out: u1[b], overwritten.
    """
    n = order.shape[0]
    end = np.int64(0)
    out_offsets[0] = 0
    for i in range(n):
        if i + 2 * _AHEAD < n:
            prefetch(offsets, np.int64(order[i + 2 * _AHEAD]))
        if i + _AHEAD < n:
            ahead = offsets[order[i + _AHEAD]]
            prefetch(data, ahead)
            prefetch(data, ahead + 64)
        begin = offsets[order[i]]
        length = offsets[order[i] + 1] - begin
        for k in range(length):
            out[end + k] = data[begin + k]
        end += length
        out_offsets[i + 1] = end


@kernel(types.void(_U4_IN, _U4_IN, _U4, _U4))
def fill_postings(term_offsets: Any, terms: Any, posting_offsets: Any, postings: Any) -> None:
    """Writes for each term the rows that hold it, ascending.

    Args:
        term_offsets: u4[n + 1], terms: u4[t]: the slice's rows of terms.
        posting_offsets: u4[v + 1]: zero, then the number of rows with each term; overwritten with
            the begin of each list.
        postings: u4[t], overwritten.
    """
    v = posting_offsets.shape[0] - 1
    ends = np.empty(v, np.uint32)
    total = np.uint32(0)
    for term in range(v):
        ends[term] = total
        total += posting_offsets[term + 1]
        posting_offsets[term + 1] = total
    for row in range(term_offsets.shape[0] - 1):
        for k in range(term_offsets[row], term_offsets[row + 1]):
            term = terms[k] & np.uint32(TERM_MASK)
            postings[ends[term]] = row
            ends[term] += np.uint32(1)


@kernel(inline=True)
def _below(value: Any) -> Any:
    """Returns the greatest f4 that is not above a value."""
    single = np.float32(value)
    if np.float64(single) > value:
        single = np.nextafter(single, np.float32(-np.inf))
    return single


@kernel(types.void(_F8_IN, _F8_IN, _I8_IN, _F4))
def lay_boxes(lon: Any, lat: Any, levels: Any, boxes: Any) -> None:
    """Writes the boxes of all nodes.

    Args:
        lon, lat: f8[n], in the order of the rows.
        levels: i8[h + 1], first node of each level.
        boxes: f4[4 · nodes], overwritten.
    """
    n = lon.shape[0]
    for node in range(levels[1]):
        first = node * BLOCK_ROWS
        west, south = lon[first], lat[first]
        east, north = west, south
        for row in range(first + 1, min(n, first + BLOCK_ROWS)):
            west = min(west, lon[row])
            south = min(south, lat[row])
            east = max(east, lon[row])
            north = max(north, lat[row])
        boxes[4 * node] = _below(west)
        boxes[4 * node + 1] = _below(south)
        boxes[4 * node + 2] = _below(-east)
        boxes[4 * node + 3] = _below(-north)
    for level in range(1, levels.shape[0] - 1):
        for node in range(levels[level], levels[level + 1]):
            first = levels[level - 1] + (node - levels[level]) * FANOUT
            last = min(levels[level], first + FANOUT)
            for side in range(4):
                least = boxes[4 * first + side]
                for child in range(first + 1, last):
                    least = min(least, boxes[4 * child + side])
                boxes[4 * node + side] = least


@kernel(types.void(_I4_IN, _I8))
def sum_lengths(lengths: Any, sums: Any) -> None:
    """Writes the sum of lengths (i4[n]) of all rows before each block, and before the end."""
    total = np.int64(0)
    for row in range(lengths.shape[0]):
        if row % BLOCK_ROWS == 0:
            sums[row // BLOCK_ROWS] = total
        total += lengths[row]
    sums[sums.shape[0] - 1] = total
