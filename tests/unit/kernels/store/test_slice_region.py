"""Regions against points and nodes: the relation of a node never contradicts its points."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from sirocco.index.base.compile import compile_queries
from sirocco.index.store.store_condition import Condition, compile_condition
from sirocco.kernels.store.slice_region import (
    COVERED,
    DISJOINT,
    PARTIAL,
    meets_node,
    overlap_relation,
    point_inside,
    rows_near,
)
from sirocco.kernels.store.slice_runs import collect_runs
from sirocco.kernels.store.slice_seal import BLOCK_ROWS, FANOUT, lay_boxes
from sirocco.model.geometry import Circle, Polygon, Rectangle, Region
from sirocco.model.query import RangeQuery


def condition(region: Region) -> Condition:
    return compile_condition(
        compile_queries([RangeQuery(id="q", mode="snapshot", region=region)], [0])
    )


def relation(asked: Condition, boxes: np.ndarray, node: int) -> int:
    if not meets_node(asked.words, asked.quads, boxes, node):
        return DISJOINT
    return int(overlap_relation(asked.words, asked.values, boxes, node))


def random_region(rng: random.Random) -> Region:
    kind = rng.randrange(4)
    lon, lat = rng.choice([(0.0, 0.0), (179.0, 10.0), (-180.0, 0.0), (20.0, 89.0), (5.0, -90.0)])
    lon = min(180.0, max(-180.0, lon + rng.uniform(-2, 2)))
    lat = min(90.0, max(-90.0, lat + rng.uniform(-2, 2)))
    if kind == 0:
        return Circle(lon, lat, rng.choice([0.0, 1e4, 3e5, 9e6, 2.1e7]))
    if kind == 1:
        ring = [
            (
                min(180.0, lon + 5 * rng.random() * math.cos(a / 7 * math.tau)),
                min(90.0, max(-90.0, lat + 5 * rng.random() * math.sin(a / 7 * math.tau))),
            )
            for a in range(7)
        ]
        return Polygon((tuple((max(-180.0, x), y) for x, y in ring),))
    if kind == 2:
        # Across the antimeridian.
        return Rectangle(rng.uniform(170, 180), max(-90.0, lat - 5), rng.uniform(-180, -170), 90.0)
    return Rectangle(lon, max(-90.0, lat - 3), min(180.0, lon + rng.choice([0, 4])), lat)


def near(rng: random.Random, region: Region) -> tuple[float, float]:
    west, south, east, north = rng.choice(region.boxes().tolist())
    lon, lat = rng.uniform(west - 3, east + 3), rng.uniform(south - 3, north + 3)
    lon = rng.choice([lon, west, east, 180.0, -180.0])
    lat = rng.choice([lat, lat, south, north])
    return min(180.0, max(-180.0, lon)), min(90.0, max(-90.0, lat))


@pytest.mark.parametrize("seed", range(6))
def test_points_are_inside_as_the_region_defines(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(150):
        region = random_region(rng)
        asked = condition(region)
        places = [near(rng, region) for _ in range(20)]
        lon, lat = (np.array(column) for column in zip(*places, strict=True))
        want = region.contains(lon, lat).tolist()
        got = [bool(point_inside(asked.words, asked.values, x, y)) for x, y in places]
        assert got == want, f"seed={seed}: {region} {places}"


@pytest.mark.parametrize("seed", range(6))
def test_relation_of_a_node_holds_for_its_points(seed: int) -> None:
    rng = random.Random(seed)
    seen = set()
    for _ in range(400):
        region = random_region(rng)
        asked = condition(region)
        x, y = near(rng, region)
        spread = rng.choice([0.0, 1e-6, 0.1, 2.0])
        lon = np.clip([x + rng.uniform(-spread, spread) for _ in range(20)], -180, 180)
        lat = np.clip([y + rng.uniform(-spread, spread) for _ in range(20)], -90, 90)
        boxes = np.empty(4, np.float32)
        lay_boxes(lon, lat, np.array([0, 1], np.int64), boxes)
        got = relation(asked, boxes, 0)
        inside = [bool(point_inside(asked.words, asked.values, a, b)) for a, b in zip(lon, lat)]  # noqa: B905
        seen.add(got)
        assert got != DISJOINT or not any(inside), f"seed={seed}: {region} {lon} {lat}"
        assert got != COVERED or all(inside), f"seed={seed}: {region} {lon} {lat}"
    assert seen == {DISJOINT, PARTIAL, COVERED}


@pytest.mark.parametrize("rows", [1, BLOCK_ROWS, 5 * BLOCK_ROWS + 1, 2 * BLOCK_ROWS * FANOUT + 9])
def test_runs_hold_all_rows_of_the_region(rows: int) -> None:
    rng = np.random.default_rng(rows)
    # Along a line, so that the tree can separate the rows.
    lon = np.sort(rng.uniform(0, 100, rows))
    lat = np.sin(lon / 10) * 20
    levels = [0, -(-rows // BLOCK_ROWS)]
    while levels[-1] - levels[-2] > 1:
        levels.append(levels[-1] + -(-(levels[-1] - levels[-2]) // FANOUT))
    boxes = np.empty(4 * levels[-1], np.float32)
    lay_boxes(lon, lat, np.array(levels, np.int64), boxes)
    for _ in range(60):
        west, width = rng.uniform(-10, 100), rng.choice([0.5, 5.0, 60.0])
        region = Rectangle(west, -30.0, west + width, rng.uniform(-20, 25))
        asked = condition(region)
        runs, count, total = collect_runs(
            asked.words, asked.values, asked.quads, boxes, np.array(levels, np.int64), rows, 1 << 62
        )
        found = runs[: 3 * count].reshape(-1, 3)
        assert total == (found[:, 1] - found[:, 0]).sum()
        assert (found[1:, 0] >= found[:-1, 1]).all()
        inside = region.contains(lon, lat)
        reached = np.zeros(rows, np.bool_)
        for begin, end, covers in found.tolist():
            assert 0 <= begin < end <= rows
            reached[begin:end] = True
            assert not covers or inside[begin:end].all()
        assert (reached | ~inside).all()
        # At most the blocks in which the region ends.
        assert total <= inside.sum() + 4 * BLOCK_ROWS + BLOCK_ROWS


def test_collecting_stops_when_cancelled() -> None:
    lon = np.linspace(0, 100, 4_000)
    levels = np.array([0, 125, 133, 134], np.int64)
    boxes = np.empty(4 * 134, np.float32)
    lay_boxes(lon, np.zeros(4_000), levels, boxes)
    asked = condition(Rectangle(10.0, -1.0, 10.1, 1.0))
    columns = (asked.words, asked.values, asked.quads, boxes, levels, 4_000)
    assert collect_runs(*columns, 1)[1] == -1
    assert collect_runs(*columns, 1_000)[1] >= 1


def test_rows_near_are_those_in_the_box_borders_included() -> None:
    rng = np.random.default_rng(1)
    for count in (0, 1, 63, 64):
        lon, lat = rng.integers(-3, 4, count) * 1.0, rng.integers(-3, 4, count) * 1.0
        out = np.empty(64, np.int64)
        found = rows_near(lon, lat, -1.0, -2.0, 1.0, 2.0, out)
        inside = (abs(lon) <= 1.0) & (abs(lat) <= 2.0)
        assert out[:found].tolist() == np.flatnonzero(inside).tolist()
