"""Routing arrays: a partition map compiled to flat NumPy arrays for the router's kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.base.faults import required
from sirocco.kernels.base.hash_placement import Secret, secret
from sirocco.kernels.routing import routing as kernels
from sirocco.schemes.map.keyword_keys import least_frequent
from sirocco.schemes.map.map import (
    CHILDREN,
    TEXTUAL_KINDS,
    PartitionMap,
    Place,
    TextNode,
    table_entries,
)
from sirocco.schemes.map.tiling import Tiling

# Buckets per border of an axis. With four, most buckets of an even tiling hold no border and
# the search inside a bucket ends at once; the tables of 1,024 leaves still fit a core's cache.
BUCKETS_PER_BORDER = 4


@dataclass(frozen=True, slots=True, eq=False)
class ObjectRoutes:
    """Destinations of the objects of a batch.

    Attributes:
        row: i4[m], the object's row in the batch, ascending.
        leaf: i4[m], leaf id; if several of its leaves share the slot, one of them.
        slot: i4[m], distinct for each object.
        homes: bool[m], whether this slot stores the object and answers queries without keywords;
            None: all do, and every object has one route.
        term_slots: i4[t], the slot of each term of each object, -1 for none; None with `homes`.
    """

    row: NDArray[np.int32]
    leaf: NDArray[np.int32]
    slot: NDArray[np.int32]
    homes: NDArray[np.bool_] | None = None
    term_slots: NDArray[np.int32] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class QueryRoutes:
    """Destinations of the queries of a batch.

    Attributes:
        slot_offsets: i8[n + 1], into `slots`.
        slots: i4, distinct slots of each query, ascending.
        leaf_offsets: i8[n + 1], into `leaves` and `slot_of_leaf`.
        leaves: i4, distinct leaf ids of each query.
        slot_of_leaf: i4, the slot of each of `leaves`.
    """

    slot_offsets: NDArray[np.int64]
    slots: NDArray[np.int32]
    leaf_offsets: NDArray[np.int64]
    leaves: NDArray[np.int32]
    slot_of_leaf: NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RoutingArrays:
    """One map version compiled for routing; created by `compile_map`.

    `leaf_boxes` is f8[l, 4], rows (west, south, east, north) in the order of `leaf_ids`.
    `sirocco.kernels.routing.routing` describes the arrays.
    """

    version: int
    leaf_ids: NDArray[np.int32]
    leaf_boxes: NDArray[np.float64]
    slot_of_leaf: NDArray[np.int32]
    slots: int
    frame_ints: NDArray[np.int64]
    frame_reals: NDArray[np.float64]
    x_borders: NDArray[np.float64]
    x_buckets: NDArray[np.int32]
    y_borders: NDArray[np.float64]
    y_buckets: NDArray[np.int32]
    cells: NDArray[np.int32]
    tiles: NDArray[np.int32]
    text_ints: NDArray[np.int64]
    text_weights: NDArray[np.float64]
    text_lengths: NDArray[np.float64]
    text_held_share: NDArray[np.float64]
    text_covers: NDArray[np.float64]
    text_objects: NDArray[np.float64]
    table_terms: NDArray[np.uint64]
    table_filled: NDArray[np.uint8]
    table_share: NDArray[np.float64]
    table_held: NDArray[np.uint8]
    word_ints: NDArray[np.int64]
    word_leaves: NDArray[np.int32]
    word_terms: NDArray[np.uint64]
    word_children: NDArray[np.int32]
    frequent_terms: NDArray[np.uint64]
    frequencies: NDArray[np.float32]
    secret: Secret

    @property
    def is_by_keyword(self) -> bool:
        """Whether an object may be sent to several slots, and queries need keys."""
        return len(self.word_ints) > 0

    def route_objects(
        self,
        lon: NDArray[np.float64],
        lat: NDArray[np.float64],
        term_offsets: NDArray[np.int64],
        terms: NDArray[np.uint64],
        event_keys: NDArray[np.uint64],
    ) -> ObjectRoutes:
        """Finds the leaves and slots of each object, a pure function of its arguments.

        Args:
            lon, lat: f8[n], degrees.
            term_offsets: i8[n + 1], into `terms`.
            terms: u8, distinct term hashes of each object.
            event_keys: u8[n], a number that identifies the object, also when it is repeated; it
                breaks ties between text children.
        """
        leaf = np.empty(len(lon), np.int32)
        kernels.route_points(
            lon,
            lat,
            term_offsets,
            terms,
            event_keys,
            self.frame_ints,
            self.frame_reals,
            self.x_borders,
            self.x_buckets,
            self.y_borders,
            self.y_buckets,
            self.cells,
            len(self.leaf_ids),
            self.text_ints,
            self.text_weights,
            self.text_lengths,
            self.text_held_share,
            self.text_covers,
            self.text_objects,
            self.table_terms,
            self.table_filled,
            self.table_share,
            self.table_held,
            *self.secret,
            leaf,
        )
        if self.is_by_keyword:
            return self._route_keywords(term_offsets, terms, event_keys, leaf)
        rows = np.arange(len(lon), dtype=np.int32)
        return ObjectRoutes(rows, self.leaf_ids[leaf], self.slot_of_leaf[leaf])

    def _route_keywords(
        self,
        term_offsets: NDArray[np.int64],
        terms: NDArray[np.uint64],
        event_keys: NDArray[np.uint64],
        leaf: NDArray[np.int32],
    ) -> ObjectRoutes:
        term_leaves = np.empty(len(terms), np.int32)
        kernels.route_keywords(
            term_offsets,
            terms,
            event_keys,
            len(self.leaf_ids) + len(self.text_ints),
            self.word_ints,
            self.word_leaves,
            self.word_terms,
            self.word_children,
            *self.secret,
            leaf,
            term_leaves,
        )
        room = len(leaf) + len(terms)
        rows, leaves = np.empty(room, np.int32), np.empty(room, np.int32)
        homes = np.empty(room, np.bool_)
        count = kernels.distinct_routes(
            term_offsets, leaf, term_leaves, self.slot_of_leaf, self.slots, rows, leaves, homes
        )
        leaves = leaves[:count]
        return ObjectRoutes(
            rows[:count],
            self.leaf_ids[leaves],
            self.slot_of_leaf[leaves],
            homes[:count],
            np.where(term_leaves >= 0, self.slot_of_leaf[term_leaves], np.int32(-1)),
        )

    def choose_keys(
        self, conj_offsets: NDArray[np.int64], terms: NDArray[np.uint64]
    ) -> NDArray[np.uint64]:
        """Returns the key of each conjunction: its least frequent term (PS2Stream IV.C).

        Args:
            conj_offsets: i8[c + 1], into `terms`; no conjunction is empty.
            terms: u8, positive terms of each conjunction.

        Returns:
            u8[c]. Ties go to the term with the least hash.
        """
        return least_frequent(conj_offsets, terms, self.frequent_terms, self.frequencies)

    def route_boxes(
        self,
        boxes: NDArray[np.float64],
        box_offsets: NDArray[np.int64],
        key_offsets: NDArray[np.int64] | None = None,
        keys: NDArray[np.uint64] | None = None,
    ) -> QueryRoutes:
        """Finds all leaves and slots that could hold an object inside a query's closed boxes.

        Args:
            boxes: f8[b, 4], rows (west, south, east, north), degrees; west > east crosses the
                antimeridian.
            box_offsets: i8[n + 1], the boxes of each query.
            key_offsets: i8[n + 1], into `keys`; None: no query has keys.
            keys: u8, the key of each conjunction of each query. A query without keys is sent to all
                leaves of a keyword node, because it may match objects by other conditions.
        """
        count = len(box_offsets) - 1
        if key_offsets is None or keys is None:
            key_offsets, keys = np.zeros(count + 1, np.int64), np.empty(0, np.uint64)
        leaf_offsets = np.empty(count + 1, np.int64)
        # Most queries touch one or two leaves; otherwise the kernel returns the number.
        room = 4 * count + len(self.leaf_ids)
        while True:
            found = np.empty(room, np.int32)
            total = kernels.route_boxes(
                boxes,
                box_offsets,
                key_offsets,
                keys,
                self.frame_ints,
                self.frame_reals,
                self.x_borders,
                self.x_buckets,
                self.y_borders,
                self.y_buckets,
                self.cells,
                self.tiles,
                len(self.leaf_ids),
                CHILDREN,
                self.text_ints,
                self.word_ints,
                self.word_leaves,
                self.word_terms,
                self.word_children,
                *self.secret,
                leaf_offsets,
                found,
            )
            if total <= room:
                break
            room = total
        found = found[:total]
        slot_offsets = np.empty(count + 1, np.int64)
        slots = np.empty(total, np.int32)
        used = kernels.distinct_slots(
            leaf_offsets, found, self.slot_of_leaf, self.slots, slot_offsets, slots
        )
        return QueryRoutes(
            slot_offsets,
            slots[:used],
            leaf_offsets,
            self.leaf_ids[found],
            self.slot_of_leaf[found],
        )

    def nbytes(self) -> int:
        """Returns the memory of all arrays in bytes."""
        columns = (getattr(self, name) for name in self.__slots__)
        return sum(column.nbytes for column in columns if isinstance(column, np.ndarray))


def compile_map(partition_map: PartitionMap) -> RoutingArrays:
    """Compiles a map whose tiles are boxes, text nodes and keyword nodes."""
    grid = _Grid()
    leaves = len(partition_map.leaves)
    items_count = leaves + len(partition_map.text_nodes) + len(partition_map.keyword_nodes)
    tiles = np.zeros((items_count, 4), np.int32)
    frame_of: dict[Place | None, int] = {}
    for place, tiling, items in partition_map.frames():
        frame_of[place] = grid.add(tiling, items)
        tiles[items] = tiling.spans
    own = secret()
    tables = [_keyword_table(node, own) for node in partition_map.text_nodes]
    nodes = partition_map.text_nodes
    firsts = np.concatenate([[0], np.cumsum([len(table[0]) for table in tables])])
    text_ints = [
        (frame_of[Place(node.id, 0)], first, len(table[0]) - 1, node.id)
        for node, first, table in zip(nodes, firsts, tables, strict=False)
    ]
    lengths = _stack_lengths(nodes)
    held_share = _stack([node.held_share for node in nodes], (CHILDREN, TEXTUAL_KINDS))
    covers = np.empty_like(held_share)
    kernels.fill_covers(held_share, lengths, covers)
    return RoutingArrays(
        version=partition_map.version,
        leaf_ids=np.array([leaf.id for leaf in partition_map.leaves], np.int32),
        leaf_boxes=np.array([leaf.box for leaf in partition_map.leaves], np.float64).reshape(-1, 4),
        slot_of_leaf=partition_map.slot_of_leaf.astype(np.int32),
        slots=partition_map.slots,
        tiles=tiles,
        text_ints=np.array(text_ints, np.int64).reshape(-1, 4),
        text_weights=_stack([n.weights for n in nodes], (TEXTUAL_KINDS,)),
        text_lengths=lengths,
        text_held_share=held_share,
        text_covers=covers,
        text_objects=_stack([n.objects for n in nodes], (CHILDREN,)),
        table_terms=_join([t[0] for t in tables], (), np.uint64),
        table_filled=_join([t[1] for t in tables], (), np.uint8),
        table_share=_join([t[2] for t in tables], (TEXTUAL_KINDS,), np.float64),
        table_held=_join([t[3] for t in tables], (), np.uint8),
        frequent_terms=partition_map.frequent_terms,
        frequencies=partition_map.frequencies,
        secret=own,
        **_keyword_nodes(partition_map, own),
        **grid.columns(),
    )


class _Grid:
    """Collects the borders, buckets and cells of frames."""

    def __init__(self) -> None:
        self.ints: list[list[int]] = []
        self.reals: list[list[float]] = []
        self.borders: tuple[list[NDArray[Any]], list[NDArray[Any]]] = ([], [])
        self.buckets: tuple[list[NDArray[Any]], list[NDArray[Any]]] = ([], [])
        self.cells: list[NDArray[np.int32]] = []
        # Start of the next frame's data: borders and buckets by axis, and cells. Maps have tens of
        # thousands of frames, and summing the earlier ones for each takes minutes.
        self._ends = [0, 0, 0, 0, 0]

    def add(self, tiling: Tiling, items: NDArray[np.int32]) -> int:
        ints, reals = [], []
        for axis, borders in enumerate((tiling.x_borders, tiling.y_borders)):
            buckets, scale = _bucket_table(borders)
            ints += [self._take(axis, len(borders) - 1), len(borders) - 1]
            ints += [self._take(2 + axis, len(buckets)), len(buckets) - 1]
            reals += [float(borders[0]), scale]
            self.borders[axis].append(borders[:-1])
            self.buckets[axis].append(buckets)
        self.ints.append([*ints, self._take(4, tiling.cells.size)])
        self.reals.append(reals)
        self.cells.append(items[tiling.cells].ravel())
        return len(self.ints) - 1

    def _take(self, column: int, count: int) -> int:
        """Returns the end of a column, and adds `count` to it."""
        begin = self._ends[column]
        self._ends[column] += count
        return begin

    def columns(self) -> dict[str, NDArray[Any]]:
        return {
            "frame_ints": np.array(self.ints, np.int64),
            "frame_reals": np.array(self.reals, np.float64),
            "x_borders": np.concatenate(self.borders[0]),
            "x_buckets": np.concatenate(self.buckets[0]),
            "y_borders": np.concatenate(self.borders[1]),
            "y_buckets": np.concatenate(self.buckets[1]),
            "cells": np.concatenate(self.cells),
        }


def _bucket_table(borders: NDArray[np.float64]) -> tuple[NDArray[np.int32], float]:
    """Returns i4[buckets + 1], borders before each bucket, and the number of buckets per degree."""
    inner = borders[:-1]
    count = BUCKETS_PER_BORDER * len(inner)
    scale = float(count / (borders[-1] - borders[0]))
    # The expression and its rounding equal those of the kernel.
    bucket = np.clip(((inner - borders[0]) * scale).astype(np.int64), 0, count - 1)
    return np.searchsorted(bucket, np.arange(count + 1)).astype(np.int32), scale


def _keyword_table(
    node: TextNode, own: Secret
) -> tuple[NDArray[np.uint64], NDArray[np.uint8], NDArray[np.float64], NDArray[np.uint8]]:
    """Returns the node's keywords as an open-addressing table (terms, filled, share, held)."""
    size = table_entries(len(node.terms))
    terms = np.zeros(size, np.uint64)
    filled = np.zeros(size, np.uint8)
    share = np.zeros((size, TEXTUAL_KINDS), np.float64)
    held = np.zeros(size, np.uint8)
    columns = terms, filled, share, held
    done = kernels.fill_keyword_table(node.terms, node.share, node.held, *own, *columns)
    required(done, "fill_keyword_table: no room")
    return terms, filled, share, held


