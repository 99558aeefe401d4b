"""Finds the objects that a slot may need: compares their terms with the keywords of its queries.

An open-addressing table from keywords to sets of slots, a bit for each slot. Linear probing on a
power of two; a secret decides the place of a keyword (`hash_placement`). Keyword 0 marks an empty
entry.

Most terms of objects are no keyword. So a small table of bits, eight for each place, is checked
first: unlike the table it stays in a core's cache, and its answer is nearly always the same, while
a processor cannot predict where a search in the table ends.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types as nt
from numpy.typing import NDArray

from sirocco.kernels.base.hash_placement import mix
from sirocco.kernels.jit.compiled import kernel

__all__ = ["add_keywords", "keep_wanted"]

_TERMS = nt.Array(nt.u8, 1, "C", readonly=True)
_SETS = nt.Array(nt.u8, 2, "C", readonly=True)
_OFFSETS = nt.Array(nt.i8, 1, "C", readonly=True)
_ROWS = nt.Array(nt.i4, 1, "C", readonly=True)
_HINTS = nt.Array(nt.u1, 1, "C", readonly=True)


@kernel(inline=True)
def _bit_of(h: np.uint64, hints: NDArray[np.uint8]) -> np.uint64:
    """Returns the bit of a hash in `hints`, from other bits than its place."""
    return (h >> np.uint64(32)) & np.uint64(8 * len(hints) - 1)


@kernel(inline=True)
def _find(term: Any, h: Any, table_terms: Any) -> Any:
    """Returns the place of a term, or the free place for it; −1: not there, and no room."""
    mask = np.uint64(len(table_terms) - 1)
    place = h & mask
    for _ in range(len(table_terms)):
        if table_terms[place] == 0 or table_terms[place] == term:
            return np.int64(place)
        place = (place + np.uint64(1)) & mask
    return np.int64(-1)


@kernel(
    nt.i8(
        *(_TERMS, _SETS, nt.i8, nt.i8),
        *(nt.u8[::1], nt.u8[:, ::1], nt.u1[::1], nt.u8[::1], nt.b1[::1], nt.u8, nt.u8),
    )
)
def add_keywords(
    terms: NDArray[np.uint64],
    sets: NDArray[np.uint64],
    count: int,
    count_max: int,
    table_terms: NDArray[np.uint64],
    table_sets: NDArray[np.uint64],
    hints: NDArray[np.uint8],
    open_set: NDArray[np.uint64],
    is_fresh: NDArray[np.bool_],
    first: np.uint64,
    second: np.uint64,
) -> int:
    """Adds slots to keywords; the slots of a keyword without room are opened to every object.

    Args:
        terms: u8[k], keywords; 0 means any object.
        sets: u8[k, w], the slots of each, bit s % 64 of word s // 64.
        count: the number of keywords in the table.
        count_max: its greatest number of keywords, less than the number of places.
        table_terms: u8[n], n a power of two; changed.
        table_sets: u8[n, w], changed.
        hints: u1[n], 8n bits, one or more of them for each keyword; changed.
        open_set: u8[w], slots that need every object; changed.
        is_fresh: bool[k], overwritten: whether a slot was new for the keyword.
        first, second: the table's secret.

    Returns:
        The new number of keywords in the table.
    """
    words = table_sets.shape[1]
    for i in range(len(terms)):
        term = terms[i]
        h = mix(term, first, second)
        place: Any = np.int64(-1)
        if term != 0:
            place = _find(term, h, table_terms)
        is_open = place < 0
        if not is_open and table_terms[place] == 0:
            if count < count_max:
                table_terms[place] = term
                bit = _bit_of(h, hints)
                hints[bit >> np.uint64(3)] |= np.uint8(1) << np.uint8(bit & np.uint64(7))
                count += 1
            else:
                is_open = True
        fresh = False
        for w in range(words):
            if is_open:
                fresh |= (sets[i, w] & ~open_set[w]) != 0
                open_set[w] |= sets[i, w]
            else:
                fresh |= (sets[i, w] & ~table_sets[place, w]) != 0
                table_sets[place, w] |= sets[i, w]
        is_fresh[i] = fresh
    return count


@kernel(
    nt.void(
        *(_OFFSETS, _TERMS, _ROWS, _ROWS, _TERMS, _SETS, _HINTS, _TERMS, nt.b1[::1]),
        *(nt.u8, nt.u8),
    )
)
def keep_wanted(
    term_offsets: NDArray[np.int64],
    terms: NDArray[np.uint64],
    rows: NDArray[np.int32],
    slots: NDArray[np.int32],
    table_terms: NDArray[np.uint64],
    table_sets: NDArray[np.uint64],
    hints: NDArray[np.uint8],
    open_set: NDArray[np.uint64],
    keep: NDArray[np.bool_],
    first: np.uint64,
    second: np.uint64,
) -> None:
    """Marks the objects that hold a keyword of their slot, and those whose slot is open.

    Args:
        term_offsets: i8[n + 1], into `terms`.
        terms: u8[t], terms of each object.
        rows: i4[m], the object of each route.
        slots: i4[m], the slot of each route.
        table_terms, table_sets, hints, open_set, first, second: see `add_keywords`.
        keep: bool[m], overwritten.
    """
    for i in range(len(rows)):
        word = slots[i] >> 6
        bit = np.uint64(1) << np.uint64(slots[i] & 63)
        wanted = (open_set[word] & bit) != 0
        if not wanted:
            for t in range(term_offsets[rows[i]], term_offsets[rows[i] + 1]):
                h = mix(terms[t], first, second)
                hint = _bit_of(h, hints)
                if (hints[hint >> np.uint64(3)] >> np.uint8(hint & np.uint64(7))) & 1 == 0:
                    continue
                place = _find(terms[t], h, table_terms)
                if place >= 0 and (table_sets[place, word] & bit) != 0:
                    wanted = True
                    break
        keep[i] = wanted
