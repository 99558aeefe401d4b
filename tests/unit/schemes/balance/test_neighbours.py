"""Neighbours, corners and quarters, compared with a check of every pair and every four."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sirocco.schemes.balance.base.draft import Draft, DraftLeaf
from sirocco.schemes.balance.base.neighbours import Neighbourhood, quartets
from sirocco.schemes.balance.base.view import LeafLoads, View
from sirocco.schemes.map.map import Leaf
from tests.support.random_maps import random_map
from tests.support.worlds import GRID, grid_map

SEEDS = st.integers(0, 2**32 - 1)


def draft_of(partition_map):
    count = len(partition_map.leaves)
    owners = ("one",) * partition_map.slots
    loads = LeafLoads(*[np.ones(count)] * 6)
    return Draft(
        View(map=partition_map, owners=owners, evaluators=("one",), loads=loads), np.ones(count)
    )


def random_draft(rng):
    if rng.random() < 0.4:
        return draft_of(random_map(rng, int(rng.integers(2, 20)), text=True))
    return draft_of(grid_map(rng, int(rng.integers(2, 24)), 3))


def joint(first, second):
    """Returns the box around two boxes if they fill it, else None."""
    box = (*np.minimum(first, second)[:2].tolist(), *np.maximum(first, second)[2:].tolist())
    for axis in (0, 1):
        same = first[1 - axis] == second[1 - axis] and first[3 - axis] == second[3 - axis]
        if same and (first[axis + 2] == second[axis] or second[axis + 2] == first[axis]):
            return box
    return None


@settings(max_examples=80, deadline=None)
@given(SEEDS)
def test_pairs_are_all_two_leaves_that_make_a_box(seed):
    rng = np.random.default_rng(seed)
    draft = random_draft(rng)
    near = Neighbourhood((n, draft[n]) for n in draft)
    expected = {
        frozenset(pair)
        for pair in itertools.combinations(draft, 2)
        if draft[pair[0]].within == draft[pair[1]].within
        and joint(draft[pair[0]].box, draft[pair[1]].box)
    }
    found = [frozenset(pair) for pair in near.pairs()]
    assert len(found) == len(set(found)), f"seed {seed}"
    assert set(found) == expected, f"seed {seed}"


@settings(max_examples=80, deadline=None)
@given(SEEDS)
def test_corners_are_all_strips_that_make_a_box_with_a_neighbour(seed):
    """By splitting each leaf at every side of every other, on either axis."""
    rng = np.random.default_rng(seed)
    draft = random_draft(rng)
    near = Neighbourhood((n, draft[n]) for n in draft)
    for number in draft:
        leaf = draft[number]
        expected = set()
        for other, axis in itertools.product(draft, (0, 1)):
            if other == number or draft[other].within != leaf.within:
                continue
            for at in (draft[other].box[axis], draft[other].box[axis + 2]):
                if not leaf.box[axis] < at < leaf.box[axis + 2]:
                    continue
                first, second = list(leaf.box), list(leaf.box)
                first[axis + 2] = second[axis] = at
                for moves_first, strip in ((True, first), (False, second)):
                    whole = joint(tuple(strip), draft[other].box)
                    # Along the split the strip would be all of the leaf: no corner.
                    if whole and strip[1 - axis] != draft[other].box[1 - axis]:
                        expected.add((other, at, moves_first))
        found = [(c.border.neighbour, c.at, c.first_moves) for c in near.corners(number)]
        assert len(found) <= 8, f"seed {seed}"
        assert sorted(found) == sorted(expected), f"seed {seed}"


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_quarters_are_all_four_leaves_around_a_point(seed):
    rng = np.random.default_rng(seed)
    base = grid_map(rng, int(rng.integers(1, 6)), 2)
    boxes = [leaf.box for leaf in base.leaves]
    for _ in range(int(rng.integers(0, 4))):
        west, south, east, north = box = boxes.pop(int(rng.integers(len(boxes))))
        x = GRID.x_borders[(GRID.x_borders > west) & (GRID.x_borders < east)]
        y = GRID.y_borders[(GRID.y_borders > south) & (GRID.y_borders < north)]
        if len(x) == 0 or len(y) == 0:
            boxes.append(box)
            continue
        x, y = float(rng.choice(x)), float(rng.choice(y))
        boxes += [
            (west, south, x, y),
            (x, south, east, y),
            (west, y, x, north),
            (x, y, east, north),
        ]
    changed = replace(
        base,
        leaves=tuple(Leaf(i, box) for i, box in enumerate(boxes)),
        slot_of_leaf=np.zeros(len(boxes), np.int32),
        load_of_leaf=np.ones(len(boxes)),
    )
    draft = draft_of(changed)
    expected = set()
    for four in itertools.combinations(draft, 4):
        corners = [draft[n].box for n in four]
        outer = (*np.min(corners, 0)[:2], *np.max(corners, 0)[2:])
        area = sum((e - w) * (n - s) for w, s, e, n in corners)
        inner = {(w, s) for w, s, _, _ in corners if (w, s) != outer[:2]}
        across = [box for box in corners if box[0] > outer[0] and box[1] > outer[1]]
        fills = np.isclose(area, (outer[2] - outer[0]) * (outer[3] - outer[1]))
        if fills and len(inner) == 3 and len(across) == 1:
            expected.add(frozenset(four))
    found = [frozenset(four) for four in quartets((n, draft[n]) for n in draft)]
    assert len(found) == len(set(found))
    # Two over two is also two beside two: bricks with offset joints are no quarters.
    for other in expected ^ set(found):
        sides = {draft[n].box[0] for n in other}, {draft[n].box[1] for n in other}
        assert len(sides[0]) + len(sides[1]) > 4, f"seed {seed}"
    assert set(found) <= expected, f"seed {seed}"


def test_bricks_around_a_point_are_no_quarters():
    """The south-east brick does not reach the point: another is between."""
    tiles = {0: (0, 0, 2, 2), 1: (2, 0, 4, 1), 2: (2, 1, 4, 2), 3: (0, 2, 2, 4), 4: (2, 2, 4, 4)}
    leaves = [
        (n, DraftLeaf((float(west), float(south), float(east), float(north)), None, 0, 1.0))
        for n, (west, south, east, north) in tiles.items()
    ]
    assert list(quartets(leaves)) == []
    whole = [*leaves[:1], (1, DraftLeaf((2.0, 0.0, 4.0, 2.0), None, 0, 1.0)), *leaves[3:]]
    assert list(quartets(whole)) == [(0, 1, 3, 4)]
