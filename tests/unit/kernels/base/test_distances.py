"""Distances are right to a micrometre everywhere, and the same wherever they are computed."""

from __future__ import annotations

import math
import random
from decimal import Decimal, getcontext

import numpy as np
import pytest

from sirocco.kernels.base.geometry import EARTH_RADIUS_M, distance_m, great_circle_m
from sirocco.model import geometry
from tests.support.seeds import drawn_seed

getcontext().prec = 60
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494")


def sine(angle: Decimal) -> Decimal:
    """Returns the sine by its series; angles up to 2π."""
    term, total, n = angle, angle, 1
    while abs(term) > Decimal(10) ** -58:
        n += 2
        term *= -angle * angle / (n * (n - 1))
        total += term
    return total


def arc_sine(value: Decimal) -> Decimal:
    """Returns the arc sine: Newton's method from the double's answer; for values below 0.8."""
    angle = Decimal(math.asin(value))
    for _ in range(4):
        angle -= (sine(angle) - value) / sine(angle + PI / 2)
    return angle


def true_distance_m(lon_a: float, lat_a: float, lon_b: float, lat_b: float) -> Decimal:
    """Returns the haversine formula in 60 digits, by it or its complement, whichever is small."""
    phi_a, phi_b = (Decimal(each) * PI / 180 for each in (lat_a, lat_b))
    half_lon = (Decimal(lon_b) - Decimal(lon_a)) * PI / 360
    haversine = (
        sine((phi_b - phi_a) / 2) ** 2
        + sine(phi_a + PI / 2) * sine(phi_b + PI / 2) * sine(half_lon) ** 2
    )
    if haversine < Decimal("0.5"):
        angle = 2 * arc_sine(haversine.sqrt())
    else:
        angle = PI - 2 * arc_sine(max(Decimal(0), 1 - haversine).sqrt())
    return Decimal(EARTH_RADIUS_M) * angle


def places(rng: random.Random) -> tuple[float, float, float, float]:
    """Returns two places, many of them near each other, near a pole or near antipodes."""
    lon, lat = rng.uniform(-180, 180), rng.uniform(-90, 90)
    if rng.random() < 0.3:
        lat = rng.choice([-90.0, 90.0, 0.0, math.nextafter(90.0, 0.0)])
    if rng.random() < 0.2:
        lon = rng.choice([-180.0, 180.0, 0.0, 90.0])
    turn = rng.random()
    if turn < 0.25:
        return lon, lat, rng.uniform(-180, 180), rng.uniform(-90, 90)
    away = 10.0 ** rng.uniform(-12, 1)
    other_lat = lat if turn < 0.5 else -lat
    other_lon = lon if turn < 0.5 else (lon - 180.0 if lon > 0 else lon + 180.0)
    other_lon += rng.choice([-1.0, 0.0, 1.0]) * away
    other_lat += rng.choice([-1.0, 0.0, 1.0]) * away
    return lon, lat, max(-180.0, min(180.0, other_lon)), max(-90.0, min(90.0, other_lat))


def test_distances_are_right_to_a_micrometre_also_beside_antipodes_and_poles() -> None:
    seed = drawn_seed()
    rng = random.Random(seed)
    worst = 0.0
    for _ in range(1_500):
        place = places(rng)
        error = abs(Decimal(great_circle_m(*place)) - true_distance_m(*place))
        worst = max(worst, float(error))
        assert error < Decimal("1e-6"), f"seed={seed}: {place}"
    print(f"greatest error {worst} m")


def test_kernel_and_model_give_the_same_number() -> None:
    seed = drawn_seed()
    rng = random.Random(seed)
    pairs = np.array([places(rng) for _ in range(2_000)])
    found = geometry.round_mm(geometry.distance_m(*pairs.T))
    own = np.array([distance_m(*pair) for pair in pairs.tolist()])
    assert (found == own).all(), f"seed={seed}"


@pytest.mark.parametrize(
    ("place", "metres"),
    [
        ((0.0, 0.0, 180.0, 0.0), 20_015_114.442),
        ((12.5, 33.25, -167.5, -33.25), 20_015_114.442),
        ((0.0, 90.0, 77.0, -90.0), 20_015_114.442),
        ((0.0, 90.0, 123.0, 90.0), 0.0),
        ((-180.0, 0.0, 180.0, 0.0), 0.0),
        # A tenth of a metre from the antipode, along the equator and along the meridian.
        ((0.0, 0.0, 180.0 - 8.993203677616636e-07, 0.0), 20_015_114.342),
        ((0.0, 0.0, 180.0, 8.993203677616636e-07), 20_015_114.342),
    ],
)
def test_antipodes_and_poles(place: tuple[float, float, float, float], metres: float) -> None:
    assert distance_m(*place) == metres
    assert float(geometry.round_mm(geometry.distance_m(*place))) == metres
    assert geometry.distance_m(*place).shape == ()
