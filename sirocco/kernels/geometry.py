"""Distance on the sphere and point in polygon, for one point at a time.

Regions are closed: a point of the border, also of a hole's border, belongs to the region.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sirocco.kernels.compiled import kernel

__all__ = ["EARTH_RADIUS_M", "distance_m", "polygon_holds", "ring_side"]

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
        cross = (bx - ax) * (y - ay) - (by - ay) * (x - ax)
        if cross == 0.0:
            if min(ax, bx) <= x <= max(ax, bx) and min(ay, by) <= y <= max(ay, by):
                return 2
            # On the line of the edge, by rounding, but beside the edge: which side of it counts.
            is_left = x < min(ax, bx)
        else:
            is_left = (cross > 0.0) == (by > ay)
        # The half-open rule in y counts a vertex once; the side of the edge comes from the same
        # number as the border, so that they never disagree.
        if (ay > y) != (by > y) and is_left:
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
