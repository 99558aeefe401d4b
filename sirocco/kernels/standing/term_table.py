"""The hash table of the vocabulary: buckets of five terms in one cache line, tested at once.

A look-up reads one line and has no branch that depends on the term: a processor cannot predict
whether an object's term is known, and at which try, and a wrong prediction costs more than the
rest.
A bucket is 8 words of 8 bytes: five wire hashes; then, as 6 words of 4 bytes, a value for each hash
and the overflow mark. A value is the term's id − 1, 0 in an empty place. The mark is 0 too, or −1
if terms of this bucket, or of one before it, had to be placed further on. The vector test of the
hashes selects one of the six. The taken places of a bucket are its first ones, and a bucket with
the mark is full.

As in `stretch_table`, a key's home is the bucket selected by the high bits of its hash, on a
collision the next bucket is tried, and doubling moves the range [f', f) to [2f', 2f) of the same
array in small steps. `state` i8[5] as there, with buckets instead of homes. A term is moved on over
full buckets only, so an array of `buckets_needed` is never full. `words` u8 and `values` i4 are the
same memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from sirocco.kernels.base.hash_placement import mix
from sirocco.kernels.base.stretch_table import (
    BITS,
    FRONTIER,
    KEYS,
    home_of,
    secret_of,
)
from sirocco.kernels.jit.compiled import kernel

__all__ = [
    "BUCKET_TERMS",
    "BUCKET_WORDS",
    "FIRST_VALUE",
    "add_term",
    "buckets_needed",
    "erase_term",
    "find_term",
    "hash_of_term",
    "stretch_terms",
]

BUCKET_TERMS = 5
BUCKET_WORDS = 8
# Places in `values`: 16 for each bucket, the first five values at 10, the mark after them.
FIRST_VALUE = 10
_MARK = 15

_U8 = types.Array(types.uint64, 1, "C")
_I8 = types.Array(types.int64, 1, "C")
_I4 = types.Array(types.int32, 1, "C")


def buckets_needed(state: npt.NDArray[np.int64], terms_more: int) -> int:
    """Returns how many buckets are enough for more terms, also while the table doubles."""
    return (2 << int(state[BITS])) + (int(state[KEYS]) + terms_more) // BUCKET_TERMS + 2


@kernel(inline=True)
def hash_of_term(key: Any, state: Any) -> Any:
    """Returns the u8 hash of a term's number, u8, in a table."""
    first, second = secret_of(state)
    return mix(key, first, second)


@kernel
def find_term(words: Any, values: Any, bucket: Any, key: Any) -> Any:
    """Returns the place in `values` of a wire hash, or −1.

    Args:
        words: u8[8 · n], values: i4[16 · n].
        bucket: home of the hash.
        key: u8, the wire hash.
    """
    while 16 * bucket < values.shape[0]:
        for i in range(BUCKET_TERMS):
            at = np.int64(16 * bucket + FIRST_VALUE + i)
            if words[BUCKET_WORDS * bucket + i] == key and values[at] != 0:
                return at
        if values[16 * bucket + _MARK] == 0:
            break
        bucket += 1
    return np.int64(-1)


@kernel
def add_term(words: Any, values: Any, state: Any, key: Any, value: Any) -> Any:
    """Adds a wire hash that is not there to the first bucket with room.

    Args:
        words: u8[8 · n], values: i4[16 · n], state: i8[5].
        key: u8, value: at least 1.

    Returns:
        0; −1 if the array was too short: nothing has changed.
    """
    home = home_of(hash_of_term(key, state), np.uint64(64 - state[BITS]), state[FRONTIER])
    bucket = home
    while 16 * bucket < values.shape[0] and values[16 * bucket + _MARK - 1] != 0:
        bucket += 1
    if 16 * bucket >= values.shape[0]:
        return -1
    for passed in range(home, bucket):
        values[16 * passed + _MARK] = -1
    i = 0
    while values[16 * bucket + FIRST_VALUE + i] != 0:
        i += 1
    words[BUCKET_WORDS * bucket + i] = key
    values[16 * bucket + FIRST_VALUE + i] = value
    state[KEYS] += 1
    return 0


