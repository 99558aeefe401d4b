"""The k nearest: the heap, and that no bound of a distance is too high."""

from __future__ import annotations

import random

import numpy as np
import pytest

from sirocco.kernels.base.geometry import distance_m
from sirocco.kernels.store.slice_nearest import nearest_rows
from sirocco.kernels.store.slice_reach import haversine_of, least_haversine, near_box
from sirocco.kernels.store.slice_seal import lay_boxes


@pytest.mark.parametrize("seed", range(10))
def test_the_best_of_given_rows_in_any_order(seed: int) -> None:
    rng = random.Random(seed)
    count, k = rng.choice([0, 1, 5, 200]), rng.choice([1, 3, 50])
    # Few places and ids, so that ties are decided by every part of the key.
    lon = np.array([rng.choice([0.0, 1.0, 2.0]) for _ in range(count)])
    ids = np.array([rng.choice([7, 2**63, 2**64 - 1]) for _ in range(count)], np.uint64)
    sessions = np.array([rng.randrange(2) for _ in range(count)], np.uint64)
    numbers = np.array(rng.sample(range(count), count), np.uint64)
    metres, keys = np.empty(k), np.empty(3 * k, np.uint64)
    refs, state = np.empty(k, np.int64), np.zeros(1, np.int64)
    radius_m = rng.choice([np.inf, 1.5e5])
    rows = np.arange(count, dtype=np.int64)
    nearest_rows(
        rows, lon, np.zeros(count), ids, sessions, numbers, 0.1, 0.0, radius_m, 9,
        metres, keys, refs, state,
    )  # fmt: skip
    want = sorted(
        (
            float(distance_m(0.1, 0.0, lon[i], 0.0)),
            int(ids[i]),
            int(sessions[i]),
            int(numbers[i]),
            i,
        )
        for i in range(count)
        if distance_m(0.1, 0.0, lon[i], 0.0) <= radius_m
    )[:k]
    got = sorted(
        (float(metres[i]), *keys[3 * i : 3 * i + 3].tolist(), int(refs[i]) - (9 << 32))
        for i in range(int(state[0]))
    )
    assert got == want, f"seed={seed}"


def random_point(rng: random.Random) -> tuple[float, float]:
    lon = rng.choice([rng.uniform(-180, 180), 180.0, -180.0, 179.999, 0.0])
    return lon, rng.choice([rng.uniform(-90, 90), 90.0, -90.0, 89.999, 0.0])


@pytest.mark.parametrize("seed", range(5))
def test_no_row_of_a_node_is_nearer_than_its_bound(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(400):
        x, y = random_point(rng)
        west, east = sorted(random_point(rng)[0] for _ in range(2))
        south, north = sorted(random_point(rng)[1] for _ in range(2))
        box = np.empty(4, np.float32)
        corners = np.array([west, east]), np.array([south, north])
        lay_boxes(*corners, np.array([0, 1], np.int64), box)
        least = least_haversine(x, y, np.cos(np.radians(y)), box, 0)
        for _ in range(20):
            lon = rng.choice([rng.uniform(west, east), west, east])
            lat = rng.choice([rng.uniform(south, north), south, north, min(max(y, south), north)])
            distance = float(distance_m(x, y, lon, lat))
            assert least <= haversine_of(distance), f"seed={seed}: {(x, y, lon, lat)}"


@pytest.mark.parametrize("seed", range(5))
def test_no_row_outside_the_box_is_near(seed: int) -> None:
    rng = random.Random(seed)
    boxes = 0
    for _ in range(3_000):
        x, y = random_point(rng)
        limit_m = rng.choice([0.0, 0.01, 50.0, 1e4, 1e6, 9e6, np.inf])
        west, south, east, north = near_box(x, y, limit_m)
        boxes += east - west < 360
        lon, lat = random_point(rng)
        if rng.random() < 0.8:
            # Just outside of one of its sides.
            lon = rng.choice([np.nextafter(west, -200), np.nextafter(east, 200), x])
            lat = rng.uniform(max(-90, south), min(90, north))
            lon = min(180.0, max(-180.0, lon))
        if not (west <= lon <= east and south <= lat <= north):
            assert distance_m(x, y, lon, lat) > limit_m, f"seed={seed}: {(x, y, limit_m, lon, lat)}"
    assert boxes > 100
