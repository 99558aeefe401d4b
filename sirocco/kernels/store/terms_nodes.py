"""Keeps counts of a slice's more frequent terms for nodes of its tree (SSTD 6.1).

SSTD keeps a table of term frequencies in every node of an object index and adds up those that lie
in a region. Here the terms that are frequent in some part of a slice are counted up to the begin
of each stretch of rows: one difference gives the count in any run of stretches. For the other
terms each node keeps the greatest count: enough to leave them out of a list of the most frequent
terms.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.store.slice_seal import TERM_MASK

__all__ = ["NODE_ROWS", "STRETCH_ROWS", "find_peaks", "sum_frequent"]

STRETCH_ROWS = 512
NODE_ROWS = 4_096

_U4 = types.Array(types.uint32, 1, "C", readonly=True)
_I2 = types.Array(types.int16, 1, "C", readonly=True)


@kernel(types.void(_U4, _U4, types.uint32[::1]))
def find_peaks(term_offsets: Any, terms: Any, peaks: Any) -> None:
    """Writes for each term its greatest number of rows within one node.

    Args:
        term_offsets, terms: of the slice.
        peaks: u4[v], zeros.
    """
    n = term_offsets.shape[0] - 1
    counts = np.zeros(peaks.shape[0], np.uint32)
    for begin in range(0, n, NODE_ROWS):
        first = np.int64(term_offsets[begin])
        last = np.int64(term_offsets[min(n, begin + NODE_ROWS)])
        for k in range(first, last):
            counts[terms[k] & np.uint32(TERM_MASK)] += np.uint32(1)
        for k in range(first, last):
            number = terms[k] & np.uint32(TERM_MASK)
            peaks[number] = max(peaks[number], counts[number])
            counts[number] = 0


@kernel(types.void(_U4, _U4, _I2, types.uint32[:, ::1], types.uint32[::1]))
def sum_frequent(term_offsets: Any, terms: Any, places: Any, sums: Any, rest: Any) -> None:
    """Counts frequent terms up to each stretch, and bounds the others in each node.

    Args:
        term_offsets, terms: of the slice, n rows.
        places: i2[v], the place of each term among the frequent ones, −1 for others.
        sums: u4[⌈n / STRETCH_ROWS⌉ + 1, f], overwritten: rows before the stretch with each
            frequent term; last those of all rows.
        rest: u4[⌈n / NODE_ROWS⌉], overwritten: the greatest count of another term.
    """
    n = term_offsets.shape[0] - 1
    counts = np.zeros(places.shape[0], np.uint32)
    stretches = sums.shape[0] - 1
    sums[0] = 0
    for stretch in range(stretches):
        begin = stretch * STRETCH_ROWS
        sums[stretch + 1] = sums[stretch]
        last = np.int64(term_offsets[min(n, begin + STRETCH_ROWS)])
        for k in range(np.int64(term_offsets[begin]), last):
            place = places[terms[k] & np.uint32(TERM_MASK)]
            if place >= 0:
                sums[stretch + 1, place] += np.uint32(1)
    for node in range(rest.shape[0]):
        begin = node * NODE_ROWS
        first = np.int64(term_offsets[begin])
        last = np.int64(term_offsets[min(n, begin + NODE_ROWS)])
        greatest = np.uint32(0)
        for k in range(first, last):
            number = terms[k] & np.uint32(TERM_MASK)
            if places[number] < 0:
                counts[number] += np.uint32(1)
                greatest = max(greatest, counts[number])
        for k in range(first, last):
            counts[terms[k] & np.uint32(TERM_MASK)] = 0
        rest[node] = greatest
