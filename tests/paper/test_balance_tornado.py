"""Tornado 4.2 and 4.3: split/merge, the three shifts, Cr > Ct, estimates before exact cuts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sirocco.schemes.balance.base.draft import Draft
from sirocco.schemes.balance.base.neighbours import Neighbourhood
from sirocco.schemes.balance.base.placement import placed
from sirocco.schemes.balance.base.view import LeafDetail, LeafLoads, View
from sirocco.schemes.balance.tornado.balancer import Tornado, TornadoSettings
from sirocco.schemes.balance.tornado.operations import (
    Costs,
    corner_shifts,
    exact_shift,
    light_pairs,
    shifts,
    splits,
    wanted_shift,
)
from sirocco.schemes.map.map import WORLD, Leaf, PartitionMap
from sirocco.schemes.workload.spatial_aggregates import Aggregates
from sirocco.schemes.workload.spatial_grid import even_grid
from sirocco.schemes.workload.swarm_statistics import no_statistics

# As the paper describes them, one by one.
ONE = TornadoSettings(operations_max=1)

# Eight by four cells of 45 degrees. A leaf is an evaluator, as in the paper.
GRID = even_grid(8, 4)


class Space:
    """Leaves as rectangles of cells, the queries met in each cell, and standing queries."""

    def __init__(self, regions, met, queries=()):
        self.regions, self.met = regions, np.array(met, np.int64)
        self.queries = np.array(queries, np.float64).reshape(-1, 4)
        count = len(regions)
        self.map = PartitionMap(
            version=1,
            scheme="a-grid",
            world=WORLD,
            leaves=tuple(Leaf(i, GRID.box(*region)) for i, region in enumerate(regions)),
            text_nodes=(),
            slot_of_leaf=np.arange(count, dtype=np.int32),
            load_of_leaf=np.ones(count),
            slots=count,
        )
        names = tuple(f"e{i}" for i in range(count))
        details = {i: self.detail(i) for i in range(count)}
        met = np.array([self.cells(i).sum() for i in range(count)], np.float64)
        standing = np.array([details[i].statistics.queries for i in range(count)])
        nothing = np.zeros(count)
        loads = LeafLoads(nothing, met, nothing, standing, nothing, 10 * standing)
        self.view = View(map=self.map, owners=names, evaluators=names, loads=loads, details=details)

    def cells(self, leaf):
        x0, y0, x1, y1 = self.regions[leaf]
        return self.met[y0:y1, x0:x1]

    def detail(self, leaf):
        x0, y0, x1, y1 = self.regions[leaf]
        own, cells = GRID.within(GRID.box(x0, y0, x1, y1)), self.cells(leaf)
        statistics = no_statistics(x1 - x0, y1 - y0).with_queries(own, self.queries).after_round()
        return LeafDetail(own, statistics, Aggregates(cells.sum(0), cells.sum(1)))

    def costs(self):
        placement = placed(self.view, self.view.loads.met)
        return Costs(placement, Draft(self.view, placement.cost))

    def near(self, costs):
        return Neighbourhood((n, costs.draft[n]) for n in costs.draft)


def cells(**hot):
    """Met queries by cell: one everywhere, others as given as c<column>r<row>=cost."""
    met = np.ones((4, 8), np.int64)
    for name, cost in hot.items():
        column, row = name[1:].split("r")
        met[int(row), int(column)] = cost
    return met


X, Y, Z = (0, 0, 4, 4), (4, 0, 8, 2), (4, 2, 8, 4)
SIX_QUERIES = [(-170, -80, -160, -70)] * 3 + [(-10, 50, 10, 60)] * 2 + [(100, 60, 110, 70)]


def figure_3():
    """X in the west is overloaded in two corners; Y and Z share the east and have little."""
    return Space([X, Y, Z], cells(c0r0=40, c3r3=40), SIX_QUERIES)


def test_equations_4_and_5_split_and_merge_of_figure_3():
    space = figure_3()
    costs = space.costs()
    cost_x, cost_y, cost_z = costs.loads
    assert (cost_x, cost_y, cost_z) == (40 + 40 + 14, 8, 8)
    found = list(splits(costs, light_pairs(costs, space.near(costs)), 0, space.view.details[0]))
    # X is split in the middle: of equal splits the middle one of the longer side.
    x_1 = x_2 = 47.0
    for operation in found:
        assert operation.strip is not None
        assert operation.pair is not None
        assert set(operation.pair) == {1, 2}
        assert operation.strip.cost == pytest.approx(x_2)
        assert operation.reduction == pytest.approx(cost_x - max(x_1, x_2, cost_y + cost_z))
        merged = costs.queries(operation.pair[1])
        assert operation.queries == operation.strip.queries + merged
    # Y has no query, and Z has one besides the two that it shares with X: Z stays, Y moves.
    assert [costs.queries(leaf) for leaf in (0, 1, 2)] == [5, 0, 3]
    assert min(found, key=lambda one: one.queries).pair == (2, 1)


def test_figure_3_c_after_the_split_and_merge():
    """Z's evaluator gets a part of X, Y's gets both Y and Z."""
    plan = Tornado(replace(ONE, query_price=0.0)).adjust(figure_3().view, 0)
    assert plan.reason == "split/merge"
    assert plan.map is not None
    by_slot = dict(zip(plan.map.slot_of_leaf.tolist(), plan.map.leaves, strict=True))
    assert sorted(leaf.box for leaf in by_slot.values()) == sorted(
        [GRID.box(0, 0, 2, 4), GRID.box(2, 0, 4, 4), GRID.box(4, 0, 8, 4)]
    )
    assert by_slot[0].box in (GRID.box(0, 0, 2, 4), GRID.box(2, 0, 4, 4))
    assert plan.maximum_before == 94
    assert plan.maximum_after == pytest.approx(47)
    assert not plan.moves


def test_figure_4a_and_b_shifts_across_a_whole_border():
    """A gives rows to a neighbour across a horizontal boundary, columns across a vertical one."""
    beside = Space([(0, 0, 4, 4), (4, 0, 8, 4)], cells(c2r1=20, c3r1=20))
    plan = Tornado(ONE).adjust(beside.view, 0)
    assert plan.reason == "vertical shift"
    assert boxes_of(plan.map) == [GRID.box(0, 0, 3, 4), GRID.box(3, 0, 8, 4)]
    above = Space([(0, 0, 8, 2), (0, 2, 8, 4)], cells(c2r0=20, c5r1=20))
    plan = Tornado(ONE).adjust(above.view, 0)
    assert plan.reason == "horizontal shift"
    assert boxes_of(plan.map) == [GRID.box(0, 0, 8, 1), GRID.box(0, 1, 8, 4)]


def boxes_of(partition_map):
    return sorted(leaf.box for leaf in partition_map.leaves)


def test_figure_4c_a_corner_shift_has_one_place_to_cut():
    """A in the west is higher than B in the south-east and C above it: only strips fit them."""
    # So many queries that merging B and C does not pay.
    standing = [(100, -80, 110, -70)] * 60 + [(100, 70, 110, 80)] * 60
    regions = [(0, 0, 4, 4), (4, 0, 8, 1), (4, 1, 8, 4)]
    space = Space(regions, cells(c1r0=30, c2r0=30), standing)
    costs = space.costs()
    found = list(corner_shifts(costs, space.near(costs), 0, space.view.details[0]))
    cuts = set()
    for one in found:
        assert one.border is not None
        assert one.strip is not None
        cuts.add((one.border.neighbour, one.strip.at, one.strip.first_moves))
    assert cuts == {(1, 1, True), (2, 1, False)}
    to_b = next(one for one in found if one.border is not None and one.border.neighbour == 1)
    assert to_b.strip is not None
    assert to_b.strip.cost == pytest.approx(62)
    assert to_b.reduction == pytest.approx(74 - 66)
    assert not list(shifts(costs, space.near(costs), 0))
    # Either strip relieves A; the one that moves to C is 12 and leaves 62.
    plan = Tornado(ONE).adjust(space.view, 0)
    assert plan.reason == "corner shift"
    assert plan.maximum_after == pytest.approx(min(66, 62))


def test_section_4_2_a_shift_where_no_merge_is_possible():
    """Two evaluators: none can merge leaves while the other is split."""
    space = Space([(0, 0, 4, 4), (4, 0, 8, 4)], cells(c3r1=60))
    costs = space.costs()
    assert not list(splits(costs, light_pairs(costs, space.near(costs)), 0, space.view.details[0]))


def test_section_4_3_the_estimate_is_an_even_division():
    queries = [(-170, -80, -160, -70)] * 10
    space = Space([(0, 0, 4, 4), (4, 0, 8, 4)], cells(c1r1=50, c3r2=31), queries)
    costs = space.costs()
    cost_a, cost_b = costs.loads
    (estimate,) = shifts(costs, space.near(costs), 0)
    half = (cost_a + cost_b) / 2
    assert estimate.strip is None
    assert estimate.reduction == pytest.approx(cost_a - half)
    # β × queryCount(A) × (cost(A) - (cost(A) + cost(B)) / 2) / cost(A), without β.
    assert estimate.queries == pytest.approx(10 * (cost_a - half) / cost_a)
    assert estimate.border is not None
    assert wanted_shift(costs, 0, estimate.border) == pytest.approx(cost_a - half)
    exact = exact_shift(costs, estimate, space.view.details[0])
    # The last two columns are nearest to the wanted 39.5; all queries stay.
    assert exact is not None
    assert exact.strip is not None
    assert exact.strip.cost == pytest.approx(38)
    assert exact.queries == 0
    assert exact.reduction == pytest.approx(cost_a - max(cost_a - 38, cost_b + 38))


def test_section_4_2_cr_has_to_exceed_ct():
    queries = [(136, -80, 170, 80)] * 30
    space = Space([(0, 0, 4, 4), (4, 0, 8, 4)], cells(c4r1=20, c5r1=20), queries)
    gain = Tornado(replace(ONE, query_price=0.0)).adjust(space.view, 0).gain
    assert gain > 0
    # An even share of the queries is assumed before the strip is known, though none of them is in
    # it.
    estimated = 30 * 19 / 54
    for price, changes in ((0.9, True), (1.1, False)):
        plan = Tornado(replace(ONE, query_price=price * 19 / estimated)).adjust(space.view, 0)
        assert plan.changes == changes
        assert plan.moved_queries == 0
    # For a single query the estimate is small, and then it turns out to be in the strip.
    queries = [(1, -80, 40, 80)]
    space = Space([(0, 0, 4, 4), (4, 0, 8, 4)], cells(c4r1=20, c5r1=20), queries)
    for price, changes in ((0.9, True), (1.1, False)):
        plan = Tornado(replace(ONE, query_price=price * gain)).adjust(space.view, 0)
        assert plan.changes == changes
        assert plan.moved_queries == changes


def test_section_4_2_the_greatest_reduction_is_chosen():
    """All operations of the overloaded evaluator by hand; the plan is the best of them."""
    space = figure_3()
    costs = space.costs()
    near, detail = space.near(costs), space.view.details[0]
    everything = [
        *splits(costs, light_pairs(costs, near), 0, detail),
        *corner_shifts(costs, near, 0, detail),
    ]
    best = max(operation.reduction for operation in everything)
    plan = Tornado(replace(ONE, query_price=0.0)).adjust(space.view, 0)
    assert plan.gain == pytest.approx(best)


def test_section_6_4_a_shrunken_workload_is_spread_again():
    """All coordinates times 0.4: a quarter of the evaluators had all the work."""
    regions = [(2 * i, 2 * j, 2 * i + 2, 2 * j + 2) for j in range(2) for i in range(4)]
    met = np.zeros((4, 8), np.int64)
    met[1:3, 2:6] = 25
    space = Space(regions, met)
    before = space.view.loads.met.max() / space.view.loads.met.mean()
    balancer = Tornado(replace(ONE, query_price=0.0))
    for _ in range(30):
        plan = balancer.adjust(space.view, 0)
        if not plan.changes:
            break
        assert plan.map is not None
        slots = plan.map.slot_of_leaf.tolist()
        boxes = [leaf.box for leaf in plan.map.leaves]
        spans = [
            tuple(
                int(np.searchsorted((GRID.x_borders, GRID.y_borders)[side % 2], box[side]))
                for side in range(4)
            )
            for box in boxes
        ]
        space = Space([spans[slots.index(slot)] for slot in range(8)], met)
    after = space.view.loads.met.max() / space.view.loads.met.mean()
    assert before == 2
    assert after <= 1.25
