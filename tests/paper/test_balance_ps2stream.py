"""PS2Stream V: phase I by text, phase II by Minimum Cost Migration, a new map once a day."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirocco.protocol.coordinator.balance_rounds import Rounds
from sirocco.protocol.coordinator.round_settings import RoundSettings
from sirocco.schemes.balance.base.sample_routes import load_of, routed
from sirocco.schemes.balance.base.view import LeafLoads, Memory, View
from sirocco.schemes.balance.ps2stream.balancer import Ps2Stream, Ps2StreamSettings
from sirocco.schemes.balance.ps2stream.migration import (
    at_random,
    by_size,
    dynamic_programming,
    greedy,
)
from sirocco.schemes.map.map import WORLD, KeywordNode, Leaf, PartitionMap, Place
from sirocco.schemes.workload.keyword_load import LoadCosts
from sirocco.schemes.workload.keyword_workload import keyword_workload
from sirocco.schemes.workload.sample import QueryKind, Sample, SampleQueries

SEEDS = st.integers(0, 2**32 - 1)
# Definition 3: the load of a cell is objects times queries.
CHECKS = LoadCosts(check=1.0, handling=0.0, insertion=0.0, deletion=0.0)
WORDS = np.arange(1, 21, dtype=np.uint64)


def strips(count, slot_of_leaf, slots):
    borders = np.linspace(-180, 180, count + 1).tolist()
    return PartitionMap(
        version=1,
        scheme="kdt-tree",
        world=WORLD,
        leaves=tuple(
            Leaf(i, (west, -90.0, east, 90.0))
            for i, (west, east) in enumerate(itertools.pairwise(borders))
        ),
        text_nodes=(),
        slot_of_leaf=np.array(slot_of_leaf, np.int32),
        load_of_leaf=np.ones(count),
        slots=slots,
    )


def view_of(partition_map, owners, objects, queries, query_bytes=None, **more):
    objects, queries = np.array(objects, np.float64), np.array(queries, np.float64)
    size = queries if query_bytes is None else np.array(query_bytes, np.float64)
    loads = LeafLoads(objects, objects, objects, queries, objects, size)
    return View(
        map=partition_map,
        owners=tuple(owners),
        evaluators=tuple(sorted(set(owners))),
        loads=loads,
        **more,
    )


def ps2stream(**settings):
    return Ps2Stream(Ps2StreamSettings(costs=CHECKS, **settings))


def dp_table(size, load, wanted):
    """V.A.1: A(i, j) cell by cell; the least j with enough load."""
    bound = int(size.sum())
    table = np.zeros((len(size) + 1, bound + 1))
    for i in range(1, len(size) + 1):
        for j in range(bound + 1):
            own = int(size[i - 1])
            table[i, j] = table[i - 1, j]
            if j >= own:
                table[i, j] = max(table[i, j], table[i - 1, j - own] + load[i - 1])
    return int(np.flatnonzero(table[-1] >= wanted)[0])


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_section_v_a_1_the_recurrence(seed):
    rng = np.random.default_rng(seed)
    size = rng.integers(1, 30, int(rng.integers(1, 20)))
    load = rng.integers(1, 30, len(size)).astype(np.float64)
    wanted = float(rng.integers(1, int(load.sum()) + 1))
    chosen = dynamic_programming(size, load, wanted)
    assert load[chosen].sum() >= wanted
    assert size[chosen].sum() == dp_table(size, load, wanted), f"seed {seed}"


def test_theorem_2_the_reduction_from_partition():
    """n_o = 1 and n_q = S = a: migrating half of the load moves half of the size, if they split."""
    numbers = np.array([3, 1, 1, 2, 2, 1])
    chosen = dynamic_programming(numbers, numbers.astype(np.float64), 5.0)
    assert numbers[chosen].sum() == 5
    uneven = np.array([3, 5, 9])
    chosen = dynamic_programming(uneven, uneven.astype(np.float64), 8.5)
    assert uneven[chosen].sum() == 9


def test_figure_5_gathered_cells_and_candidates():
    """Cells by relative cost: GS, GS, GL, GS, GL; the second candidate is the lighter one."""
    load = np.array([4.0, 3.0, 9.0, 2.0, 4.0])
    size = np.array([4, 4, 15, 4, 9])
    # After two gathered cells, 8 + 15 = 23; after three, 12 + 9 = 21.
    chosen = greedy(size, load, 10.0)
    assert chosen.tolist() == [0, 1, 3, 4]
    assert size[chosen].sum() == 21
    size = np.array([4, 4, 12, 4, 9])
    assert greedy(size, load, 10.0).tolist() == [0, 1, 2]


def test_section_v_a_the_most_loaded_gives_to_the_least_loaded():
    """Half of the difference, in the cells of least size; other evaluators are not involved."""
    partition_map = strips(8, [0, 0, 0, 0, 1, 1, 2, 2], 3)
    objects, queries = 1000 * np.array([6, 6, 6, 6, 6, 5, 3, 1]), [2] * 8
    size = [9, 1, 9, 1, 5, 5, 5, 5]
    view = view_of(partition_map, ["a", "b", "c"], objects, queries, size)
    plan = ps2stream(balance=2.0).adjust(view, 0)
    assert plan.reason == "phase II"
    assert not plan.moves
    # In thousands 48, 22 and 8: τ = 20, two cells of 12 are needed, 2 and 4 are small.
    assert plan.moved_bytes == 2
    moved = [
        leaf.box
        for leaf, slot in zip(plan.map.leaves, plan.map.slot_of_leaf, strict=True)
        if slot == 2
    ]
    assert {partition_map.leaves[1].box, partition_map.leaves[3].box} < set(moved)
    assert plan.maximum_before == 48_000
    assert plan.maximum_after == 32_000


@pytest.mark.parametrize("select", [dynamic_programming, greedy, by_size, at_random])
def test_section_vi_d_all_four_ways_of_choosing_recover_balance(select):
    rng = np.random.default_rng(9)
    partition_map = strips(60, [0] * 40 + [1] * 20, 2)
    objects = rng.integers(5000, 15_000, 60)
    view = view_of(partition_map, ["a", "b"], objects, [2] * 60, rng.integers(1, 90, 60))
    plan = ps2stream(balance=1.3, select=select).adjust(view, 0)
    assert plan.reason == "phase II"
    loads = plan.map.load_of_slot()
    assert loads.max() / loads.min() < 1.3


def test_section_v_the_constraint_decides_whether_anything_is_done():
    partition_map = strips(4, [0, 1, 2, 3], 4)
    view = view_of(partition_map, list("aabb"), [6000, 4000, 2000, 2000], [1] * 4)
    assert not ps2stream(balance=2.5).adjust(view, 0).changes
    assert ps2stream(balance=2.4).adjust(view, 0).reason == "phase II of slots"


def sample_of(topics, count=400, queries=80, seed=1, west=-180.0, east=180.0):
    """Objects with two words of one topic each, queries with one word, all over a strip."""
    rng = np.random.default_rng(seed)
    words = np.split(WORDS, topics)
    texts = [np.sort(rng.choice(words[i % topics], 2, replace=False)) for i in range(count)]
    lon, lat = rng.uniform(west, east, count), rng.uniform(-90, 90, count)
    boxes = np.tile([[west + 1, -80.0, east - 1, 80.0]], (queries, 1))
    asked = np.array([rng.choice(words[i % topics]) for i in range(queries)])
    return Sample(
        lon,
        lat,
        np.arange(0, 2 * count + 1, 2),
        np.concatenate(texts),
        rng.integers(0, 2**64, count, np.uint64, endpoint=False),
        SampleQueries(
            np.full(queries, QueryKind.RANGE_CONTINUOUS, np.uint8),
            boxes,
            np.arange(queries + 1),
            asked,
            np.ones(queries),
        ),
    )


def test_phase_i_a_cell_is_split_by_text_where_that_saves_work():
    """Two topics without common objects and queries: each half has half of both."""
    partition_map = strips(2, [0, 1], 2)
    sample = sample_of(topics=2, east=0.0)
    view = view_of(partition_map, ["a", "b"], [400, 1], [80, 1], sample=sample)
    plan = ps2stream(balance=1.5).adjust(view, 0)
    assert plan.reason == "phase I"
    (node,) = plan.map.keyword_nodes
    assert node.box == partition_map.leaves[0].box
    assert set(plan.map.slot_of_leaf.tolist()) == {0, 1}
    # Two halves without any mixing would give one half; words are dealt greedily.
    assert plan.map.load_of_leaf.sum() < 0.75 * 400 * 80
    assert node.terms.tolist() == np.unique(sample.queries.terms).tolist()
    # The half with fewer queries moves.
    child_of = dict(zip(node.terms.tolist(), node.child_of_term.tolist(), strict=True))
    asked = np.bincount([child_of[term] for term in sample.queries.terms.tolist()])
    assert asked[0] != asked[1]
    assert plan.moved_queries == pytest.approx(asked.min())


def test_phase_i_a_cell_of_equal_words_is_left_whole():
    partition_map = strips(2, [0, 1], 2)
    sample = sample_of(topics=10, east=0.0)
    same = np.tile(WORDS[:2], len(sample))
    sample = replace(sample, terms=same)
    queries = replace(sample.queries, terms=np.tile(WORDS[:2], len(sample.queries) // 2))
    view = view_of(
        partition_map, ["a", "b"], [400, 1], [80, 1], sample=replace(sample, queries=queries)
    )
    assert not ps2stream(balance=1.5).adjust(view, 0).changes


def text_map(slot_of_leaf, slots):
    """A text cell whose two children mix the topics, beside a plain cell."""
    base = strips(2, [0, 1], 2)
    node = KeywordNode(
        id=7,
        box=base.leaves[0].box,
        within=None,
        children=2,
        terms=WORDS,
        child_of_term=(WORDS % 2).astype(np.int32),
    )
    children = [Leaf(5 + child, node.box, Place(7, child)) for child in range(2)]
    return replace(
        base,
        leaves=(*children, base.leaves[1]),
        keyword_nodes=(node,),
        slot_of_leaf=np.array(slot_of_leaf, np.int32),
        load_of_leaf=np.ones(3),
        slots=slots,
    )


def test_phase_i_cells_of_one_space_are_merged_where_that_saves_work():
    """Objects that hold words of both children are handled twice: they cost handling."""
    partition_map = text_map([0, 1, 2], 3)
    sample = sample_of(topics=1, east=0.0)
    handling = LoadCosts(check=0.001, handling=1.0, insertion=0.0, deletion=0.0)
    workload = keyword_workload(sample, handling)
    routes = routed(workload, partition_map)
    objects = [float(len(routes.objects_of(leaf))) for leaf in range(3)]
    queries = [float(len(routes.queries_of(leaf))) for leaf in range(3)]
    assert objects[0] + objects[1] > 1.4 * len(sample)
    # Other work keeps the evaluator of the first child busier than that of the second.
    objects[2] = 500.0
    view = view_of(partition_map, ["a", "b", "a"], objects, queries, sample=sample)
    plan = Ps2Stream(Ps2StreamSettings(balance=1.5, costs=handling)).adjust(view, 0)
    assert plan.reason == "phase I"
    assert plan.map is not None
    assert not plan.map.keyword_nodes
    before = load_of(np.array(objects), np.array(queries), handling).sum()
    assert plan.map.load_of_leaf.sum() < before


def test_phase_i_cells_are_not_merged_where_that_makes_work():
    """Checks prevail: merging two cells costs the checks that the split saved."""
    partition_map = text_map([0, 1, 2], 3)
    sample = sample_of(topics=1, east=0.0)
    routes = routed(keyword_workload(sample, CHECKS), partition_map)
    objects = [float(len(routes.objects_of(leaf))) for leaf in range(3)]
    queries = [float(len(routes.queries_of(leaf))) for leaf in range(3)]
    objects[2], queries[2] = 60_000.0, 1.0
    view = view_of(partition_map, ["a", "b", "a"], objects, queries, sample=sample)
    plan = ps2stream(balance=1.5).adjust(view, 0)
    assert plan.reason == "phase II of slots"
    assert plan.map is None


def test_section_v_b_slots_of_a_new_map_are_numbered_for_the_least_migration(monkeypatch):
    partition_map = strips(8, list(range(8)), 8)
    sample = sample_of(topics=2, west=-180.0, east=-90.0)
    routes = routed(keyword_workload(sample), partition_map)
    objects = [len(routes.objects_of(leaf)) for leaf in range(8)]
    queries = [len(routes.queries_of(leaf)) for leaf in range(8)]
    memory = Memory(checked_ms=0)
    view = view_of(partition_map, "aabbccdd", objects, queries, sample=sample, memory=memory)
    balancer = Ps2Stream(Ps2StreamSettings(check_period_ms=1))
    plan = balancer.adjust(view, 1)
    assert plan.reason == "repartition"
    as_built = "sirocco.schemes.balance.ps2stream.repartition.hungarian"
    monkeypatch.setattr(as_built, lambda cost: np.arange(len(cost))[::-1])
    assert balancer.adjust(view, 1).moved_queries > plan.moved_queries


DAY_MS = 24 * 3_600_000
OWNERS = tuple("aabbccdd")


def view_of_strips(sample, memory):
    """Eight strips, and the objects of a sample in each."""
    partition_map = strips(8, list(range(8)), 8)
    routes = routed(keyword_workload(sample), partition_map)
    objects = [len(routes.objects_of(leaf)) for leaf in range(8)]
    queries = [len(routes.queries_of(leaf)) for leaf in range(8)]
    return view_of(partition_map, OWNERS, objects, queries, sample=sample, memory=memory)


def test_section_v_b_a_new_map_when_the_distribution_has_changed():
    """Once a day: all objects have moved into one of the strips."""
    partition_map = strips(8, list(range(8)), 8)
    balancer = Ps2Stream(Ps2StreamSettings(balance=1e9))
    narrow = sample_of(topics=2, west=-180.0, east=-135.0)
    first = balancer.adjust(view_of_strips(narrow, Memory()), 0)
    assert not first.changes
    assert first.memory.checked_ms == 0
    assert not balancer.adjust(view_of_strips(narrow, first.memory), DAY_MS - 1).changes
    plan = balancer.adjust(view_of_strips(narrow, first.memory), DAY_MS)
    assert plan.reason == "repartition"
    assert plan.memory.checked_ms == DAY_MS
    assert plan.map is not None
    assert plan.map.version == 2
    assert not {leaf.id for leaf in plan.map.leaves} & {leaf.id for leaf in partition_map.leaves}
    assert plan.maximum_after < 0.8 * plan.maximum_before
    assert plan.moved_queries > 0
    even = sample_of(topics=2)
    even_view = view_of_strips(even, first.memory)
    assert not balancer.adjust(even_view, DAY_MS).changes


def test_section_v_b_a_new_map_is_carried_out_in_the_second_round_that_wants_it():
    balancer, rounds = Ps2Stream(Ps2StreamSettings(balance=1e9)), Rounds(RoundSettings())
    rounds.memory = Memory(checked_ms=0)
    narrow = sample_of(topics=2, west=-180.0, east=-135.0)
    states = []
    # Too few objects, then enough of them, twice.
    for now_ms, objects in ((DAY_MS, 100), (DAY_MS + 10_000, 1e5), (DAY_MS + 20_000, 1e5)):
        plan = balancer.adjust(view_of_strips(narrow, rounds.memory), now_ms)
        decision, state = rounds.decide(plan, OWNERS, objects, 3.9, now_ms)
        states.append(state)
    assert states == ["too few objects to decide", "needed in 1 of 2 rounds", ""]
    assert decision is not None
    assert decision.reason == "repartition"
    assert rounds.memory.checked_ms == DAY_MS + 20_000


def test_section_v_b_the_check_of_a_day_waits_for_a_round_with_a_sample():
    balancer, memory = Ps2Stream(Ps2StreamSettings(balance=1e9)), Memory(checked_ms=0)
    narrow = sample_of(topics=2, west=-180.0, east=-135.0)
    without = replace(view_of_strips(narrow, memory), sample=None)
    later = balancer.adjust(without, DAY_MS).memory
    assert later == memory
    assert balancer.adjust(view_of_strips(narrow, later), DAY_MS + 1).reason == "repartition"
