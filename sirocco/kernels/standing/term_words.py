"""Keeps the words of terms by id, for `index.standing.term_words`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.jit.compiled import kernel

__all__ = ["put_words"]

_I8 = types.Array(types.int64, 1, "C")
_I8_IN = types.Array(types.int64, 1, "C", readonly=True)
_I4 = types.Array(types.int32, 1, "C")
_I4_IN = types.Array(types.int32, 1, "C", readonly=True)
_U8 = types.Array(types.uint64, 1, "C")
_U8_IN = types.Array(types.uint64, 1, "C", readonly=True)
_U1 = types.Array(types.uint8, 1, "C")
_U1_IN = types.Array(types.uint8, 1, "C", readonly=True)


@kernel(
    types.UniTuple(types.int64, 2)(
        _I4_IN, _U8_IN, _U1_IN, _I8_IN, _I4_IN, _U8, _I8, _I4, _U1, types.int64
    )
)
def put_words(
    ids: Any,
    wires: Any,
    words: Any,
    offsets: Any,
    rows: Any,
    wire_of: Any,
    begins: Any,
    lengths: Any,
    data: Any,
    end: Any,
) -> Any:
    """Stores the words of ids that have none yet.

    Args:
        ids: i4[t], with repeats.
        wires: u8[t], wire hashes.
        words: u1[b], offsets: i8[w + 1].
        rows: i4[t], the word of each; −1: unknown.
        wire_of: u8[ids], begins: i8[ids], the word's begin plus one, 0 for an id without,
            lengths: i4[ids]; changed.
        data: u1[d], bytes of words, used before `end`; changed.
        end: where the next word begins.

    Returns:
        (where the next word begins now, how many ids are without a word). An end of −1: an id, a
        row or a word had no room; those before it have been stored.
    """
    unnamed = np.int64(0)
    room = min(wire_of.shape[0], begins.shape[0], lengths.shape[0])
    for i in range(ids.shape[0]):
        term_id, row = np.int64(ids[i]), np.int64(rows[i])
        if term_id < 0 or term_id >= room or row >= offsets.shape[0] - 1:
            return np.int64(-1), unnamed
        if begins[term_id] != 0:
            continue
        begin, length = np.int64(0), np.int64(0)
        if row >= 0:
            begin = offsets[row]
            length = offsets[row + 1] - begin
        if begin < 0 or length < 0 or begin + length > words.shape[0]:
            return np.int64(-1), unnamed
        if end + length > data.shape[0]:
            return np.int64(-1), unnamed
        data[end : end + length] = words[begin : begin + length]
        wire_of[term_id] = wires[i]
        begins[term_id] = end + 1
        lengths[term_id] = length
        end += length
        unnamed += np.int64(length == 0)
    return end, unnamed
