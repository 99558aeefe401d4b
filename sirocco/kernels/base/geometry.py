"""Distance on the sphere and point in polygon, for one point at a time.

Regions are closed: a point on the border, also on a hole's border, belongs to the region.
"""

from __future__ import annotations

import math
from typing import Any

import numba.types as nt
import numpy as np

from sirocco.kernels.jit.compiled import kernel

__all__ = [
    "EARTH_RADIUS_M",
    "distance_m",
    "distances_m",
    "great_circle_m",
    "ring_side",
    "side_of",
]

_FLOATS = nt.Array(nt.f8, 1, "C", readonly=True)

EARTH_RADIUS_M = 6_371_008.8

# From this haversine on, its complement is computed instead: towards the antipode the error of the
# haversine grows, and that of its complement falls.
_ANTIPODAL = 0.9

# Neither 1 nor -1: rounding may have changed the sign.
_DOUBTFUL = 2

# A product of two numbers below 2^10 in units of 2^-2148, in limbs of 32 bits, and spare limbs.
_LIMBS = 74
_HALF = np.int64(32)
_LOW = np.int64(0xFFFFFFFF)
_HALF_BITS = np.uint64(32)
_LOW_BITS = np.uint64(0xFFFFFFFF)

# Of the bits of a number: its fraction, below the exponent.
_FRACTION_BITS = np.uint64(52)
_FRACTION = np.uint64((1 << 52) - 1)


@kernel
def great_circle_m(lon_a: Any, lat_a: Any, lon_b: Any, lat_b: Any) -> Any:
    """Returns the great-circle distance of two points in metres, not rounded.

    Haversine on the sphere of radius 6,371,008.8 m; coordinates in degrees, f8. Near the antipode
    the haversine loses precision: there its complement is computed, by its own formula rather than
    as 1 - h, which keeps the error below a micrometre everywhere.
    """
    half_lat = math.radians(lat_b - lat_a) * 0.5
    half_lon = math.radians(lon_b - lon_a) * 0.5
    sin_lat = math.sin(half_lat)
    sin_lon = math.sin(half_lon)
    chord = (
        sin_lat * sin_lat
        + math.cos(math.radians(lat_a)) * math.cos(math.radians(lat_b)) * sin_lon * sin_lon
    )
    if chord < _ANTIPODAL:
        return 2.0 * EARTH_RADIUS_M * math.asin(math.sqrt(chord))
    cos_lat = math.cos(half_lat)
    cos_lon = math.cos(half_lon)
    sin_sum = math.sin(math.radians(lat_a + lat_b) * 0.5)
    rest = cos_lat * cos_lat * cos_lon * cos_lon + sin_sum * sin_sum * sin_lon * sin_lon
    return EARTH_RADIUS_M * (math.pi - 2.0 * math.asin(math.sqrt(min(1.0, rest))))


@kernel
def distance_m(lon_a: Any, lat_a: Any, lon_b: Any, lat_b: Any) -> Any:
    """Returns the great-circle distance of two points in metres, rounded to 1 mm."""
    return np.rint(great_circle_m(lon_a, lat_a, lon_b, lat_b) * 1000.0) / 1000.0


@kernel(nt.void(_FLOATS, _FLOATS, _FLOATS, _FLOATS, nt.f8[::1]))
def distances_m(lon_a: Any, lat_a: Any, lon_b: Any, lat_b: Any, out: Any) -> None:
    """Writes the distances of n pairs of points, all f8[n] and contiguous; metres, not rounded."""
    for i in range(len(out)):
        out[i] = great_circle_m(lon_a[i], lat_a[i], lon_b[i], lat_b[i])


@kernel
def side_of(ax: Any, ay: Any, bx: Any, by: Any, x: Any, y: Any) -> Any:
    """Returns on which side of the line from a to b a point lies, exactly.

    Returns:
        1 left, -1 right, 0 on the line, by the determinant of the unrounded coordinates.
    """
    side = _rounded_side(ax, ay, bx, by, x, y)
    if side != _DOUBTFUL:
        return side
    return _side_of_integers(ax, ay, bx, by, x, y, np.zeros(_LIMBS, np.int64))


@kernel
def _rounded_side(ax: Any, ay: Any, bx: Any, by: Any, x: Any, y: Any) -> Any:
    """Returns the sign of the determinant, or _DOUBTFUL if rounding may have changed it."""
    left = (bx - ax) * (y - ay)
    right = (by - ay) * (x - ax)
    cross = left - right
    # Shewchuk, Adaptive Precision Floating-Point Arithmetic (1997), section 3: a bound of the
    # rounding error, with some room.
    if abs(cross) > 4.5e-16 * (abs(left) + abs(right)) + 1e-290:
        return 1 if cross > 0.0 else -1
    return _DOUBTFUL


