"""Reads characters of UTF-8 texts and their entries in the table (`characters`); writes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from sirocco.kernels.base.words import load_u64, store_u64
from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.text.characters import CLASS_SHIFT

__all__ = ["class_of", "decode", "entry_of", "load_within", "write"]

_U0, _U6, _U7, _U8 = (np.uint64(n) for n in (0, 6, 7, 8))
_U12, _U16, _U18, _U24 = (np.uint64(n) for n in (12, 16, 18, 24))
_U07, _U0F, _U1F, _U3F, _U7F, _UFF = (np.uint64(n) for n in (0x07, 0x0F, 0x1F, 0x3F, 0x7F, 0xFF))
_U10, _U20, _U80, _U800, _U10000 = (np.uint64(n) for n in (0x10, 0x20, 0x80, 0x800, 0x10000))
# First bytes of two, three and four byte sequences with their continuation bytes.
_LEAD_2, _LEAD_3, _LEAD_4 = (np.uint64(n) for n in (0x80C0, 0x8080E0, 0x808080F0))
_CLASS_SHIFT = np.uint64(CLASS_SHIFT)


@kernel(inline=True)
def write(code: Any, out: Any, position: Any) -> Any:
    """Writes a code point as UTF-8.

    Overwrites up to eight bytes; returns the position after the code point.
    """
    low = code & _U3F
    if code < _U80:
        word, length = code, 1
    elif code < _U800:
        word, length = (code >> _U6) | (low << _U8) | _LEAD_2, 2
    elif code < _U10000:
        word = (code >> _U12) | ((code >> _U6 & _U3F) << _U8) | (low << _U16) | _LEAD_3
        length = 3
    else:
        word = (code >> _U18) | ((code >> _U12 & _U3F) << _U8)
        word |= ((code >> _U6 & _U3F) << _U16) | (low << _U24) | _LEAD_4
        length = 4
    store_u64(out, position, word)
    return position + length


@kernel(inline=True)
def load_within(data: Any, position: Any) -> Any:
    """Returns the word at a position, with zero bytes beyond the end of the data."""
    if position + 8 <= data.shape[0]:
        return load_u64(data, position)
    word = _U0
    for k in range(data.shape[0] - position):
        word |= np.uint64(data[position + k]) << (_U8 * np.uint64(k))
    return word


@kernel(inline=True)
def decode(word: Any) -> Any:
    """Returns (code point, bytes) of the UTF-8 sequence at the beginning of a word."""
    second = word >> _U8 & _U3F
    if word & _U80 == _U0:
        return word & _U7F, 1
    if word & _U20 == _U0:
        return (word & _U1F) << _U6 | second, 2
    third = word >> _U16 & _U3F
    if word & _U10 == _U0:
        return (word & _U0F) << _U12 | second << _U6 | third, 3
    fourth = word >> _U24 & _U3F
    return (word & _U07) << _U18 | second << _U12 | third << _U6 | fourth, 4


@kernel(inline=True)
def entry_of(code: Any, index: Any, blocks: Any) -> Any:
    """Returns the entry of a code point."""
    return np.uint64(blocks[np.uint64(index[code >> _U8]), code & _UFF])


@kernel(inline=True)
def class_of(entry: Any) -> Any:
    """Returns the class in an entry."""
    return np.int64(entry >> _CLASS_SHIFT & _U7)
