"""Scheme `qt-tree`: SSTD's tree whose nodes are split in space or by text (SSTD 4.1)."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.routing.text_split import split_by_text
from sirocco.schemes.builders.uniform_grid import check_counts
from sirocco.schemes.map.map import (
    CHILDREN,
    TEXTUAL_KINDS,
    WORLD,
    Box,
    Leaf,
    PartitionMap,
    Place,
    TextNode,
)
from sirocco.schemes.map.routing import RoutingArrays, compile_map
from sirocco.schemes.workload.allocation import karmarkar_karp
from sirocco.schemes.workload.assumed_queries import assumed_queries
from sirocco.schemes.workload.columns import keep_values, places_among, take_rows
from sirocco.schemes.workload.cost import handling_of, held_share_of, workload
from sirocco.schemes.workload.sample import Sample
from sirocco.schemes.workload.statistics import CellStatistics, QueryStatistics

# About a metre. Objects closer than that are one place, and a border between them would only split
# the noise of their coordinates.
SIDE_DEGREES_MIN = 1e-5

# Objects ignored at each end of the extent of a node's objects. Otherwise one stray point would
# stretch it so far that a split through its middle separates nothing, and the tree would use text
# where space distinguishes the objects.
STRAY_SHARE = 0.005

# Keywords in the frozen lists of one text node and of a whole map; those with the largest weight
# are kept. Every router reads the map from one record of `control`, where a keyword takes about ten
# bytes: the bound keeps the map of any tree below the megabyte that brokers allow by default.
TEXT_NODE_TERMS_MAX = 4096
MAP_TERMS_MAX = 65_536

# Two splits with a smaller difference of workloads are equal, and space is preferred as in the
# paper: rounding must not lead to a text split that makes no difference.
EQUAL_WORKLOAD = 1e-9

# Load of a leaf without sample objects, in mean loads: enough to distribute such leaves over all
# slots, too little to disturb the balance of the known loads.
UNSEEN_LEAF_SHARE = 1e-3


class QtTree:
    """Splits the node of greatest workload, in the way of least workload, until done."""

    name = "qt-tree"

    def build(self, sample: Sample, leaves: int, slots: int) -> PartitionMap:
        """Runs Algorithm 1, then allocates the leaves by Karmarkar-Karp.

        See `Scheme.build`. A split adds three leaves, so the tree has the first number of leaves ≥
        `leaves` among 1, 4, 7, …; fewer if nothing is left to split. A sample without queries gets
        those of `assumed_queries`.
        """
        check_counts(leaves, slots)
        if len(sample.queries) == 0:
            sample = replace(sample, queries=assumed_queries(sample))
        nodes, text_nodes = _Builder(sample, leaves).grow()
        load = np.array([node.workload for node in nodes])
        floor = UNSEEN_LEAF_SHARE * float(load.mean()) if load.any() else 1.0
        load = np.maximum(load, floor)
        return PartitionMap(
            version=1,
            scheme=self.name,
            world=WORLD,
            leaves=tuple(Leaf(i, node.box, node.within) for i, node in enumerate(nodes)),
            text_nodes=tuple(text_nodes),
            slot_of_leaf=karmarkar_karp(load, slots),
            load_of_leaf=load,
            slots=slots,
        )

    def compile(self, partition_map: PartitionMap) -> RoutingArrays:
        """See `Scheme.compile`."""
        return compile_map(partition_map)


@dataclass(frozen=True, slots=True, eq=False)
class _Node:
    """A node of the tree.

    Attributes:
        box, within: As for a leaf.
        objects: i8[n], rows of the sample's objects that the router would send here, ascending.
        statistics: The cell of J with the same box.
        workload: W of the node.
    """

    box: Box
    within: Place | None
    objects: NDArray[np.int64]
    statistics: CellStatistics
    workload: float


class _Builder:
    """Algorithm 1 over one sample."""

    def __init__(self, sample: Sample, leaves: int) -> None:
        self._sample = sample
        self._leaves = leaves
        text_nodes_max = max(1, leaves // (CHILDREN - 1))
        self._terms_max = min(TEXT_NODE_TERMS_MAX, max(1, MAP_TERMS_MAX // text_nodes_max))
        self._statistics = QueryStatistics(sample.queries)
        self._offsets, self._terms = places_among(
            sample.term_offsets, sample.terms, self._statistics.vocabulary
        )
        root = self._statistics.root()
        everything = np.arange(len(sample))
        self._handling = handling_of(root, len(sample), self._held_share(root, everything))
        self._text_nodes: list[TextNode] = []
        self._root = self._node(WORLD, None, everything, root)

    def grow(self) -> tuple[list[_Node], list[TextNode]]:
        """Returns the leaves, in order of creation, and the text nodes."""
        # Ties prefer the older node: a sample without objects gives an even quadtree.
        heap = [(-self._root.workload, 0, self._root)]
        done: list[tuple[int, _Node]] = []
        serial = 1
        while heap and len(heap) + len(done) < self._leaves:
            _, number, node = heapq.heappop(heap)
            children = self._split(node)
            if not children:
                done.append((number, node))
            for child in children:
                heapq.heappush(heap, (-child.workload, serial, child))
                serial += 1
        done += [(number, node) for _, number, node in heap]
        return [node for _, node in sorted(done, key=lambda pair: pair[0])], self._text_nodes

    def _split(self, node: _Node) -> list[_Node]:
        """Splits a node in the way of least workload; returns nothing if no split is possible."""
        spatial = self._split_space(node)
        text_node, textual = self._split_text(node)
        if text_node is None:
            return spatial
        if spatial and _total(spatial) <= _total(textual) * (1 + EQUAL_WORKLOAD):
            return spatial
        self._text_nodes.append(text_node)
        return textual

    def _split_space(self, node: _Node) -> list[_Node]:
        """Returns the four quarters; none around a single place.

        SSTD splits at the middle of the node's box. We split at the middle of the extent of its
        objects (the node's MBR): otherwise the world's box around the posts of one city would be
        split a dozen times, with three empty leaves each time, before any objects are separated.
        """
        lon, lat = self._sample.lon[node.objects], self._sample.lat[node.objects]
        west, south, east, north = node.box
        x, parts_x = _cut(lon, west, east)
        y, parts_y = _cut(lat, south, north)
        if not (parts_x or parts_y) or x is None or y is None:
            return []
        quarters = (
            (west, south, x, y),
            (x, south, east, y),
            (west, y, x, north),
            (x, y, east, north),
        )
        quarter = (lon >= x).astype(np.int64) + 2 * (lat >= y)
        return [
            self._node(
                box,
                node.within,
                node.objects[quarter == number],
                self._statistics.within(node.statistics, box),
            )
            for number, box in enumerate(quarters)
        ]

    def _split_text(self, node: _Node) -> tuple[TextNode | None, list[_Node]]:
        """Returns a text node and its children; None if all objects belong to one child."""
        if len(node.objects) < 2:
            return None, []
        text_node, child_of = self._part(node)
        if (child_of == child_of[0]).all():
            return None, []
        children = [
            self._node(
                node.box,
                Place(text_node.id, child),
                node.objects[child_of == child],
                node.statistics,
            )
            for child in range(CHILDREN)
        ]
        return text_node, children

    def _part(self, node: _Node) -> tuple[TextNode, NDArray[np.uint8]]:
        """Splits a node's objects by text; returns the text node and u1[n], child of each."""
        cell = node.statistics
        weights = cell.reach[:TEXTUAL_KINDS].copy()
        keywords = _weightiest(cell.share, weights, self._terms_max)
        local = np.full(len(cell.share), -1, np.int32)
        local[keywords] = np.arange(len(keywords))
        offsets, terms = take_rows(self._offsets, self._terms, node.objects)
        terms = local[terms]
        offsets, terms = keep_values(offsets, terms, terms >= 0)
        share = np.ascontiguousarray(cell.share[keywords])
        held = np.zeros(len(keywords), np.uint8)
        held_share = np.zeros((CHILDREN, TEXTUAL_KINDS))
        objects = np.zeros(CHILDREN)
        child_of = np.empty(len(node.objects), np.uint8)
        number = len(self._text_nodes)
        split_by_text(
            offsets,
            terms,
            self._sample.event_keys[node.objects],
            share,
            weights,
            cell.lengths,
            number,
            held,
            held_share,
            objects,
            child_of,
        )
        text_node = TextNode(
            id=number,
            box=node.box,
            within=node.within,
            terms=self._statistics.vocabulary[keywords],
            share=share,
            held=held,
            weights=weights,
            lengths=cell.lengths,
            held_share=held_share,
            objects=objects,
        )
        return text_node, child_of

    def _node(
        self,
        box: Box,
        within: Place | None,
        objects: NDArray[np.int64],
        cell: CellStatistics,
    ) -> _Node:
        held_share = self._held_share(cell, objects)
        cost = workload(cell, len(objects), held_share, self._handling)
        return _Node(box, within, objects, cell, cost)

    def _held_share(self, cell: CellStatistics, objects: NDArray[np.int64]) -> NDArray[np.float64]:
        held = np.zeros(len(self._statistics.vocabulary), np.bool_)
        held[take_rows(self._offsets, self._terms, objects)[1]] = True
        return held_share_of(cell, held)


def _weightiest(
    share: NDArray[np.float64], weights: NDArray[np.float64], count: int
) -> NDArray[np.int64]:
    """Returns the rows of the `count` keywords that change an increment most, ascending."""
    weight = (share * weights).sum(1)
    order = np.argsort(-weight, kind="stable")[:count]
    return np.sort(order[weight[order] > 0])


def _cut(values: NDArray[np.float64], low: float, high: float) -> tuple[float | None, bool]:
    """Returns the split position on one side of a box, and whether it separates the values.

    The position is None if the side is too short. Without values, or if they are one place, it is
    the middle of the side.
    """
    middle = (low + high) / 2
    if high - low < 2 * SIDE_DEGREES_MIN:
        return None, False
    if len(values) == 0:
        return middle, True
    first, last = np.quantile(values, (STRAY_SHARE, 1 - STRAY_SHARE), method="nearest")
    if last - first < SIDE_DEGREES_MIN:
        first, last = values.min(), values.max()
    cut = float(first + last) / 2
    if last - first < SIDE_DEGREES_MIN:
        return middle, False
    if low + SIDE_DEGREES_MIN <= cut <= high - SIDE_DEGREES_MIN:
        return cut, True
    return middle, bool((values < middle).any() and (values >= middle).any())


def _total(nodes: list[_Node]) -> float:
    return sum(node.workload for node in nodes)
