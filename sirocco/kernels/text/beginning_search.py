"""Finds the longest beginnings of words.

The end of a word's longest beginning is remembered by the word's number: texts repeat words.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sirocco.kernels.base.memory import prefetch
from sirocco.kernels.base.words import load_u64
from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.text.characters import UNIT_FIRST
from sirocco.kernels.text.pattern_tree import (
    BEGINNINGS,
    ROW_WORDS,
    SPREAD,
    above,
    child_of,
    joined,
    nearest_end,
)

__all__ = ["note_longest"]

# Tokens whose memory is fetched together.
_GROUP = 128

_U1, _U8, _U32 = (np.uint64(n) for n in (1, 8, 32))
_LENGTH_MASK = np.uint64(0xFFFF_FFFF)


@kernel()
def _beginning_of(
    cleaned: Any, start: Any, length: Any, places: Any, nodes: Any, begins_some: Any, secret: Any
) -> Any:
    """Returns the deepest node of beginnings on the path of a word, BEGINNINGS for none."""
    node = np.int64(BEGINNINGS)
    if length < 2 or not begins_some[np.int64(load_u64(cleaned, start) & np.uint64(0xFFFF))]:
        return node
    at, of_base = np.int64(0), np.uint64(BEGINNINGS)
    while at < length:
        word = load_u64(cleaned, start + at)
        base, least, most = node, np.int64(0), min(length - at, np.int64(7))
        if length - at >= 8:
            path = joined(of_base, word, secret)
            child = child_of(base, word, path, places, nodes)
            if child != 0:
                node, of_base = child, path
                at += 8
                continue
        while least < most:
            middle = (least + most + 1) >> 1
            symbol = word & ((_U1 << (_U8 * np.uint64(middle))) - _U1)
            path = joined(of_base, symbol, secret)
            child = child_of(base, symbol, path, places, nodes)
            if child != 0:
                node, least = child, middle
            else:
                most = middle - 1
        break
    return node


@kernel()
def note_longest(
    cleaned: Any, spans: Any, tokens: Any, chosen: Any, count: Any, places: Any, nodes: Any,
    ends: Any, begins_some: Any, secret: Any, changes: Any, known: Any, longest: Any,
) -> None:  # fmt: skip
    """Writes the end of the longest beginning of each chosen token to `longest`, 0 for none."""
    mask = known.shape[0] // 2 - 1
    at = np.empty(_GROUP, np.int64)
    flat = ends.ravel()
    for begin in range(0, count, _GROUP):
        size = min(_GROUP, count - begin)
        for k in range(size):
            at[k] = 2 * (np.int64((tokens[chosen[begin + k]] * SPREAD) >> _U32) & mask)
            prefetch(known, at[k])
        for k in range(size):
            i, place = np.int64(chosen[begin + k]), at[k]
            start, length = np.int64(spans[i] >> _U32), np.int64(spans[i] & _LENGTH_MASK)
            longest[begin + k] = 0
            # Units are no words, though what begins a word may be their first bytes.
            if start > 0 and cleaned[start - 1] >= UNIT_FIRST:
                continue
            if known[place] != tokens[i] or tokens[i] == 0:
                node = _beginning_of(cleaned, start, length, places, nodes, begins_some, secret)
                known[place] = tokens[i]
                known[place + 1] = np.uint64(nearest_end(node, nodes, changes))
            longest[begin + k] = known[place + 1]
            prefetch(flat, np.int64(longest[begin + k]) * ROW_WORDS)
        for k in range(size):
            prefetch(flat, above(np.int64(longest[begin + k]), nodes, ends, changes) * ROW_WORDS)
