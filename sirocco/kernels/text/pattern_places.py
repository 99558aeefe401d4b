"""Tells where queries with patterns are, so that texts are not searched for those of other places.

The world is divided into cells, at several levels; a region counts for the cells that it meets at
the finest level where these are few. A filter of bits (B. H. Bloom, "Space/time trade-offs in hash
coding with allowable errors", 1970; two bits in one word for each entry) holds pairs of a cell and
a key:

- of each pattern its group, which is the first two tokens of a phrase or the first few bytes of a
  beginning, and PHRASES_HERE, LONG_HERE, SHORT_HERE or TINY_HERE, the kind of the group;
- of each pattern its number.

All of a cell is in one block, two lines of the caches for groups and two for numbers (F.
Putze, P. Sanders, J. Singler, "Cache-, hash- and space-efficient Bloom filters", 2007). So a text
needs four lines for all of its words.

What the filter lacks no query of that place names. It may hold more, which costs time alone. A key
is added to the cell's hash by exclusive-or: both depend on a secret.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.hash_placement import mix
from sirocco.kernels.base.memory import trailing_zeros
from sirocco.kernels.base.words import multiply_fold
from sirocco.kernels.jit.compiled import kernel

__all__ = [
    "BLOCK_WORDS",
    "FINEST_LEVEL",
    "LEVELS_MAX",
    "LINE_WORDS",
    "LONG_HERE",
    "PHRASES_HERE",
    "PLACE_GROUPS",
    "PLACE_LEVELS",
    "PLACE_NUMBERS",
    "PLACE_STATE_WORDS",
    "SHORT_HERE",
    "TINY_HERE",
    "add_places",
    "block_of",
    "group_of",
    "holds_group",
    "holds_number",
    "near_cells",
]

# Cells of the finest level: 75 m at the equator where the extent is the world.
FINEST_LEVEL = 19
# Every second level has regions: fewer levels are fewer look-ups, more are fewer cells a region.
_LEVEL_STEP = 2
LEVELS_MAX = FINEST_LEVEL // _LEVEL_STEP + 1
# A region meets at most so many cells in each direction at its level.
_CELLS_MAX = 6

# Words of `state`: a bit for each level in use; groups and numbers added.
PLACE_LEVELS, PLACE_GROUPS, PLACE_NUMBERS, PLACE_STATE_WORDS = range(4)

LINE_WORDS = 8
BLOCK_WORDS = 4 * LINE_WORDS

# Keys as hashes are: the high bits of an entry choose its bits.
PHRASES_HERE, LONG_HERE, SHORT_HERE, TINY_HERE = (
    np.uint64(n * 0x9E37_79B9_7F4A_7C15 & 0xFFFF_FFFF_FFFF_FFFF) for n in (1, 2, 3, 4)
)

_U1, _U4, _U5, _U15, _U20, _U40 = (np.uint64(n) for n in (1, 4, 5, 15, 20, 40))
# Halves of a block.
_GROUPS, _NUMBERS = np.uint64(0), np.uint64(1)
_U48, _U52, _U58, _U63 = (np.uint64(n) for n in (48, 52, 58, 63))


def _first_bytes(ascii_bytes: int, two: int, three: int, four: int) -> Any:
    """Returns u8[256], by the first byte of a word: a mask of the first bytes of its group."""
    counts = [ascii_bytes] * 0xC0 + [two] * 0x20 + [three] * 0x10 + [four] * 0x10
    return np.array([(1 << 8 * count) - 1 for count in counts], np.uint64)


# The group of a beginning: where it has so many bytes the long one, otherwise the short one. One
# character alone, which two were composed to, has none: all words may begin like this.
_LONG = _first_bytes(3, 6, 6, 7)
_SHORT = _first_bytes(2, 3, 4, 5)

_READ_ONLY_BOOL = types.Array(types.boolean, 1, "C", readonly=True)
_READ_ONLY_U8 = types.Array(types.uint64, 1, "C", readonly=True)
_READ_ONLY_F8 = types.Array(types.float64, 1, "C", readonly=True)
_READ_ONLY_BOXES = types.Array(types.float32, 2, "C", readonly=True)


@kernel(inline=True)
def group_of(word: Any, is_long: Any, secret: Any) -> Any:
    """Returns (u8 key of the group, whether there is one) of a word's first eight bytes.

    Args:
        word: u8; zero bytes after the word's end.
        is_long: of which group.
        secret: u8, of which two words are used.
    """
    lead = word & np.uint64(0xFF)
    mask = _LONG[lead] if is_long else _SHORT[lead]
    # Of the last byte of the group alone.
    has_all = word & (mask ^ (mask >> np.uint64(8))) != np.uint64(0)
    return multiply_fold((word & mask) ^ secret[1], secret[0]), has_all


@kernel(inline=True)
def _cell(value: Any, origin: Any, scale: Any) -> Any:
    """Returns the column (or row) of a coordinate at the finest level, within the extent."""
    last = (1 << FINEST_LEVEL) - 1
    cell = (value - origin) * scale
    if cell <= 0.0:
        return np.int64(0)
    return np.int64(last) if cell >= last else np.int64(cell)


@kernel(inline=True)
def _cell_hash(level: Any, column: Any, row: Any, secret: Any) -> Any:
    """Returns a u8 hash of a cell."""
    cell = np.uint64(level) << _U40 | np.uint64(row) << _U20 | np.uint64(column)
    return mix(cell, secret[0], secret[1])


@kernel(inline=True)
def _bits_of(entry: Any) -> Any:
    """Returns the bits of an entry in its word."""
    return _U1 << (entry >> _U52 & _U63) | _U1 << (entry >> _U58)


@kernel(inline=True)
def block_of(cell: Any, blocks: Any) -> Any:
    """Returns the first word of a cell's block."""
    return (cell & ((np.uint64(blocks.shape[0]) >> _U5) - _U1)) << _U5


