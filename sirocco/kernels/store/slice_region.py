"""Compares a condition's region with points and with boxes of nodes.

A condition is compiled into
    words: i8, [0] shape (SHAPE_*), [1] boxes b, [2] rings r, [3] conjunctions, [4] where the heads
        of the text begin in it, [5 : 6 + r] first vertex of each ring and the end of the last;
    values: f8, boxes (west, south, east, north), circle (lon, lat, radius_m), vertices (x, y);
    quads: f4[4 · b], the boxes as (east, north, −west, −south), each rounded up.
A region that touches a longitude of ±180 has a box on each side. Nodes have boxes
(west, south, −east, −north) as f4, each rounded down.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sirocco.kernels.base.geometry import distance_m, ring_side
from sirocco.kernels.base.memory import four_at_least
from sirocco.kernels.jit.compiled import kernel

__all__ = [
    "COVERED",
    "DISJOINT",
    "PARTIAL",
    "SHAPE_BOX",
    "SHAPE_CIRCLE",
    "SHAPE_POLYGON",
    "SHAPE_WORLD",
    "WORDS_HEADER",
    "is_any_near",
    "meets_node",
    "overlap_relation",
    "overlapping_children",
    "point_inside",
    "rows_near",
]

SHAPE_BOX = 0
SHAPE_CIRCLE = 1
SHAPE_POLYGON = 2
SHAPE_WORLD = 3
WORDS_HEADER = 5

DISJOINT = 0
PARTIAL = 1
COVERED = 2

# Far above the rounding errors of a distance, far below the precision that users need.
_MARGIN_M = 0.01


@kernel
def _in_rings(words: Any, values: Any, x: Any, y: Any) -> Any:
    """Returns whether the polygon, its border included, holds a point."""
    rings = words[2]
    base = 4 * words[1] + 3
    vertices = values[base:]
    parity = 0
    for ring in range(rings):
        side = ring_side(vertices, words[WORDS_HEADER + ring], words[WORDS_HEADER + ring + 1], x, y)
        if side == 2:
            return True
        parity ^= side
    return parity == 1


@kernel
def _shape_holds(words: Any, values: Any, x: Any, y: Any) -> Any:
    """Checks a point that lies in a box of a circle or polygon."""
    if words[0] == SHAPE_CIRCLE:
        at = 4 * words[1]
        return distance_m(values[at], values[at + 1], x, y) <= values[at + 2]
    if abs(x) == 180.0:
        return _in_rings(words, values, 180.0, y) or _in_rings(words, values, -180.0, y)
    return _in_rings(words, values, x, y)


@kernel(inline=True)
def point_inside(words: Any, values: Any, x: Any, y: Any) -> Any:
    """Returns whether a condition's region holds a point; exact, in f8."""
    shape = words[0]
    if shape == SHAPE_WORLD:
        return True
    inside = False
    for box in range(words[1]):
        at = 4 * box
        inside |= (
            (x >= values[at])
            & (y >= values[at + 1])
            & (x <= values[at + 2])
            & (y <= values[at + 3])
        )
    if inside and shape != SHAPE_BOX:
        inside = _shape_holds(words, values, x, y)
    return inside


@kernel
def _circle_relation(
    lon: Any, lat: Any, radius_m: Any, west: Any, south: Any, east: Any, north: Any
) -> Any:
    """Bounds the distances of a box from the centre by the distance of its middle.

    A point of the box is at most as far from its middle as a path along the meridian and then along
    a parallel, which is longest nearest to the equator.
    """
    y = 0.5 * (south + north)
    middle_m = distance_m(lon, lat, 0.5 * (west + east), y)
    nearest_lat = 0.0 if south <= 0.0 <= north else min(abs(south), abs(north))
    reach = 0.5 * (north - south) + 0.5 * (east - west) * math.cos(math.radians(nearest_lat))
    reach_m = math.radians(reach) * 6_371_008.8 * (1.0 + 1e-9) + _MARGIN_M
    if middle_m + reach_m <= radius_m:
        return COVERED
    return DISJOINT if middle_m - reach_m > radius_m else PARTIAL