@kernel
def _close_gap(words: Any, values: Any, at: Any) -> Any:
    """Empties a place by moving the bucket's last term there; returns the freed place."""
    bucket = at >> 4
    last = 16 * bucket + _MARK - 1
    while values[last] == 0:
        last -= 1
    values[at] = values[last]
    values[last] = 0
    key_of_last = BUCKET_WORDS * bucket + (last & 15) - FIRST_VALUE
    words[BUCKET_WORDS * bucket + (at & 15) - FIRST_VALUE] = words[key_of_last]
    words[key_of_last] = np.uint64(0)
    return last


@kernel
def _strayed(words: Any, values: Any, state: Any, bucket: Any) -> Any:
    """Returns (the first place after a bucket whose home is not after it or −1, how many)."""
    shift = np.uint64(64 - state[BITS])
    first = np.int64(-1)
    count = 0
    last = bucket
    while 16 * (last + 1) < values.shape[0] and values[16 * last + _MARK] != 0:
        last += 1
        for i in range(BUCKET_TERMS):
            at = 16 * last + FIRST_VALUE + i
            key = words[BUCKET_WORDS * last + i]
            home = home_of(hash_of_term(key, state), shift, state[FRONTIER])
            if values[at] != 0 and home <= bucket:
                if count == 0:
                    first = at
                count += 1
    return first, count


@kernel
def erase_term(words: Any, values: Any, state: Any, at: Any) -> None:
    """Empties a place and moves displaced terms back, so that there are no tombstones."""
    state[KEYS] -= 1
    while True:
        bucket = at >> 4
        free = _close_gap(words, values, at)
        if values[16 * bucket + _MARK] == 0:
            return
        at, count = _strayed(words, values, state, bucket)
        if count <= 1:
            values[16 * bucket + _MARK] = 0
        if count == 0:
            return
        values[free] = values[at]
        words[BUCKET_WORDS * bucket + (free & 15) - FIRST_VALUE] = words[
            BUCKET_WORDS * (at >> 4) + (at & 15) - FIRST_VALUE
        ]


@kernel(types.int64(_U8, _I4, _I8, types.int64))
def stretch_terms(words: Any, values: Any, state: Any, buckets: Any) -> Any:
    """Continues a doubling by about `buckets` buckets.

    Args:
        words: u8[8 · n] and values: i4[16 · n] with n ≥ `buckets_needed`.
        state: i8[5].
        buckets: how many to move at least.

    Returns:
        1 if the doubling is complete, else 0; −1 if the array was too short: nothing has changed.
    """
    if values.shape[0] < 16 * ((np.int64(2) << state[BITS]) + state[KEYS] // BUCKET_TERMS + 1):
        return -1
    frontier = state[FRONTIER]
    begin = max(frontier - buckets, 0)
    # Near the bottom, source and target would overlap: the last steps are done as one.
    if begin < 2 * buckets:
        begin = 0
    end = frontier
    while 16 * end < values.shape[0] and values[16 * (end - 1) + _MARK] != 0:
        end += 1
    moved = words[BUCKET_WORDS * begin : BUCKET_WORDS * end].copy()
    moved_values = values[16 * begin : 16 * end].copy()
    words[BUCKET_WORDS * begin : BUCKET_WORDS * end] = np.uint64(0)
    state[FRONTIER] = begin
    for bucket in range(end - begin):
        for i in range(BUCKET_TERMS):
            value = moved_values[16 * bucket + FIRST_VALUE + i]
            if value != 0:
                state[KEYS] -= 1
                if add_term(words, values, state, moved[BUCKET_WORDS * bucket + i], value) < 0:
                    return -1  # cannot happen with the room required above
    if begin > 0:
        return 0
    state[BITS] += 1
    state[FRONTIER] = np.int64(1) << state[BITS]
    return 1