@kernel(inline=True)
def _word_of(cell: Any, entry: Any, half: Any, blocks: Any) -> Any:
    """Returns the word of an entry in a half of its cell's block."""
    return block_of(cell, blocks) | half << _U4 | (entry >> _U48 & _U15)


@kernel(inline=True)
def holds_group(cell: Any, key: Any, blocks: Any) -> Any:
    """Returns whether a cell has a group, or a kind of groups."""
    entry = cell ^ key
    bits = _bits_of(entry)
    return blocks[_word_of(cell, entry, _GROUPS, blocks)] & bits == bits


@kernel(inline=True)
def holds_number(cell: Any, number: Any, blocks: Any) -> Any:
    """Returns whether a cell has a pattern."""
    entry = cell ^ number
    bits = _bits_of(entry)
    return blocks[_word_of(cell, entry, _NUMBERS, blocks)] & bits == bits


@kernel(inline=True)
def _put(cell: Any, key: Any, half: Any, blocks: Any) -> Any:
    """Adds a group or number to a cell; returns whether it was missing."""
    entry = cell ^ key
    at, bits = _word_of(cell, entry, half, blocks), _bits_of(entry)
    is_new = blocks[at] & bits != bits
    blocks[at] |= bits
    return is_new


@kernel(inline=True)
def near_cells(lon: Any, lat: Any, extent: Any, state: Any, secret: Any, cells: Any) -> Any:
    """Writes the hashes of a point's cells at the levels in use; returns their number.

    Args:
        lon, lat: f8, degrees.
        extent: f8[4]: west, south, cells of the finest level per degree in x and in y.
        cells: u8[LEVELS_MAX].
    """
    column, row = _cell(lon, extent[0], extent[2]), _cell(lat, extent[1], extent[3])
    levels, count = np.uint64(state[PLACE_LEVELS]), 0
    while levels != np.uint64(0):
        level = trailing_zeros(levels)
        levels &= levels - _U1
        down = FINEST_LEVEL - level
        cells[count] = _cell_hash(level, column >> down, row >> down, secret)
        count += 1
    return count


@kernel()
def _put_region(
    box: Any, extent: Any, group: Any, number: Any, kind: Any, secret: Any, blocks: Any,
    state: Any,
) -> None:  # fmt: skip
    """Adds a pattern for the cells of a box: f4[4], west, south, -east, -north."""
    west, south = _cell(box[0], extent[0], extent[2]), _cell(box[1], extent[1], extent[3])
    east, north = _cell(-box[2], extent[0], extent[2]), _cell(-box[3], extent[1], extent[3])
    down = np.int64(0)
    while max((east >> down) - (west >> down), (north >> down) - (south >> down)) >= _CELLS_MAX:
        down += _LEVEL_STEP
    level = FINEST_LEVEL - down
    state[PLACE_LEVELS] |= np.int64(1) << level
    for row in range(south >> down, (north >> down) + 1):
        for column in range(west >> down, (east >> down) + 1):
            cell = _cell_hash(level, column, row, secret)
            state[PLACE_GROUPS] += _put(cell, kind, _GROUPS, blocks)
            state[PLACE_GROUPS] += _put(cell, group, _GROUPS, blocks)
            state[PLACE_NUMBERS] += _put(cell, number, _NUMBERS, blocks)


@kernel(
    types.void(
        _READ_ONLY_U8, _READ_ONLY_BOOL, _READ_ONLY_U8, _READ_ONLY_BOXES, _READ_ONLY_F8,
        _READ_ONLY_U8, types.uint64[::1], types.int64[::1],
    )
)  # fmt: skip
def add_places(
    symbols: Any,
    is_phrase: Any,
    patterns: Any,
    boxes: Any,
    extent: Any,
    secret: Any,
    blocks: Any,
    state: Any,
) -> None:
    """Adds patterns of queries with their regions.

    Args:
        symbols: u8[k], of a phrase first + SPREAD * second, its first two tokens; of a beginning
            its first eight bytes.
        is_phrase: bool[k].
        patterns: u8[k], their numbers.
        boxes: f4[k, 4], west, south, -east, -north, rounded down: what lies in the region as an
            index judges it is inside.
        extent: f8[4], see `near_cells`.
        secret: u8, as of the tree.
        blocks: u8[w], the filter; w is a power of two, at least BLOCK_WORDS.
        state: i8[PLACE_STATE_WORDS].
    """
    for k in range(symbols.shape[0]):
        # As `pair_of` does.
        group, kind = multiply_fold(symbols[k] ^ secret[0], secret[1]), PHRASES_HERE
        if not is_phrase[k]:
            key, is_long = group_of(symbols[k], True, secret)
            kind = LONG_HERE
            if not is_long:
                key, is_short = group_of(symbols[k], False, secret)
                kind = SHORT_HERE if is_short else TINY_HERE
            group = key
        _put_region(boxes[k], extent, group, patterns[k], kind, secret, blocks, state)
