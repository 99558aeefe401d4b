"""Drafts: splits, joins and moves, the ids that they use and the queries that they move."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirocco.model.errors import InvalidArgument
from sirocco.schemes.balance.base.draft import Draft, DraftLeaf
from sirocco.schemes.balance.base.neighbours import Neighbourhood
from sirocco.schemes.balance.base.view import LeafLoads, View
from sirocco.schemes.map.map import Leaf, Place
from sirocco.schemes.map.routing import compile_map
from tests.support.random_maps import random_map
from tests.support.worlds import WORDS, grid_map

SEEDS = st.integers(0, 2**32 - 1)


def view_of(partition_map, reserved=()):
    count = len(partition_map.leaves)
    numbers = np.arange(1.0, count + 1)
    return View(
        map=partition_map,
        owners=("one",) * partition_map.slots,
        evaluators=("one",),
        loads=LeafLoads(*[numbers] * 6),
        reserved=frozenset(reserved),
    )


def test_nothing_done_gives_the_same_map():
    base = grid_map(np.random.default_rng(1), 9, 4, keywords=2)
    changed = Draft(view_of(base), base.load_of_leaf).finish()
    assert changed.leaves == base.leaves
    assert changed.version == base.version + 1
    assert (changed.slot_of_leaf == base.slot_of_leaf).all()


def test_a_leaf_that_changes_its_slot_takes_the_least_free_id():
    base = grid_map(np.random.default_rng(1), 4, 3)
    base = replace(base, leaves=tuple(replace(leaf, id=i) for i, leaf in enumerate(base.leaves)))
    draft = Draft(view_of(base, reserved=(4, 6)), base.load_of_leaf)
    draft.put(0, (int(base.slot_of_leaf[0]) + 1) % 3)
    draft.put(1, (int(base.slot_of_leaf[1]) + 1) % 3)
    assert [leaf.id for leaf in draft.finish().leaves] == [5, 7, 2, 3]
    # Queries 1 and 2 of the leaves' numbers are copied.
    assert draft.moved() == (1.0 + 2.0, 1.0 + 2.0)
    draft.put(0, int(base.slot_of_leaf[0]))
    assert draft.moved() == (2.0, 2.0)


def test_parts_of_a_leaf_that_stay_copy_nothing():
    base = grid_map(np.random.default_rng(1), 1, 2)
    draft = Draft(view_of(base), np.array([8.0]))
    first, second = draft.split(0, 0, 0.0, (3.0, 5.0), (0.25, 0.9))
    assert draft.moved() == (0.0, 0.0)
    draft.put(second, 1 - int(base.slot_of_leaf[0]))
    assert draft.moved() == (pytest.approx(0.9), pytest.approx(0.9))
    assert draft[first].box == (-180.0, -90.0, 0.0, 90.0)
    assert draft.finish().load_of_leaf.tolist() == [3.0, 5.0]


def test_what_leaves_a_gap_is_refused():
    base = grid_map(np.random.default_rng(1), 3, 2)
    draft = Draft(view_of(base), base.load_of_leaf)
    draft.remove(1)
    with pytest.raises(InvalidArgument):
        draft.finish()
    draft.add(DraftLeaf(base.leaves[1].box, Place(9, 0), 0, 1.0))
    with pytest.raises(InvalidArgument):
        draft.finish()


def test_a_keyword_node_becomes_a_leaf_again():
    base = grid_map(np.random.default_rng(1), 3, 2, keywords=1)
    draft = Draft(view_of(base), base.load_of_leaf)
    assert [draft.is_spatial(number) for number in draft] == [False, False, True, True]
    joined = draft.join_node(0, (0, 1), 1, 5.0)
    changed = draft.finish()
    assert changed.keyword_nodes == ()
    assert draft[joined] == DraftLeaf(base.leaves[0].box, None, 1, 5.0, {0: 1.0, 1: 1.0})
    assert draft.next_node == 1


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_cut_and_joined_at_random_every_object_still_has_one_leaf(seed):
    rng = np.random.default_rng(seed)
    base = random_map(rng, int(rng.integers(2, 14)), 5, text=bool(rng.random() < 0.5))
    draft = Draft(view_of(base), base.load_of_leaf)
    total = base.load_of_leaf.sum()
    for _ in range(int(rng.integers(1, 12))):
        numbers = list(draft)
        number = numbers[int(rng.integers(len(numbers)))]
        axis, what = int(rng.integers(2)), rng.random()
        low, high = draft[number].box[axis], draft[number].box[axis + 2]
        if what < 0.5 and high - low > 1e-3:
            load = draft[number].load * rng.random()
            parts = (load, draft[number].load - load)
            draft.split(number, axis, float(rng.uniform(low + 1e-4, high - 1e-4)), parts, (1, 1))
        elif what < 0.8:
            near = Neighbourhood((n, draft[n]) for n in draft)
            pairs = list(near.pairs())
            if pairs:
                draft.merge(pairs[int(rng.integers(len(pairs)))], int(rng.integers(5)))
        else:
            draft.put(number, int(rng.integers(5)))
    changed = draft.finish()
    assert changed.load_of_leaf.sum() == pytest.approx(total), f"seed {seed}"
    lon, lat = rng.uniform(-180, 180, 200), rng.uniform(-90, 90, 200)
    keys = rng.integers(0, 2**64, 200, np.uint64, endpoint=False)
    none = np.zeros(201, np.int64)
    routes = compile_map(changed).route_objects(lon, lat, none, WORDS[:0], keys)
    assert routes.row.tolist() == list(range(200))
    old = {leaf.id: leaf for leaf in base.leaves}
    for leaf in changed.leaves:
        assert isinstance(leaf, Leaf)
        assert leaf.id not in old or old[leaf.id] == leaf
