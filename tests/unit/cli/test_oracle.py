"""The oracle of the end-to-end tests, checked by hand-made cases and against the model."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from sirocco.model.geometry import parse_region
from tests.oracle import Region, arrivals_ms, distance_m, matches, satisfies

SQUARE = {"polygon": [[[0, 0], [4, 0], [4, 4], [0, 4]], [[1, 1], [1, 3], [3, 3], [3, 1], [1, 1]]]}


def _query(**members: Any) -> dict[str, Any]:
    return {"id": "q", "kind": "range", "mode": "continuous"} | members


@pytest.mark.parametrize(
    ("point", "inside"),
    [((0.5, 0.5), True), ((2, 2), False), ((1, 2), True), ((4, 4), True), ((4.0001, 2), False)],
)
def test_polygons_are_even_odd_with_their_borders(point: tuple[float, float], inside: bool) -> None:
    assert Region(SQUARE).contains(*point) is inside


def test_rectangles_cross_the_antimeridian() -> None:
    region = Region({"rect": {"west": 170, "south": 0, "east": -170, "north": 1}})
    assert region.contains(175, 0.5)
    assert region.contains(-170, 1)
    assert not region.contains(0, 0.5)
    east = Region({"rect": {"west": 170, "south": 0, "east": 180, "north": 1}})
    assert east.contains(-180, 0)


def test_a_degree_of_latitude() -> None:
    assert distance_m(10, 0, 10, 1) == pytest.approx(math.pi / 180 * 6_371_008.8)


def test_regions_agree_with_the_model() -> None:
    seed = 20261121
    dice = random.Random(seed)
    for _ in range(200):
        lon, lat = dice.uniform(-180, 180), dice.uniform(-85, 85)
        ring = [[dice.randint(-5, 5), dice.randint(-5, 5)] for _ in range(dice.randint(3, 7))]
        if len({tuple(vertex) for vertex in ring}) < 3:
            continue
        shapes: list[dict[str, Any]] = [
            {"circle": {"lon": lon, "lat": lat, "radius_m": dice.uniform(0, 2e6)}},
            {"rect": {"west": lon, "south": -10, "east": dice.uniform(-180, 180), "north": 9}},
            {"polygon": [ring]},
        ]
        points = [(dice.randint(-10, 10) / 2, dice.randint(-10, 10) / 2) for _ in range(50)]
        points += [(lon + dice.gauss(0, 5), lat) for _ in range(20)]
        points = [((x + 180) % 360 - 180, y) for x, y in points]
        for shape in shapes:
            x, y = np.array(points, np.float64).T
            wanted = parse_region(shape).contains(x, y).tolist()
            assert [Region(shape).contains(*point) for point in points] == wanted, f"seed {seed}"


def test_filters_know_types_and_missing_members() -> None:
    assert satisfies({"size": {"gte": 3, "lt": 10}}, {"size": 3.0})
    assert not satisfies({"size": 1}, {"size": True})
    assert not satisfies({"size": {"gte": 3}}, {"size": "4"})
    assert not satisfies({"size": {"in": [1, "a"]}}, {"size": None})
    assert satisfies({"size": {"in": [1, "a"]}}, {"size": "a"})


def test_matches_count_publications_and_lifetimes() -> None:
    objects = [
        {"id": 1, "ts": 1_000, "lon": 1, "lat": 1, "text": "Fire!"},
        {"id": 1, "lon": 1, "lat": 1, "text": "fire"},
        {"id": "b", "ts": 500, "lon": 1, "lat": 1, "text": "fire drill"},
        {"id": 4, "ts": 2_000, "lon": 1, "lat": 1, "text": "fire"},
    ]
    assert arrivals_ms(objects) == [1_000, 1_000, 1_000, 2_000]
    query = _query(text="fire AND NOT drill", region=SQUARE)
    assert matches(objects, [query]) == Counter({("q", 1): 2, ("q", 4): 1})
    limited = query | {"ttl": "1s"}
    assert matches(objects, [limited], event_arrivals=True) == Counter({("q", 1): 2})