@kernel
def _polygon_relation(words: Any, values: Any, west: Any, south: Any, east: Any, north: Any) -> Any:
    """Returns the relation: a box that meets no edge's box lies wholly inside or outside."""
    if west <= -180.0 or east >= 180.0:
        return PARTIAL
    at = 4 * words[1] + 3
    for ring in range(words[2]):
        begin = words[WORDS_HEADER + ring]
        end = words[WORDS_HEADER + ring + 1]
        ax = values[at + 2 * (end - 1)]
        ay = values[at + 2 * (end - 1) + 1]
        for i in range(begin, end):
            bx = values[at + 2 * i]
            by = values[at + 2 * i + 1]
            if (
                (min(ax, bx) <= east)
                & (max(ax, bx) >= west)
                & (min(ay, by) <= north)
                & (max(ay, by) >= south)
            ):
                return PARTIAL
            ax = bx
            ay = by
    return COVERED if _in_rings(words, values, west, south) else DISJOINT


@kernel
def overlapping_children(words: Any, quads: Any, boxes: Any, first: Any, last: Any) -> Any:
    """Returns u8; bit i is set if a box of the region meets node first + i of a level.

    Args:
        words, quads: the region.
        boxes: of nodes.
        first, last: nodes [first, last), at most 64.
    """
    mask = np.uint64(0)
    for box in range(words[1]):
        east, north = quads[4 * box], quads[4 * box + 1]
        minus_west, minus_south = quads[4 * box + 2], quads[4 * box + 3]
        for i in range(last - first):
            meets = four_at_least(boxes, 4 * (first + i), east, north, minus_west, minus_south)
            mask |= np.uint64(meets) << np.uint64(i)
    return mask


@kernel(inline=True)
def meets_node(words: Any, quads: Any, boxes: Any, node: Any) -> Any:
    """Returns whether a box of the region meets a node's box; False is certain."""
    at = 4 * node
    meets = False
    for box in range(words[1]):
        meets |= four_at_least(
            boxes, at, quads[4 * box], quads[4 * box + 1], quads[4 * box + 2], quads[4 * box + 3]
        )
    return meets


@kernel
def overlap_relation(words: Any, values: Any, boxes: Any, node: Any) -> Any:
    """Returns DISJOINT, PARTIAL or COVERED: the relation to a node for which `meets_node` holds.

    PARTIAL may be returned for any node; the others are certain.
    """
    shape = words[0]
    if shape == SHAPE_WORLD:
        return COVERED
    at = 4 * node
    west = np.float64(boxes[at])
    south = np.float64(boxes[at + 1])
    east = -np.float64(boxes[at + 2])
    north = -np.float64(boxes[at + 3])
    if shape == SHAPE_BOX:
        for box in range(words[1]):
            if (
                (west >= values[4 * box])
                & (south >= values[4 * box + 1])
                & (east <= values[4 * box + 2])
                & (north <= values[4 * box + 3])
            ):
                return COVERED
        return PARTIAL
    if shape == SHAPE_CIRCLE:
        base = 4 * words[1]
        return _circle_relation(
            values[base], values[base + 1], values[base + 2], west, south, east, north
        )
    return _polygon_relation(words, values, west, south, east, north)


@kernel(inline=True)
def is_any_near(lon: Any, lat: Any, west: Any, south: Any, east: Any, north: Any) -> Any:
    """Returns whether one of some points (f8[m]) lies in a box.

    It has no branches, so that the compiler emits vector instructions; of parts of longer arrays it
    does so only if they are slices, as here.
    """
    near = np.int64(0)
    for i in range(lon.shape[0]):
        near += np.int64(
            (lon[i] >= west) & (lat[i] >= south) & (lon[i] <= east) & (lat[i] <= north)
        )
    return near != 0


@kernel(inline=True)
def rows_near(
    lon: Any, lat: Any, west: Any, south: Any, east: Any, north: Any, out: Any
) -> Any:  # fmt: skip
    """Writes which of some points (f8[m]) lie in a box to `out` (i8[m] or longer), ascending.

    Each is written, then counted or not: a processor cannot predict which points, in no spatial
    order, lie inside.

    Returns:
        How many do.
    """
    count = np.int64(0)
    for i in range(lon.shape[0]):
        out[count] = i
        count += np.int64(
            (lon[i] >= west) & (lat[i] >= south) & (lon[i] <= east) & (lat[i] <= north)
        )
    return count
