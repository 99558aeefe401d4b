"""SSTD's adjustment of the tree: heavy leaves are split, light ones merged (SSTD 5.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from sirocco.schemes.balance.base.draft import Draft, Part
from sirocco.schemes.balance.base.neighbours import quartets
from sirocco.schemes.balance.sstd.query_mix import Quarters, QueryMix, Rows
from sirocco.schemes.map.map import CHILDREN, Box, Place

# Splits in one adjustment. Each reads the sample's queries once; a remaining imbalance is left to
# the next round.
SPLITS_MAX = 64

# Leaves that an adjustment may add, as a share of the existing ones, if nothing is light enough to
# be merged. The paper stops there; a map that begins with one leaf per slot would then never be
# split further.
LEAVES_GROWTH_MAX = 1.0


@dataclass(frozen=True, slots=True)
class Merge:
    """Four leaves that can become one.

    Attributes:
        load: Predicted load of the joint leaf.
        leaves: Their numbers.
        node: The text node whose children they are; None: they are quarters of a box.
    """

    load: float
    leaves: tuple[int, ...]
    node: int | None


def adjust_tree(
    draft: Draft, mix: QueryMix, epsilon: float, is_balanced: Callable[[Draft], bool]
) -> None:
    """Splits the heaviest leaf and merges the lightest four, until the load can be balanced.

    Args:
        draft: The draft to change.
        mix: Known objects and queries.
        epsilon: Greatest discrepancy ĥ for a split in space (equation 3).
        is_balanced: Returns whether the leaves can be divided well enough.
    """
    leaves_max = int(len(draft) * (1 + LEAVES_GROWTH_MAX)) + CHILDREN - 1
    split: set[int] = set()
    for _ in range(SPLITS_MAX):
        children = _split_heaviest(draft, mix, epsilon)
        if not children:
            return
        split.update(children)
        heaviest = max(draft[number].load for number in draft)
        # Split leaves are not merged again: they are not candidates in the paper's heap either.
        candidates = (one for one in merges(draft, mix) if split.isdisjoint(one.leaves))
        merge = min(candidates, key=lambda one: (one.load, one.leaves), default=None)
        if merge is not None and merge.load <= heaviest:
            _merge(draft, mix, merge)
        elif merge is not None or len(draft) + CHILDREN - 1 > leaves_max:
            # The lightest merge is heavier than every leaf, or there would be too many leaves.
            return
        if is_balanced(draft):
            return


def _split_heaviest(draft: Draft, mix: QueryMix, epsilon: float) -> list[int]:
    """Splits the heaviest leaf that can be split, by equation 3; returns the new leaves."""
    order = sorted(filter(draft.is_spatial, draft), key=lambda number: -draft[number].load)
    # An unsplittable leaf leaves the balance to others only if these weigh as much.
    for number in order[: CHILDREN * CHILDREN]:
        leaf = draft[number]
        if leaf.load <= 0:
            return []
        boxes = mix.quarters(leaf.box, number)
        if boxes is not None and mix.discrepancy(leaf.box, boxes) <= epsilon:
            return _split_space(draft, mix, number, boxes)
        children = _split_text(draft, mix, number)
        if not children and boxes is not None:
            children = _split_space(draft, mix, number, boxes)
        if children:
            return children
    return []


def _split_space(draft: Draft, mix: QueryMix, number: int, boxes: Quarters) -> list[int]:
    leaf = draft[number]
    rows = mix.in_quarters(boxes, number)
    shares = mix.load_shares(number, leaf.box, list(zip(boxes, rows, strict=True)))
    reach = [mix.reach(box) for box in boxes]
    whole = mix.reach(leaf.box)
    parts = [
        Part(box, leaf.within, leaf.load * share, min(own / whole, 1.0) if whole else 1.0)
        for box, share, own in zip(boxes, shares, reach, strict=True)
    ]
    return _cut(draft, mix, number, parts, rows)


def _split_text(draft: Draft, mix: QueryMix, number: int) -> list[int]:
    """Splits a leaf by text; returns nothing if that separates nothing."""
    leaf = draft[number]
    found = mix.text_split(leaf.box, leaf.within, number, draft.next_node)
    if found is None:
        return []
    node, rows = found
    shares = mix.load_shares(number, leaf.box, [(leaf.box, own) for own in rows])
    draft.add_text_node(node)
    # Every child needs all queries: query routing ignores text (4.2).
    parts = [
        Part(leaf.box, Place(node.id, child), leaf.load * share, 1.0)
        for child, share in enumerate(shares)
    ]
    return _cut(draft, mix, number, parts, rows)


def _cut(
    draft: Draft, mix: QueryMix, number: int, parts: list[Part], rows: list[Rows]
) -> list[int]:
    children = draft.cut(number, parts)
    for child, own_rows in zip(children, rows, strict=True):
        mix.remember(child, own_rows)
    return children


def merges(draft: Draft, mix: QueryMix) -> Iterator[Merge]:
    """Yields the nodes whose four children are leaves.

    The map does not store its tree: four leaves that meet in one point and form a box are treated
    as children of a node.
    """
    leaves = [(number, draft[number]) for number in draft if draft.is_spatial(number)]
    for four in quartets(leaves):
        box = (*draft[four[0]].box[:2], *draft[four[3]].box[2:])
        yield Merge(_joint_load(draft, mix, four, box), four, None)
    nodes = {node.id: node for node in draft.text_nodes}
    nested = {node.within.node for node in draft.text_nodes if node.within is not None}
    within: dict[int, list[int]] = {node: [] for node in nodes}
    for number, leaf in leaves:
        if leaf.within is not None:
            within[leaf.within.node].append(number)
    for node, numbers in within.items():
        if len(numbers) == CHILDREN and node not in nested:
            load = _joint_load(draft, mix, tuple(numbers), nodes[node].box)
            yield Merge(load, tuple(numbers), node)


def _joint_load(draft: Draft, mix: QueryMix, numbers: tuple[int, ...], box: Box) -> float:
    apart = sum(draft[number].load for number in numbers)
    return apart * mix.growth([(number, draft[number].box) for number in numbers], box)


def _merge(draft: Draft, mix: QueryMix, merge: Merge) -> None:
    """Joins four leaves in the slot of the heaviest."""
    loads = np.array([draft[number].load for number in merge.leaves])
    slot = draft[merge.leaves[int(loads.argmax())]].slot
    rows = np.sort(np.concatenate([mix.rows(number) for number in merge.leaves]))
    if merge.node is None:
        number = draft.merge(merge.leaves, slot, merge.load)
    else:
        number = draft.join_node(merge.node, merge.leaves, slot, merge.load)
    mix.remember(number, rows)
