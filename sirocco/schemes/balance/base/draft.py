"""A map being changed into its next version: leaves are split, joined, shifted and moved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.balance.base.view import View
from sirocco.schemes.map.map import Box, KeywordNode, Leaf, PartitionMap, Place, TextNode


@dataclass(frozen=True, slots=True)
class DraftLeaf:
    """A leaf of the draft.

    Attributes:
        box, within: As for a leaf.
        slot: Its slot.
        load: Predicted load, in the balancer's unit.
        sources: Position of a leaf of the map in force → share of its standing queries needed here.
    """

    box: Box
    within: Place | None
    slot: int
    load: float
    sources: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a split leaf.

    Attributes:
        box, within, load: As for a draft's leaf.
        share: Share of the leaf's queries that it needs.
    """

    box: Box
    within: Place | None
    load: float
    share: float


class Draft:
    """Changes a copy of the map in force.

    A leaf keeps its number until it is split or joined; a leaf that changes its box or its place
    gets a new number.
    """

    def __init__(self, view: View, load: NDArray[np.float64]) -> None:
        """Copies the map.

        Args:
            view: The view.
            load: f8[leaves], load of each leaf.
        """
        self._view = view
        base = view.map
        slots = base.slot_of_leaf.tolist()
        self._leaves = {
            number: DraftLeaf(
                leaf.box, leaf.within, slots[number], float(load[number]), {number: 1.0}
            )
            for number, leaf in enumerate(base.leaves)
        }
        self._next = len(self._leaves)
        self._text_nodes: dict[int, TextNode] = {node.id: node for node in base.text_nodes}
        self._keyword_nodes: dict[int, KeywordNode] = {node.id: node for node in base.keyword_nodes}

    def __getitem__(self, number: int) -> DraftLeaf:
        """Returns a leaf."""
        return self._leaves[number]

    def __iter__(self) -> Iterator[int]:
        """Yields the numbers of all leaves."""
        return iter(tuple(self._leaves))

    def __len__(self) -> int:
        """Returns the number of leaves."""
        return len(self._leaves)

    def is_spatial(self, number: int) -> bool:
        """Whether a leaf is a tile of its frame, and not a child of a keyword node."""
        within = self._leaves[number].within
        return within is None or within.node not in self._keyword_nodes

    @property
    def text_nodes(self) -> tuple[TextNode, ...]:
        """The text nodes."""
        return tuple(self._text_nodes.values())

    @property
    def next_node(self) -> int:
        """A node id used by no node, neither here nor in the map in force."""
        base = self._view.map
        held = [*self._text_nodes, *self._keyword_nodes]
        held += [node.id for node in base.text_nodes]
        held += [node.id for node in base.keyword_nodes]
        return max(held, default=-1) + 1

    def put(self, number: int, slot: int, load: float | None = None) -> None:
        """Moves a leaf to another slot, optionally with another load."""
        leaf = self._leaves[number]
        own = leaf.load if load is None else load
        self._leaves[number] = replace(leaf, slot=slot, load=own)

    def add(self, leaf: DraftLeaf) -> int:
        """Adds a leaf in the place of removed ones; returns its number."""
        number = self._next
        self._next += 1
        self._leaves[number] = leaf
        return number

    def remove(self, number: int) -> DraftLeaf:
        """Removes a leaf; others must fill its place."""
        return self._leaves.pop(number)

    def split(
        self,
        number: int,
        axis: int,
        at: float,
        load: tuple[float, float],
        share: tuple[float, float],
    ) -> tuple[int, int]:
        """Splits a leaf in two, which stay in its slot; returns the numbers of both parts.

        Args:
            number: The leaf.
            axis: 0 splits longitudes, 1 latitudes.
            at: The position, degrees.
            load: Loads of the parts before and after the split.
            share: Shares of the queries that each part needs.
        """
        west, south, east, north = self[number].box
        boxes: tuple[Box, Box]
        if axis == 0:
            boxes = ((west, south, at, north), (at, south, east, north))
        else:
            boxes = ((west, south, east, at), (west, at, east, north))
        within = self[number].within
        first, second = self.cut(
            number,
            [
                Part(box, within, own_load, own_share)
                for box, own_load, own_share in zip(boxes, load, share, strict=True)
            ],
        )
        return first, second

    def cut(self, number: int, parts: Iterable[Part]) -> list[int]:
        """Replaces a leaf by parts, which stay in its slot; returns their numbers."""
        leaf = self.remove(number)
        return [
            self.add(
                DraftLeaf(
                    part.box,
                    part.within,
                    leaf.slot,
                    part.load,
                    {source: held * part.share for source, held in leaf.sources.items()},
                )
            )
            for part in parts
        ]

    def merge(self, numbers: tuple[int, ...], slot: int, load: float | None = None) -> int:
        """Joins leaves whose boxes together form a box; returns the number of the joint leaf.

        Args:
            numbers: The leaves.
            slot: Slot of the joint leaf.
            load: Load of the joint leaf; None: the sum.
        """
        leaves = [self.remove(number) for number in numbers]
        sources: dict[int, float] = {}
        for leaf in leaves:
            for source, share in leaf.sources.items():
                sources[source] = min(sources.get(source, 0.0) + share, 1.0)
        total = sum(leaf.load for leaf in leaves) if load is None else load
        return self.add(DraftLeaf(_around(leaves), leaves[0].within, slot, total, sources))

    def add_text_node(self, node: TextNode) -> None:
        """Adds a text node; the caller must add leaves within it."""
        self._text_nodes[node.id] = node

    def add_keyword_node(self, node: KeywordNode) -> None:
        """Adds a keyword node; the caller must add a leaf for each child."""
        self._keyword_nodes[node.id] = node

    def join_node(self, node: int, numbers: tuple[int, ...], slot: int, load: float) -> int:
        """Replaces a text or keyword node by one leaf; returns its number.

        Args:
            node: Id of the node.
            numbers: All its leaves.
            slot, load: For the leaf.
        """
        outer: TextNode | KeywordNode
        if node in self._text_nodes:
            outer = self._text_nodes.pop(node)
        else:
            outer = self._keyword_nodes.pop(node)
        number = self.merge(numbers, slot, load)
        self._leaves[number] = replace(self._leaves[number], within=outer.within)
        return number

    def moved(self) -> tuple[float, float]:
        """Returns the number of standing queries copied to other slots, and their size in bytes."""
        slots, loads = self._view.map.slot_of_leaf, self._view.loads
        queries = size = 0.0
        for leaf in self._leaves.values():
            for source, share in leaf.sources.items():
                if slots[source] != leaf.slot:
                    queries += share * float(loads.queries[source])
                    size += share * float(loads.query_bytes[source])
        return queries, size

    def finish(self) -> PartitionMap:
        """Returns the map, checked, of the next version.

        An unchanged leaf in its slot keeps its id. All others get free ids, even if only their slot
        changes: the reports of one leaf are then in the order of one slot's log.

        Raises:
            InvalidArgument: The changes do not form a valid map.
        """
        base = self._view.map
        taken = {leaf.id for leaf in base.leaves} | self._view.reserved
        leaves, free = [], 0
        for number, leaf in self._leaves.items():
            if number < len(base.leaves) and self._is_as_it_was(number, leaf):
                leaves.append(base.leaves[number])
                continue
            while free in taken:
                free += 1
            leaves.append(Leaf(free, leaf.box, leaf.within))
            free += 1
        return replace(
            base,
            version=base.version + 1,
            leaves=tuple(leaves),
            text_nodes=self.text_nodes,
            keyword_nodes=tuple(self._keyword_nodes.values()),
            slot_of_leaf=np.array([leaf.slot for leaf in self._leaves.values()], np.int32),
            load_of_leaf=np.array([leaf.load for leaf in self._leaves.values()]),
        )

    def _is_as_it_was(self, number: int, leaf: DraftLeaf) -> bool:
        base = self._view.map
        old = base.leaves[number]
        unmoved = leaf.slot == base.slot_of_leaf[number]
        return unmoved and (old.box, old.within) == (leaf.box, leaf.within)


def _around(leaves: list[DraftLeaf]) -> Box:
    west, south = (min(leaf.box[side] for leaf in leaves) for side in (0, 1))
    east, north = (max(leaf.box[side] for leaf in leaves) for side in (2, 3))
    return west, south, east, north
