"""Posting lists: adds postings under their keys, and removes them.

A list is stored in one block of 1, 2, 4, … postings; the block and the number of postings are in
the slot of its key (see `pyramid`). A key without postings leaves the table.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.blocks import free_block, take_block
from sirocco.kernels.base.memory import prefetch
from sirocco.kernels.base.stretch_table import (
    BITS,
    FILTER_SHIFT,
    FRONTIER,
    erase,
    find,
    find_or_add,
    hash_of,
    home_of,
)
from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.standing.pyramid import (
    NO_BLOCK,
    POSTING_ROW,
    POSTING_WORDS,
    STATE_FREE,
    STATE_MASK,
)

__all__ = ["post", "unpost"]

_GROUP = 32
_COUNT_MASK = 0x3FFFFFF

_I8 = types.Array(types.int64, 1, "C")
_I4 = types.Array(types.int32, 1, "C")
_I4_IN = types.Array(types.int32, 1, "C", readonly=True)
_U8 = types.Array(types.uint64, 1, "C")
_U8_IN = types.Array(types.uint64, 1, "C", readonly=True)
_U1_IN = types.Array(types.uint8, 1, "C", readonly=True)


@kernel(inline=True)
def _list_value(first: Any, size_class: Any, count: Any) -> Any:
    return (
        (np.uint64(first) << np.uint64(32)) | (np.uint64(size_class) << np.uint64(26))
    ) | np.uint64(count)


@kernel
def _append(slots: Any, at: Any, blocks: Any, postings: Any, templates: Any, source: Any) -> Any:
    """Appends one posting to the list of a slot; False if the array is full."""
    value = slots[2 * at + 1]
    count = np.int64(value & np.uint64(_COUNT_MASK))
    size_class = np.int64((value >> np.uint64(26)) & np.uint64(63))
    first = np.int64(value >> np.uint64(32))
    if size_class == NO_BLOCK:
        size_class = np.int64(0)
        first = take_block(blocks, postings, POSTING_WORDS, 0)
        if first < 0:
            return False
    elif count == 1 << size_class:
        larger = take_block(blocks, postings, POSTING_WORDS, size_class + 1)
        if larger < 0:
            return False
        for i in range(count * POSTING_WORDS):
            postings[larger * POSTING_WORDS + i] = postings[first * POSTING_WORDS + i]
        free_block(blocks, postings, POSTING_WORDS, size_class, first)
        first = larger
        size_class += 1
    target = (first + count) * POSTING_WORDS
    for i in range(POSTING_WORDS):
        postings[target + i] = templates[source * POSTING_WORDS + i]
    slots[2 * at + 1] = _list_value(first, size_class, count + 1)
    return True


@kernel(types.int64(_U8, _U8, _I8, _I8, _I4, _I4_IN, _U8_IN, _I4_IN, types.int64, types.int64))
def post(
    slots: Any,
    filter_words: Any,
    state: Any,
    blocks: Any,
    postings: Any,
    templates: Any,
    keys: Any,
    owners: Any,
    begin: Any,
    end: Any,
) -> Any:
    """Adds postings.

    Args:
        slots, filter_words, state: the table.
        blocks: i8[34], postings: i4[…]: the blocks of the lists.
        templates: i4[8 · m], complete postings.
        keys: u8[k], owners: i4[k]: number of the template for each key.
        begin, end: the part of `keys` to process.

    Returns:
        `end`, or the first key not done because `slots` or `postings` were too short: make them
        longer and continue from there.
    """
    ats = np.empty(_GROUP, np.int64)
    for start in range(begin, end, _GROUP):
        size = min(_GROUP, end - start)
        shift = np.uint64(64 - state[BITS])
        for i in range(size):
            home = home_of(hash_of(keys[start + i], state), shift, state[FRONTIER])
            prefetch(slots, 2 * home)
            prefetch(filter_words, home >> FILTER_SHIFT)
        found = size
        for i in range(size):
            key = keys[start + i]
            empty_list = _list_value(0, NO_BLOCK, 0)
            at = find_or_add(slots, filter_words, state, key, hash_of(key, state), empty_list)
            if at < 0:
                found = i
                break
            ats[i] = at
            value = slots[2 * at + 1]
            first = np.int64(value >> np.uint64(32))
            count = np.int64(value & np.uint64(_COUNT_MASK))
            prefetch(postings, (first + count) * POSTING_WORDS)
        for i in range(found):
            if not _append(slots, ats[i], blocks, postings, templates, owners[start + i]):
                return start + i
        if found < size:
            return start + found
    return end


@kernel
def _drop_free(postings: Any, row_state: Any, first: Any, count: Any) -> Any:
    """Removes the postings of all free rows from a list; returns how many are left."""
    kept = first
    for entry in range(first, first + count):
        row = np.int64(postings[entry * POSTING_WORDS + POSTING_ROW])
        if row_state[row] & STATE_MASK != STATE_FREE:
            if kept != entry:
                for i in range(POSTING_WORDS):
                    postings[kept * POSTING_WORDS + i] = postings[entry * POSTING_WORDS + i]
            kept += 1
    return kept - first


@kernel
def _clean(slots: Any, at: Any, blocks: Any, postings: Any, row_state: Any) -> Any:
    """Removes free rows from the list of a slot; returns how many postings are left."""
    value = slots[2 * at + 1]
    size_class = np.int64((value >> np.uint64(26)) & np.uint64(63))
    first = np.int64(value >> np.uint64(32))
    if size_class == NO_BLOCK:  # its first posting had no room
        return np.int64(0)
    count = _drop_free(postings, row_state, first, np.int64(value & np.uint64(_COUNT_MASK)))
    if count == 0:
        free_block(blocks, postings, POSTING_WORDS, size_class, first)
        return count
    # Halving at a quarter, not at a half: a list that varies around a power of two stays.
    while size_class > 1 and 4 * count <= 1 << size_class:
        smaller = take_block(blocks, postings, POSTING_WORDS, size_class - 1)
        if smaller < 0:
            break
        for i in range(count * POSTING_WORDS):
            postings[smaller * POSTING_WORDS + i] = postings[first * POSTING_WORDS + i]
        free_block(blocks, postings, POSTING_WORDS, size_class, first)
        first = smaller
        size_class -= 1
    slots[2 * at + 1] = _list_value(first, size_class, count)
    return count


@kernel(types.int64(_U8, _U8, _I8, _I8, _I4, _U1_IN, _U8_IN))
def unpost(
    slots: Any,
    filter_words: Any,
    state: Any,
    blocks: Any,
    postings: Any,
    row_state: Any,
    keys: Any,
) -> Any:
    """Removes the postings of free rows from lists.

    Args:
        slots … postings: as in `post`.
        row_state: u1[rows]; rows in STATE_FREE lose all postings under the keys given.
        keys: u8[k], ascending; the list of a repeated key is cleaned once, so that a long list with
            many removed rows is read once.

    Returns:
        0; −1 if a key was not in the table: it was skipped.
    """
    result = 0
    total = keys.shape[0]
    for start in range(0, total, _GROUP):
        size = min(_GROUP, total - start)
        shift = np.uint64(64 - state[BITS])
        for i in range(size):
            home = home_of(hash_of(keys[start + i], state), shift, state[FRONTIER])
            prefetch(slots, 2 * home)
        for i in range(size):
            key = keys[start + i]
            at = find(slots, home_of(hash_of(key, state), shift, state[FRONTIER]), key)
            if at >= 0:
                prefetch(postings, np.int64(slots[2 * at + 1] >> np.uint64(32)) * POSTING_WORDS)
        for i in range(size):
            key = keys[start + i]
            if start + i > 0 and keys[start + i - 1] == key:
                continue
            # Erasing a key moves others, so each is looked up again.
            at = find(slots, home_of(hash_of(key, state), shift, state[FRONTIER]), key)
            if at < 0:
                result = -1
            elif _clean(slots, at, blocks, postings, row_state) == 0:
                erase(slots, filter_words, state, at)
    return result
