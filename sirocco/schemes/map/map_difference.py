"""Finds which queries a change of the map can move, by the slots that they are in.

A query is in the slot of every leaf that its boxes touch. Where neither map has a leaf that the
other lacks, with its box and its slot, a query is in the same slots by both. Where one does, the
query touches the leaves that the map before has there, so it is in one of their slots. All other
queries stay where they are, and need not be looked at.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sirocco.schemes.map.routing import RoutingArrays


def slots_of_change(base: RoutingArrays, following: RoutingArrays) -> frozenset[int] | None:
    """Returns slots of `base` that hold all queries whose slots differ between two maps.

    None: any query may differ, because its keywords decide as well.
    """
    if base.is_by_keyword or following.is_by_keyword:
        return None
    before, after = _leaves(base), _leaves(following)
    gone = {leaf.slot for leaf in before - after}
    new = sorted(after - before)
    if not new:
        return frozenset(gone)
    boxes = np.array([leaf.box for leaf in new])
    # Without their edges, which they share with neighbours.
    inner = np.nextafter(boxes, np.roll(boxes, 2, axis=1))
    slots = base.route_boxes(inner, np.array([0, len(inner)], np.int64)).slots
    return frozenset(gone.union(slots.tolist()))


class _Leaf(NamedTuple):
    box: tuple[float, ...]
    slot: int


def _leaves(routing: RoutingArrays) -> set[_Leaf]:
    boxes = map(tuple, routing.leaf_boxes.tolist())
    return {_Leaf(*each) for each in zip(boxes, routing.slot_of_leaf.tolist(), strict=True)}
