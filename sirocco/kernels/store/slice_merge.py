"""Merges sealed slices: sorted lists in, sorted lists out.

All sources follow the same curve, and their vocabularies ascend, so nothing has to be sorted, and
no hash looked up, again. `sirocco/index/store/slices.py` describes the layout.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.store.slice_seal import TERM_MASK

__all__ = [
    "copy_pieces",
    "merge_keys",
    "merge_vocabularies",
    "scatter_four",
    "scatter_lengths",
    "scatter_long",
    "scatter_terms",
]

_U8 = types.Array(types.uint64, 1, "C")
_U8_IN = types.Array(types.uint64, 1, "C", readonly=True)
_U4 = types.Array(types.uint32, 1, "C")
_U4_IN = types.Array(types.uint32, 1, "C", readonly=True)
_I8_IN = types.Array(types.int64, 1, "C", readonly=True)
_U1 = types.Array(types.uint8, 1, "C")
_U1_IN = types.Array(types.uint8, 1, "C", readonly=True)


@kernel(types.void(_U8_IN, _I8_IN, _U4))
def merge_keys(keys: Any, bounds: Any, places: Any) -> None:
    """Finds the place of each row among all, ordered by key, equal keys by source.

    Args:
        keys: u8[n], the keys of each source ascending, one source after the other.
        bounds: i8[k + 1], where each source begins in `keys`.
        places: u4[n], overwritten.
    """
    sources = bounds.shape[0] - 1
    at = bounds[:sources].copy()
    place = np.uint32(0)
    while True:
        # The source whose next key is least, and how many of its keys precede those of the others:
        # objects that arrived together often lie together.
        best = -1
        for s in range(sources):
            if at[s] < bounds[s + 1] and (best < 0 or keys[at[s]] < keys[at[best]]):
                best = s
        if best < 0:
            return
        limit = np.uint64(0xFFFFFFFFFFFFFFFF)
        includes = True
        for s in range(sources):
            if s != best and at[s] < bounds[s + 1]:
                key = keys[at[s]]
                if key < limit or (key == limit and s < best):
                    limit = key
                    includes = s > best
                elif key == limit:
                    includes = includes and s > best
        i = at[best]
        end = bounds[best + 1]
        while i < end and (keys[i] < limit or (includes and keys[i] == limit)):
            places[i] = place
            place += np.uint32(1)
            i += 1
        at[best] = i


@kernel(types.int64(_U8_IN, _I8_IN, _U8, _U4))
def merge_vocabularies(hashes: Any, bounds: Any, merged: Any, numbers: Any) -> Any:
    """Joins ascending vocabularies into one.

    Args:
        hashes: u8[v], the hashes of each source ascending, one source after the other.
        bounds: i8[k + 1], where each source begins.
        merged: u8[v], overwritten: distinct hashes, ascending.
        numbers: u4[v], overwritten: the place of each of `hashes` in `merged`.

    Returns:
        The number of distinct hashes.
    """
    sources = bounds.shape[0] - 1
    at = bounds[:sources].copy()
    count = 0
    while True:
        is_any = False
        least = np.uint64(0)
        for s in range(sources):
            if at[s] < bounds[s + 1] and (not is_any or hashes[at[s]] < least):
                least = hashes[at[s]]
                is_any = True
        if not is_any:
            return count
        merged[count] = least
        for s in range(sources):
            if at[s] < bounds[s + 1] and hashes[at[s]] == least:
                numbers[at[s]] = count
                at[s] += 1
        count += 1


@kernel(types.void(_U8_IN, _U4_IN, _U8))
def scatter_long(values: Any, places: Any, out: Any) -> None:
    """Writes values of eight bytes (as u8[n]) to their places."""
    for i in range(values.shape[0]):
        out[places[i]] = values[i]


@kernel(types.void(_U4_IN, _U4_IN, types.uint32, _U4))
def scatter_four(values: Any, places: Any, added: Any, out: Any) -> None:
    """Writes values of four bytes (as u4[n]), each plus `added`, to their places."""
    for i in range(values.shape[0]):
        out[places[i]] = values[i] + added


@kernel(types.void(_U4_IN, _U4_IN, _U4))
def scatter_lengths(offsets: Any, places: Any, out: Any) -> None:
    """Writes the lengths of pieces (offsets u4[n + 1]) to their places plus one."""
    for i in range(places.shape[0]):
        out[places[i] + 1] = offsets[i + 1] - offsets[i]


@kernel(types.void(_U4_IN, _U4_IN, _U4_IN, _U4_IN, types.int64, _U4_IN, _U4, _U4))
def scatter_terms(
    offsets: Any,
    terms: Any,
    places: Any,
    numbers: Any,
    first: Any,
    out_offsets: Any,
    out: Any,
    frequencies: Any,
) -> None:
    """Copies the terms of a source's rows under their new numbers.

    Args:
        offsets: u4[n + 1], terms: u4[t], words of each row.
        places: u4[n], where the rows go.
        numbers: u4, the new number of the source's term i is at [first + i].
        first: see `numbers`.
        out_offsets: u4, where the words of each new row begin.
        out: u4, words, written.
        frequencies: u4, added to: rows with each new term.
    """
    mask = np.uint32(TERM_MASK)
    for row in range(places.shape[0]):
        at = np.int64(out_offsets[places[row]])
        for k in range(offsets[row], offsets[row + 1]):
            word = terms[k]
            number = numbers[first + np.int64(word & mask)]
            out[at] = number | (word & ~mask)
            frequencies[number] += np.uint32(1)
            at += 1


@kernel(types.void(_U1_IN, _U4_IN, _U4_IN, _U4_IN, _U1))
def copy_pieces(data: Any, offsets: Any, places: Any, out_offsets: Any, out: Any) -> None:
    """Copies the bytes of a source's rows to their places.

    Args:
        data: u1[b], offsets: u4[n + 1].
        places: u4[n].
        out_offsets: u4, where each new row begins in `out`; out: u1, written.
    """
    for row in range(places.shape[0]):
        at = np.int64(out_offsets[places[row]])
        begin = np.int64(offsets[row])
        for k in range(np.int64(offsets[row + 1]) - begin):
            out[at + k] = data[begin + k]
