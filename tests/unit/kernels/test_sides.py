"""On which side of a polygon's edge a point lies: exactly, as the model has it in fractions."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

from sirocco.kernels.geometry import ring_side, side_of
from sirocco.model.geometry import parse_region


def exact(*values: float) -> int:
    ax, ay, bx, by, x, y = map(Fraction, values)
    cross = (bx - ax) * (y - ay) - (by - ay) * (x - ax)
    return (cross > 0) - (cross < 0)


@pytest.mark.parametrize("digits", [0, 1, 2, 6, 17])
def test_sides_are_exact_on_and_beside_edges(digits: int) -> None:
    seed = random.randrange(1 << 30)
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
def test_the_kernel_says_what_the_model_says(ring: list[float], point: tuple[float, float]) -> None:
    region = parse_region({"polygon": [[ring[i : i + 2] for i in range(0, len(ring), 2)]]})
    held = ring_side(np.array(ring), 0, 3, *point) > 0
    assert held == bool(region.contains(np.array([point[0]]), np.array([point[1]]))[0])
