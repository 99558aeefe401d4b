"""Small changes of a map: a leaf, a word, a name."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np

from sirocco.schemes.map.map import KeywordNode, Leaf, PartitionMap


def stepped(dice: Random, before: PartitionMap) -> PartitionMap:
    """Returns the map that follows one, which a few of these steps lead to."""
    after = replace(before, version=before.version + 1)
    for _ in range(dice.choice((1, 1, 2))):
        after = dice.choice((_moved, _moved, _reworded, _halved, _renamed))(dice, after)
    return after


def _moved(dice: Random, one: PartitionMap) -> PartitionMap:
    """Returns the map with a leaf in another slot."""
    slots = one.slot_of_leaf.copy()
    slots[dice.randrange(len(slots))] = dice.randrange(one.slots)
    return replace(one, slot_of_leaf=slots)


def _reworded(dice: Random, one: PartitionMap) -> PartitionMap:
    """Returns the map with some words of a keyword node in other leaves of it, if it has one."""
    if not one.keyword_nodes:
        return _moved(dice, one)
    nodes = list(one.keyword_nodes)
    row = dice.randrange(len(nodes))
    nodes[row] = _with_other_children(dice, nodes[row])
    return replace(one, keyword_nodes=tuple(nodes))


def _with_other_children(dice: Random, node: KeywordNode) -> KeywordNode:
    children = node.child_of_term.copy()
    for term in dice.sample(range(len(children)), min(2, len(children))):
        children[term] = dice.randrange(node.children)
    # Without its child a term belongs to that of its hash.
    kept = np.array([dice.random() < 0.8 for _ in children], np.bool_)
    return replace(node, terms=node.terms[kept], child_of_term=children[kept])


def _halved(dice: Random, one: PartitionMap) -> PartitionMap:
    """Returns the map with a leaf in two halves, which have different slots."""
    plain = [row for row, leaf in enumerate(one.leaves) if leaf.within is None]
    if not plain:
        return _moved(dice, one)
    row = dice.choice(plain)
    leaf = one.leaves[row]
    west, south, east, north = leaf.box
    middle = (west + east) / 2
    if east - west < 1.0:
        return _moved(dice, one)
    leaves = list(one.leaves)
    leaves[row] = replace(leaf, box=(west, south, middle, north))
    leaves.append(Leaf(max(each.id for each in leaves) + 1, (middle, south, east, north)))
    slots = np.append(one.slot_of_leaf, np.int32(dice.randrange(one.slots)))
    return replace(one, leaves=tuple(leaves), slot_of_leaf=slots, load_of_leaf=np.ones(len(leaves)))


def _renamed(dice: Random, one: PartitionMap) -> PartitionMap:
    """Returns the map with the ids of its leaves exchanged, and a leaf in another slot."""
    ids = [leaf.id for leaf in one.leaves]
    dice.shuffle(ids)
    leaves = tuple(replace(leaf, id=each) for leaf, each in zip(one.leaves, ids, strict=True))
    return _moved(dice, replace(one, leaves=leaves))
