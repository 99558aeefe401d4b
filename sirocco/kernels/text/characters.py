"""The layout of the table of characters, which kernels and the script that writes it share.

An entry of `blocks` (u4) describes one code point:
    bits 0-17: code point exclusive-or the character that it is mapped to; with EXPANDS the row of
        its mapping
    bits 18-20: class of that character; with EXPANDS or SLOW of the code point itself
    bit 21, EXPANDS: is mapped to several characters or none
    bit 22, SLOW: only normalisation of all characters around it can tell
    bit 23, HARD: may compose with the character before it
    bits 24-31: canonical combining class

A row of mappings is `pool[starts[row] : starts[row + 1]]`, each a code point | class << 24. Rows in
`row_blocks` are fully decomposed; row 0 is the character itself.

An entry of `compositions` (u8), a hash table from pairs of characters:
    bits 0-20: the composed character
    bits 21-41 and 42-62: the second and the first
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sirocco.kernels.jit.compiled import kernel

__all__ = [
    "BLOCK_COUNT",
    "CLASS_SHIFT",
    "CODE_MASK",
    "COMBINING_SHIFT",
    "COMPOSITIONS",
    "EMOJI",
    "EXPANDS",
    "FLAG",
    "HARD",
    "LENGTHENS",
    "MARK",
    "OTHER",
    "SEPARATES",
    "SLOW",
    "UNIT_FIRST",
    "UNIT_NEXT",
    "UNSPACED",
    "UNSPACED_MARK",
    "composition_place",
]

CODE_MASK = 0x3_FFFF
CLASS_SHIFT = 18
EXPANDS = 1 << 21
SLOW = 1 << 22
HARD = 1 << 23
COMBINING_SHIFT = 24

# Classes of characters in a normalised text: of no token; of words; marks, which continue what is
# before them; of scripts without spaces; their marks; U+30FC, which continues too; emoji; halves of
# flags.
SEPARATES, OTHER, MARK, UNSPACED, UNSPACED_MARK, LENGTHENS, EMOJI, FLAG = range(8)

# What stands before units in cleaned texts (`cleaning`).
UNIT_FIRST, UNIT_NEXT = 0xFE, 0xFF

# Four bytes of UTF-8 encode 21 bits, even where they are not valid.
BLOCK_COUNT = 1 << 13
# Entries of `compositions`; Unicode has fewer than 1,000 pairs.
COMPOSITIONS = 1 << 12

# The golden ratio: an odd number whose product spreads over the high bits.
_GOLDEN = np.uint64(0x9E37_79B9_7F4A_7C15)
_U52 = np.uint64(52)


@kernel(inline=True)
def composition_place(pair: Any) -> Any:
    """Returns where the search for a pair, first << 21 | second, begins in `compositions`."""
    return np.int64(pair * _GOLDEN >> _U52)
