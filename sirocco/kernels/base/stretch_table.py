"""An open-addressing hash table that doubles in place, a little at a time.

Slots are pairs of u8 (key, value) in one flat array; value 0 marks an empty slot. A key's home
is the high bits of its hash; on a collision the next slot is tried. Because homes keep the order
of hashes, doubling moves the slot range [f', f) to [2f', 2f) of the same array, from the top
downwards in small steps. One comparison decides whether a key is in the part already doubled. So
no insertion waits for a whole rebuild, and there is no second table.

`state` i8[5]: 0 bits b (2^b homes), 1 frontier f (homes below it are addressed with b bits, the
others already with b + 1), 2 keys, 3 and 4 the secret (`hash_placement`). At rest f = 2^b.
Collisions never wrap, so an array as long as homes and keys together is never full;
`slots_needed` returns that length. Where the array is too short for a step, the step returns −1
before it changes anything.

Each table has a filter: one word for each 16 homes, three bits a key (a blocked Bloom filter,
Putze, Sanders, Singler 2007), which moves with them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from sirocco.kernels.base.hash_placement import mix, secret
from sirocco.kernels.jit.compiled import kernel

__all__ = [
    "BITS",
    "FILTER_SHIFT",
    "FIRST_SECRET",
    "FRONTIER",
    "KEYS",
    "SECOND_SECRET",
    "cell_part",
    "erase",
    "filter_bits",
    "find",
    "find_or_add",
    "hash_of",
    "home_of",
    "new_table_state",
    "secret_of",
    "slots_needed",
    "stretch",
    "term_part",
]

FILTER_SHIFT = 4

# Words of `state`.
BITS, FRONTIER, KEYS, FIRST_SECRET, SECOND_SECRET = range(5)

_U8 = types.Array(types.uint64, 1, "C")
_I8 = types.Array(types.int64, 1, "C")


def new_table_state(bits: int) -> npt.NDArray[np.int64]:
    """Returns the state of an empty table of 2^bits homes."""
    numbers = np.array([bits, 1 << bits, 0], np.int64)
    return np.concatenate([numbers, np.array(secret(), np.uint64).view(np.int64)])


def slots_needed(state: npt.NDArray[np.int64], keys_more: int) -> int:
    """Returns how many slots are enough for `keys_more` more keys, also while the table doubles."""
    return (2 << int(state[BITS])) + int(state[KEYS]) + keys_more + 1


@kernel(inline=True)
def secret_of(state: Any) -> Any:
    """Returns the two words (u8) of a table's secret."""
    return np.uint64(state[FIRST_SECRET]), np.uint64(state[SECOND_SECRET])


@kernel(inline=True)
def term_part(term: Any, state: Any) -> Any:
    """Returns the contribution of the upper half of a key, u8 below 2^32, to its hash.

    Two secret multiplications with a shift between them: no two terms have the same part, and a
    compiler computes several parts at once.
    """
    first, second = secret_of(state)
    product = (term ^ (first & np.uint64(0xFFFFFFFF))) * (second >> np.uint64(32) | np.uint64(1))
    return (product ^ (product >> np.uint64(32))) * second


@kernel(inline=True)
def cell_part(cell: Any, state: Any) -> Any:
    """Returns the contribution of the lower half of a key, u8 below 2^32, to its hash."""
    first, second = secret_of(state)
    return mix(cell, second, first)


@kernel(inline=True)
def hash_of(key: Any, state: Any) -> Any:
    """Returns the u8 hash of a u8 key in a table: the exclusive or of its halves' parts.

    This is simple tabulation, for which linear probing is as short as for random places (Pătraşcu,
    Thorup 2012). A caller that looks for many terms in many cells computes each part once.
    """
    return term_part(key >> np.uint64(32), state) ^ cell_part(key & np.uint64(0xFFFFFFFF), state)


@kernel(inline=True)
def home_of(h: Any, shift: Any, frontier: Any) -> Any:
    """Returns the home of a hash; shift = u8(64 − bits)."""
    home = np.int64(h >> shift)
    if home >= frontier:
        home = np.int64(h >> (shift - np.uint64(1)))
    return home


@kernel(inline=True)
def filter_bits(h: Any) -> Any:
    """Returns the three bits of a hash in its filter word, taken below the bits of the home."""
    one = np.uint64(1)
    low = np.uint64(63)
    return (
        (one << ((h >> np.uint64(14)) & low))
        | (one << ((h >> np.uint64(20)) & low))
        | (one << ((h >> np.uint64(26)) & low))
    )


