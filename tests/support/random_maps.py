"""Random maps: uneven, nested splits in space and text."""

from __future__ import annotations

from typing import Any

import numpy as np

from sirocco.schemes.map.map import CHILDREN, WORLD, Leaf, PartitionMap, Place, TextNode

NO_TERMS = np.empty(0, np.uint64)
VOCABULARY = np.random.default_rng(11).integers(0, 2**64, 200, np.uint64, endpoint=False)


def random_map(rng, leaves=24, slots=7, text=True):
    """Splits the world at random: in halves at uneven borders and, if wanted, by text nodes."""
    tiles: list[tuple[Any, Place | None]] = [(WORLD, None)]
    nodes: list[Any] = []
    while len(tiles) < leaves:
        box, within = tiles.pop(int(rng.integers(len(tiles))))
        if text and rng.random() < 0.15:
            nodes.append(random_text_node(rng, len(nodes), box, within))
            tiles += [(box, Place(nodes[-1].id, child)) for child in range(CHILDREN)]
            continue
        axis = int(rng.integers(2))
        low, high = box[axis], box[axis + 2]
        cut = float(rng.choice([(low + high) / 2, rng.uniform(low, high), low + 3e-9]))
        if not low + 2e-9 < cut < high - 2e-9:
            tiles.append((box, within))
            continue
        first, second = list(box), list(box)
        first[axis + 2] = second[axis] = cut
        tiles += [(tuple(first), within), (tuple(second), within)]
    ids = rng.permutation(len(tiles) * 3)[: len(tiles)]
    return PartitionMap(
        version=3,
        scheme="random",
        world=WORLD,
        leaves=tuple(Leaf(int(i), *tile) for i, tile in zip(ids, tiles, strict=True)),
        text_nodes=tuple(nodes),
        slot_of_leaf=rng.integers(0, slots, len(tiles)).astype(np.int32),
        load_of_leaf=rng.random(len(tiles)),
        slots=slots,
    )


def random_text_node(rng, number, box, within):
    terms = np.unique(rng.choice(VOCABULARY, 30))
    share = rng.dirichlet(np.ones(len(terms)), 3).T.copy()
    held = rng.integers(0, 16, len(terms)).astype(np.uint8)
    held_share = np.stack([share[(held >> child) & 1 == 1].sum(0) for child in range(CHILDREN)])
    return TextNode(
        id=number,
        box=box,
        within=within,
        terms=terms,
        share=share,
        held=held,
        weights=rng.random(3) * (rng.random(3) < 0.8),
        lengths=rng.dirichlet(np.ones(5), 3),
        held_share=held_share,
        objects=rng.integers(0, 20, CHILDREN).astype(np.float64),
    )


def random_terms(rng, count):
    """Returns CSR of distinct terms, none to twelve for each object."""
    rows = [rng.choice(VOCABULARY, int(rng.integers(0, 13)), replace=False) for _ in range(count)]
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return offsets, np.concatenate([NO_TERMS, *rows])


def route_points(arrays, rng, lon, lat):
    """Routes points with random texts and keys; returns (routes, keys)."""
    offsets, terms = random_terms(rng, len(lon))
    keys = rng.integers(0, 2**64, len(lon), np.uint64, endpoint=False)
    return arrays.route_objects(lon, lat, offsets, terms, keys), keys
