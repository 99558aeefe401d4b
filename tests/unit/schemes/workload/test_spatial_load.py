"""Workloads of objects, cells of boxes, splits: each compared with its definition."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirocco.schemes.map.map import WORLD
from sirocco.schemes.workload.sample import SampleQueries, empty_sample
from sirocco.schemes.workload.spatial_cuts import SIDE_DEGREES_MIN, quantile_cuts, weighted_cut
from sirocco.schemes.workload.spatial_grid import (
    EXTENT_DEGREES_MIN,
    SIDE_MAX,
    SIDE_MIN,
    even_grid,
    extent_of,
    fine_grid,
)
from sirocco.schemes.workload.spatial_load import object_loads, query_candidates, with_queries
from tests.support.random_samples import csr, random_sample, sample_at

SEEDS = st.integers(0, 2**32 - 1)


def crossing(rng, sample):
    """Makes some boxes cross the antimeridian, some end in the column where they begin."""
    boxes = sample.queries.boxes
    swapped = rng.random(len(boxes)) < 0.3
    boxes[swapped] = boxes[swapped][:, [2, 1, 0, 3]]
    return sample


def cells_by_definition(grid, box):
    """Returns bool[rows, columns]: cells, half open, that a closed box touches."""
    west, south, east, north = box
    x, y = grid.x_borders, grid.y_borders

    def reach(borders, low, high, far):
        begins, ends = borders[:-1], borders[1:]
        return (high >= begins) & ((low < ends) | (ends == far))

    if west > east:
        columns = reach(x, west, 180.0, WORLD[2]) | reach(x, -180.0, east, WORLD[2])
    else:
        columns = reach(x, west, east, WORLD[2])
    return reach(y, south, north, WORLD[3])[:, None] & columns


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_spans_are_the_cells_that_boxes_touch(seed):
    rng = np.random.default_rng(seed)
    columns, rows = int(rng.integers(1, 20)), int(rng.integers(1, 20))
    grid = even_grid(columns, rows)
    x0, y0 = int(rng.integers(columns)), int(rng.integers(rows))
    x1, y1 = int(rng.integers(x0, columns)) + 1, int(rng.integers(y0, rows)) + 1
    part = grid.within(grid.box(x0, y0, x1, y1))
    assert (part.columns, part.rows) == (x1 - x0, y1 - y0), f"seed {seed}"
    boxes = crossing(rng, random_sample(rng, 5, 30, side=250.0)).queries.boxes
    boxes[:5] = rng.choice(grid.x_borders, 5)[:, None]
    boxes[:5, [1, 3]] = rng.choice(grid.y_borders, 5)[:, None]
    for one in (grid, part):
        owner, spans = one.spans_of(boxes)
        covered = np.zeros((len(boxes), one.rows, one.columns), np.int64)
        for query, (left, low, right, high) in zip(owner, spans, strict=True):
            covered[query, low : high + 1, left : right + 1] += 1
        for query, box in enumerate(boxes):
            expected = cells_by_definition(one, box)
            assert (covered[query] == expected).all(), f"seed {seed}, {box}, {one.x_borders}"


def met_by_definition(sample, grid):
    queries = sample.queries
    terms = [set(sample.terms[a:b].tolist()) for a, b in pairs(sample.term_offsets)]
    asked = [queries.terms[a:b].tolist() for a, b in pairs(queries.term_offsets)]
    frequency = {word: sum(word in text for text in terms) for text in asked for word in text}
    met = np.zeros(len(sample), np.int64)
    columns, rows = grid.columns_of(sample.lon), grid.rows_of(sample.lat)
    for query, words in enumerate(asked):
        cells = cells_by_definition(grid, queries.boxes[query])
        key = min(words, key=lambda word: (frequency[word], word), default=None)
        for i in range(len(sample)):
            met[i] += cells[rows[i], columns[i]] and (key is None or key in terms[i])
    return met


def pairs(offsets):
    return itertools.pairwise(offsets)


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_an_object_meets_the_queries_of_its_cell_that_it_is_looked_up_by(seed):
    """In all ways to count a keyword: by pairs, many or few at once, or on the grid."""
    rng = np.random.default_rng(seed)
    objects, queries = int(rng.integers(0, 60)), int(rng.integers(0, 40))
    sample = crossing(rng, random_sample(rng, objects, queries, side=120.0))
    grid = even_grid(int(rng.integers(1, 12)), int(rng.integers(1, 12)))
    expected = met_by_definition(sample, grid)
    met = query_candidates(
        sample,
        grid,
        pairs_at_once=int(rng.choice([1, 10, 1 << 18])),
        pairs_per_cell=float(rng.choice([0.0, 0.2, 100.0])),
    )
    assert met.tolist() == expected.tolist(), f"seed {seed}"


def test_handling_is_the_mean_of_the_queries_met_and_at_least_one():
    box = [(0.0, 0.0, 1.0, 1.0)] * 6
    none = csr([np.empty(0, np.uint64)] * 6)
    queries = SampleQueries(np.full(6, 4, np.uint8), np.array(box), *none, np.ones(6))  # type: ignore[call-arg]
    sample = sample_at([0.5, 50.0, 60.0], [0.5, 50.0, 60.0], [[], [], []], queries)
    grid = even_grid(360, 180)
    assert query_candidates(sample, grid).tolist() == [6, 0, 0]
    assert object_loads(sample, grid).tolist() == [8, 2, 2]
    away = sample_at([50.0, 60.0], [50.0, 60.0], [[], []], queries)
    assert object_loads(away, grid).tolist() == [1, 1]
    assert len(object_loads(with_queries(empty_sample()), grid)) == 0


@pytest.mark.parametrize(
    ("side", "cells"), [(0.9, SIDE_MIN), (0.01, SIDE_MIN), (1 / 2000, 2048), (1e-5, SIDE_MAX)]
)
def test_tornado_5_cells_are_as_wide_as_queries_within_bounds(side, cells):
    rng = np.random.default_rng(1)
    places = rng.uniform((-50, -20), (50, 20), (5000, 2))
    places[:2] = [(-50, -20), (50, 20)]
    half = np.array([50, 20]) * side
    boxes = np.concatenate([places[:9] - half, places[:9] + half], 1)
    none = csr([np.empty(0, np.uint64)] * 9)
    queries = SampleQueries(np.full(9, 4, np.uint8), boxes, *none, np.ones(9))  # type: ignore[call-arg]
    sample = sample_at(places[:, 0], places[:, 1], [[]] * 5000, queries)
    grid = fine_grid(sample)
    assert grid.columns == grid.rows == cells
    inner = grid.x_borders[1:-1]
    assert inner[0] > -50.5
    assert inner[-1] < 50.5
    assert (grid.x_borders[0], grid.x_borders[-1]) == (-180, 180)
    assert (grid.y_borders[0], grid.y_borders[-1]) == (-90, 90)


@pytest.mark.parametrize(("west", "side"), [(179.95, SIDE_MAX), (100.0, SIDE_MIN)])
def test_a_query_across_the_antimeridian_is_as_wide_as_it_is(west, side):
    none = csr([np.empty(0, np.uint64)])
    boxes = np.array([[west, 0.0, -west, 0.05]])
    queries = SampleQueries(np.full(1, 4, np.uint8), boxes, *none, np.ones(1))  # type: ignore[call-arg]
    lon, lat = np.linspace(-180, 180, 200), np.linspace(-90, 90, 200)
    assert fine_grid(sample_at(lon, lat, [[]] * 200, queries)).columns == side


@pytest.mark.parametrize("place", [(0.0, 0.0), (180.0, 90.0), (-180.0, -90.0), (1e9, -1e9)])
def test_one_place_still_has_an_extent_within_the_world(place):
    box = extent_of(sample_at([place[0]] * 5, [place[1]] * 5, [[]] * 5))
    for axis in (0, 1):
        assert box[axis + 2] - box[axis] == pytest.approx(EXTENT_DEGREES_MIN)
        assert WORLD[axis] <= box[axis] < box[axis + 2] <= WORLD[axis + 2]
    assert extent_of(empty_sample()) == WORLD


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_a_cut_comes_as_near_to_the_wanted_share_as_any(seed):
    rng = np.random.default_rng(seed)
    values = rng.choice(rng.uniform(0, 1, 6), int(rng.integers(0, 12)))
    weights = rng.integers(1, 9, len(values))
    share = float(rng.uniform(0.1, 0.9))
    cut = weighted_cut(values, weights, share, -1.0, 2.0)
    distinct = np.unique(values)
    if len(distinct) < 2:
        assert cut is None, f"seed {seed}"
        return

    def off(border):
        return abs(weights[values < border].sum() - share * weights.sum())

    assert cut is not None, f"seed {seed}"
    assert distinct[0] < cut <= distinct[-1]
    assert off(cut) == pytest.approx(min(off(value) for value in distinct[1:])), f"seed {seed}"


def test_no_cut_leaves_a_piece_without_width():
    values = np.array([0.0, 0.0, 1e-12, 1e-12])
    weights = np.ones(4, np.int64)
    assert weighted_cut(values, weights, 0.5, 0.0, 1.0) is None
    assert weighted_cut(values, weights, 0.5, -1.0, 1.0) is not None
    beside = np.array([0.5, np.nextafter(0.5, 1)])
    assert weighted_cut(beside, weights[:2], 0.5, 0.0, 1.0) is None


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_quantile_cuts_ascend_and_part_distinct_values_evenly(seed):
    rng = np.random.default_rng(seed)
    pieces = int(rng.integers(1, 12))
    shares = np.arange(1, pieces) / pieces
    distinct = rng.uniform(0, 1, 12 * pieces)
    for values in (distinct, rng.choice(distinct[:3], 20), np.empty(0), distinct[:1]):
        cuts = quantile_cuts(values, shares, -1.0, 2.0)
        assert len(cuts) == pieces - 1, f"seed {seed}"
        assert (np.diff([-1.0, *cuts, 2.0]) >= SIDE_DEGREES_MIN).all(), f"seed {seed}"
    cuts = quantile_cuts(distinct, shares, -1.0, 2.0)
    if (np.diff(np.sort(distinct)) > 4 * SIDE_DEGREES_MIN).all():
        counts = np.bincount(np.searchsorted(cuts, distinct, "right"), minlength=pieces)
        assert (counts == 12).all(), f"seed {seed}, {counts}"


def test_a_side_too_short_gives_fewer_cuts():
    shares = np.arange(1, 8) / 8
    assert len(quantile_cuts(np.empty(0), shares, 0.0, 3 * SIDE_DEGREES_MIN)) < 7
