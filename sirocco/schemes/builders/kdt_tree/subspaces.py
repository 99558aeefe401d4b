"""Phase 1 of the kdt-tree: where words of objects and queries are similar (PS2Stream IV.B)."""

from __future__ import annotations

import heapq
import math

from sirocco.schemes.builders.kdt_tree.areas import Area, Areas
from sirocco.schemes.builders.kdt_tree.nodes import Node
from sirocco.schemes.builders.kdt_tree.similarity import Similarity

# |alpha - sim| up to which a split does not change the similarity ("is minor"). Cosines of few keys
# differ by chance, about as one over the root of their number.
SIMILARITY_CHANGE_MIN = 0.05


def subspaces(areas: Areas, similarity_min: float, nodes_max: int) -> list[Node]:
    """Divides space by the text similarity of objects and queries (Algorithm 1, lines 1-12).

    The heaviest node is processed first. Undecided nodes count as consistent (N_t) when there are
    `nodes_max` nodes: the second phase must give at least one part to each node.

    Args:
        areas: The areas of the workload.
        similarity_min: delta; nodes at least as similar are N_s.
        nodes_max: Maximum number of nodes.
    """
    similarity = Similarity(areas.workload)
    world = areas.world()
    undecided = [(-world.load, 0, world, similarity.of(world))]
    serial = 1
    nodes: list[Node] = []
    while undecided:
        _, _, area, alike = heapq.heappop(undecided)
        if alike >= similarity_min:
            nodes.append(Node(area, is_text=False))
            continue
        pair = None
        if len(nodes) + len(undecided) + 2 <= nodes_max:
            pair = _unlike_halves(areas, area, alike, similarity)
        if pair is None:
            nodes.append(Node(area, is_text=True))
            continue
        for half, half_alike in pair:
            heapq.heappush(undecided, (-half.load, serial, half, half_alike))
            serial += 1
    return nodes


def _unlike_halves(
    areas: Areas, area: Area, alike: float, similarity: Similarity
) -> list[tuple[Area, float]] | None:
    """Lines 8-9: halves in the direction of least alpha; None if that is about `alike`."""
    pairs = [pair for axis in (0, 1) if (pair := areas.cut(area, axis)) is not None]
    if not pairs:
        return None
    rated = [[(half, similarity.of(half)) for half in pair] for pair in pairs]
    best = min(rated, key=lambda pair: min(each[1] for each in pair))
    alpha = min(each[1] for each in best)
    chance = 1 / math.sqrt(max(min(half.keyed for half, _ in best), 1))
    return best if abs(alpha - alike) > max(SIMILARITY_CHANGE_MIN, chance) else None
