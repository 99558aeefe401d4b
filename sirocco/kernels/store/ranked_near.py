"""Decides whether points lie within a radius, by a few multiplications for nearly all of them.

The haversine grows with the distance, so it is compared with that of the radius. Its sines and
cosines are of small angles, for which short polynomials are as exact as the library's functions.
The exact distance is computed only where the two might disagree.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sirocco.kernels.base.geometry import distance_m
from sirocco.kernels.jit.compiled import kernel

__all__ = ["box_distance_m", "circle_of", "is_near"]

# Half the difference of two coordinates, radians, up to which the polynomials are used: their
# errors stay below 1e-13.
_HALF_MAX = 0.1
# Distances are rounded to 1 mm: this near to the radius the exact distance decides.
_DOUBT_M = 0.002
# Subtracted from lower bounds of distances: far above the errors of rounding.
_MARGIN_M = 0.01

_X, _Y, _RADIUS, _SIN, _COS, _INNER, _OUTER = range(7)


@kernel
def circle_of(x: Any, y: Any, radius_m: Any) -> Any:
    """Returns f8[7], the values of a circle (degrees, metres) that `is_near` needs."""
    circle = np.empty(7, np.float64)
    circle[_X] = x
    circle[_Y] = y
    circle[_RADIUS] = radius_m
    circle[_SIN] = math.sin(math.radians(y))
    circle[_COS] = math.cos(math.radians(y))
    inner = math.sin(min(0.5 * math.pi, max(0.0, radius_m - _DOUBT_M) / 12_742_017.6))
    outer = math.sin(min(0.5 * math.pi, (radius_m + _DOUBT_M) / 12_742_017.6))
    circle[_INNER] = inner * inner
    circle[_OUTER] = outer * outer
    return circle


@kernel(inline=True)
def is_near(circle: Any, x: Any, y: Any) -> Any:
    """Returns whether a point's distance, rounded to 1 mm, is within the radius."""
    lon = x - circle[_X]
    if lon > 180.0:
        lon -= 360.0
    elif lon < -180.0:
        lon += 360.0
    a = math.radians(y - circle[_Y]) * 0.5
    b = math.radians(lon) * 0.5
    if abs(a) <= _HALF_MAX and abs(b) <= _HALF_MAX:
        aa = a * a
        bb = b * b
        sin_a = a * (1.0 - aa * (1.0 / 6.0 - aa * (1.0 / 120.0 - aa / 5040.0)))
        cos_a = 1.0 - aa * (0.5 - aa * (1.0 / 24.0 - aa * (1.0 / 720.0 - aa / 40320.0)))
        sin_b = b * (1.0 - bb * (1.0 / 6.0 - bb * (1.0 / 120.0 - bb / 5040.0)))
        # cos(latitude), from that of the centre and the difference 2 a.
        cos_y = circle[_COS] * (1.0 - 2.0 * sin_a * sin_a) - circle[_SIN] * 2.0 * sin_a * cos_a
        chord = sin_a * sin_a + circle[_COS] * cos_y * sin_b * sin_b
        if chord < circle[_INNER]:
            return True
        if chord > circle[_OUTER]:
            return False
    return distance_m(circle[_X], circle[_Y], x, y) <= circle[_RADIUS]


@kernel
def box_distance_m(circle: Any, boxes: Any, node: Any) -> Any:
    """Returns a lower bound of the distances of a node's points from the centre.

    Args:
        circle: see `circle_of`.
        boxes: f4, rows (west, south, −east, −north).
        node: a row of `boxes`.

    Both terms of the haversine are least where latitudes and longitudes differ least, and where
    the cosine of the latitude is least: at the north or south side of the box.
    """
    west = np.float64(boxes[4 * node])
    south = np.float64(boxes[4 * node + 1])
    east = -np.float64(boxes[4 * node + 2])
    north = -np.float64(boxes[4 * node + 3])
    x = circle[_X]
    y = circle[_Y]
    up = max(0.0, south - y, y - north)
    along = 0.0
    if x < west:
        along = min(west - x, x + 360.0 - east)
    elif x > east:
        along = min(x - east, west + 360.0 - x)
    sin_up = math.sin(math.radians(up) * 0.5)
    sin_along = math.sin(math.radians(max(0.0, min(180.0, along))) * 0.5)
    least = min(math.cos(math.radians(south)), math.cos(math.radians(north)))
    chord = sin_up * sin_up + circle[_COS] * max(0.0, least) * sin_along * sin_along
    # asin(x) ≥ x.
    return max(0.0, 12_742_017.6 * math.sqrt(chord) * (1.0 - 1e-12) - _MARGIN_M)
