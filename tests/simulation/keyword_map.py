"""A map of four quarters, two of which split the vocabulary, each in its own way."""

from __future__ import annotations

from functools import lru_cache
from random import Random

import numpy as np

from sirocco.model.text import term_hash
from sirocco.schemes.map.map import Box, KeywordNode, Leaf, PartitionMap, Place
from sirocco.schemes.map.map_bytes import to_bytes

WORLD: Box = (-180.0, -90.0, 180.0, 90.0)
QUARTERS: list[Box] = [
    (-180.0, -90.0, 0.0, 0.0),
    (0.0, -90.0, 180.0, 0.0),
    (-180.0, 0.0, 0.0, 90.0),
    (0.0, 0.0, 180.0, 90.0),
]
CHILDREN_MAX = 5


@lru_cache
def quartered_map(words: tuple[str, ...], slots: int, seed: int) -> bytes:
    """Returns a map of one leaf, two nodes by term, and a node whose leaves hold all queries."""
    dice = Random(f"quarters {seed} {slots}")
    leaves, nodes = [Leaf(0, QUARTERS[0])], []
    for number, box in enumerate(QUARTERS[1:]):
        children = dice.randint(2, CHILDREN_MAX)
        chosen = dice.sample(words, dice.randint(0, len(words)))
        terms = np.sort(np.array([term_hash(word) for word in chosen], np.uint64))
        places = np.array([dice.randrange(children) for _ in chosen], np.int32)
        nodes.append(
            KeywordNode(
                id=number,
                box=box,
                within=None,
                children=children,
                terms=terms,
                child_of_term=places,
                by_term=number < 2,
            )
        )
        for child in range(children):
            leaves.append(Leaf(len(leaves), box, Place(number, child)))
    frequent = np.sort(np.array([term_hash(word) for word in words], np.uint64))
    return to_bytes(
        PartitionMap(
            version=1,
            scheme="kdt-tree",
            world=WORLD,
            leaves=tuple(leaves),
            text_nodes=(),
            slot_of_leaf=np.array([dice.randrange(slots) for _ in leaves], np.int32),
            load_of_leaf=np.ones(len(leaves)),
            slots=slots,
            keyword_nodes=tuple(nodes),
            frequent_terms=frequent,
            frequencies=np.array([dice.randrange(4) for _ in words], np.float32),
        )
    )
