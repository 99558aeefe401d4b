"""The curve: a bijection of cells whose neighbours along it are neighbours in space; its sort."""

from __future__ import annotations

import numpy as np
import pytest

from sirocco.kernels.store.slice_curve import CURVE_LEVELS, curve_keys, curve_order

CELLS = 1 << CURVE_LEVELS


def keys_of(columns: np.ndarray, rows: np.ndarray) -> np.ndarray:
    lon = (columns + 0.5) / CELLS * 360.0 - 180.0
    lat = (rows + 0.5) / CELLS * 180.0 - 90.0
    keys = np.empty(len(lon), np.uint64)
    curve_keys(lon, lat, keys)
    return keys


@pytest.mark.parametrize("corner", [(0, 0), (CELLS // 2, CELLS // 2), (CELLS - 64, 64 * 1000)])
def test_neighbours_along_the_curve_are_neighbours_in_space(corner: tuple[int, int]) -> None:
    """An aligned square of 64 × 64 cells is one stretch of the curve, visited in single steps."""
    columns, rows = (axis.ravel() for axis in np.mgrid[0:64, 0:64])
    keys = keys_of(columns + corner[0], rows + corner[1])
    order = np.argsort(keys)
    assert (np.diff(keys[order]) == 1).all()
    steps = np.abs(np.diff(columns[order])) + np.abs(np.diff(rows[order]))
    assert (steps == 1).all()


def test_the_whole_world_is_one_walk() -> None:
    """Also at the coarsest levels: the first 12 bits of the keys of 64 × 64 even samples."""
    columns, rows = (axis.ravel() * (CELLS // 64) for axis in np.mgrid[0:64, 0:64])
    keys = keys_of(columns, rows) >> np.uint64(2 * CURVE_LEVELS - 12)
    order = np.argsort(keys)
    assert keys[order].tolist() == list(range(4096))
    steps = np.abs(np.diff(columns[order])) + np.abs(np.diff(rows[order]))
    assert (steps == CELLS // 64).all()


def test_borders_of_the_world_have_keys() -> None:
    lon, lat = np.array([-180.0, 180.0, 180.0, -180.0]), np.array([-90.0, -90.0, 90.0, 90.0])
    keys = np.empty(4, np.uint64)
    curve_keys(lon, lat, keys)
    assert len(set(keys.tolist())) == 4
    assert int(keys.max()) < 1 << 48


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("bits", [2, 12, 30, 48])
def test_order_is_a_stable_sort(seed: int, bits: int) -> None:
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, 1 << bits, 5_000).astype(np.uint64)
    if seed == 3:
        keys.sort()
    order = np.empty(len(keys), np.uint32)
    curve_order(keys, order)
    assert order.tolist() == np.argsort(keys, kind="stable").tolist(), f"seed={seed}"


def test_order_of_nothing() -> None:
    curve_order(np.empty(0, np.uint64), np.empty(0, np.uint32))
