"""Properties of each code point for the text kernel, as a two-stage table.

The table is built from `unicodedata` on first use (about 0.2 s), so the kernel and the reference
analysis always use the same version of Unicode.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.base.text import (
    ALTERS,
    BLOCK_COUNT,
    CLASS_SHIFT,
    COMPOSITIONS,
    EXPANDS,
    HARD,
    HOLDS,
    IN_TERM,
    composition_place,
)

# Planes 4 to 13, 15 and 16 hold no letters, marks or numbers: unassigned and private use. A
# test compares the table with `unicodedata` over all code points.
_PLANES = (0, 1, 2, 3, 14)

# Hangul vowels and trailing consonants compose by rule, not by table.
_JAMO_SECONDS = frozenset(map(chr, (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))))


@dataclass(frozen=True, slots=True)
class CharacterTable:
    """Two stages: `blocks[index[c >> 8], c & 255]` describes code point c.

    Attributes:
        index: u2[8192], the block of each 256 code points; longer than Unicode, so that no sequence
            of bytes can point beyond it.
        blocks: u4[b, 256], entries as laid out in `sirocco.kernels.base.text`.
        expansions: u4[e, 4], code points that one character folds to, ended by 0.
        compositions: u8[4096], compositions of neighbouring pairs, likewise; without Hangul.
    """

    index: NDArray[np.uint16]
    blocks: NDArray[np.uint32]
    expansions: NDArray[np.uint32]
    compositions: NDArray[np.uint64]


@functools.cache
def character_table() -> CharacterTable:
    """Returns the table, built once per process."""
    pairs = _pairs()
    seconds = _JAMO_SECONDS.union(second for _, second in pairs)
    expansions: list[list[int]] = []
    block_numbers: dict[bytes, int] = {}
    blocks: list[NDArray[np.uint32]] = []
    index = np.zeros(BLOCK_COUNT, np.uint16)
    _block_number(np.zeros(256, np.uint32), block_numbers, blocks)
    for plane in _PLANES:
        for high in range(plane << 8, (plane + 1) << 8):
            entries = [
                0 if 0xD8 <= high <= 0xDF else _entry(chr(code), seconds, expansions)
                for code in range(high << 8, (high + 1) << 8)
            ]
            index[high] = _block_number(np.array(entries, np.uint32), block_numbers, blocks)
    return CharacterTable(
        index=index,
        blocks=np.stack(blocks),
        expansions=np.array([(*e, 0, 0, 0)[:4] for e in expansions], np.uint32),
        compositions=_compositions(pairs),
    )


def _block_number(
    block: NDArray[np.uint32], numbers: dict[bytes, int], blocks: list[NDArray[np.uint32]]
) -> int:
    number = numbers.setdefault(block.tobytes(), len(blocks))
    if number == len(blocks):
        blocks.append(block)
    return number


def _pairs() -> dict[tuple[str, str], str]:
    """Returns the pairs to which characters decompose, whether or not they compose again."""
    pairs = {}
    for plane in _PLANES:
        for code in range(plane << 16, (plane + 1) << 16):
            decomposition = unicodedata.decomposition(chr(code))
            if " " in decomposition and not decomposition.startswith("<"):
                first, second = (chr(int(part, 16)) for part in decomposition.split())
                pairs[first, second] = chr(code)
    return pairs


def _compositions(pairs: Mapping[tuple[str, str], str]) -> NDArray[np.uint64]:
    """Returns the pairs that compose, in the kernel's form."""
    table = np.zeros(COMPOSITIONS, np.uint64)
    for (first, second), composed in pairs.items():
        if unicodedata.normalize("NFKC", first + second) != composed:
            continue
        pair = np.uint64(ord(first) << 21 | ord(second))
        place = composition_place(pair)
        while table[place]:
            place = (place + 1) % COMPOSITIONS
        table[place] = pair << np.uint64(21) | np.uint64(ord(composed))
    return table


def _entry(character: str, seconds: frozenset[str], expansions: list[list[int]]) -> int:
    """Returns the table entry of one character.

    Unicode Standard Annex 15, section 9: a text is normal if its characters normalise to
    themselves, cannot compose with what precedes them, and have their marks in order. A character
    that normalises to others may be replaced by them first, if those are starters that compose with
    nothing before them.
    """
    normal = unicodedata.normalize("NFKC", character)
    folded = normal.casefold()
    entry = unicodedata.combining(character) << CLASS_SHIFT
    if normal != character:
        entry |= ALTERS
    if character in seconds:
        entry |= HARD
    if unicodedata.normalize("NFD", character) != character:
        entry |= HOLDS
    moves = normal != character and any(c in seconds or unicodedata.combining(c) for c in normal)
    if moves or character in _JAMO_SECONDS or not _fits(character, folded):
        return entry | HARD | ALTERS | (IN_TERM if _in_term(character) else 0)
    if len(folded) > 1:
        expansions.append([ord(c) for c in folded])
        return entry | EXPANDS | (len(expansions) - 1)
    entry |= ord(character) ^ ord(folded)
    return entry | IN_TERM if _in_term(folded) else entry


def _fits(character: str, folded: str) -> bool:
    """Returns whether the kernel has room for a character's case folding."""
    return len(folded) <= 4 and len(folded.encode()) <= 3 * len(character.encode())


def _in_term(character: str) -> bool:
    return character == "_" or unicodedata.category(character)[0] in "LMN"
