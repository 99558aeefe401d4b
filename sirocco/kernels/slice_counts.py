"""Counting in slices: how many rows hold each term, how often rows hold keywords, who may win."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.compiled import kernel
from sirocco.kernels.geometry import distance_m
from sirocco.kernels.slice_seal import COUNT_LONG, TERM_BITS, TERM_MASK

__all__ = [
    "count_row_terms",
    "distances_from",
    "keyword_counts_active",
    "keyword_counts_sealed",
    "mark_contenders",
]

_F8 = types.Array(types.float64, 1, "C", readonly=True)
_I8 = types.Array(types.int64, 1, "C", readonly=True)
_I4 = types.Array(types.int32, 1, "C", readonly=True)
_U8 = types.Array(types.uint64, 1, "C", readonly=True)
_U4 = types.Array(types.uint32, 1, "C", readonly=True)
_U2 = types.Array(types.uint16, 1, "C", readonly=True)
_U2_2D = types.Array(types.uint16, 2, "C", readonly=True)


@kernel(types.void(_U4, _U4, _I8, types.int32[::1]))
def count_row_terms(term_offsets: Any, terms: Any, rows: Any, counts: Any) -> None:
    """Adds to each term of a slice's vocabulary how many of some rows hold it.

    Args:
        term_offsets, terms: of the slice.
        rows: i8[k].
        counts: i4[v], added to.
    """
    for i in range(rows.shape[0]):
        row = rows[i]
        for k in range(term_offsets[row], term_offsets[row + 1]):
            counts[terms[k] & TERM_MASK] += 1


@kernel(types.void(_U4, _U4, _I8, _I4, _I8, _I8, types.uint16[:, ::1]))
def keyword_counts_sealed(
    term_offsets: Any, terms: Any, long_places: Any, long_counts: Any, rows: Any, numbers: Any,
    out: Any,
) -> None:  # fmt: skip
    """Finds how often rows of a sealed slice hold keywords.

    Args:
        term_offsets, terms, long_places, long_counts: of the slice.
        rows: i8[k].
        numbers: i8[m], numbers of the keywords in the vocabulary, −1 for those it lacks.
        out: u2[k, m], overwritten.
    """
    for i in range(rows.shape[0]):
        row = rows[i]
        for j in range(numbers.shape[0]):
            out[i, j] = 0
        for k in range(term_offsets[row], term_offsets[row + 1]):
            number = np.int64(terms[k] & TERM_MASK)
            for j in range(numbers.shape[0]):
                if numbers[j] == number:
                    count = np.int64(terms[k] >> TERM_BITS)
                    if count == COUNT_LONG:
                        count = np.int64(long_counts[np.searchsorted(long_places, np.int64(k))])
                    out[i, j] = count


@kernel(types.void(_I8, _U8, _U2, _I8, _U8, types.uint16[:, ::1]))
def keyword_counts_active(
    term_offsets: Any, terms: Any, counts: Any, rows: Any, hashes: Any, out: Any
) -> None:
    """The same for the active slice, whose terms are hashes beside counts."""
    for i in range(rows.shape[0]):
        row = rows[i]
        for j in range(hashes.shape[0]):
            out[i, j] = 0
        for k in range(term_offsets[row], term_offsets[row + 1]):
            for j in range(hashes.shape[0]):
                if hashes[j] == terms[k]:
                    out[i, j] = counts[k]


@kernel(types.void(_F8, _F8, types.float64, types.float64, types.float64[::1]))
def distances_from(lon: Any, lat: Any, x: Any, y: Any, out: Any) -> None:
    """Fills f8[n] with the distances of points from (x, y), metres rounded to 1 mm."""
    for i in range(lon.shape[0]):
        out[i] = distance_m(x, y, lon[i], lat[i])


@kernel(types.int64(_U2_2D, _I4, _F8, types.float64, types.int64, types.int64[::1]))
def mark_contenders(
    frequencies: Any, lengths: Any, known: Any, margin: Any, k: Any, contenders: Any
) -> Any:
    """Finds the rows that may be among the k best, whatever the weights of the keywords.

    A row is out when k others hold every keyword at least as often in at most as many tokens, and
    are ahead in what is known. Who is out of the race need not be compared with: whoever beats it
    beats what it beats.

    Args:
        frequencies: u2[c, m], of each keyword.
        lengths: i4[c], tokens.
        known: f8[c], the part of the score that is known, descending; of equal ones the first
            would come first.
        margin: what rounding may hide.
        k: how many are wanted.
        contenders: i8[c], overwritten with rows, ascending.

    Returns:
        How many there are.
    """
    count = 0
    for row in range(lengths.shape[0]):
        ahead = 0
        for i in range(count):
            other = contenders[i]
            # Of exactly equal ones the earlier wins the tie; of nearly equal ones nobody knows.
            if known[other] - known[row] < margin and known[other] != known[row]:
                break
            if lengths[other] > lengths[row]:
                continue
            beats = True
            for j in range(frequencies.shape[1]):
                if frequencies[other, j] < frequencies[row, j]:
                    beats = False
                    break
            if beats:
                ahead += 1
                if ahead == k:
                    break
        if ahead < k:
            contenders[count] = row
            count += 1
    return count
