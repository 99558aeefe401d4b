"""Queries outside the leaves of a change are in the same slots by both maps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from sirocco.schemes.map.map import CHILDREN, KeywordNode, Leaf, PartitionMap, Place
from sirocco.schemes.map.map_difference import map_difference
from sirocco.schemes.map.routing import RoutingArrays, compile_map
from tests.support.random_maps import random_map, random_text_node

SLOTS = 7
TERMS = np.array([3, 5, 8, 13, 21, 34, 55, 89], np.uint64)


def changed(rng: np.random.Generator, before: PartitionMap) -> PartitionMap:
    """The map after a few moves, halvings and cuts by text of leaves."""
    leaves = list(before.leaves)
    slots = before.slot_of_leaf.tolist()
    nodes = list(before.text_nodes)
    ids = max(leaf.id for leaf in leaves) + 1
    for _ in range(int(rng.integers(1, 4))):
        row = int(rng.integers(len(leaves)))
        west, south, east, north = leaves[row].box
        match int(rng.integers(3)):
            case 0:
                slots[row] = int(rng.integers(SLOTS))
            case 1 if east - west > 1:
                middle = (west + east) / 2
                within = leaves[row].within
                leaves[row] = Leaf(leaves[row].id, (west, south, middle, north), within)
                leaves.append(Leaf(ids, (middle, south, east, north), within))
                slots.append(int(rng.integers(SLOTS)))
                ids += 1
            case 2 if leaves[row].within is None:
                number = max((node.id for node in nodes), default=-1) + 1
                nodes.append(random_text_node(rng, number, leaves[row].box, None))
                for child in range(1, CHILDREN):
                    leaves.append(Leaf(ids, leaves[row].box, Place(number, child)))
                    slots.append(int(rng.integers(SLOTS)))
                    ids += 1
                leaves[row] = Leaf(leaves[row].id, leaves[row].box, Place(number, 0))
    return replace(
        before,
        version=before.version + 1,
        leaves=tuple(leaves),
        text_nodes=tuple(nodes),
        slot_of_leaf=np.array(slots, np.int32),
        load_of_leaf=np.zeros(len(leaves)),
    )


def some_boxes(rng: np.random.Generator, arrays: RoutingArrays, count: int) -> NDArray[np.float64]:
    """Boxes of all sizes, many of which end on borders of leaves."""
    xs = np.array([-180.0, 180.0, *arrays.x_borders])
    ys = np.array([-90.0, 90.0, *arrays.y_borders])
    lon = np.where(rng.random((count, 2)) < 0.5, rng.choice(xs, (count, 2)), 0.0)
    lon = np.where(lon == 0.0, rng.uniform(-180, 180, (count, 2)), lon)
    lat = np.where(rng.random((count, 2)) < 0.5, rng.choice(ys, (count, 2)), 0.0)
    lat = np.where(lat == 0.0, rng.uniform(-90, 90, (count, 2)), lat)
    small = rng.random(count) < 0.5
    lon[small, 1], lat[small, 1] = lon[small, 0], lat[small, 0]
    lon.sort(axis=1)
    lat.sort(axis=1)
    return np.stack([lon[:, 0], lat[:, 0], lon[:, 1], lat[:, 1]], axis=1)


def with_keyword_nodes(rng: np.random.Generator, one: PartitionMap) -> PartitionMap:
    """The map with some leaves cut by the vocabulary."""
    leaves, slots = list(one.leaves), one.slot_of_leaf.tolist()
    ids = max(leaf.id for leaf in leaves) + 1
    number = max((node.id for node in one.text_nodes), default=-1) + 1
    nodes = []
    for row in rng.choice(len(leaves), 3, replace=False).tolist():
        children = int(rng.integers(1, 5))
        nodes.append(
            KeywordNode(
                id=number,
                box=leaves[row].box,
                within=leaves[row].within,
                children=children,
                terms=TERMS[::2].copy(),
                child_of_term=rng.integers(0, children, len(TERMS[::2])).astype(np.int32),
                by_term=bool(rng.random() < 0.8),
            )
        )
        leaves[row] = Leaf(leaves[row].id, leaves[row].box, Place(number, 0))
        for child in range(1, children):
            leaves.append(Leaf(ids, leaves[row].box, Place(number, child)))
            slots.append(int(rng.integers(SLOTS)))
            ids += 1
        number += 1
    return replace(
        one,
        leaves=tuple(leaves),
        keyword_nodes=tuple(nodes),
        slot_of_leaf=np.array(slots, np.int32),
        load_of_leaf=np.zeros(len(leaves)),
    )


def with_other_words(rng: np.random.Generator, one: PartitionMap) -> PartitionMap:
    """The map after a term of a keyword node has got a chosen child, or lost it."""
    nodes = list(one.keyword_nodes)
    row = int(rng.integers(len(nodes)))
    chosen = dict(zip(nodes[row].terms.tolist(), nodes[row].child_of_term.tolist(), strict=True))
    term = int(rng.choice(TERMS))
    if term in chosen and rng.random() < 0.5:
        del chosen[term]
    else:
        chosen[term] = int(rng.integers(nodes[row].children))
    terms = np.array(sorted(chosen), np.uint64)
    children = np.array([chosen[each] for each in sorted(chosen)], np.int32)
    nodes[row] = replace(nodes[row], terms=terms, child_of_term=children)
    return replace(one, version=one.version + 1, keyword_nodes=tuple(nodes))


def renumbered(rng: np.random.Generator, one: PartitionMap) -> PartitionMap:
    """The map with its leaves in another order, under other ids."""
    order = rng.permutation(len(one.leaves)).tolist()
    leaves = [replace(one.leaves[row], id=3 * row + 1) for row in order]
    return replace(one, leaves=tuple(leaves), slot_of_leaf=one.slot_of_leaf[order])


@dataclass(frozen=True)
class Found:
    """The slots and leaves of some queries by one map."""

    slots: list[set[int]]
    leaves: list[set[int]]

    @classmethod
    def of(cls, arrays: RoutingArrays, boxes: NDArray[np.float64], keys: list[list[int]]) -> Found:
        offsets = np.cumsum([0, *map(len, keys)]).astype(np.int64)
        flat = np.array([key for each in keys for key in each], np.uint64)
        routes = arrays.route_boxes(boxes, np.arange(len(boxes) + 1), offsets, flat)
        slots, leaves = routes.slots.tolist(), routes.leaves.tolist()
        return cls(
            [set(slots[begin:end]) for begin, end in pairwise(routes.slot_offsets.tolist())],
            [set(leaves[begin:end]) for begin, end in pairwise(routes.leaf_offsets.tolist())],
        )


def check(
    rng: np.random.Generator, base: RoutingArrays, following: RoutingArrays
) -> tuple[int, int]:
    """Compares queries by two maps; returns how many are kept, and how many keep their slots."""
    change = map_difference(base, following)
    assert change is not None
    boxes = some_boxes(rng, following, 300)
    keys = [
        rng.choice(TERMS, int(rng.integers(0, 4)), replace=False).tolist()
        for _ in range(len(boxes))
    ]
    before, after = Found.of(base, boxes, keys), Found.of(following, boxes, keys)
    # Of leaves with one box and slot any one may stand for all.
    known = set(change.renamed.values())
    kept = 0
    for row in range(len(boxes)):
        if before.leaves[row] & change.leaves:
            assert before.slots[row] & change.slots
            continue
        kept += 1
        assert before.slots[row] == after.slots[row]
        renamed = {change.renamed[leaf] for leaf in before.leaves[row]}
        assert renamed == after.leaves[row] & known
    return kept, sum(a == b for a, b in zip(before.slots, after.slots, strict=True))


@pytest.mark.parametrize("seed", range(40))
def test_queries_that_move_are_in_leaves_of_the_change(seed: int) -> None:
    rng = np.random.default_rng(seed)
    before = random_map(rng, leaves=40, slots=SLOTS, text=seed % 3 == 0)
    after = changed(rng, before)
    if seed % 4 == 0:
        after = renumbered(rng, after)
    check(rng, compile_map(before), compile_map(after))


@pytest.mark.parametrize("seed", range(40))
def test_queries_by_keyword_that_move_are_in_leaves_of_the_change(seed: int) -> None:
    rng = np.random.default_rng(seed)
    before = with_keyword_nodes(rng, random_map(rng, leaves=30, slots=SLOTS, text=seed % 3 == 0))
    match seed % 4:
        case 0:
            after = with_other_words(rng, before)
        case 1:
            slots = before.slot_of_leaf.copy()
            slots[rng.integers(len(slots))] = rng.integers(SLOTS)
            after = replace(before, version=before.version + 1, slot_of_leaf=slots)
        case 2:
            # Another cut by words, and other ids of its nodes.
            without = random_map(rng, leaves=30, slots=SLOTS, text=False)
            after = with_keyword_nodes(rng, without)
        case _:
            after = renumbered(rng, with_other_words(rng, with_other_words(rng, before)))
    kept, same = check(rng, compile_map(before), compile_map(after))
    if seed % 4 in (0, 1, 3):
        # A change of few words or one leaf concerns few queries.
        assert kept >= same // 8


def test_a_leaf_that_moves_concerns_itself_alone() -> None:
    before = random_map(np.random.default_rng(4), leaves=40, slots=SLOTS, text=False)
    arrays = compile_map(before)
    for row in range(len(before.leaves)):
        slots = before.slot_of_leaf.copy()
        slots[row] = (slots[row] + 1) % SLOTS
        change = map_difference(arrays, compile_map(replace(before, version=4, slot_of_leaf=slots)))
        assert change is not None
        assert change.leaves == {before.leaves[row].id}
        assert change.slots == {int(before.slot_of_leaf[row])}
    same = map_difference(arrays, compile_map(replace(before, version=4)))
    assert same is not None
    assert (same.leaves, same.slots) == (set(), set())


def test_a_word_that_moves_concerns_the_leaf_that_it_leaves() -> None:
    rng = np.random.default_rng(5)
    before = with_keyword_nodes(rng, random_map(rng, leaves=20, slots=SLOTS, text=False))
    (row,) = [row for row, each in enumerate(before.keyword_nodes) if each.children > 2][:1]
    node = before.keyword_nodes[row]
    children = node.child_of_term.copy()
    former = int(children[0])
    children[0] = (former + 1) % node.children
    nodes = list(before.keyword_nodes)
    nodes[row] = replace(node, child_of_term=children, by_term=True)
    base = replace(before, keyword_nodes=tuple(_by_term(before, row)))
    change = map_difference(
        compile_map(base), compile_map(replace(base, version=4, keyword_nodes=tuple(nodes)))
    )
    assert change is not None
    (left,) = [leaf.id for leaf in before.leaves if leaf.within == Place(node.id, former)]
    assert change.leaves == {left}


def _by_term(one: PartitionMap, row: int) -> list[KeywordNode]:
    nodes = list(one.keyword_nodes)
    nodes[row] = replace(nodes[row], by_term=True)
    return nodes


def test_the_first_map_by_keyword_concerns_all_queries_and_the_last_one_those_of_its_leaves() -> (
    None
):
    rng = np.random.default_rng(6)
    spatial = random_map(rng, leaves=20, slots=SLOTS, text=False)
    by_keyword = compile_map(with_keyword_nodes(rng, spatial))
    assert map_difference(compile_map(spatial), by_keyword) is None
    change = map_difference(by_keyword, compile_map(spatial))
    assert change is not None
    assert 0 < len(change.leaves) < len(by_keyword.leaf_ids)
    check(rng, by_keyword, compile_map(spatial))
