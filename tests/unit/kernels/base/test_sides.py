"""The side of a polygon's edge on which a point lies: exact, as in the model's fractions."""

from __future__ import annotations

import random
import time
from fractions import Fraction

import numpy as np
import pytest

from sirocco.kernels.base.geometry import ring_side, side_of
from sirocco.model.geometry import parse_region
from tests.support.seeds import drawn_seed


def exact(*values: float) -> int:
    ax, ay, bx, by, x, y = map(Fraction, values)
    cross = (bx - ax) * (y - ay) - (by - ay) * (x - ax)
    return (cross > 0) - (cross < 0)


@pytest.mark.parametrize("digits", [0, 1, 2, 6, 17])
def test_sides_are_exact_on_and_beside_edges(digits: int) -> None:
    seed = drawn_seed()
    rng = random.Random(seed)
    doubtful = 0
    for _ in range(3_000):
        ax, ay, bx, by = (round(rng.uniform(-180, 180), digits) for _ in range(4))
        share = rng.choice([0.0, 0.25, 0.5, 0.75, 1.0, rng.random()])
        x, y = round(ax + share * (bx - ax), digits), round(ay + share * (by - ay), digits)
        for _ in range(rng.randrange(3)):
            x = float(np.nextafter(x, rng.choice([-200.0, 200.0])))
        wanted = exact(ax, ay, bx, by, x, y)
        assert side_of(ax, ay, bx, by, x, y) == wanted, f"seed={seed}: {(ax, ay, bx, by, x, y)}"
        plain = (bx - ax) * (y - ay) - (by - ay) * (x - ax)
        doubtful += (plain > 0) - (plain < 0) != wanted
    print(f"{doubtful} are on another side by plain arithmetic")


@pytest.mark.parametrize(
    ("ring", "point"),
    [
        ([-0.2, 0.2, -1.4, 0.6, 1.3, 0.2], (-0.8, 0.4)),
        ([0.4, -0.3, 1.9, 2.1, 1.9, -0.3], (0.9, 0.5)),
        ([-0.7, -0.2, 0.5, 0.6, 0.8, -0.2], (-0.1, 0.2)),
        ([-0.6, -0.4, 1.8, 0.8, 0.9, -0.4], (1.0, 0.4)),
    ],
)
def test_the_kernel_agrees_with_the_model(ring: list[float], point: tuple[float, float]) -> None:
    region = parse_region({"polygon": [[ring[i : i + 2] for i in range(0, len(ring), 2)]]})
    held = ring_side(np.array(ring), 0, 3, *point) > 0
    assert held == bool(region.contains(np.array([point[0]]), np.array([point[1]]))[0])


TINY = [0.0, 5e-324, -5e-324, 1e-320, 1e-308, 1e-200, -1e-200, 3e-200, 1e-160, 1e-100, 1e-17]
MIXED = [*TINY, 2e-200, 1.0, -1.0, 1.0 + 2**-52, 90.0, 180.0, -180.0, 5e-324 * 3]


@pytest.mark.parametrize("values", [TINY, MIXED], ids=["beside zero", "of all sizes"])
def test_sides_are_exact_where_products_underflow(values: list[float]) -> None:
    seed = drawn_seed()
    rng = random.Random(seed)
    for _ in range(4_000):
        ax, ay, bx, by, x, y = (
            rng.choice(values) * rng.choice([1.0, 1.0, 0.5, 2.0 ** -rng.randrange(60)])
            for _ in range(6)
        )
        if rng.random() < 0.5:
            # On the edge, or beside it by the smallest difference.
            x, y = rng.choice([(ax, ay), (bx, by), ((ax + bx) / 2, (ay + by) / 2)])
            x = float(np.nextafter(x, rng.choice([-200.0, x, 200.0])))
        wanted = exact(ax, ay, bx, by, x, y)
        assert side_of(ax, ay, bx, by, x, y) == wanted, f"seed={seed}: {(ax, ay, bx, by, x, y)}"


def test_polygons_near_zero_hold_the_points_of_exact_fractions() -> None:
    seed = drawn_seed()
    rng = random.Random(seed)
    for _ in range(300):
        scale = 10.0 ** -rng.choice([150, 160, 200, 250, 300, 310, 318])
        ring = [float(rng.randrange(-9, 10)) * scale for _ in range(2 * rng.randrange(3, 7))]
        points = list(zip(ring[::2], ring[1::2], strict=True))
        if len(set(points)) < 3:
            continue
        region = parse_region({"polygon": [[list(point) for point in points]]})
        for _ in range(20):
            x, y = (float(rng.randrange(-10, 11)) * scale * rng.choice([1.0, 0.5]) for _ in "xy")
            held = ring_side(np.array(ring), 0, len(points), x, y) > 0
            wanted = bool(region.contains(np.array([x]), np.array([y]))[0])
            assert held == wanted, f"seed={seed}: {(points, x, y)}"


def least_s(ring: np.ndarray, x: float, y: float) -> float:
    times = []
    for _ in range(9):
        begin_s = time.process_time()
        for _ in range(10):
            ring_side(ring, 0, len(ring) // 2, x, y)
        times.append(time.process_time() - begin_s)
    return min(times)


def is_doubtful(ax: float, ay: float, bx: float, by: float, x: float, y: float) -> bool:
    left, right = (bx - ax) * (y - ay), (by - ay) * (x - ax)
    return abs(left - right) <= 4.5e-16 * (abs(left) + abs(right))


@pytest.mark.parametrize("at", [10.1, 1e-20, 1.7e-200, 5e-324])
def test_edges_through_nearly_one_point_take_bounded_time(at: float) -> None:
    """10,000 of them beside zero took hundreds of times as long as edges elsewhere."""
    rng = random.Random(3)
    ends: list[tuple[float, float]] = []
    side = -1
    while len(ends) < 10_000:
        along = side * rng.uniform(1, 9)
        end = (at + along, at + 0.7 * along)
        if not ends or (side_of(*ends[-1], *end, at, at) and is_doubtful(*ends[-1], *end, at, at)):
            ends.append(end)
            side = -side
    ring = np.array(ends).ravel()
    assert least_s(ring, at, at) < 60 * least_s(ring, at + 0.5, at)
