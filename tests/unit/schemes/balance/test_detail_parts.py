"""Estimated details of parts of a leaf, compared with counts of the parts themselves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirocco.schemes.balance.base.detail_parts import part_of
from sirocco.schemes.map.map import Leaf
from tests.support.worlds import GRID, detail_of, grid_map, random_stream

NAMES = ("objects", "queries", "recent", "spans", "recent_spans")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_along_the_cut_a_part_is_what_would_be_counted_in_it(seed):
    rng = np.random.default_rng(seed)
    stream = random_stream(rng)
    leaf = grid_map(rng, int(rng.integers(1, 5)), 2).leaves[0]
    whole, axis = detail_of(stream, leaf), int(rng.integers(2))
    cells = (whole.grid.columns, whole.grid.rows)[axis]
    if cells < 2:
        return
    at = int(rng.integers(1, cells))
    for is_first in (True, False):
        part = part_of(whole, axis, at, is_first=is_first)
        x, y = part.grid.x_borders, part.grid.y_borders
        counted = detail_of(stream, Leaf(0, (float(x[0]), float(y[0]), float(x[-1]), float(y[-1]))))
        assert counted.grid.x_borders.tolist() == x.tolist()
        assert counted.grid.y_borders.tolist() == y.tolist()
        own, expected = along(part, axis), along(counted, axis)
        for name in NAMES:
            # A query that begins before the split and crosses it begins in the first cell here.
            found = getattr(own, name), getattr(expected, name)
            assert found[0] == pytest.approx(found[1]), f"seed {seed}: {name}"
        met = (part.met, counted.met)
        assert ways(met[0])[axis].tolist() == ways(met[1])[axis].tolist()
        # Across it sums are exact, their composition is an estimate.
        for name in ("objects", "queries", "recent"):
            across = getattr(along(part, 1 - axis), name), getattr(expected, name)
            assert len(across[0]) == (whole.grid.rows, whole.grid.columns)[axis]
            whole_sum = getattr(along(whole, axis), name)[-1]
            assert across[0][-1] == pytest.approx(across[1][-1] if whole_sum else 0.0)


def along(detail, axis):
    return (detail.statistics.columns, detail.statistics.rows)[axis]


def ways(aggregates):
    return aggregates.columns, aggregates.rows


def test_parts_of_a_leaf_without_anything_have_nothing():
    rng = np.random.default_rng(3)
    stream = random_stream(rng, objects=0, queries=0)
    whole = detail_of(stream, Leaf(0, GRID.box(0, 0, 8, 8)))
    part = part_of(whole, 0, 3, is_first=False)
    assert (part.grid.columns, part.grid.rows) == (5, 8)
    assert part.statistics.rows.objects.tolist() == [0.0] * 8
    assert part.met.rows.tolist() == [0] * 8
