"""Row and column aggregates, and splits of least maximum, compared with counting all cells."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sirocco.schemes.builders.a_grid import aggregates_of, least_maximum_regions
from sirocco.schemes.workload.spatial_aggregates import Aggregates, no_aggregates

SEEDS = st.integers(0, 2**32 - 1)


def random_objects(rng, columns, rows):
    """Returns cells and loads of objects; some cells are crowded."""
    count = int(rng.integers(0, 60))
    cells = np.stack([rng.integers(0, columns, count), rng.integers(0, rows, count)])
    crowd = rng.random(count) < 0.3
    cells[:, crowd] = cells[:, :1]
    return cells, rng.integers(1, 20, count)


def table(cells, load, columns, rows):
    """Returns i8[rows, columns], one object after the other."""
    out = np.zeros((rows, columns), np.int64)
    for (column, row), cost in zip(cells.T, load, strict=True):
        out[row, column] += cost
    return out


def heavier_halves(part):
    """Returns the workload of the heavier half of every split, as (axis, at) → workload."""
    halves = {}
    for at in range(1, part.shape[1]):
        halves[0, at] = max(part[:, :at].sum(), part[:, at:].sum())
    for at in range(1, part.shape[0]):
        halves[1, at] = max(part[:at].sum(), part[at:].sum())
    return halves


@settings(max_examples=80, deadline=None)
@given(SEEDS)
def test_the_best_cut_has_the_least_maximum_of_all(seed):
    rng = np.random.default_rng(seed)
    columns, rows = int(rng.integers(1, 9)), int(rng.integers(1, 9))
    cells, load = random_objects(rng, columns, rows)
    part = table(cells, load, columns, rows)
    half = len(load) // 2
    aggregates = no_aggregates(columns, rows).adding(cells[0, :half], cells[1, :half], load[:half])
    aggregates = aggregates.adding(cells[0, half:], cells[1, half:], load[half:])
    assert aggregates.columns.tolist() == part.sum(0).tolist()
    assert aggregates.rows.tolist() == part.sum(1).tolist()
    cut = aggregates.best_cut()
    halves = heavier_halves(part)
    if not halves:
        assert cut is None
        return
    assert cut is not None
    assert halves[cut.axis, cut.at] == cut.maximum == min(halves.values()), f"seed {seed}"


def test_ties_go_to_the_longer_side_and_to_the_middle():
    cut = no_aggregates(6, 4).best_cut()
    assert cut is not None
    assert (cut.axis, cut.at) == (0, 3)
    cut = no_aggregates(4, 6).best_cut()
    assert cut is not None
    assert (cut.axis, cut.at) == (1, 3)
    two_towns = np.array([5, 0, 0, 0, 0, 5])
    cut = Aggregates(two_towns, np.array([10])).best_cut()
    assert cut is not None
    assert (cut.axis, cut.at, cut.maximum) == (0, 3, 5)


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_regions_tile_the_grid_and_the_heaviest_was_always_cut(seed):
    rng = np.random.default_rng(seed)
    columns, rows = int(rng.integers(1, 9)), int(rng.integers(1, 9))
    cells, load = random_objects(rng, columns, rows)
    part = table(cells, load, columns, rows)
    before: set[tuple[int, int, int, int]] = set()
    for leaves in range(1, columns * rows + 3):
        regions, costs = least_maximum_regions(cells, load, (0, 0, columns, rows), leaves)
        assert len(regions) == min(leaves, columns * rows), f"seed {seed}"
        covered = np.zeros((rows, columns), np.int64)
        for (x0, y0, x1, y1), cost in zip(regions, costs, strict=True):
            covered[y0:y1, x0:x1] += 1
            assert part[y0:y1, x0:x1].sum() == cost, f"seed {seed}"
        assert (covered == 1).all(), f"seed {seed}"
        removed = before - set(regions)
        if removed:
            ((x0, y0, x1, y1),) = removed
            weight = part[y0:y1, x0:x1].sum()
            divisible = [r for r in before if (r[2] - r[0]) * (r[3] - r[1]) > 1]
            assert weight == max(part[b:d, a:c].sum() for a, b, c, d in divisible), f"seed {seed}"
            halves = [part[b:d, a:c].sum() for a, b, c, d in set(regions) - before]
            assert max(halves) == min(heavier_halves(part[y0:y1, x0:x1]).values()), f"seed {seed}"
        before = set(regions)


def test_aggregates_of_a_region_count_from_its_corner():
    cells = np.array([[5, 6, 6], [2, 2, 4]])
    aggregates = aggregates_of(cells, np.array([1, 2, 4]), (5, 2, 8, 5))
    assert aggregates.columns.tolist() == [1, 6, 0]
    assert aggregates.rows.tolist() == [3, 0, 4]
