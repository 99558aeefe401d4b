"""Distance, point in polygon, and the machine words that need LLVM."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from sirocco.kernels.base.geometry import EARTH_RADIUS_M, distance_m, ring_side
from sirocco.kernels.base.memory import equal_words, four_at_least, prefetch, trailing_zeros
from sirocco.kernels.jit.compiled import kernel

SQUARE = np.array([0.0, 0.0, 4.0, 0.0, 4.0, 4.0, 0.0, 4.0])
HOLE = np.array([1.0, 1.0, 3.0, 1.0, 3.0, 3.0, 1.0, 3.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("a", "b", "metres"),
    [
        ((0.0, 0.0), (0.0, 0.0), 0.0),
        ((0.0, 0.0), (180.0, 0.0), math.pi * EARTH_RADIUS_M),
        ((0.0, -90.0), (77.0, 90.0), math.pi * EARTH_RADIUS_M),
        ((-180.0, 10.0), (180.0, 10.0), 0.0),
        ((0.0, 0.0), (0.0, 1.0), math.pi * EARTH_RADIUS_M / 180),
    ],
)
def test_distances(a: tuple[float, float], b: tuple[float, float], metres: float) -> None:
    assert distance_m(*a, *b) == round(metres, 3)
    assert distance_m(*b, *a) == round(metres, 3)


def test_ring_border_and_corners_belong() -> None:
    for x, y in [(0.0, 0.0), (4.0, 4.0), (2.0, 0.0), (0.0, 1.5), (4.0, 0.1)]:
        assert ring_side(SQUARE, 0, 4, x, y) == 2
    assert ring_side(SQUARE, 0, 4, 2.0, 2.0) == 1
    assert ring_side(SQUARE, 0, 4, 5.0, 0.0) == 0
    assert ring_side(SQUARE, 0, 4, np.nextafter(4.0, 5.0), 2.0) == 0
    assert ring_side(SQUARE, 0, 4, np.nextafter(4.0, 0.0), 2.0) == 1


def test_rings_against_winding_of_triangles() -> None:
    """Inside a triangle means on the same side of its three edges."""
    seed = 5
    rng = random.Random(seed)
    for _ in range(2_000):
        points = [(float(rng.randrange(9)), float(rng.randrange(9))) for _ in range(4)]
        (ax, ay), (bx, by), (cx, cy), (x, y) = points
        sides = [
            (bx - ax) * (y - ay) - (by - ay) * (x - ax),
            (cx - bx) * (y - by) - (cy - by) * (x - bx),
            (ax - cx) * (y - cy) - (ay - cy) * (x - cx),
        ]
        area = (bx - ax) * (cy - ay) - (by - ay) * (cx - ax)
        if area == 0:
            continue
        holds = all(s >= 0 for s in sides) or all(s <= 0 for s in sides)
        ring = np.array([ax, ay, bx, by, cx, cy])
        assert (ring_side(ring, 0, 3, x, y) > 0) == holds, f"seed={seed} {points}"


@kernel
def _four(array, index, a, b, c, d):
    prefetch(array, index)
    return four_at_least(array, index, a, b, c, d)


@kernel
def _equal(array, index, word):
    return equal_words(array, index, word)


@kernel
def _zeros(word):
    return trailing_zeros(word)


def test_four_at_least_is_a_test_of_each_and_false_for_nan() -> None:
    array = np.array([9.0, 1.0, 2.0, -3.0, -4.0, 9.0], np.float32)
    one = np.float32
    assert _four(array, 1, one(1), one(2), one(-3), one(-4))
    for lane in range(4):
        given = [one(1), one(2), one(-3), one(-4)]
        given[lane] = np.nextafter(given[lane], one(-99))
        assert not _four(array, 1, *given)
        given[lane] = one(np.nan)
        assert not _four(array, 1, *given)


def test_trailing_zeros() -> None:
    for bit in range(64):
        assert _zeros(np.uint64(1 << bit)) == bit
        assert _zeros(np.uint64((1 << 63) | (1 << bit))) == bit


def test_equal_words_gives_a_bit_for_each_of_eight() -> None:
    array = np.full(12, 1 << 63, np.uint64)
    array[[1, 3, 8, 9]] = (1 << 63) | 1
    assert _equal(array, 1, np.uint64((1 << 63) | 1)) == 0b1000_0101
    assert _equal(array, 1, np.uint64(1 << 63)) == 0b0111_1010
    assert _equal(array, 1, np.uint64(1)) == 0
