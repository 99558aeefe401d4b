"""Maps wire hashes to dense term ids: the kernels of the vocabulary.

The table (`term_table`) maps a wire hash to its id. All objects have id 0 (queries without text
are stored under it); id 1 means any unknown term.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.hash_placement import mix
from sirocco.kernels.base.memory import equal_words, prefetch, trailing_zeros
from sirocco.kernels.base.stretch_table import (
    BITS,
    FRONTIER,
    home_of,
    secret_of,
)
from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.standing.term_table import (
    BUCKET_TERMS,
    BUCKET_WORDS,
    FIRST_VALUE,
    add_term,
    erase_term,
    find_term,
    hash_of_term,
)

__all__ = [
    "EVERY_OBJECT",
    "NEXT_ID",
    "UNKNOWN",
    "acquire_ids",
    "count_seen",
    "look_up_ids",
    "release_ids",
]

EVERY_OBJECT = 0
UNKNOWN = 1

# Probes in flight: enough to cover the latency of memory (32 was a tenth slower), few enough that
# they and their lines stay in the first-level cache.
_GROUP = 128

# Words of `id_state`: ids that may be used again, and the first that was never used.
FREE_IDS, NEXT_ID = range(2)

_U8 = types.Array(types.uint64, 1, "C")
_U8_IN = types.Array(types.uint64, 1, "C", readonly=True)
_I8 = types.Array(types.int64, 1, "C")
_I4 = types.Array(types.int32, 1, "C")
_I4_IN = types.Array(types.int32, 1, "C", readonly=True)


@kernel(types.void(_U8, _I4, _I8, _U8_IN, _I4))
def look_up_ids(words: Any, values: Any, state: Any, hashes: Any, out_ids: Any) -> None:
    """Finds the ids of terms; unknown ones get id 1.

    Args:
        words: u8[8 · n], values: i4[16 · n], state: i8[5], the table.
        hashes: u8[t].
        out_ids: i4[≥ t], overwritten.
    """
    homes = np.empty(_GROUP, np.uint64)
    unsure = np.empty(_GROUP, np.int64)
    shift = np.uint64(64 - state[BITS])
    frontier = state[FRONTIER]
    first_secret, second_secret = secret_of(state)
    every = np.uint64((1 << BUCKET_TERMS) - 1)
    mark = np.uint64(1 << BUCKET_TERMS)
    first_value = np.uint64(FIRST_VALUE)
    for begin in range(0, hashes.shape[0], _GROUP):
        keys = hashes[begin : begin + _GROUP]
        ids = out_ids[begin : begin + _GROUP]
        for i in range(keys.shape[0]):
            h = mix(keys[i], first_secret, second_secret)
            home = np.uint64(home_of(h, shift, frontier))
            homes[i] = home
            prefetch(words, home << np.uint64(3))
        # Unsigned indices: for signed ones Numba adds a test for negative values, doubling the
        # time.
        count = np.uint64(0)
        for i in range(keys.shape[0]):
            equal = equal_words(words, homes[i] << np.uint64(3), keys[i])
            place = np.uint64(trailing_zeros((equal & every) | mark))
            # The value of the equal hash; without one the mark: 0, or −1 for continue in the next
            # bucket.
            value = values[(homes[i] << np.uint64(4)) + first_value + place]
            ids[i] = value + 1
            unsure[count] = i
            count += np.uint64(value < 0)
        for j in range(count):
            i = unsure[j]
            at = find_term(words, values, np.int64(homes[i]), keys[i])
            ids[i] = values[at] + 1 if at >= 0 else 1


@kernel(types.int64(_U8, _I4, _I8, _I8, _I4, _U8, _I4, _U8_IN, types.int64, _I4))
def acquire_ids(
    words: Any,
    values: Any,
    state: Any,
    id_state: Any,
    free_ids: Any,
    hashes_by_id: Any,
    uses: Any,
    hashes: Any,
    begin: Any,
    out_ids: Any,
) -> Any:
    """Finds or assigns the ids of terms that queries use, and counts each use.

    Args:
        words: u8[8 · n], values: i4[16 · n], state: i8[5], the table.
        id_state: i8[2], number of free ids, least id never assigned.
        free_ids: i4[…], stack of free ids.
        hashes_by_id: u8[ids], wire hash of each id; room for t more.
        uses: i4[ids], uses of each id; likewise.
        hashes: u8[t].
        begin: the first of them to process.
        out_ids: i4[t], overwritten from `begin` on.

    Returns:
        t, or the first one not done because the table or the columns by id were too short: make
        them longer and continue from there. The ids before it have been counted.
    """
    homes = np.empty(_GROUP, np.int64)
    total = hashes.shape[0]
    shift = np.uint64(64 - state[BITS])
    for start in range(begin, total, _GROUP):
        size = min(_GROUP, total - start)
        for i in range(size):
            home = home_of(hash_of_term(hashes[start + i], state), shift, state[FRONTIER])
            homes[i] = home
            prefetch(words, BUCKET_WORDS * home)
        for i in range(size):
            key = hashes[start + i]
            at = find_term(words, values, homes[i], key)
            if at >= 0:
                term_id = np.int64(values[at]) + 1
            else:
                is_reused = id_state[FREE_IDS] > 0
                term_id = id_state[NEXT_ID]
                if is_reused:
                    term_id = np.int64(free_ids[id_state[FREE_IDS] - 1])
                if (
                    term_id >= min(hashes_by_id.shape[0], uses.shape[0])
                    or add_term(words, values, state, key, term_id - 1) < 0
                ):
                    return start + i
                id_state[FREE_IDS] -= np.int64(is_reused)
                id_state[NEXT_ID] += np.int64(not is_reused)
                hashes_by_id[term_id] = key
            uses[term_id] += 1
            out_ids[start + i] = term_id
    return total


@kernel(types.int64(_U8, _I4, _I8, _I8, _I4, _U8, _I4, types.Array(types.uint16, 1, "C"), _I4, _I4))
def release_ids(
    words: Any,
    values: Any,
    state: Any,
    id_state: Any,
    free_ids: Any,
    hashes_by_id: Any,
    uses: Any,
    levels: Any,
    seen: Any,
    ids: Any,
) -> Any:
    """Removes one use from each id; ids without use leave the table and become free.

    Args:
        words … uses: as in `acquire_ids`; `free_ids` has room for all ids.
        levels: u2[ids], pyramid levels in use; zeroed with the id.
        seen: i4[ids], objects counted; zeroed with the id.
        ids: i4[t], with repeats.

    Returns:
        0; −1 if an id was not in use, or its term not in the table: it was skipped.
    """
    result = 0
    for i in range(ids.shape[0]):
        term_id = np.int64(ids[i])
        if term_id < 0 or term_id >= uses.shape[0] or uses[term_id] <= 0:
            result = -1
            continue
        uses[term_id] -= 1
        if uses[term_id] == 0:
            key = hashes_by_id[term_id]
            home = home_of(hash_of_term(key, state), np.uint64(64 - state[BITS]), state[FRONTIER])
            at = find_term(words, values, home, key)
            if at < 0:
                result = -1
                continue
            erase_term(words, values, state, at)
            levels[term_id] = 0
            seen[term_id] = 0
            free_ids[id_state[FREE_IDS]] = term_id
            id_state[FREE_IDS] += 1
    return result


@kernel(types.void(_I4, _I4_IN, types.int64, types.int64))
def count_seen(seen: Any, ids: Any, begin: Any, end: Any) -> None:
    """Counts the terms of a sample of objects.

    Args:
        seen: i4[ids], counts, changed.
        ids: i4[t], terms of objects.
        begin, end: the part of `ids` to count.
    """
    for i in range(begin, end):
        seen[ids[i]] += 1
