"""SSTD 5: load imbalance, PM, FM with least transfer, FG with ĥ and ε."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from sirocco.schemes.balance.base.assignment import assign_subsets
from sirocco.schemes.balance.base.placement import imbalance, placed
from sirocco.schemes.balance.base.reallocation import full, partial, slot_units
from sirocco.schemes.balance.base.view import LeafLoads, View
from sirocco.schemes.balance.sstd.balancer import Sstd, SstdSettings, workloads
from sirocco.schemes.balance.sstd.query_mix import QueryMix
from sirocco.schemes.map.map import WORLD, Leaf, PartitionMap
from sirocco.schemes.workload.allocation import karmarkar_karp
from sirocco.schemes.workload.sample import QueryKind, Sample, SampleQueries

# The paper's cost.
PAPER = SstdSettings(cost=workloads)
WORKERS = ("w1", "w2", "w3")
# W1 has P1, P2, P4; W2 P3, P5; W3 P6, P7.
OF_LEAF = np.array([0, 0, 1, 0, 1, 2, 2])
X = np.array([0, 1, 0, 2, 1, 0, 2])  # X1(P1, P3, P6), X2(P2, P5), X3(P4, P7)


def strips(count, slots=None):
    """Returns a map of upright strips, one for each slot."""
    borders = np.linspace(-180, 180, count + 1)
    return PartitionMap(
        version=1,
        scheme="qt-tree",
        world=WORLD,
        leaves=tuple(
            Leaf(i, (float(w), -90.0, float(e), 90.0))
            for i, (w, e) in enumerate(itertools.pairwise(borders))
        ),
        text_nodes=(),
        slot_of_leaf=np.arange(count, dtype=np.int32) % (slots or count),
        load_of_leaf=np.ones(count),
        slots=slots or count,
    )


def loads_of(objects, queries=None):
    # Thousands: with a few objects chance would matter as much as load.
    objects = 1000 * np.array(objects, np.float64)
    queries = np.ones(len(objects)) if queries is None else np.array(queries, np.float64)
    return LeafLoads(objects, objects, objects, queries, objects, 10 * queries)


def view_of(objects, owners, queries=None, partition_map=None, sample=None):
    partition_map = partition_map or strips(len(objects))
    return View(
        map=partition_map,
        owners=tuple(owners),
        evaluators=tuple(sorted(set(owners))),
        loads=loads_of(objects, queries),
        sample=sample,
    )


def test_definition_4_imbalance_is_more_than_lambda():
    assert imbalance(np.array([6.0, 3.0, 1.0])) == 6
    assert imbalance(np.array([2.0, 0.0])) == float("inf")
    view = view_of([6, 1, 1, 1, 1, 1, 1], ["a", "b", *"bbbbb"])
    at_the_bound = Sstd(replace(PAPER, threshold=1.0))
    assert not at_the_bound.adjust(view, 0).changes
    view = view_of([7, 1, 1, 1, 1, 1], ["a", *"bbbbb"])
    assert not Sstd(replace(PAPER, threshold=1.4)).adjust(view, 0).changes
    assert imbalance(placed(view, workloads(view.loads)).loads) == pytest.approx(1.4)


def test_section_5_2_the_example_of_three_workers():
    """X2 to W1, X1 to W2, X3 to W3 transfers P1, P4, P5 and P6; the least of all is found."""
    queries = np.array([5.0, 7.0, 2.0, 4.0, 3.0, 6.0, 1.0])
    transfer = np.where(OF_LEAF[:, None] == np.arange(3), 0.0, queries[:, None])

    def cost(worker_of_subset):
        machine = np.array(worker_of_subset)[X]
        return {f"P{i + 1}" for i in np.flatnonzero(machine != OF_LEAF)}, sum(
            transfer[np.arange(7), machine]
        )

    moved, total = cost([1, 0, 2])
    assert moved == {"P1", "P4", "P5", "P6"}
    assert total == 5 + 4 + 3 + 6
    machine = assign_subsets(X, transfer)
    best = min(cost(p)[1] for p in itertools.permutations(range(3)))
    assert transfer[np.arange(7), machine].sum() == best <= total


def test_section_5_2_fm_shares_out_all_by_karmarkar_karp():
    objects = [8, 7, 6, 5, 4, 3, 2]
    view = view_of(objects, [WORKERS[w] for w in OF_LEAF])
    placement = placed(view, np.array(objects, np.float64))
    machine = full(slot_units(placement))
    subsets = karmarkar_karp(np.array(objects, np.float64), 3)
    parts = {frozenset(np.flatnonzero(machine == w).tolist()) for w in range(3)}
    assert parts == {frozenset(np.flatnonzero(subsets == s).tolist()) for s in range(3)}


def test_section_5_2_pm_shuffles_the_most_and_the_least_loaded_only():
    objects = [9, 9, 4, 2, 4, 1, 1]
    view = view_of(objects, [WORKERS[w] for w in OF_LEAF])
    placement = placed(view, np.array(objects, np.float64))
    assert placement.loads.tolist() == [20, 8, 2]
    machine = partial(slot_units(placement))
    assert (machine[[2, 4]] == 1).all()
    assert np.bincount(machine, objects).tolist() == [11, 8, 11]


def test_section_5_1_pm_then_fm_then_fg():
    """The choice between them depends on the size of the imbalance."""
    settings = replace(PAPER, threshold=1.5)
    minor = view_of([4, 4, 2, 1, 2, 2], list("aabbcc"))
    plan = Sstd(settings).adjust(minor, 0)
    assert plan.reason == "PM"
    moderate = view_of([6, 6, 6, 1, 1, 1, 1, 1, 1], list("aaabbbccc"))
    plan = Sstd(settings).adjust(moderate, 0)
    assert plan.reason == "FM"
    assert plan.map is None
    severe = view_of([30, 1, 1, 1, 1, 1], list("aabbcc"))
    plan = Sstd(replace(PAPER, threshold=2.0)).adjust(severe, 0)
    assert plan.reason == "FG"
    # One leaf in four is enough.
    assert plan.map is not None
    assert len(plan.map.leaves) == 9
    assert plan.maximum_after < 0.5 * plan.maximum_before


def test_section_5_3_splits_until_the_load_can_be_shared_and_no_further():
    """Two hot leaves of six: the second is split once the first is in quarters."""
    view = view_of([40, 36, 1, 1, 1, 1], list("aabcde"))
    plan = Sstd(replace(PAPER, threshold=2.0)).adjust(view, 0)
    assert plan.reason == "FG"
    assert plan.map is not None
    whole = {leaf.box for leaf in plan.map.leaves} & {leaf.box for leaf in view.map.leaves}
    assert {leaf.box for leaf in view.map.leaves[2:]} == whole
    assert len(plan.map.leaves) == 4 + 4 + 4


def test_section_5_2_the_cost_is_the_queries_that_are_transferred():
    view = view_of([4, 4, 2, 1, 2, 2], list("aabbcc"), [5, 9, 1, 1, 1, 1])
    settings = replace(PAPER, threshold=1.5)
    plan = Sstd(settings).adjust(view, 0)
    moved = [view.loads.queries[slot] for slot in plan.moves]
    assert plan.moved_queries == sum(moved) > 0
    assert plan.moved_bytes == 10 * plan.moved_queries


def sample_of(boxes, words, lon, lat, texts):
    def csr(rows):
        offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        return offsets, np.array([word for row in rows for word in row], np.uint64)

    kinds = np.full(len(boxes), QueryKind.RANGE_CONTINUOUS, np.uint8)
    queries = SampleQueries(kinds, np.array(boxes), *csr(words), np.ones(len(boxes)))  # type: ignore[call-arg]
    keys = np.arange(len(lon)).astype(np.uint64)
    return Sample(np.array(lon), np.array(lat), *csr(texts), keys, queries)  # type: ignore[call-arg]


def spread(count, seed=3):
    rng = np.random.default_rng(seed)
    return rng.uniform(-170, 170, count), rng.uniform(-80, 80, count)


def mix_of(boxes):
    lon, lat = spread(40)
    sample = sample_of(boxes, [[1]] * len(boxes), lon, lat, [[1]] * 40)
    return QueryMix(view_of([1], ["a"], sample=sample))


QUARTERS = ((-180, -90, 0, 0), (0, -90, 180, 0), (-180, 0, 0, 90), (0, 0, 180, 90))


@pytest.mark.parametrize(
    ("boxes", "expected"),
    [
        # Each query overlaps one quarter, two, all four; half of them one and half all.
        ([(-100.0, -50.0, -90.0, -40.0), (50.0, 20.0, 60.0, 30.0)], 1 / 4),
        ([(-100.0, -50.0, 90.0, -40.0)], 2 / 4),
        ([(-100.0, -50.0, 90.0, 40.0)] * 3, 1.0),
        ([(-100.0, -50.0, 90.0, 40.0), (50.0, 20.0, 60.0, 30.0)], (1 + 4) / (4 * 2)),
        ([], 0.0),
    ],
)
def test_section_5_3_discrepancy(boxes, expected):
    mix = mix_of(np.array(boxes).reshape(-1, 4))
    assert mix.discrepancy(WORLD, QUARTERS) == pytest.approx(expected)


@pytest.mark.parametrize("is_wide", [False, True])
def test_equation_3_space_up_to_epsilon_text_beyond(is_wide):
    lon, lat = spread(200)
    x, y = spread(40, seed=4)
    half = 160 if is_wide else 2
    boxes = np.clip(
        np.stack([x - half, y - half, x + half, y + half], 1), (-180, -90) * 2, (180, 90) * 2
    )
    texts = [[1 + i % 8] for i in range(200)]
    words = [[1 + i % 8] for i in range(40)]
    sample = sample_of(boxes, words, lon, lat, texts)
    partition_map = strips(2)
    view = view_of([50, 1], ["a", "b"], partition_map=partition_map, sample=sample)
    plan = Sstd(replace(PAPER, threshold=1.5)).adjust(view, 0)
    assert plan.reason == "FG"
    assert plan.map is not None
    assert bool(plan.map.text_nodes) == is_wide


def test_section_5_3_merges_what_is_light_while_it_splits_what_is_heavy():
    """A world of quarters whose north-east is split again: the hot spot has moved away."""
    west, south, east, north = WORLD
    boxes = [(west, south, 0.0, 0.0), (0.0, south, east, 0.0), (west, 0.0, 0.0, north)]
    boxes += [
        (0.0, 0.0, 90.0, 45.0),
        (90.0, 0.0, east, 45.0),
        (0.0, 45.0, 90.0, north),
        (90.0, 45.0, east, north),
    ]
    partition_map = PartitionMap(
        version=1,
        scheme="qt-tree",
        world=WORLD,
        leaves=tuple(Leaf(i, box) for i, box in enumerate(boxes)),
        text_nodes=(),
        slot_of_leaf=np.arange(7, dtype=np.int32),
        load_of_leaf=np.ones(7),
        slots=7,
    )
    view = view_of([40, 2, 2, 1, 1, 1, 1], list("abbcccc"), partition_map=partition_map)
    plan = Sstd(replace(PAPER, threshold=1.5)).adjust(view, 0)
    assert plan.reason == "FG"
    assert plan.map is not None
    changed = {leaf.box for leaf in plan.map.leaves}
    assert (0.0, 0.0, east, north) in changed
    assert (west, south, 0.0, 0.0) not in changed
    assert len(changed) == 7
