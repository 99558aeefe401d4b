"""The partition map: leaves, text nodes, and the slot of each leaf.

The world is a *frame* tiled by leaves and text nodes. A text node sends each object of its box to
one of its children by the object's text. Every child is again a frame of the same box, tiled by its
own leaves and text nodes. A spatial scheme has only the world's frame, with leaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sirocco.model.errors import InvalidArgument
from sirocco.schemes.map.tiling import CELLS_MAX, Tiling, tile

# SSTD splits a node into four parts, in space and by text.
CHILDREN = 4
# Query kinds whose cost depends on the keywords of a leaf: range, kNN and ranked snapshots.
TEXTUAL_KINDS = 3

# Children of a keyword node. A text split of the whole world only needs one per slot.
KEYWORD_CHILDREN_MAX = 1 << 14

# Every process compiles every map and keeps two of them, and reads a map in the log again after
# every restart. Our maps are far below: 10,000 leaves with 3,000 text nodes.
LEAVES_MAX = 1 << 17
NODES_MAX = 1 << 13

# Columns of a text node's `lengths`: queries have at most 1,024 keywords. Compiled, all nodes are
# as wide as the widest.
LENGTHS_MAX = 1 << 12

# Total size of the routing arrays, several times that of the map's bytes: a keyword table has up to
# eight entries per term. 300 text nodes of a qt-tree take about 300 MiB.
COMPILED_BYTES_MAX = 512 << 20

# At most a quarter of a keyword table is filled: most terms of an object are not keywords of any
# query, and their probes should end at the first entry.
TABLE_ENTRIES_PER_TERM = 4

Box: TypeAlias = tuple[float, float, float, float]

WORLD: Box = (-180.0, -90.0, 180.0, 90.0)


@dataclass(frozen=True, slots=True)
class Place:
    """Place of a tile below the world's frame: child `child` of text node `node`."""

    node: int
    child: int


@dataclass(frozen=True, slots=True)
class Leaf:
    """One leaf.

    Attributes:
        id: Unique within the map; the next map version may reuse free ids.
        box: West, south, east, north in degrees; half open in the north and east, except at the
            frame's border.
        within: The text child whose frame contains the leaf; None: the world's frame.
    """

    id: int
    box: Box
    within: Place | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TextNode:
    """A box whose objects are split by text, with frozen keyword lists (SSTD 4.1.2).

    Attributes:
        id: Unique among the map's text nodes; salt for breaking ties.
        box: As for a leaf.
        within: As for a leaf.
        terms: u8[m], ascending hashes of the query keywords with the largest weight here. Only
            these can change a workload increment, so the lists hold no others.
        share: f8[m, 3], probability that a query keyword is this one, per textual kind.
        held: u1[m], bit c: the keyword list of child c contains the term.
        weights: f8[3], probability that a query is of the kind and reaches the box.
        lengths: f8[3, l], probability that such a query has 0, 1, … keywords.
        held_share: f8[4, 3], H of each child (SSTD eq. 1).
        objects: f8[4], sample objects of each child.
    """

    id: int
    box: Box
    within: Place | None
    terms: NDArray[np.uint64]
    share: NDArray[np.float64]
    held: NDArray[np.uint8]
    weights: NDArray[np.float64]
    lengths: NDArray[np.float64]
    held_share: NDArray[np.float64]
    objects: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class KeywordNode:
    """A box whose vocabulary is split among leaves (PS2Stream IV.A, text partitioning).

    An object belongs to the leaf of each of its terms. One leaf, by the hash of its event key, is
    its home: it stores the object and answers queries without keywords. A query is sent to the leaf
    of the key of each of its conjunctions, and to all leaves if it has none.

    Attributes:
        id: Unique among the map's text and keyword nodes; salt of the hashes.
        box, within: As for a leaf.
        children: Number of its leaves, each with the node's box and a separate place within it.
        terms: u8[m], ascending hashes of the terms with a chosen child; every other term belongs to
            the child of its hash.
        child_of_term: i4[m].
        by_term: False: every query is sent to all children, and objects only to their homes.
    """

    id: int
    box: Box
    within: Place | None
    children: int
    terms: NDArray[np.uint64]
    child_of_term: NDArray[np.int32]
    by_term: bool = True


