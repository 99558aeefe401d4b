"""Finds which queries a change of the map can move, by the leaves that their boxes touch.

A query is in the slot of every leaf that its boxes touch; of the leaves that share a vocabulary, of
those of its keys. Where neither map has a leaf that the other lacks, with its box, its words and
its slot, a query touches the same leaves by both. Where one does, the query touches the leaves that
the map before has there. All other queries stay where they are, and need not be looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.map.map import WORLD
from sirocco.schemes.map.routing import RoutingArrays

# The least longitude that is not the antimeridian's.
_BEYOND_EDGE = np.nextafter(WORLD[0], 0.0)


@dataclass(frozen=True, slots=True)
class MapDifference:
    """Where two maps differ, in terms of the one before.

    Attributes:
        leaves: ids of leaves. A query that touches none of them is in the same slots by both maps.
        slots: of these leaves: a query that touches one of them is in one of these.
        renamed: the other leaves: id → id in the map that follows.
    """

    leaves: frozenset[int]
    slots: frozenset[int]
    renamed: dict[int, int]


def map_difference(base: RoutingArrays, following: RoutingArrays) -> MapDifference | None:
    """Compares a map with the one that follows it.

    None: any query may differ. By the first map that splits the vocabulary, keys decide, which
    nobody has looked at before.
    """
    if following.is_by_keyword and not base.is_by_keyword:
        return None
    before, after = _leaves(base), _leaves(following)
    id_after: dict[_Leaf, int] = {}
    for leaf_id, leaf in after.items():
        # Text children that have the same box and slot are touched by the same queries.
        id_after.setdefault(leaf, leaf_id)
    affected = {leaf_id for leaf_id, leaf in before.items() if leaf not in id_after}
    kept_nodes = {leaf.words for leaf in before.values() if leaf.words}
    known = set(before.values())
    # A leaf of a node that both maps have is reached by the keys that its former self was.
    new = {leaf.box for leaf in id_after if leaf not in known and leaf.words not in kept_nodes}
    affected |= _touched(base, sorted(new))
    affected |= _losing_words(base, following)
    slot_of = dict(zip(base.leaf_ids.tolist(), base.slot_of_leaf.tolist(), strict=True))
    return MapDifference(
        frozenset(affected),
        frozenset(slot_of[leaf] for leaf in affected),
        {each: id_after[leaf] for each, leaf in before.items() if each not in affected},
    )


class _Words(NamedTuple):
    """What makes a keyword node the same in two maps, but for terms with a chosen child."""

    node: int
    children: int
    is_by_term: int
    box: tuple[float, ...]


class _Leaf(NamedTuple):
    """What decides which queries touch a leaf, and where they are."""

    box: tuple[float, ...]
    slot: int
    words: _Words | None = None
    child: int = 0


def _leaves(routing: RoutingArrays) -> dict[int, _Leaf]:
    """Returns the leaves of a map by id."""
    boxes = [tuple(box) for box in routing.leaf_boxes.tolist()]
    slots = routing.slot_of_leaf.tolist()
    leaves = [_Leaf(*each) for each in zip(boxes, slots, strict=True)]
    for words, positions in _keyword_nodes(routing):
        for child, position in enumerate(positions):
            leaves[position] = leaves[position]._replace(words=words, child=child)
    return dict(zip(routing.leaf_ids.tolist(), leaves, strict=True))


def _keyword_nodes(routing: RoutingArrays) -> Iterable[tuple[_Words, list[int]]]:
    """Yields the keyword nodes of a map and the positions of their leaves, by child."""
    for begin, children, _, _, node, is_by_term in routing.word_ints.tolist():
        positions = routing.word_leaves[begin : begin + children].tolist()
        box = tuple(routing.leaf_boxes[positions[0]].tolist())
        yield _Words(node, children, is_by_term, box), positions


def _touched(base: RoutingArrays, boxes: list[tuple[float, ...]]) -> set[int]:
    """Returns the leaves of a map under some half-open boxes."""
    if not boxes:
        return set()
    inner = np.array(boxes)
    # Without the edges that belong to neighbours; and without the antimeridian, where the leaves on
    # its other side are touched as well. No box is that narrow.
    inner[:, 2:] = np.nextafter(inner[:, 2:], inner[:, :2])
    inner[inner[:, 0] == WORLD[0], 0] = _BEYOND_EDGE
    return set(base.route_boxes(inner, np.array([0, len(inner)], np.int64)).leaves.tolist())


def _losing_words(base: RoutingArrays, following: RoutingArrays) -> set[int]:
    """Returns the leaves that lose terms to other leaves of a node that both maps have."""
    own, other = dict(_numbered(base)), dict(_numbered(following))
    losing: set[int] = set()
    for words in own.keys() & other.keys():
        if not words.is_by_term:
            continue
        chosen, chosen_then = _chosen(base, own[words]), _chosen(following, other[words])
        # All others belong to the child of their hash, by both maps.
        pairs = chosen.items() ^ chosen_then.items()
        terms = np.array(sorted({term for term, _ in pairs}), np.uint64)
        leaves, leaves_then = (
            _leaves_of_terms(routing, number, words, terms)
            for routing, number in ((base, own[words]), (following, other[words]))
        )
        is_moved = leaves[1] != leaves_then[1]
        losing |= set(leaves[0][is_moved].tolist())
    return losing


def _numbered(routing: RoutingArrays) -> Iterable[tuple[_Words, int]]:
    for number, (words, _) in enumerate(_keyword_nodes(routing)):
        yield words, number


def _chosen(routing: RoutingArrays, number: int) -> dict[int, int]:
    """Returns the terms of a keyword node that have a chosen child."""
    _, _, begin, last, _, _ = routing.word_ints[number].tolist()
    children = routing.word_children[begin : begin + last + 1]
    is_taken = children >= 0
    terms = routing.word_terms[begin : begin + last + 1][is_taken].tolist()
    return dict(zip(terms, children[is_taken].tolist(), strict=True))


def _leaves_of_terms(
    routing: RoutingArrays, number: int, words: _Words, terms: NDArray[np.uint64]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Returns the leaf of a keyword node that each term leads to: its id i4[t], its child i8[t]."""
    begin, children = routing.word_ints[number, :2].tolist()
    own = routing.leaf_ids[routing.word_leaves[begin : begin + children]]
    corner = np.array([words.box[0], words.box[1]] * 2)
    each = np.arange(len(terms) + 1, dtype=np.int64)
    points = np.tile(corner, (len(terms), 1)) if len(terms) else np.empty((0, 4))
    routes = routing.route_boxes(points, each, each, terms)
    # A corner may touch other leaves as well: text children share it, and so do both edges of the
    # world.
    order = np.argsort(own)
    places = np.minimum(np.searchsorted(own[order], routes.leaves), len(own) - 1)
    is_own = own[order][places] == routes.leaves
    return routes.leaves[is_own], order[places[is_own]]
