"""SWARM's first map: equal areas of whole cells."""

from __future__ import annotations

import numpy as np
import pytest

from sirocco.schemes.builders.swarm import Swarm, equal_areas, global_grid
from sirocco.schemes.workload.sample import empty_sample


@pytest.mark.parametrize(("columns", "rows"), [(1, 1), (7, 1), (5, 3), (8, 8), (16, 9)])
def test_rectangles_tile_any_grid_and_stop_at_its_cells(columns, rows):
    for leaves in range(1, columns * rows + 3):
        regions = equal_areas(columns, rows, leaves)
        assert len(regions) == min(leaves, columns * rows)
        covered = np.zeros((rows, columns), np.int64)
        for x0, y0, x1, y1 in regions:
            covered[y0:y1, x0:x1] += 1
        assert (covered == 1).all()


@pytest.mark.parametrize("leaves", [1, 2, 5, 8, 22, 64, 100])
def test_no_leaf_is_more_than_twice_as_large_or_as_long_as_another(leaves):
    boxes = np.array([leaf.box for leaf in Swarm().build(empty_sample(), leaves, 4).leaves])
    width, height = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    area = width * height
    assert area.max() <= 2 * area.min() + 1e-9
    assert np.maximum(width / height, height / width).max() <= 2
    if leaves.bit_count() == 1:
        assert np.ptp(area) < 1e-9


def test_borders_lie_on_the_global_grid():
    grid = global_grid()
    for leaf in Swarm().build(empty_sample(), 77, 4).leaves:
        part = grid.within(leaf.box)
        assert part.box(0, 0, part.columns, part.rows) == leaf.box