def _no_terms() -> NDArray[np.uint64]:
    return np.empty(0, np.uint64)


def _no_frequencies() -> NDArray[np.float32]:
    return np.empty(0, np.float32)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PartitionMap:
    """A partition of the workload; checked at construction.

    Attributes:
        version: Map version, from 1.
        scheme: Name of the scheme that built it.
        world: The extent; points outside it belong to the nearest border tile.
        leaves: All leaves.
        text_nodes: All text nodes.
        slot_of_leaf: i4[leaves], in the order of `leaves`.
        load_of_leaf: f8[leaves], workload expected by the builder; only ratios matter.
        slots: Number of slots.
        keyword_nodes: All keyword nodes.
        frequent_terms: u8[f], ascending hashes of terms with known frequency; the key of a
            conjunction is its least frequent term, and unlisted terms have frequency 0.
        frequencies: f4[f], in the order of `frequent_terms`; only their order matters.
    """

    version: int
    scheme: str
    world: Box
    leaves: tuple[Leaf, ...]
    text_nodes: tuple[TextNode, ...]
    slot_of_leaf: NDArray[np.int32]
    load_of_leaf: NDArray[np.float64]
    slots: int
    keyword_nodes: tuple[KeywordNode, ...] = ()
    frequent_terms: NDArray[np.uint64] = field(default_factory=_no_terms)
    frequencies: NDArray[np.float32] = field(default_factory=_no_frequencies)

    def __post_init__(self) -> None:
        """Checks the map.

        Raises:
            InvalidArgument: A number is out of range, an id is taken twice, a frame has gaps or
                overlaps, a text node lacks a child or its columns do not fit together; or it would
                compile to more than `COMPILED_BYTES_MAX`.
        """
        self._check_size()
        if not 0 < self.version < 1 << 63:
            raise InvalidArgument(f"{self.version} is not positive", field="map.version")
        if not 0 < self.slots < 1 << 31:
            raise InvalidArgument(f"{self.slots} is not positive", field="map.slots")
        _check_ids("map.leaves", [leaf.id for leaf in self.leaves])
        node_ids = [node.id for node in self.text_nodes]
        _check_ids("map.nodes", node_ids + [node.id for node in self.keyword_nodes])
        if self.slot_of_leaf.shape != (len(self.leaves),):
            raise InvalidArgument("needs one slot for each leaf", field="map.slot_of_leaf")
        if ((self.slot_of_leaf < 0) | (self.slot_of_leaf >= self.slots)).any():
            raise InvalidArgument(f"slots run from 0 to {self.slots - 1}", field="map.slot_of_leaf")
        if self.load_of_leaf.shape != (len(self.leaves),):
            raise InvalidArgument("needs one load for each leaf", field="map.load_of_leaf")
        if not (np.isfinite(self.load_of_leaf) & (self.load_of_leaf >= 0)).all():
            raise InvalidArgument("a load is negative or not finite", field="map.load_of_leaf")
        # Each is used as a share of all.
        with np.errstate(over="ignore"):
            if not np.isfinite(self.load_of_leaf.sum()):
                raise InvalidArgument("loads have no sum", field="map.load_of_leaf")
        for node in self.text_nodes:
            _check_text_node(node)
        for keyword_node in self.keyword_nodes:
            _check_keyword_node(keyword_node)
        self._check_frequencies()
        for _ in self.frames():
            pass

    def frames(self) -> Iterator[tuple[Place | None, Tiling, NDArray[np.int32]]]:
        """Yields every frame: the world, then the children of each text node in order.

        Each is (place, tiling, items), where items i4[tiles] numbers the frame's tiles: position of
        a leaf, number of leaves + position of a text node, or after these the position of a keyword
        node. The leaves of keyword nodes are in no frame.

        Raises:
            InvalidArgument: A frame has gaps or overlaps, or a tile has no frame.
        """
        tiles: dict[Place | None, list[int]] = {None: []}
        for node in self.text_nodes:
            tiles.update({Place(node.id, child): [] for child in range(CHILDREN)})
        everything: tuple[Leaf | TextNode | KeywordNode, ...] = (
            *self.leaves,
            *self.text_nodes,
            *self.keyword_nodes,
        )
        held = {one for each in self.leaves_of_keyword_nodes() for one in each.tolist()}
        for item, one in enumerate(everything):
            if item in held:
                continue
            if one.within not in tiles:
                raise InvalidArgument(
                    f"{one.id} lies within unknown {one.within}", field="map.leaves"
                )
            tiles[one.within].append(item)
        self._check_reach(tiles)
        boxes = np.array([one.box for one in everything]).reshape(-1, 4)
        box_of_node = {node.id: node.box for node in self.text_nodes}
        # Cells of all frames together.
        cells_left = CELLS_MAX
        for place, items in tiles.items():
            box = self.world if place is None else box_of_node[place.node]
            name = "map.leaves" if place is None else f"map.leaves within {place}"
            tiling = tile(boxes[items], np.array(box), name, cells_left)
            cells_left -= tiling.cells.size
            yield place, tiling, np.array(items, np.int32)

    def leaves_of_keyword_nodes(self) -> list[NDArray[np.int32]]:
        """Returns the positions of each keyword node's leaves, i4[children].

        Raises:
            InvalidArgument: A child has no leaf, several, or one of another box.
        """
        held = [np.full(node.children, -1, np.int32) for node in self.keyword_nodes]
        number_of = {node.id: number for number, node in enumerate(self.keyword_nodes)}
        for position, leaf in enumerate(self.leaves):
            if leaf.within is None or leaf.within.node not in number_of:
                continue
            number, child = number_of[leaf.within.node], leaf.within.child
            fits = 0 <= child < len(held[number]) and held[number][child] < 0
            if not fits or leaf.box != self.keyword_nodes[number].box:
                raise InvalidArgument(f"leaf {leaf.id} is no child of its node", field="map.leaves")
            held[number][child] = position
        for node, positions in zip(self.keyword_nodes, held, strict=True):
            if (positions < 0).any():
                raise InvalidArgument(
                    f"keyword node {node.id} lacks the leaf of child {positions.argmin()}",
                    field="map.keyword_nodes",
                )
        return held

    def _check_size(self) -> None:
        """Refuses a map before anything that may exceed the memory is built from it."""
        for name, count, most in (
            ("leaves", len(self.leaves), LEAVES_MAX),
            ("text_nodes", len(self.text_nodes), NODES_MAX),
            ("keyword_nodes", len(self.keyword_nodes), NODES_MAX),
            # Each child has its own leaf.
            ("keyword_nodes.children", sum(one.children for one in self.keyword_nodes), LEAVES_MAX),
        ):
            if count > most:
                raise InvalidArgument(f"{count}, at most {most}", field=f"map.{name}")
        if (size := self.compiled_bytes()) > COMPILED_BYTES_MAX:
            raise InvalidArgument(
                f"would take {size} bytes of memory in every process, at most {COMPILED_BYTES_MAX}",
                field="map",
            )

    def compiled_bytes(self) -> int:
        """Returns the maximum size of the routing arrays without the cells of frames, bytes."""
        nodes, words = self.text_nodes, self.keyword_nodes
        longest = max((node.lengths.shape[-1] for node in nodes if node.lengths.ndim), default=0)
        numbers = TEXTUAL_KINDS * longest + 2 * CHILDREN * TEXTUAL_KINDS + 16
        return (
            len(nodes) * numbers * 8
            + sum(table_entries(node.terms.size) * (10 + 8 * TEXTUAL_KINDS) for node in nodes)
            + sum(table_entries(node.terms.size) * 12 + 64 for node in words)
            + self.frequent_terms.size * 12
            + len(self.leaves) * 64
        )

    def _check_frequencies(self) -> None:
        name = "map.frequencies"
        if self.frequent_terms.ndim != 1:
            raise InvalidArgument("terms are no list", field="map.frequent_terms")
        if self.frequencies.shape != self.frequent_terms.shape:
            raise InvalidArgument("needs one frequency for each term", field=name)
        if (self.frequent_terms[:-1] >= self.frequent_terms[1:]).any():
            raise InvalidArgument("terms are not strictly ascending", field="map.frequent_terms")
        if not (np.isfinite(self.frequencies) & (self.frequencies >= 0)).all():
            raise InvalidArgument("a frequency is negative or not finite", field=name)

    def _check_reach(self, tiles: dict[Place | None, list[int]]) -> None:
        """Refuses text nodes that contain one another: no object would reach them."""
        waiting: list[Place | None] = [None]
        reached = 0
        while waiting:
            for item in tiles[waiting.pop()]:
                if 0 <= item - len(self.leaves) < len(self.text_nodes):
                    node = self.text_nodes[item - len(self.leaves)]
                    waiting.extend(Place(node.id, child) for child in range(CHILDREN))
                    reached += 1
        if reached != len(self.text_nodes):
            raise InvalidArgument("a text node lies within itself", field="map.text_nodes")

    def with_version(self, version: int) -> PartitionMap:
        """Returns the same partition under another version."""
        return replace(self, version=version)

    def load_of_slot(self) -> NDArray[np.float64]:
        """Returns the expected workload of each slot, f8[slots]."""
        return np.bincount(self.slot_of_leaf, self.load_of_leaf, self.slots).astype(np.float64)


