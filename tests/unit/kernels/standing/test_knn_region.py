"""Circles of influence: every point within is reached, and lies in a listed cell."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from sirocco.kernels.base.geometry import distance_m
from sirocco.kernels.standing.knn_list import millimetres
from sirocco.kernels.standing.knn_region import (
    BOUND_NONE,
    REACH_ALL,
    SLACK_CHORD,
    SLACK_RADIANS,
    bound_class,
    circle_boxes,
    circle_keys,
    circle_level,
    knn_key,
    reach_of,
)
from sirocco.kernels.standing.pyramid import fine_cell

FINEST = 16
GRIDS = [
    (-180.0, -90.0, 180.0, 90.0),
    (-10.0, 40.0, 20.0, 60.0),
    (170.0, 70.0, 180.0, 90.0),
    (-180.0, -90.0, -170.0, -60.0),
]
BOUNDS_MM = [0, 1, 700, 10**6, 3 * 10**7, 10**9, 5 * 10**9, 10**10, 15 * 10**9, 2 * 10**10]


def transform(extent: tuple[float, float, float, float]) -> np.ndarray:
    west, south, east, north = extent
    cells = float(1 << FINEST)
    return np.array([west, south, cells / (east - west), cells / (north - south)])


def random_place(rng: random.Random) -> tuple[float, float]:
    kind = rng.randrange(5)
    lon = rng.choice([-180.0, 180.0, 0.0, -179.9999999, rng.uniform(-180, 180)])
    lat = rng.choice([-90.0, 90.0, 0.0, 89.9999, -89.99999999, rng.uniform(-90, 90)])
    if kind == 0:
        return lon, rng.uniform(-90, 90)
    if kind == 1:
        return rng.uniform(-180, 180), lat
    if kind == 2:
        return lon, lat
    return rng.uniform(-180, 180), rng.uniform(-90, 90)


def at_distance(rng: random.Random, lon: float, lat: float, metres: float) -> tuple[float, float]:
    """Returns a point at about that distance in a random direction."""
    angle, bearing = metres / 6_371_008.8, rng.choice([0.0, math.pi, rng.uniform(0, 2 * math.pi)])
    a = math.radians(lat)
    sine = math.sin(a) * math.cos(angle) + math.cos(a) * math.sin(angle) * math.cos(bearing)
    other = math.asin(max(-1.0, min(1.0, sine)))
    turn = math.atan2(
        math.sin(bearing) * math.sin(angle) * math.cos(a),
        math.cos(angle) - math.sin(a) * sine,
    )
    x = (lon + math.degrees(turn) + 540.0) % 360.0 - 180.0
    return rng.choice([x, x, x, -x if abs(x) == 180.0 else x]), math.degrees(other)


def vector(lon: float, lat: float) -> np.ndarray:
    x, y = math.radians(lon), math.radians(lat)
    return np.array([math.cos(y) * math.cos(x), math.cos(y) * math.sin(x), math.sin(y)], np.float32)


def keys_of(place: tuple[float, float], bound_mm: int, grid: np.ndarray, cells_max: int) -> tuple:
    boxes, spans = np.zeros(8), np.zeros(4, np.int64)
    keys = np.zeros(64, np.uint64)
    found = circle_boxes(*place, bound_mm, boxes)
    level = int(circle_level(boxes, found, grid, FINEST, cells_max, spans))
    count = int(circle_keys(5, level, boxes, found, grid, FINEST, spans, keys, 0))
    return level, keys[:count].tolist()


def key_of(place: tuple[float, float], level: int, grid: np.ndarray) -> int:
    last, down = (1 << FINEST) - 1, FINEST - 2 * level
    column = int(fine_cell(place[0], grid[0], grid[2], last)) >> down
    row = int(fine_cell(place[1], grid[1], grid[3], last)) >> down
    return int(knn_key(5, level, column, row))


@pytest.mark.parametrize("extent", GRIDS)
@pytest.mark.parametrize("cells_max", [4, 9])
def test_whatever_is_within_the_bound_is_found(
    extent: tuple[float, float, float, float], cells_max: int
) -> None:
    seed = cells_max
    print(f"seed={seed} extent={extent}")
    rng = random.Random(seed)
    grid = transform(extent)
    checked = 0
    for _ in range(400):
        place, bound_mm = random_place(rng), rng.choice(BOUNDS_MM)
        level, keys = keys_of(place, bound_mm, grid, cells_max)
        assert len(set(keys)) == len(keys) <= cells_max
        reach = reach_of(bound_mm)
        for _ in range(20):
            share = rng.choice([0.0, 1.0, 1.0, rng.random()])
            other = at_distance(rng, *place, share * (bound_mm + 0.499) / 1000.0)
            if millimetres(distance_m(*place, *other)) > bound_mm:
                continue
            checked += 1
            apart = vector(*place) - vector(*other)
            assert (apart * apart).sum(dtype=np.float32) <= reach, (place, other, bound_mm)
            assert key_of(other, level, grid) in keys, (place, other, bound_mm)
    assert checked > 4_000


def test_what_is_far_beyond_the_bound_is_not_reached() -> None:
    """The slack is a few metres: a reach that accepts all points would be exact, and useless."""
    seed = 3
    print(f"seed={seed}")
    rng = random.Random(seed)
    for _ in range(2_000):
        place, bound_mm = random_place(rng), rng.choice(BOUNDS_MM[:7])
        other = at_distance(rng, *place, bound_mm / 1000.0 * 1.001 + 10.0)
        apart = vector(*place) - vector(*other)
        assert (apart * apart).sum(dtype=np.float32) > reach_of(bound_mm)


def test_slack_covers_what_f4_loses() -> None:
    """For close points the error of an f4 chord is at most half of the slack in every reach."""
    seed = 8
    print(f"seed={seed}")
    rng = random.Random(seed)
    worst = 0.0
    for _ in range(20_000):
        place = random_place(rng)
        other = at_distance(rng, *place, rng.choice([0.1, 2.0, 30.0, 1e4]))
        apart = vector(*place) - vector(*other)
        chord = 2.0 * math.sin(0.5 * distance_m(*place, *other) / 6_371_008.8)
        worst = max(worst, math.sqrt(float((apart * apart).sum(dtype=np.float32))) - chord)
    assert SLACK_CHORD / 4 < worst < SLACK_CHORD / 2
    for bound_mm in BOUNDS_MM[:8]:
        angle = bound_mm / 6_371_008_800.0 + SLACK_RADIANS
        assert float(reach_of(bound_mm)) > (2.0 * math.sin(0.5 * angle) + worst) ** 2


def test_small_circles_stand_in_small_cells() -> None:
    grid = transform(GRIDS[0])
    assert keys_of((2.3, 48.8), 1_000, grid, 4)[0] == FINEST // 2
    assert keys_of((2.3, 48.8), BOUND_NONE, grid, 4) == (0, [key_of((2.3, 48.8), 0, grid)])
    # If the antimeridian cuts a small circle, it has cells on both sides and none between.
    level, keys = keys_of((180.0, 10.0), 50_000, grid, 4)
    assert level == FINEST // 2
    assert key_of((179.9999, 10.0), level, grid) in keys
    assert key_of((-179.9999, 10.0), level, grid) in keys


def test_classes_and_reaches_at_their_ends() -> None:
    assert [int(bound_class(mm)) for mm in (0, 1, 2, 3, 4, 5, 1 << 40, BOUND_NONE)] == [
        0, 0, 1, 2, 2, 3, 40, 62,
    ]  # fmt: skip
    assert float(reach_of(BOUND_NONE)) == float(reach_of(20_015_115_000)) == REACH_ALL
    assert float(reach_of(0)) < 1e-12