@kernel(inline=True)
def find(slots: Any, home: Any, key: Any) -> Any:
    """Returns the slot of a key, or −1."""
    # Unsigned indices: for signed ones Numba adds a test for negative values.
    at = np.uint64(home) << np.uint64(1)
    end = np.uint64(slots.shape[0])
    while at < end and slots[at + np.uint64(1)] != np.uint64(0):
        if slots[at] == key:
            return np.int64(at >> np.uint64(1))
        at += np.uint64(2)
    return np.int64(-1)


@kernel
def find_or_add(slots: Any, filter_words: Any, state: Any, key: Any, h: Any, value: Any) -> Any:
    """Returns the slot of a key; adds (key, value) if it is new.

    Returns −1 if the array was too short; then nothing has changed.

    Args:
        slots: u8[2 · s].
        filter_words: u8[w].
        state: i8[5].
        key, h, value: u8; h = hash_of(key, state); value must not be 0.
    """
    home = home_of(h, np.uint64(64 - state[BITS]), state[FRONTIER])
    at = home
    end = slots.shape[0] >> 1
    while at < end and slots[2 * at + 1] != np.uint64(0):
        if slots[2 * at] == key:
            return at
        at += 1
    if at >= end:
        return np.int64(-1)
    slots[2 * at] = key
    slots[2 * at + 1] = value
    state[KEYS] += 1
    filter_words[home >> FILTER_SHIFT] |= filter_bits(h)
    return at


@kernel
def _refresh_filter(slots: Any, filter_words: Any, state: Any, home: Any) -> None:
    """Recomputes the filter word of the homes around one home."""
    shift = np.uint64(64 - state[BITS])
    word_of = home >> FILTER_SHIFT
    word = np.uint64(0)
    at = word_of << FILTER_SHIFT
    end = at + (1 << FILTER_SHIFT)
    while 2 * at < slots.shape[0] and (at < end or slots[2 * at + 1] != np.uint64(0)):
        if slots[2 * at + 1] != np.uint64(0):
            h = hash_of(slots[2 * at], state)
            if home_of(h, shift, state[FRONTIER]) >> FILTER_SHIFT == word_of:
                word |= filter_bits(h)
        at += 1
    filter_words[word_of] = word


@kernel
def erase(slots: Any, filter_words: Any, state: Any, at: Any) -> None:
    """Empties a slot and closes the gap in the run after it, so that there are no tombstones."""
    shift = np.uint64(64 - state[BITS])
    erased_home = home_of(hash_of(slots[2 * at], state), shift, state[FRONTIER])
    hole = at
    follow = at + 1
    while 2 * follow < slots.shape[0] and slots[2 * follow + 1] != np.uint64(0):
        if home_of(hash_of(slots[2 * follow], state), shift, state[FRONTIER]) <= hole:
            slots[2 * hole] = slots[2 * follow]
            slots[2 * hole + 1] = slots[2 * follow + 1]
            hole = follow
        follow += 1
    slots[2 * hole] = np.uint64(0)
    slots[2 * hole + 1] = np.uint64(0)
    state[KEYS] -= 1
    _refresh_filter(slots, filter_words, state, erased_home)


@kernel(types.int64(_U8, _U8, _I8, types.int64))
def stretch(slots: Any, filter_words: Any, state: Any, homes: Any) -> Any:
    """Continues a doubling by about `homes` homes.

    Args:
        slots: u8[2 · s] with s ≥ `slots_needed`.
        filter_words: u8[2^(b + 1) / 16 + 1].
        state: i8[5].
        homes: how many to move at least; a multiple of 16.

    Returns:
        1 if the doubling is complete, else 0; −1 if an array was too short: nothing has changed.
    """
    if (
        slots.shape[0] >> 1 < (np.int64(2) << state[BITS]) + state[KEYS]
        or filter_words.shape[0] <= (np.int64(2) << state[BITS]) >> FILTER_SHIFT
    ):
        return -1
    frontier = state[FRONTIER]
    begin = max(frontier - homes, 0)
    # Near the bottom, source and target would overlap: the last steps are done as one.
    if begin < 2 * homes:
        begin = 0
    end = frontier
    while 2 * end < slots.shape[0] and slots[2 * end + 1] != np.uint64(0):
        end += 1
    moved = slots[2 * begin : 2 * end].copy()
    slots[2 * begin : 2 * end] = np.uint64(0)
    filter_words[begin >> FILTER_SHIFT : (frontier + 15) >> FILTER_SHIFT] = np.uint64(0)
    state[FRONTIER] = begin
    for i in range(end - begin):
        if moved[2 * i + 1] != np.uint64(0):
            h = hash_of(moved[2 * i], state)
            state[KEYS] -= 1
            value = moved[2 * i + 1]
            if find_or_add(slots, filter_words, state, moved[2 * i], h, value) < 0:
                return -1  # cannot happen with the room required above
    if begin > 0:
        return 0
    state[BITS] += 1
    state[FRONTIER] = np.int64(1) << state[BITS]
    return 1