def table_entries(terms: int) -> int:
    """Returns the number of entries of an open-addressing table for `terms` terms."""
    return 1 << max(1, TABLE_ENTRIES_PER_TERM * terms - 1).bit_length()


def _check_ids(field: str, ids: list[int]) -> None:
    if len(set(ids)) != len(ids):
        raise InvalidArgument("an id is taken twice", field=field)
    if any(not 0 <= one < 1 << 31 for one in ids):
        raise InvalidArgument("an id is not a non-negative i4", field=field)


def _check_keyword_node(node: KeywordNode) -> None:
    field = f"map.keyword_nodes[id {node.id}]"
    if not 0 < node.children <= KEYWORD_CHILDREN_MAX:
        raise InvalidArgument(
            f"{node.children} children, not 1 to {KEYWORD_CHILDREN_MAX}", field=field
        )
    if node.terms.ndim != 1 or node.child_of_term.shape != node.terms.shape:
        raise InvalidArgument("needs one child for each term", field=field)
    if (node.terms[:-1] >= node.terms[1:]).any():
        raise InvalidArgument("terms are not strictly ascending", field=field)
    if ((node.child_of_term < 0) | (node.child_of_term >= node.children)).any():
        raise InvalidArgument(f"children run from 0 to {node.children - 1}", field=field)


def _check_text_node(node: TextNode) -> None:
    field = f"map.text_nodes[id {node.id}]"
    size = len(node.terms)
    columns = node.lengths.shape[-1] if node.lengths.ndim == 2 else 0
    if columns > LENGTHS_MAX:
        raise InvalidArgument(f"lengths up to {columns}, at most {LENGTHS_MAX}", field=field)
    expected = {
        "terms": (size,),
        "share": (size, TEXTUAL_KINDS),
        "held": (size,),
        "weights": (TEXTUAL_KINDS,),
        "lengths": (TEXTUAL_KINDS, max(columns, 1)),
        "held_share": (CHILDREN, TEXTUAL_KINDS),
        "objects": (CHILDREN,),
    }
    for name, shape in expected.items():
        column = getattr(node, name)
        if column.shape != shape:
            raise InvalidArgument(f"{name} has shape {column.shape}, not {shape}", field=field)
        if column.dtype == np.float64 and not (np.isfinite(column) & (column >= 0)).all():
            raise InvalidArgument(f"{name} holds a negative or non-finite number", field=field)
    if (node.terms[:-1] >= node.terms[1:]).any():
        raise InvalidArgument("terms are not strictly ascending", field=field)
