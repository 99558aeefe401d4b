"""Bounds distances from a point: of a node's rows, and a box of the rows within a distance."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sirocco.kernels.jit.compiled import kernel

__all__ = ["haversine_of", "least_haversine", "near_box"]

# Rows up to half a millimetre farther round to the same distance; the rest covers rounding.
_MARGIN_M = 0.0006
_RADIUS_M = 6_371_008.8
_METRES_A_DEGREE = math.pi / 180.0 * _RADIUS_M


@kernel(inline=True)
def haversine_of(metres: Any) -> Any:
    """Returns a haversine that no row of this rounded distance exceeds."""
    angle = (metres + _MARGIN_M) / _RADIUS_M
    if angle >= math.pi:
        return 2.0
    sine = math.sin(0.5 * angle)
    return sine * sine * (1.0 + 1e-9)


@kernel
def near_box(x: Any, y: Any, limit_m: Any) -> Any:
    """Returns (west, south, east, north), outside of which rows are farther than a limit.

    Of two points whose latitudes are at most φ, sin(d / 2) ≥ cos φ · sin(Δlon / 2).
    """
    radius = (limit_m + _MARGIN_M) / _METRES_A_DEGREE * (1.0 + 1e-9) + 1e-12
    south = y - radius
    north = y + radius
    farthest = max(abs(south), abs(north))
    west = -180.0
    east = 180.0
    if farthest < 90.0:
        sine = math.sin(math.radians(0.5 * radius)) / math.cos(math.radians(farthest))
        if sine < 1.0:
            half = math.degrees(2.0 * math.asin(sine)) * (1.0 + 1e-9) + 1e-9
            if x - half >= -180.0 and x + half <= 180.0:
                west = x - half
                east = x + half
    return west, south, east, north


@kernel
def least_haversine(x: Any, y: Any, cos_y: Any, boxes: Any, node: Any) -> Any:
    """Returns a lower bound of the haversine of the distance from a point to a node's box."""
    west = np.float64(boxes[4 * node])
    south = np.float64(boxes[4 * node + 1])
    east = -np.float64(boxes[4 * node + 2])
    north = -np.float64(boxes[4 * node + 3])
    up = max(0.0, south - y, y - north)
    sine = math.sin(math.radians(0.5 * up))
    least = sine * sine
    if not west <= x <= east:
        # The shorter way round, to the nearer meridian of the box.
        eastwards = west - x if west >= x else west - x + 360.0
        westwards = x - east if x >= east else x - east + 360.0
        sine = math.sin(math.radians(0.5 * min(eastwards, westwards)))
        cosine = math.cos(math.radians(min(90.0, max(abs(south), abs(north)))))
        least += cos_y * max(0.0, cosine) * sine * sine
    return least * (1.0 - 1e-9)
