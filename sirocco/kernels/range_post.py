"""Posting lists: adding postings under their keys, and taking them out again.

A list lies in one block of 1, 2, 4, … postings; the block and the number of postings stand in
the slot of its key (see `pyramid`). A key without postings leaves the table.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.blocks import give_block, take_block
from sirocco.kernels.compiled import kernel
from sirocco.kernels.memory import prefetch
from sirocco.kernels.pyramid import NO_BLOCK, POSTING_WORDS
from sirocco.kernels.stretch_table import FILTER_SHIFT, erase, find, find_or_add, home_of, mix

__all__ = ["post", "unpost"]

_GROUP = 32
_COUNT_MASK = 0x3FFFFFF

_I8 = types.Array(types.int64, 1, "C")
_I4 = types.Array(types.int32, 1, "C")
_I4_IN = types.Array(types.int32, 1, "C", readonly=True)
_U8 = types.Array(types.uint64, 1, "C")
_U8_IN = types.Array(types.uint64, 1, "C", readonly=True)


@kernel(inline=True)
def _list_value(first: Any, size_class: Any, count: Any) -> Any:
    return (
        (np.uint64(first) << np.uint64(32)) | (np.uint64(size_class) << np.uint64(26))
    ) | np.uint64(count)


@kernel
def _append(slots: Any, at: Any, blocks: Any, postings: Any, templates: Any, source: Any) -> Any:
    """Puts one posting at the end of the list of a slot; False where the array is full."""
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
        give_block(blocks, postings, POSTING_WORDS, size_class, first)
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
        slots, filter_words, state: the table, with room for all keys.
        blocks: i8[34], postings: i4[…]: the blocks of the lists.
        templates: i4[8 · m], complete postings.
        keys: u8[k], owners: i4[k]: number of the template that goes under each key.
        begin, end: the part of `keys` to do.

    Returns:
        `end`, or the first key that was not done because `postings` was too short: make it
        longer and go on from there.
    """
    ats = np.empty(_GROUP, np.int64)
    for start in range(begin, end, _GROUP):
        size = min(_GROUP, end - start)
        shift = np.uint64(64 - state[0])
        for i in range(size):
            home = home_of(mix(keys[start + i]), shift, state[1])
            prefetch(slots, 2 * home)
            prefetch(filter_words, home >> FILTER_SHIFT)
        for i in range(size):
            key = keys[start + i]
            empty_list = _list_value(0, NO_BLOCK, 0)
            at = find_or_add(slots, filter_words, state, key, mix(key), empty_list)
            ats[i] = at
            value = slots[2 * at + 1]
            first = np.int64(value >> np.uint64(32))
            count = np.int64(value & np.uint64(_COUNT_MASK))
            prefetch(postings, (first + count) * POSTING_WORDS)
        for i in range(size):
            if not _append(slots, ats[i], blocks, postings, templates, owners[start + i]):
                return start + i
    return end


@kernel
def _take_out(slots: Any, at: Any, blocks: Any, postings: Any, row: Any) -> Any:
    """Takes one posting of a row out of the list of a slot; returns how many are left."""
    value = slots[2 * at + 1]
    count = np.int64(value & np.uint64(_COUNT_MASK))
    size_class = np.int64((value >> np.uint64(26)) & np.uint64(63))
    first = np.int64(value >> np.uint64(32))
    for entry in range(first, first + count):
        if postings[entry * POSTING_WORDS + 6] == row:
            last = first + count - 1
            for i in range(POSTING_WORDS):
                postings[entry * POSTING_WORDS + i] = postings[last * POSTING_WORDS + i]
            count -= 1
            break
    if count == 0:
        give_block(blocks, postings, POSTING_WORDS, size_class, first)
        return 0
    if size_class > 1 and 4 * count <= 1 << size_class:
        # Halving at a quarter, not at a half: a list that flaps about a power of two stays.
        smaller = take_block(blocks, postings, POSTING_WORDS, size_class - 1)
        if smaller >= 0:
            for i in range(count * POSTING_WORDS):
                postings[smaller * POSTING_WORDS + i] = postings[first * POSTING_WORDS + i]
            give_block(blocks, postings, POSTING_WORDS, size_class, first)
            first = smaller
            size_class -= 1
    slots[2 * at + 1] = _list_value(first, size_class, count)
    return count


@kernel(types.void(_U8, _U8, _I8, _I8, _I4, _U8_IN, _I4_IN, types.int64))
def unpost(
    slots: Any,
    filter_words: Any,
    state: Any,
    blocks: Any,
    postings: Any,
    keys: Any,
    owners: Any,
    total: Any,
) -> None:
    """Takes postings out.

    Args:
        slots … postings: as in `post`.
        keys: u8[k], owners: i4[k]: one posting of row `owners[i]` under `keys[i]`.
        total: how many of them.
    """
    for start in range(0, total, _GROUP):
        size = min(_GROUP, total - start)
        shift = np.uint64(64 - state[0])
        for i in range(size):
            home = home_of(mix(keys[start + i]), shift, state[1])
            prefetch(slots, 2 * home)
        for i in range(size):
            key = keys[start + i]
            at = find(slots, home_of(mix(key), shift, state[1]), key)
            first = np.int64(slots[2 * at + 1] >> np.uint64(32))
            prefetch(postings, first * POSTING_WORDS)
        for i in range(size):
            # Erasing a key moves others, so each is looked up again.
            key = keys[start + i]
            at = find(slots, home_of(mix(key), shift, state[1]), key)
            if _take_out(slots, at, blocks, postings, np.int64(owners[start + i])) == 0:
                erase(slots, filter_words, state, at)
