"""Tornado 3.1, 4.1-4.3, 6.2: the cost of cells, splits of least maximum, neighbour routing."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirocco.kernels.routing import routing as kernels
from sirocco.schemes.builders.a_grid import AGrid, least_maximum_regions
from sirocco.schemes.builders.uniform_grid import UniformGrid
from sirocco.schemes.map.map import WORLD, Leaf, PartitionMap
from sirocco.schemes.map.routing import compile_map
from sirocco.schemes.workload.sample import QueryKind, Sample, SampleQueries
from sirocco.schemes.workload.spatial_aggregates import no_aggregates
from sirocco.schemes.workload.spatial_grid import even_grid
from sirocco.schemes.workload.spatial_load import query_candidates

SEEDS = st.integers(0, 2**32 - 1)


def test_figure_5_aggregates_after_three_objects_and_the_split_they_choose():
    """O1 satisfies one query at cell (2, 3), O2 two at (4, 2), O3 one at (4, 4); columns first.

    The paper says that the best vertical split leaves a difference of 3; by its own numbers it is 2
    (column 2 holds 1, column 4 holds 3). The horizontal one leaves 0 and is chosen.
    """
    column, row = np.array([2, 4, 4]) - 1, np.array([3, 2, 4]) - 1
    aggregates = no_aggregates(4, 4).adding(column, row, np.array([1, 2, 1]))
    assert aggregates.columns.tolist() == [0, 1, 0, 3]
    assert aggregates.rows.tolist() == [0, 2, 1, 1]
    cut = aggregates.best_cut()
    assert cut is not None
    assert (cut.axis, cut.at) == (1, 2)
    assert 2 * cut.maximum - aggregates.columns.sum() == 0


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_equation_1_an_object_costs_the_queries_of_its_cell_with_any_of_its_keywords(seed):
    """Literally, for queries of one keyword, where all of a query's keywords are one."""
    rng = np.random.default_rng(seed)
    places = rng.uniform((-180, -90), (180, 90), (30, 2))
    texts = [rng.choice(6, int(rng.integers(0, 4)), replace=False) for _ in range(30)]
    corner = rng.uniform((-180, -90), (100, 40), (25, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(0, 50, (25, 2))], 1)
    keyword = rng.integers(0, 6, 25)
    asked = [[word] for word in keyword]
    grid = even_grid(8, 8)
    met = query_candidates(sample_of(places, texts, boxes, asked), grid)
    for i in range(30):
        x, y = (places[i] - (-180, -90)) // (45, 22.5)
        x0, y0, x1, y1 = ((boxes - (-180, -90, -180, -90)) // (45, 22.5, 45, 22.5)).T
        here = (x0 <= x) & (x <= x1) & (y0 <= y) & (y <= y1)
        assert met[i] == (here & np.isin(keyword, texts[i])).sum(), f"seed {seed}"


def sample_of(places, texts, boxes, asked):
    def csr(rows):
        lengths = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        return lengths, np.array([term for row in rows for term in row], np.uint64)

    kinds = np.full(len(boxes), QueryKind.RANGE_CONTINUOUS, np.uint8)
    queries = SampleQueries(kinds, np.asarray(boxes), *csr(asked), np.ones(len(boxes)))  # type: ignore[call-arg]
    lon, lat = np.array(places, np.float64).T.copy()
    return Sample(lon, lat, *csr(texts), np.arange(len(lon)).astype(np.uint64), queries)  # type: ignore[call-arg]


def skewed_cells(rng, side, objects=4000):
    """Objects in a few towns of unequal size, on a grid."""
    town = rng.choice(8, objects, p=np.arange(8, 0, -1) ** 2 / 204)
    centre = rng.uniform(0, side, (8, 2))
    spread = rng.uniform(side / 100, side / 10, 8)
    at = centre[town] + rng.standard_normal((objects, 2)) * spread[town][:, None]
    return np.clip(at, 0, side - 1).astype(np.int64).T, rng.integers(1, 30, objects)


def median_kd(cells, load, side, levels):
    """Loads of a plain k-d tree on the same grid: alternating axes, weighted medians, all levels.

    The border is before the median's cell or after it, whichever divides the region more evenly.
    """
    parts = [(np.arange(len(load)), (0, 0, side, side))]
    for level in range(levels):
        axis = level % 2
        halves = []
        for rows, region in parts:
            own = np.bincount(cells[axis, rows], load[rows], side).cumsum()
            places = np.arange(region[axis] + 1, region[axis + 2])
            if len(places) == 0:
                halves.append((rows, region))
                continue
            at = places[np.abs(own[places - 1] - own[-1] / 2).argmin()]
            first, second = list(region), list(region)
            first[axis + 2] = second[axis] = at
            before = cells[axis, rows] < at
            halves += [(rows[before], tuple(first)), (rows[~before], tuple(second))]
        parts = halves
    return [int(load[rows].sum()) for rows, _ in parts]


@pytest.mark.parametrize("levels", [3, 5, 7])
def test_section_4_1_least_maximum_beats_median_cuts_on_skewed_data(levels):
    """α of equation 3, with as many leaves on the same grid; a heuristic, so not every time."""
    ratios = []
    for seed in range(12):
        cells, load = skewed_cells(np.random.default_rng(seed), 64)
        _, costs = least_maximum_regions(cells, load, (0, 0, 64, 64), 1 << levels)
        assert sum(costs) == load.sum()
        ratios.append(max(costs) / max(median_kd(cells, load, 64, levels)))
    assert np.mean(ratios) < 0.97, ratios
    assert sum(ratio > 1 for ratio in ratios) <= 3, ratios


def test_section_4_1_cutting_ends_at_single_cells():
    cells = np.array([[1, 1, 1], [2, 2, 2]])
    regions, costs = least_maximum_regions(cells, np.array([5, 5, 5]), (0, 0, 4, 4), 100)
    assert sorted(regions) == [(x, y, x + 1, y + 1) for x in range(4) for y in range(4)]
    assert costs[regions.index((1, 2, 2, 3))] == 15


def test_section_6_2_the_heaviest_leaf_has_half_the_load_of_the_uniform_grids_or_less():
    """Figure 8(a): twice the throughput of uniform leaves; the heaviest evaluator sets it."""
    rng = np.random.default_rng(5)
    centre = rng.uniform((-120, 30), (-70, 45), (12, 2))
    places = centre[rng.integers(12, size=6000)] + rng.standard_normal((6000, 2))
    texts = [[word] for word in rng.integers(0, 20, 6000)]
    own = rng.choice(6000, 600)
    boxes = np.concatenate([places[own] - 0.3, places[own] + 0.3], 1)
    sample = sample_of(places, texts, boxes, [texts[i] for i in own])
    heaviest = {}
    for scheme in (AGrid(), UniformGrid()):
        partition_map = scheme.build(sample, 16, 16)
        columns = (sample.lon, sample.lat, sample.term_offsets, sample.terms, sample.event_keys)
        leaf = scheme.compile(partition_map).route_objects(*columns).leaf
        met = query_candidates(sample, even_grid(1024, 1024))
        heaviest[scheme.name] = np.bincount(leaf, met).max()
    assert heaviest["a-grid"] < heaviest["uniform-grid"] / 2


class Counted:
    """The cells of the routing arrays; counts how often one is read."""

    def __init__(self, cells):
        self.cells = cells
        self.reads = 0

    def __getitem__(self, at):
        self.reads += 1
        return self.cells[at]


def neighbour_search(arrays, box):
    """Runs the kernel's Algorithm 1 as plain Python; returns (leaves, cells read, cells under)."""
    search = getattr(kernels._neighbour_search, "py_func", kernels._neighbour_search)
    cells = Counted(arrays.cells)
    items = len(arrays.tiles)
    found = np.empty(items + 1, np.int32)
    count = search(
        0,
        np.array(box),
        arrays.frame_ints,
        arrays.frame_reals,
        arrays.x_borders,
        arrays.x_buckets,
        arrays.y_borders,
        arrays.y_buckets,
        cells,
        arrays.tiles,
        np.zeros(items, np.int64),
        1,
        np.empty(items + 1, np.int32),
        found,
    )
    west, south, east, north = box
    columns = np.searchsorted(arrays.x_borders, [west, east], "right")
    rows = np.searchsorted(arrays.y_borders, [south, north], "right")
    under = int(np.ptp(columns) + 1) * int(np.ptp(rows) + 1)
    return set(found[:count].tolist()), cells.reads, under


def box_of(sides):
    west, south, east, north = map(float, sides)
    return west, south, east, north


def map_with_fine_east(strips):
    """Returns sixteen leaves in the west, and strips in the east that cut all rows of the grid."""
    x, y = np.linspace(-180, 0, 5), np.linspace(-90, 90, 5)
    boxes = [(x[i], y[j], x[i + 1], y[j + 1]) for i in range(4) for j in range(4)]
    high = np.linspace(-90, 90, strips + 1)
    boxes += [(0.0, south, 180.0, north) for south, north in itertools.pairwise(high)]
    leaves = tuple(Leaf(i, box_of(box)) for i, box in enumerate(boxes))
    zeros = np.zeros(len(leaves), np.int32)
    return PartitionMap(
        version=1,
        scheme="test",
        world=WORLD,
        leaves=leaves,
        text_nodes=(),
        slot_of_leaf=zeros,
        load_of_leaf=np.ones(len(leaves)),
        slots=1,
    )


def test_lemma_1_routing_does_not_depend_on_the_granularity_of_the_grid():
    """The grid grows a hundredfold; the search in the west reads the same few cells."""
    box = (-170.0, -80.0, -10.0, 80.0)
    reads, unders = [], []
    for strips in (4, 40, 400):
        leaves, read, under = neighbour_search(compile_map(map_with_fine_east(strips)), box)
        assert leaves == set(range(16))
        reads.append(read)
        unders.append(under)
    assert unders[2] > 50 * unders[0]
    assert reads[0] == reads[1] == reads[2]


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_lemma_1_at_most_two_cells_are_read_for_each_leaf_hit(seed):
    """V = N_p nodes, E = 2 N_p edges, and the cell of the first corner."""
    rng = np.random.default_rng(seed)
    cells, load = skewed_cells(rng, 256, 800)
    regions, _ = least_maximum_regions(cells, load, (0, 0, 256, 256), int(rng.integers(2, 200)))
    grid = even_grid(256, 256)
    boxes = np.array([grid.box(*region) for region in regions])
    leaves = tuple(Leaf(i, box_of(box)) for i, box in enumerate(boxes))
    zeros = np.zeros(len(leaves), np.int32)
    arrays = compile_map(
        PartitionMap(
            version=1,
            scheme="test",
            world=WORLD,
            leaves=leaves,
            text_nodes=(),
            slot_of_leaf=zeros,
            load_of_leaf=np.ones(len(leaves)),
            slots=1,
        )
    )
    for _ in range(5):
        (west, east), (south, north) = np.sort(rng.uniform(-89, 89, (2, 2)), 1)
        found, reads, _ = neighbour_search(arrays, (west, south, east, north))
        hit = (boxes[:, 0] <= east) & (boxes[:, 2] > west)
        hit &= (boxes[:, 1] <= north) & (boxes[:, 3] > south)
        assert found == set(np.flatnonzero(hit).tolist()), f"seed {seed}"
        assert reads <= 1 + 2 * len(found), f"seed {seed}"
