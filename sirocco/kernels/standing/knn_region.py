"""Circles of influence: where an object must be to enter a list, and the cells that this meets.

A circle is tested by the chord: objects and queries are points of the unit sphere, so poles and the
antimeridian need no special cases, and a test is three subtractions and products in f4. Its cells
are those of a pyramid over degrees; level l divides each side into 4^l. Columns and rows are
numbered at the finest level and shifted (`pyramid.fine_cell` clamps points outside).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.standing.pyramid import fine_cell

__all__ = [
    "BOUND_NONE",
    "KNN_TERM_SHIFT",
    "REACH_ALL",
    "SLACK_CHORD",
    "SLACK_RADIANS",
    "bound_class",
    "circle_boxes",
    "circle_keys",
    "circle_level",
    "knn_key",
    "reach_of",
]

# Position of the term in a key, above the level and the cell.
KNN_TERM_SHIFT = 36

# Greater than any distance, mm: a list that is not full accepts objects from anywhere.
BOUND_NONE = 1 << 62
# Greater than any squared chord.
REACH_ALL = 5.0

_RADIUS_MM = 6_371_008_800.0
# Half a millimetre of rounding (1e-10), with a large margin: any object that could enter is within.
SLACK_RADIANS = 1e-7
# Twice the error of a chord by rounding to f4: 3e-8 in each of three coordinates of both points.
SLACK_CHORD = 2e-7


@kernel
def reach_of(bound_mm: Any) -> Any:
    """Returns the square of the chord that no object at `bound_mm` or nearer exceeds, f4.

    The chord is the one that matching computes, in f4 from coordinates rounded to f4.
    """
    angle = np.float64(bound_mm) / _RADIUS_MM + SLACK_RADIANS
    if angle >= math.pi:
        return np.float32(REACH_ALL)
    chord = 2.0 * math.sin(0.5 * angle) + SLACK_CHORD
    return np.float32(chord * chord * 1.000001)


@kernel(inline=True)
def bound_class(bound_mm: Any) -> Any:
    """Returns the least c with 2^c ≥ bound_mm: rows are posted for the radius 2^c."""
    size = np.int64(0)
    while np.int64(1) << size < bound_mm:
        size += 1
    return size


@kernel(inline=True)
def circle_boxes(lon: Any, lat: Any, bound_mm: Any, boxes: Any) -> Any:
    """Writes one or two boxes (west, south, east, north) that hold a circle; returns how many.

    Args:
        lon, lat: degrees.
        bound_mm: its radius.
        boxes: f8[8], overwritten; of two boxes the western one comes first. With only one, the
            other is unchanged.
    """
    angle = np.float64(bound_mm) / _RADIUS_MM + SLACK_RADIANS
    degrees = math.degrees(min(angle, math.pi))
    boxes[0] = -180.0
    boxes[1] = max(lat - degrees, -90.0)
    boxes[2] = 180.0
    boxes[3] = min(lat + degrees, 90.0)
    if lat - degrees <= -90.0 or lat + degrees >= 90.0:
        return 1
    # Without a pole in the circle, its angle is below the centre's distance from the pole, whose
    # sine is cos(lat): the quotient is below 1.
    sine = math.sin(angle) / math.cos(math.radians(lat))
    if sine > 0.999:
        return 1
    wide = math.degrees(math.asin(sine)) + 1e-6
    west = lon - wide
    east = lon + wide
    if west > -180.0 and east < 180.0:
        boxes[0] = west
        boxes[2] = east
        return 1
    # Across the antimeridian, or up to it: objects there may have longitude 180 or −180.
    if west <= -180.0:
        west += 360.0
    else:
        east -= 360.0
    boxes[2] = east
    boxes[4] = west
    boxes[5] = boxes[1]
    boxes[6] = 180.0
    boxes[7] = boxes[3]
    return 2


@kernel(inline=True)
def knn_key(term: Any, level: Any, column: Any, row: Any) -> Any:
    """Returns the u8 key of (term, cell): 28 bits of term, 4 of level, 16 of row and column."""
    cell = np.uint64((level << 32) | (row << 16) | column)
    return (np.uint64(term) << np.uint64(KNN_TERM_SHIFT)) | cell


@kernel(inline=True)
def _columns(boxes: Any, count: Any, grid: Any, finest: Any, down: Any, spans: Any) -> Any:
    """Writes the ranges of columns of boxes at one level, disjoint; returns their total width.

    Args:
        boxes, count: from `circle_boxes`.
        grid, finest: of the pyramid; down: halvings from the finest level.
        spans: i8[4], overwritten: first and last column of two ranges; the second one is empty if
            there is only one box or the ranges meet.
    """
    last = (1 << finest) - 1
    first_a = fine_cell(boxes[0], grid[0], grid[2], last) >> down
    last_a = fine_cell(boxes[2], grid[0], grid[2], last) >> down
    first_b = fine_cell(boxes[4], grid[0], grid[2], last) >> down
    last_b = fine_cell(boxes[6], grid[0], grid[2], last) >> down
    # The western box begins at the antimeridian, the eastern one ends there.
    is_one = (count == 1) | (first_b <= last_a)
    spans[0] = first_a
    spans[1] = max(last_a, last_b) if is_one and count == 2 else last_a
    spans[2] = 0 if is_one else first_b
    spans[3] = -1 if is_one else last_b
    return spans[1] - spans[0] + spans[3] - spans[2] + 2


@kernel(inline=True)
def circle_level(boxes: Any, count: Any, grid: Any, finest: Any, cells_max: Any, spans: Any) -> Any:
    """Returns the finest level at which boxes meet at most `cells_max` cells.

    Args:
        boxes, count: from `circle_boxes`.
        grid: f8[4], west, south, cells of the finest level per degree in x, in y.
        finest: 2^finest cells a side at the bottom; even.
        cells_max: at least 4, the number that even the smallest circle may meet.
        spans: i8[4], scratch.

    At level 0 there is one cell.
    """
    last = (1 << finest) - 1
    first_row = fine_cell(boxes[1], grid[1], grid[3], last)
    last_row = fine_cell(boxes[3], grid[1], grid[3], last)
    down = np.int64(0)
    cells = _columns(boxes, count, grid, finest, down, spans) * (last_row - first_row + 1)
    while cells > cells_max:
        down += 2
        wide = _columns(boxes, count, grid, finest, down, spans)
        cells = wide * ((last_row >> down) - (first_row >> down) + 1)
    return (finest - down) >> 1


@kernel(inline=True)
def circle_keys(
    term: Any,
    level: Any,
    boxes: Any,
    count: Any,
    grid: Any,
    finest: Any,
    spans: Any,
    keys: Any,
    at: Any,
) -> Any:
    """Adds the key of each cell of a level that boxes meet, each once; returns the new count.

    Returns −1 if `keys` was too short; then nothing has changed.

    Args:
        term: id; level … spans: as in `circle_level`.
        keys: u8[…]; at: their number.
    """
    down = finest - 2 * level
    last = (1 << finest) - 1
    wide = _columns(boxes, count, grid, finest, down, spans)
    first_row = fine_cell(boxes[1], grid[1], grid[3], last) >> down
    last_row = fine_cell(boxes[3], grid[1], grid[3], last) >> down
    if at + wide * (last_row - first_row + 1) > keys.shape[0]:
        return np.int64(-1)
    for span in range(0, 4, 2):
        for row in range(first_row, last_row + 1):
            for column in range(spans[span], spans[span + 1] + 1):
                keys[at] = knn_key(term, level, column, row)
                at += 1
    return at
