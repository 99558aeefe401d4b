"""Maps whose vocabulary is split among leaves, compared with a router that goes term by term."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from sirocco.model.errors import InvalidArgument
from sirocco.schemes.map.map import WORLD, Box, KeywordNode, Leaf, PartitionMap, Place
from sirocco.schemes.map.map_bytes import from_bytes, to_bytes
from sirocco.schemes.map.routing import ObjectRoutes, RoutingArrays, compile_map

EAST: Box = (0.0, -90.0, 180.0, 90.0)
WEST: Box = (-180.0, -90.0, 0.0, 90.0)
TERMS = np.array([3, 5, 8, 13, 21, 34, 55, 89], np.uint64)


def _map(rng: np.random.Generator, children: int, slots: int, *, by_term: bool) -> PartitionMap:
    """Returns a map: the west is one leaf, the east a keyword node."""
    known = np.sort(rng.choice(TERMS, 5, replace=False))
    node = KeywordNode(
        id=7,
        box=EAST,
        within=None,
        children=children,
        terms=known,
        child_of_term=rng.integers(0, children, 5).astype(np.int32),
        by_term=by_term,
    )
    leaves = [Leaf(100, WEST), *(Leaf(c, EAST, Place(7, c)) for c in range(children))]
    return PartitionMap(
        version=3,
        scheme="kdt-tree",
        world=WORLD,
        leaves=tuple(leaves),
        text_nodes=(),
        slot_of_leaf=rng.integers(0, slots, len(leaves)).astype(np.int32),
        load_of_leaf=np.ones(len(leaves)),
        slots=slots,
        keyword_nodes=(node,),
        frequent_terms=TERMS[2:],
        frequencies=rng.integers(0, 4, 6).astype(np.float32),
    )


def _objects(
    rng: np.random.Generator, count: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64], NDArray[np.uint64]]:
    rows = [rng.choice(TERMS, rng.integers(0, 5), replace=False) for _ in range(count)]
    offsets = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    return (
        rng.uniform(-180, 180, count),
        rng.uniform(-90, 90, count),
        offsets,
        np.concatenate([*rows, np.empty(0, np.uint64)]),
    )


def _leaf_of_term(routing: RoutingArrays, one: PartitionMap, term: int) -> int:
    """Returns the leaf of a term, as a query with that key shows it."""
    keys = np.array([term], np.uint64)
    point = np.array([[90.0, 0.0, 90.0, 0.0]])
    offsets = np.array([0, 1])
    (leaf,) = routing.route_boxes(point, offsets, offsets, keys).leaves.tolist()
    (node,) = one.keyword_nodes
    if term in node.terms:
        child = int(node.child_of_term[np.searchsorted(node.terms, term)])
        assert one.leaves[1 + child].id == leaf
    return int(leaf)


@pytest.mark.parametrize("seed", range(20))
def test_an_object_goes_home_and_to_the_slot_of_each_of_its_terms(seed: int) -> None:
    rng = np.random.default_rng(seed)
    children, slots = int(rng.integers(1, 9)), int(rng.integers(1, 6))
    one = from_bytes(to_bytes(_map(rng, children, slots, by_term=True)))
    routing = compile_map(one)
    lon, lat, offsets, terms = _objects(rng, 300)
    keys = rng.integers(0, 1 << 63, 300).astype(np.uint64)
    routes = routing.route_objects(lon, lat, offsets, terms, keys)
    slot_of = dict(zip((leaf.id for leaf in one.leaves), one.slot_of_leaf.tolist(), strict=True))
    assert routes.homes is not None
    assert routes.term_slots is not None
    assert routes.slot.tolist() == [slot_of[leaf] for leaf in routes.leaf.tolist()]
    for row in range(300):
        own = routes.row == row
        (home,) = routes.leaf[own & routes.homes].tolist()
        words = terms[offsets[row] : offsets[row + 1]].tolist()
        if lon[row] < 0:
            assert home == 100
            expected = {slot_of[100]}
            led = [slot_of[100]] * len(words)
        else:
            assert home != 100
            led = [slot_of[_leaf_of_term(routing, one, word)] for word in words]
            expected = {slot_of[home], *led}
        assert sorted(routes.slot[own].tolist()) == sorted(expected)
        assert routes.term_slots[offsets[row] : offsets[row + 1]].tolist() == led
    # The homes of the east are spread over all children.
    east = routes.leaf[routes.homes][lon >= 0]
    assert len(np.unique(east)) == children


def test_replicated_objects_go_home_only_and_queries_everywhere() -> None:
    rng = np.random.default_rng(1)
    routing = compile_map(_map(rng, 6, 4, by_term=False))
    lon, lat, offsets, terms = _objects(rng, 200)
    routes: ObjectRoutes = routing.route_objects(
        lon, lat, offsets, terms, np.arange(200, dtype=np.uint64)
    )
    assert routes.homes is not None
    assert routes.homes.all()
    assert routes.row.tolist() == list(range(200))
    found = routing.route_boxes(
        np.array([[10.0, 10.0, 11.0, 11.0]]),
        np.array([0, 1]),
        np.array([0, 1]),
        np.array([5], np.uint64),
    )
    assert found.leaves.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_query_goes_to_the_leaves_of_its_keys_or_to_all() -> None:
    rng = np.random.default_rng(2)
    one = _map(rng, 8, 8, by_term=True)
    routing = compile_map(one)
    world = np.array([[-1.0, 0.0, 1.0, 1.0]] * 3)
    found = routing.route_boxes(
        world, np.arange(4), np.array([0, 0, 1, 3]), np.array([3, 5, 8], np.uint64)
    )
    leaves = [
        set(found.leaves[a:b].tolist())
        for a, b in zip(found.leaf_offsets, found.leaf_offsets[1:], strict=False)
    ]
    assert leaves[0] == {100, *range(8)}
    assert leaves[1] == {100, _leaf_of_term(routing, one, 3)}
    assert leaves[2] == {100, *(_leaf_of_term(routing, one, term) for term in (5, 8))}


def test_the_key_of_a_conjunction_is_its_least_frequent_term() -> None:
    one = replace(
        _map(np.random.default_rng(3), 2, 2, by_term=True),
        frequent_terms=np.array([5, 8, 13], np.uint64),
        frequencies=np.array([9, 2, 2], np.float32),
    )
    terms = np.array([5, 13, 8, 5, 5, 89, 55], np.uint64)
    keys = compile_map(one).choose_keys(np.array([0, 3, 4, 7]), terms)
    assert keys.tolist() == [8, 5, 55]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda one: {"leaves": one.leaves[:-1]}, "lacks the leaf"),
        (lambda one: {"leaves": (*one.leaves[:-1], Leaf(50, EAST, Place(7, 0)))}, "no child"),
        (lambda one: {"leaves": (*one.leaves[:-1], Leaf(50, WEST, Place(7, 2)))}, "no child"),
        (
            lambda one: {
                "keyword_nodes": (
                    replace(one.keyword_nodes[0], child_of_term=np.full(5, 3, np.int32)),
                )
            },
            "children run",
        ),
        (lambda one: {"frequent_terms": one.frequent_terms[::-1].copy()}, "ascending"),
    ],
)
def test_a_broken_keyword_node_is_refused(change: object, message: str) -> None:
    one = _map(np.random.default_rng(4), 3, 2, by_term=True)
    fields = change(one)  # type: ignore[operator]
    if "leaves" in fields:
        count = len(fields["leaves"])
        fields |= {"slot_of_leaf": np.zeros(count, np.int32), "load_of_leaf": np.ones(count)}
    with pytest.raises(InvalidArgument, match=message):
        replace(one, **fields)