@kernel
def _side_of_integers(ax: Any, ay: Any, bx: Any, by: Any, x: Any, y: Any, limbs: Any) -> Any:
    """Returns the sign of the determinant, in integers: coordinates are multiples of 2^-1074.

    The products of the differences are six products of coordinates, as `ax * ay` cancels out. Each
    is added to limbs of 32 bits whose carries wait until the end.

    Args:
        ax … y: as in `side_of`.
        limbs: i8[_LIMBS], scratch, zeros before and after.
    """
    first = _add_product(limbs, bx, y, 1)
    first = min(first, _add_product(limbs, bx, ay, -1))
    first = min(first, _add_product(limbs, ax, y, -1))
    first = min(first, _add_product(limbs, by, x, -1))
    first = min(first, _add_product(limbs, by, ax, 1))
    first = min(first, _add_product(limbs, ay, x, 1))
    carry = np.int64(0)
    rest = np.int64(0)
    for i in range(first, _LIMBS):
        carry += limbs[i]
        limbs[i] = 0
        rest |= carry & _LOW
        carry >>= _HALF
    if carry != 0:
        return 1 if carry > 0 else -1
    return 1 if rest != 0 else 0


@kernel
def _add_product(limbs: Any, a: Any, b: Any, sign: Any) -> Any:
    """Adds the product of two numbers below 2^10, times 1 or -1, to limbs of units of 2^-2148.

    Returns:
        The first limb that it changes.
    """
    if a == 0.0 or b == 0.0:
        return _LIMBS
    if (a > 0.0) != (b > 0.0):
        sign = -sign
    one, one_shift = _integer(abs(a))
    other, other_shift = _integer(abs(b))
    shift = one_shift + other_shift
    first = at = shift >> 5
    bits = np.uint64(shift & 31)
    low = (one & _LOW_BITS) * (other & _LOW_BITS)
    middle = (one & _LOW_BITS) * (other >> _HALF_BITS) + (one >> _HALF_BITS) * (other & _LOW_BITS)
    carried = (low >> _HALF_BITS) + (middle & _LOW_BITS)
    high = (carried >> _HALF_BITS) + (middle >> _HALF_BITS)
    high += (one >> _HALF_BITS) * (other >> _HALF_BITS)
    for digit in (low, carried, high, high >> _HALF_BITS):
        shifted = (digit & _LOW_BITS) << bits
        limbs[at] += sign * np.int64(shifted & _LOW_BITS)
        limbs[at + 1] += sign * np.int64(shifted >> _HALF_BITS)
        at += 1
    return first


@kernel
def _integer(value: Any) -> Any:
    """Returns a positive number as (m, e): m times 2^(e - 1074), m of at most 53 bits.

    By the bits of the number: arithmetic on subnormal numbers takes ten times as long.
    """
    bits = np.float64(value).view(np.uint64)
    exponent = np.int64(bits >> _FRACTION_BITS)
    fraction = bits & _FRACTION
    if exponent == 0:
        return fraction, np.int64(0)
    return fraction | (_FRACTION + np.uint64(1)), exponent - 1


@kernel
def ring_side(vertices: Any, begin: Any, end: Any, x: Any, y: Any) -> Any:
    """Returns on which side of one ring a point lies.

    Args:
        vertices: f8[v], x and y alternating.
        begin, end: first vertex of the ring and the one after its last (vertex numbers). The
            ring may or may not repeat its first vertex at its end.
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
        # Other edges neither hold the point nor cross the ray from it.
        if min(ay, by) <= y <= max(ay, by):
            side = _rounded_side(ax, ay, bx, by, x, y)
            if side == _DOUBTFUL:
                return _rest_of_ring(vertices, begin, end, i, inside, x, y)
            # The half-open rule in y counts a vertex once.
            if (ay > y) != (by > y) and (side > 0) == (by > ay):
                inside ^= 1
        ax = bx
        ay = by
    return inside


@kernel
def _rest_of_ring(
    vertices: Any, begin: Any, end: Any, start: Any, inside: Any, x: Any, y: Any
) -> Any:
    """Continues `ring_side` with the edge that ends at vertex `start`, where rounding decides.

    A client that chooses the edges can lead all of them through one point, so the memory for exact
    numbers is taken once.
    """
    limbs = np.zeros(_LIMBS, np.int64)
    before = start - 1 if start > begin else end - 1
    ax = vertices[2 * before]
    ay = vertices[2 * before + 1]
    for i in range(start, end):
        bx = vertices[2 * i]
        by = vertices[2 * i + 1]
        if min(ay, by) <= y <= max(ay, by):
            side = _rounded_side(ax, ay, bx, by, x, y)
            if side == _DOUBTFUL:
                side = _side_of_integers(ax, ay, bx, by, x, y, limbs)
                if side == 0 and min(ax, bx) <= x <= max(ax, bx):
                    return 2
            if (ay > y) != (by > y) and (side > 0) == (by > ay):
                inside ^= 1
        ax = bx
        ay = by
    return inside
