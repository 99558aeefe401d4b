"""Maps that are small as bytes and large in memory are refused before anything is built of them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sirocco.model.errors import InvalidArgument
from sirocco.protocol.contract.control_records import MapActivated
from sirocco.protocol.contract.control_view import read_map
from sirocco.protocol.contract.map_change import MAP_BYTES_MAX, check_compiled
from sirocco.schemes.map import map as map_module
from sirocco.schemes.map import map_bytes
from sirocco.schemes.map.map import (
    CHILDREN,
    COMPILED_BYTES_MAX,
    WORLD,
    KeywordNode,
    Leaf,
    PartitionMap,
    Place,
    TextNode,
)
from sirocco.schemes.map.routing import compile_map
from tests.support.cpu_time import cpu_ratio

# Memory that a refusal may take: reading the bytes, and the columns that they hold.
REFUSED_BYTES_MAX = 96 << 20


def text_node(number: int, box: Any, within: Place | None, terms: int, lengths: int) -> TextNode:
    return TextNode(
        id=number,
        box=box,
        within=within,
        terms=np.arange(terms, dtype=np.uint64),
        share=np.zeros((terms, 3)),
        held=np.zeros(terms, np.uint8),
        weights=np.zeros(3),
        lengths=np.zeros((3, lengths)),
        held_share=np.zeros((CHILDREN, 3)),
        objects=np.zeros(CHILDREN),
    )


def strips(count: int) -> list[Any]:
    edges = np.linspace(-180, 180, count + 1)
    return [(float(edges[i]), -90.0, float(edges[i + 1]), 90.0) for i in range(count)]


def assembled(leaves: list[Leaf], nodes: list[TextNode], words: list[KeywordNode]) -> PartitionMap:
    """Returns an unchecked map, as a hostile writer would build it."""
    made = object.__new__(PartitionMap)
    values = {
        "version": 2,
        "scheme": "qt-tree",
        "world": WORLD,
        "leaves": tuple(leaves),
        "text_nodes": tuple(nodes),
        "slot_of_leaf": np.zeros(len(leaves), np.int32),
        "load_of_leaf": np.zeros(len(leaves)),
        "slots": 4,
        "keyword_nodes": tuple(words),
        "frequent_terms": np.empty(0, np.uint64),
        "frequencies": np.empty(0, np.float32),
    }
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def text_map(count: int, terms: int, lengths: Callable[[int], int]) -> PartitionMap:
    nodes: list[Any] = []
    leaves: list[Any] = []
    for number, box in enumerate(strips(count)):
        nodes.append(text_node(number, box, None, terms, lengths(number)))
        for child in range(CHILDREN):
            leaves.append(Leaf(len(leaves), box, Place(number, child)))
    return assembled(leaves, nodes, [])


def crossed(columns: int, rows: int) -> list[Leaf]:
    """Returns strips above, bars below: as many cells as the product of both border counts."""
    x = np.linspace(-180, 180, columns + 1)
    y = np.linspace(-90, 0, rows + 1)
    boxes = [(x[i], 0.0, x[i + 1], 90.0) for i in range(columns)]
    boxes += [(-180.0, y[i], 180.0, y[i + 1]) for i in range(rows)]
    return [Leaf(i, tuple(map(float, box))) for i, box in enumerate(boxes)]  # type: ignore[arg-type]


def frames_of_cells() -> PartitionMap:
    """Returns maps in which each child of a text node is a frame with many cells."""
    leaves: list[Any] = []
    for child in range(CHILDREN):
        for leaf in crossed(2_100, 2_100):
            leaves.append(Leaf(len(leaves), leaf.box, Place(0, child)))
    return assembled(leaves, [text_node(0, WORLD, None, 1, 2)], [])


def keyword_map(terms: int) -> PartitionMap:
    one = np.arange(terms, dtype=np.uint64)
    node = KeywordNode(
        id=0, box=WORLD, within=None, children=1, terms=one, child_of_term=np.zeros(terms, np.int32)
    )
    return assembled([Leaf(0, WORLD, Place(0, 0))], [], [node])


HOSTILE: dict[str, Callable[[], PartitionMap]] = {
    # One node claims that queries have a million keywords: compiled, all nodes have as many.
    "one wide node": lambda: text_map(400, 1, lambda i: 200_000 if i == 0 else 1),
    "all nodes wide": lambda: text_map(200, 1, lambda _: 4_096 * 4),
    "long lists": lambda: text_map(40, 70_000, lambda _: 1),
    "cells of one frame": lambda: assembled(crossed(5_000, 5_000), [], []),
    "cells of all frames": frames_of_cells,
    "keyword lists": lambda: keyword_map(10_000_000),
}


@contextmanager
def memory() -> Iterator[list[int]]:
    peak: list[int] = []
    tracemalloc.start()
    try:
        yield peak
        peak.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", HOSTILE)
def test_what_would_take_more_than_its_budget_is_refused_for_little(name: str) -> None:
    data = map_bytes.to_bytes(HOSTILE[name]())
    # No proposal may be longer; a log could hold such a map.
    check = map_bytes.from_bytes if len(data) > MAP_BYTES_MAX else check_compiled
    with memory() as peak, pytest.raises(InvalidArgument) as refused:
        check(data)
    assert "map" in str(refused.value.field)
    inflated = len(data) * 1_032
    assert peak[0] < REFUSED_BYTES_MAX + min(3 * inflated, 3 * map_bytes.INFLATED_BYTES_MAX)
    # In an old log it is void for all readers alike: they keep the map before.
    with pytest.raises(InvalidArgument):
        read_map(MapActivated(0, 2, data))


@pytest.mark.parametrize("bound", ["LEAVES_MAX", "NODES_MAX"])
def test_leaves_and_nodes_are_counted(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = map_bytes.to_bytes(text_map(9, 1, lambda _: 2))
    map_bytes.from_bytes(data)
    monkeypatch.setattr(map_module, bound, 8)
    with pytest.raises(InvalidArgument, match="at most 8"):
        map_bytes.from_bytes(data)


def test_maps_of_ours_are_far_below_the_bounds() -> None:
    usual = text_map(300, 3_000, lambda _: 65)
    checked = PartitionMap(**{name: getattr(usual, name) for name in PartitionMap.__slots__})
    compiled = compile_map(checked)
    cells = compiled.cells.nbytes + compiled.x_borders.nbytes * 4
    assert compiled.nbytes() <= checked.compiled_bytes() + cells
    assert compiled.nbytes() < COMPILED_BYTES_MAX / 2
    check_compiled(map_bytes.to_bytes(checked))


def test_children_of_all_keyword_nodes_are_bounded_before_places_are_made_for_them() -> None:
    one = KeywordNode(
        id=0,
        box=WORLD,
        within=None,
        children=16_384,
        terms=np.arange(4, dtype=np.uint64),
        child_of_term=np.zeros(4, np.int32),
        by_term=True,
    )
    words = [replace(one, id=number) for number in range(1_000)]
    data = map_bytes.to_bytes(assembled([Leaf(5_000, WORLD, Place(0, 0))], [], words))
    with pytest.raises(InvalidArgument, match="at most") as caught:
        map_bytes.from_bytes(data)
    assert caught.value.field == "map.keyword_nodes.children"


def test_a_map_of_many_frames_compiles_in_the_time_of_its_frames() -> None:
    """Eight thousand text nodes took minutes: each frame added up the content of all before it."""
    many, few = map_of_frames(1_000), map_of_frames(125)
    assert len(compile_map(many).x_borders) == 1_000 + CHILDREN * 1_000
    # Eight times as many frames; they took more than thirty times as long.
    assert cpu_ratio(lambda: compile_map(many), lambda: compile_map(few), repeats=3) < 16


def map_of_frames(count: int) -> PartitionMap:
    nodes: list[TextNode] = []
    leaves: list[Leaf] = []
    for number, box in enumerate(strips(count)):
        nodes.append(text_node(number, box, None, 1, 1))
        leaves += [
            Leaf(10_000 + CHILDREN * number + child, box, Place(number, child))
            for child in range(CHILDREN)
        ]
    return replace(assembled(leaves, nodes, []), slot_of_leaf=np.zeros(len(leaves), np.int32))
