"""The pyramid of grids, and the words of postings, rows and lists.

Level l of the pyramid divides the extent into 2^l × 2^l cells (FAST's pyramid; Mahmood, Aly, Aref
2018). Points and regions outside the extent count for the border cells: clamping keeps the order of
coordinates, so a region and a point in it always share a cell.

Posting, 8 words of 4 bytes: west, south, −east, −north as f4, rounded outwards; two further
positive terms (0: none); the row; the information word: bits INFO_*, above INFO_SHIFT the place of
the conjunction in the row's term block.

Row, 8 words of 8 bytes: born, dead, expires_ms, reference to its term block, and its box as
four f8 or, if its kind is not KIND_BOX, a reference to its shape block in the first of them.
Its state byte is STATE_* | KIND_* << KIND_SHIFT.

Term block, 4-byte words: for each conjunction a head (positives | negatives << 13 |
level << 26), the positive terms with the anchor first, the negative terms.

Shape block, f8 words: boxes, rings, circle (lon, lat, radius_m), 3 unused; the boxes; the number
of vertices of each ring, padded to an even count; the vertices.

List (value of a slot): count | size class << 26 | first posting << 32; size class 63 for a
list without a block yet.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sirocco.kernels.jit.compiled import kernel

__all__ = [
    "BORN",
    "BOX",
    "CONJ_TERMS_MAX",
    "DEAD",
    "EXPIRES",
    "INFO_MULTI",
    "INFO_SHIFT",
    "INFO_TERMS",
    "KIND_BOX",
    "KIND_BOXES",
    "KIND_CIRCLE",
    "KIND_POLYGON",
    "KIND_SHIFT",
    "LARGE_LEVELS",
    "LEVELS_MAX",
    "NO_BLOCK",
    "POSTING_INFO",
    "POSTING_ROW",
    "POSTING_SECOND_TERM",
    "POSTING_TERM",
    "POSTING_WORDS",
    "ROW_WORDS",
    "SHAPE_HEADER",
    "SHAPE_UNIT",
    "STAMP",
    "STATE_CHECK",
    "STATE_FREE",
    "STATE_MASK",
    "STATE_PLAIN",
    "SURVEYED",
    "SURVEY_LEVEL",
    "TERM_BLOCK",
    "TERM_UNIT",
    "cell_key",
    "fine_cell",
    "level_of_side",
    "region_keys",
    "survey_level",
]

LEVELS_MAX = 13  # cell numbers take 26 bits of the 32 that a key has for them
CONJ_TERMS_MAX = 8_191

POSTING_WORDS = 8
# Words of a posting after its box of four f4: two more terms that an object must hold, 0 for none,
# the row, and INFO_MULTI to INFO_SHIFT.
POSTING_TERM, POSTING_SECOND_TERM, POSTING_ROW, POSTING_INFO = 4, 5, 6, 7
ROW_WORDS = 8
# Words of a row.
BORN, DEAD, EXPIRES, TERM_BLOCK, BOX = range(5)
TERM_UNIT = 4  # words of 4 bytes: head and three terms, the most frequent query, in 16 bytes
SHAPE_UNIT = 8  # words of 4 bytes: 4 f8
SHAPE_HEADER = 8

INFO_MULTI = 1  # the row has several postings that one object may meet
INFO_TERMS = 2  # terms that do not fit the posting: read the term block
INFO_SHIFT = 4

KIND_BOX = 0
KIND_BOXES = 1
KIND_CIRCLE = 2
KIND_POLYGON = 3

STATE_FREE = 0
STATE_PLAIN = 1  # born, not dead, not expired for every object that arrives now
STATE_CHECK = 2  # compare with born, dead and expires_ms
STATE_MASK = 3
KIND_SHIFT = 2

NO_BLOCK = 63

# Words of a range index's `match_state`: the last stamp of a row, the levels of regions too large
# to be marked in the survey, and the regions surveyed.
STAMP, LARGE_LEVELS, SURVEYED = range(3)

# 128 × 128 cells: their masks of levels in use (32 kB) stay in the second-level cache.
SURVEY_LEVEL = 7


@kernel(inline=True)
def fine_cell(value: Any, origin: Any, scale: Any, last: Any) -> Any:
    """Returns the column (or row) of a coordinate at the finest level, clamped to [0, last]."""
    cell = (value - origin) * scale
    if cell <= 0.0:
        return np.int64(0)
    if cell >= last:
        return np.int64(last)
    return np.int64(cell)


@kernel(inline=True)
def cell_key(term: Any, level: Any, column: Any, row: Any) -> Any:
    """Returns the u8 key of (term, cell); column and row at the given level."""
    cell = (np.uint64(level) << np.uint64(26)) | np.uint64((row << level) | column)
    return (np.uint64(term) << np.uint64(32)) | cell


@kernel
def level_of_side(fine_cells: Any, finest: Any) -> Any:
    """Returns the finest level whose cells are at least as long as a region.

    Args:
        fine_cells: longer side of the region in cells of the finest level, f8.
        finest: number of the finest level.
    """
    level = finest
    side = 1.0
    while level > 0 and side < fine_cells:
        level -= 1
        side *= 2.0
    return level


@kernel(inline=True)
def survey_level(finest: Any) -> Any:
    """Returns the level of the survey: density of queries and levels in use, by cell."""
    return min(finest, SURVEY_LEVEL)


@kernel
def region_keys(
    term: Any,
    level: Any,
    west: Any,
    south: Any,
    east: Any,
    north: Any,
    grid: Any,
    finest: Any,
    keys: Any,
    count: Any,
) -> Any:
    """Adds the key of each cell of one level that a box meets; returns the new count.

    Returns −1 if `keys` (u8[…]) was too short; then nothing has changed.
    """
    last = (1 << finest) - 1
    down = finest - level
    first_column = fine_cell(west, grid[0], grid[2], last) >> down
    last_column = fine_cell(east, grid[0], grid[2], last) >> down
    first_row = fine_cell(south, grid[1], grid[3], last) >> down
    last_row = fine_cell(north, grid[1], grid[3], last) >> down
    if count + (last_row - first_row + 1) * (last_column - first_column + 1) > keys.shape[0]:
        return np.int64(-1)
    for row in range(first_row, last_row + 1):
        for column in range(first_column, last_column + 1):
            keys[count] = cell_key(term, level, column, row)
            count += 1
    return count
