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

# The products of factors as large as this are exact to their last bit.
_FACTORS_LEAST = 1e-130

# 2^10 in units of 2^-1074, in limbs of 32 bits, and one spare limb.
_LIMBS = 36
_HALF = np.uint64(32)
_ONE = np.uint64(1)
_LOW = np.uint64(0xFFFFFFFF)


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
    left = (bx - ax) * (y - ay)
    right = (by - ay) * (x - ax)
    cross = left - right
    # Shewchuk, Adaptive Precision Floating-Point Arithmetic (1997), section 3: a bound of the
    # rounding error, with some room.
    if abs(cross) > 4.5e-16 * (abs(left) + abs(right)) + 1e-290:
        return 1 if cross > 0.0 else -1
    return _exact_side(ax, ay, bx, by, x, y)


@kernel
def _exact_side(ax: Any, ay: Any, bx: Any, by: Any, x: Any, y: Any) -> Any:
    """Returns the sign of the determinant, summed as an expansion (Shewchuk 1997, section 2).

    Products of differences near zero underflow. So the differences are scaled by powers of two,
    which changes no sign; where that is not enough, integers decide.
    """
    east, east_rest = _sum(bx, -ax)
    north, north_rest = _sum(y, -ay)
    up, up_rest = _sum(ay, -by)
    along, along_rest = _sum(x, -ax)
    wide = _scale(max(abs(east), abs(along)))
    high = _scale(max(abs(north), abs(up)))
    east *= wide
    east_rest *= wide
    along *= wide
    along_rest *= wide
    north *= high
    north_rest *= high
    up *= high
    up_rest *= high
    left = east * north
    right = up * along
    cross = left + right
    # As in `side_of`; scaled differences are no longer small.
    if abs(cross) > 4.5e-16 * (abs(left) + abs(right)) + 1e-290:
        return 1 if cross > 0.0 else -1
    least = min(_least(east, east_rest), _least(along, along_rest))
    least = min(least, _least(north, north_rest), _least(up, up_rest))
    if least < _FACTORS_LEAST:
        return _side_of_integers(ax, ay, bx, by, x, y)
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
    # The components do not overlap: the greatest that is not zero has the sign of the sum.
    for i in range(count - 1, -1, -1):
        if sums[i] != 0.0:
            return 1 if sums[i] > 0.0 else -1
    return 0


@kernel
def _scale(greatest: Any) -> Any:
    """Returns the power of two, at least 1, that scales a number below 1 to nearly 1."""
    _, exponent = math.frexp(greatest)
    return math.ldexp(1.0, max(0, min(1000, -exponent)))


@kernel
def _least(a: Any, b: Any) -> Any:
    """Returns the least of 1 and the magnitudes of a and b that are not zero."""
    least = 1.0
    if a != 0.0:
        least = min(least, abs(a))
    if b != 0.0:
        least = min(least, abs(b))
    return least


@kernel
def _side_of_integers(ax: Any, ay: Any, bx: Any, by: Any, x: Any, y: Any) -> Any:
    """Returns the sign of the determinant, in integers: coordinates are multiples of 2^-1074."""
    left = np.zeros(2 * _LIMBS, np.uint64)
    right = np.zeros(2 * _LIMBS, np.uint64)
    one = np.zeros(_LIMBS, np.uint64)
    other = np.zeros(_LIMBS, np.uint64)
    left_sign = _difference(bx, ax, one) * _difference(y, ay, other)
    _multiply(one, other, left)
    right_sign = _difference(by, ay, one) * _difference(x, ax, other)
    _multiply(one, other, right)
    if left_sign != right_sign:
        return 1 if left_sign > right_sign else -1
    return left_sign * _compare(left, right)


@kernel
def _difference(a: Any, b: Any, out: Any) -> Any:
    """Writes |a - b| as limbs of 32 bits, and returns the sign of a - b."""
    greater = np.zeros(_LIMBS, np.uint64)
    smaller = np.zeros(_LIMBS, np.uint64)
    out[:] = 0
    if a == b:
        return 0
    sign = 1 if a > b else -1
    if (a >= 0.0) != (b >= 0.0):
        # The magnitudes add up.
        _limbs(abs(a), greater)
        _limbs(abs(b), smaller)
        carry = np.uint64(0)
        for i in range(_LIMBS):
            total = greater[i] + smaller[i] + carry
            out[i] = total & _LOW
            carry = total >> _HALF
        return sign
    _limbs(max(abs(a), abs(b)), greater)
    _limbs(min(abs(a), abs(b)), smaller)
    borrow = np.uint64(0)
    for i in range(_LIMBS):
        total = _LOW + _ONE + greater[i] - smaller[i] - borrow
        out[i] = total & _LOW
        borrow = _ONE - (total >> _HALF)
    return sign


@kernel
def _limbs(value: Any, out: Any) -> None:
    """Writes a number from 0 to below 2^10 as a multiple of 2^-1074."""
    mantissa, exponent = math.frexp(value)
    bits = np.uint64(math.ldexp(mantissa, 53))
    shift = exponent - 53 + 1074
    if shift < 0:
        # A subnormal number; the bits shifted out are zero.
        bits >>= np.uint64(-shift)
        shift = 0
    limb = shift >> 5
    low = (bits & _LOW) << np.uint64(shift & 31)
    high = (bits >> _HALF) << np.uint64(shift & 31)
    out[limb] = low & _LOW
    middle = (low >> _HALF) + (high & _LOW)
    out[limb + 1] = middle & _LOW
    out[limb + 2] = (high >> _HALF) + (middle >> _HALF)


@kernel
def _multiply(a: Any, b: Any, out: Any) -> None:
    """Writes the product of two numbers of _LIMBS limbs."""
    out[:] = 0
    for i in range(_LIMBS):
        if a[i] == 0:
            continue
        carry = np.uint64(0)
        for j in range(_LIMBS):
            total = a[i] * b[j] + out[i + j] + carry
            out[i + j] = total & _LOW
            carry = total >> _HALF
        out[i + _LIMBS] = carry


@kernel
def _compare(a: Any, b: Any) -> Any:
    """Returns 1 where a is greater, -1 where b is, else 0."""
    for i in range(len(a) - 1, -1, -1):
        if a[i] != b[i]:
            return 1 if a[i] > b[i] else -1
    return 0


@kernel
def _sum(a: Any, b: Any) -> Any:
    """Returns a + b, rounded, and the rounding error."""
    total = a + b
    virtual = total - a
    return total, (a - (total - virtual)) + (b - virtual)


@kernel
def _product(a: Any, b: Any) -> Any:
    """Returns a * b, rounded, and the rounding error."""
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
            side = side_of(ax, ay, bx, by, x, y)
            if side == 0 and min(ax, bx) <= x <= max(ax, bx):
                return 2
            # The half-open rule in y counts a vertex once.
            if (ay > y) != (by > y) and (side > 0) == (by > ay):
                inside ^= 1
        ax = bx
        ay = by
    return inside