def _keyword_nodes(partition_map: PartitionMap, own: Secret) -> dict[str, NDArray[Any]]:
    """Returns the columns described at `kernels.routing.routing.route_keywords`."""
    leaves = partition_map.leaves_of_keyword_nodes()
    ints, terms, children = [], [], []
    leaf_at = entry_at = 0
    for node, children_of in zip(partition_map.keyword_nodes, leaves, strict=True):
        size = table_entries(len(node.terms))
        table_terms, table_children = np.zeros(size, np.uint64), np.full(size, -1, np.int32)
        done = kernels.fill_child_table(
            node.terms, node.child_of_term, *own, table_terms, table_children
        )
        required(done, "fill_child_table: no room")
        ints.append((leaf_at, node.children, entry_at, size - 1, node.id, node.by_term))
        terms.append(table_terms)
        children.append(table_children)
        leaf_at += len(children_of)
        entry_at += size
    return {
        "word_ints": np.array(ints, np.int64).reshape(-1, 6),
        "word_leaves": _join(list(leaves), (), np.int32),
        "word_terms": _join(terms, (), np.uint64),
        "word_children": _join(children, (), np.int32),
    }


def _stack(parts: list[NDArray[np.float64]], shape: tuple[int, ...]) -> NDArray[np.float64]:
    return np.ascontiguousarray(np.stack(parts)) if parts else np.empty((0, *shape))


def _stack_lengths(nodes: tuple[TextNode, ...]) -> NDArray[np.float64]:
    """Returns the lengths of all nodes up to the longest query; the kernel's time grows with it."""
    used = [np.flatnonzero(node.lengths.any(0)).max(initial=0) + 1 for node in nodes]
    out = np.zeros((len(nodes), TEXTUAL_KINDS, max(used, default=1)))
    for number, (node, length) in enumerate(zip(nodes, used, strict=True)):
        out[number, :, :length] = node.lengths[:, :length]
    return out


def _join(parts: list[NDArray[Any]], shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty((0, *shape), dtype)
