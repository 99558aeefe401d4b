"""Distance on the sphere and point in polygon, for one point at a time.

Regions are closed: a point of the border, also of a hole's border, belongs to the region.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sirocco.kernels.compiled import kernel

__all__ = ["EARTH_RADIUS_M", "distance_m", "polygon_holds", "ring_side", "side_of"]

EARTH_RADIUS_M = 6_371_008.8


@kernel
def distance_m(lon_a: Any, lat_a: Any, lon_b: Any, lat_b: Any) -> Any:
    """Returns the great-circle distance of two points in metres, rounded to 1 mm.

    Haversine on the sphere of radius 6,371,008.8 m; coordinates in degrees, f8.
    """
    half_lat = math.radians(lat_b - lat_a) * 0.5
    half_lon = math.radians(lon_b - lon_a) * 0.5
    sin_lat = math.sin(half_lat)
    sin_lon = math.sin(half_lon)
    chord = (
        sin_lat * sin_lat
        + math.cos(math.radians(lat_a)) * math.cos(math.radians(lat_b)) * sin_lon * sin_lon
    )
    # Rounding may carry antipodes a little above 1.
    metres = 2.0 * 6_371_008.8 * math.asin(math.sqrt(min(1.0, chord)))
    return np.rint(metres * 1000.0) / 1000.0


@kernel
def side_of(ax: Any, ay: Any, bx: Any, by: Any, x: Any, y: Any) -> Any:
    """Tells on which side of the line from a to b a point lies, exactly.

    Returns:
        1 left, -1 right, 0 on the line, by the determinant of the coordinates as they are.
    """
    left = (bx - ax) * (y - ay)
    right = (by - ay) * (x - ax)
    cross = left - right
    # Shewchuk, Adaptive Precision Floating-Point Arithmetic (1997), section 3: what rounding can
    # have changed, with some room.
    if abs(cross) > 4.5e-16 * (abs(left) + abs(right)) + 1e-290:
        return 1 if cross > 0.0 else -1
    return _exact_side(ax, ay, bx, by, x, y)


@kernel
def _exact_side(ax: Any, ay: Any, bx: Any, by: Any, x: Any, y: Any) -> Any:
    """The sign of the determinant, summed up as an expansion (Shewchuk 1997, section 2)."""
    east, east_rest = _sum(bx, -ax)
    north, north_rest = _sum(y, -ay)
    up, up_rest = _sum(ay, -by)
    along, along_rest = _sum(x, -ax)
    sums = np.zeros(16)
    count = 0
    for one, other in (
        (east_rest, north_rest),
        (up_rest, along_rest),
        (east_rest, north),
        (east, north_rest),
        (up_rest, along),
        (up, along_rest),
        (east, north),
        (up, along),
    ):
        product, rest = _product(one, other)
        for term in (rest, product):
            carried = term
            for i in range(count):
                carried, sums[i] = _sum(carried, sums[i])
            sums[count] = carried
            count += 1
    # None overlaps another: the greatest that is not zero has the sign of all.
    for i in range(count - 1, -1, -1):
        if sums[i] != 0.0:
            return 1 if sums[i] > 0.0 else -1
    return 0


@kernel
def _sum(a: Any, b: Any) -> Any:
    """a + b, rounded, and what rounding left out."""
    total = a + b
    virtual = total - a
    return total, (a - (total - virtual)) + (b - virtual)


@kernel
def _product(a: Any, b: Any) -> Any:
    """a * b, rounded, and what rounding left out."""
    total = a * b
    scaled = 134217729.0 * a
    a_high = scaled - (scaled - a)
    a_low = a - a_high
    scaled = 134217729.0 * b
    b_high = scaled - (scaled - b)
    b_low = b - b_high
    rest = a_low * b_low - (((total - a_high * b_high) - a_low * b_high) - a_high * b_low)
    return total, rest


@kernel
def ring_side(vertices: Any, begin: Any, end: Any, x: Any, y: Any) -> Any:
    """Tells on which side of one ring a point lies.

    Args:
        vertices: f8[v], x and y alternating.
        begin, end: first vertex of the ring and the one after its last (vertex numbers). The
            ring may repeat its first vertex at its end or not.
        x, y: the point, in the same unit.

    Returns:
        0 outside, 1 inside (an odd number of crossings), 2 on the border.
    """
    inside = 0
    ax = vertices[2 * (end - 1)]
    ay = vertices[2 * (end - 1) + 1]
    for i in range(begin, end):
        bx = vertices[2 * i]
        by = vertices[2 * i + 1]
        # Others neither have the point nor are crossed on the way out.
        if min(ay, by) <= y <= max(ay, by):
            side = side_of(ax, ay, bx, by, x, y)
            if side == 0 and min(ax, bx) <= x <= max(ax, bx):
                return 2
            # The half-open rule in y counts a vertex once.
            if (ay > y) != (by > y) and (side > 0) == (by > ay):
                inside ^= 1
        ax = bx
        ay = by
    return inside


@kernel
def polygon_holds(
    vertices: Any, ring_offsets: Any, first_ring: Any, last_ring: Any, x: Any, y: Any
) -> Any:
    """Tells whether a polygon with holes holds a point (even-odd over all rings, closed).

    Args:
        vertices: f8[v], x and y alternating, of all rings one after another.
        ring_offsets: i8[r + 1], first vertex number of each ring.
        first_ring, last_ring: the polygon's rings, half open.
        x, y: the point.
    """
    parity = 0
    for ring in range(first_ring, last_ring):
        side = ring_side(vertices, ring_offsets[ring], ring_offsets[ring + 1], x, y)
        if side == 2:
            return True
        parity ^= side
    return parity == 1
