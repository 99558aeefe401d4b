"""Scheme `kdt-tree`: the hybrid of a kd-tree and text splits (PS2Stream IV.B, Algorithm 1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.builders.kdt_tree.nodes import Node
from sirocco.schemes.builders.kdt_tree.plan import KdtSettings, Plan, plan
from sirocco.schemes.builders.uniform_grid import check_counts
from sirocco.schemes.map.map import WORLD, KeywordNode, Leaf, PartitionMap, Place
from sirocco.schemes.map.routing import RoutingArrays, compile_map
from sirocco.schemes.workload.keyword_load import LoadCosts
from sirocco.schemes.workload.keyword_workload import KeywordWorkload, keyword_workload
from sirocco.schemes.workload.sample import Sample

# Maximum number of leaves of a map. With the terms they stay below the megabyte that brokers allow
# by default for the record of the map.
LEAVES_MAX = 4096


class KdtTree:
    """Splits by space if words are common or regions small, otherwise by text."""

    name = "kdt-tree"

    def __init__(self, settings: KdtSettings | None = None) -> None:
        self._settings = settings or KdtSettings()

    def build(self, sample: Sample, leaves: int, slots: int) -> PartitionMap:
        """Runs Algorithm 1.

        See `Scheme.build`. The workers m are the slots, the bound theta is `leaves` (at most
        `LEAVES_MAX`): there are at least min(m, theta) leaves, and more until the slots are
        balanced, up to theta; fewer if nothing is left to split. A sample without queries gets
        those of `keyword_workload`.
        """
        check_counts(leaves, slots)
        workload = keyword_workload(sample, self._settings.costs)
        leaves = min(leaves, LEAVES_MAX)
        made = plan(workload, self._settings, leaves, min(leaves, slots))
        return _map_of(workload, made, slots, self._settings.chosen_terms_max)

    def compile(self, partition_map: PartitionMap) -> RoutingArrays:
        """See `Scheme.compile`."""
        return compile_map(partition_map)


def _map_of(
    workload: KeywordWorkload, made: Plan, slots: int, chosen_terms_max: int
) -> PartitionMap:
    listed = _listed(made.nodes, workload.costs, chosen_terms_max)
    leaves: list[Leaf] = []
    keyword_nodes: list[KeywordNode] = []
    for number, node in enumerate(made.nodes):
        box = node.area.box
        if not node.parts:
            leaves.append(Leaf(len(leaves), box))
            continue
        children = len(node.parts)
        leaves += [Leaf(len(leaves) + c, box, Place(number, c)) for c in range(children)]
        keys = np.concatenate([part.keys for part in node.parts])
        child = np.repeat(np.arange(children, dtype=np.int32), [len(part) for part in node.parts])
        order = np.argsort(keys)
        order = order[listed[number][order]]
        terms = workload.keys[keys[order]]
        keyword_nodes.append(
            KeywordNode(
                id=number,
                box=box,
                within=None,
                children=children,
                terms=terms,
                child_of_term=child[order],
            )
        )
    return PartitionMap(
        version=1,
        scheme=KdtTree.name,
        world=WORLD,
        leaves=tuple(leaves),
        text_nodes=(),
        slot_of_leaf=made.merged.slot_of_leaf,
        load_of_leaf=_shares(made),
        slots=slots,
        keyword_nodes=tuple(keyword_nodes),
        frequent_terms=workload.frequent,
        frequencies=workload.frequencies,
    )


def _shares(made: Plan) -> NDArray[np.float64]:
    """Returns the loads of leaves, scaled so that those of a slot add up to the slot's load.

    Queries and objects shared by the leaves of one slot count once there. The unscaled sums would
    make slots look two or three times as uneven as they are.
    """
    slot, slots = made.merged.slot_of_leaf, len(made.merged.loads)
    together = np.bincount(slot, made.loads, slots)
    shares: NDArray[np.float64] = made.loads * made.merged.loads[slot] / together[slot]
    return shares


def _listed(nodes: list[Node], costs: LoadCosts, chosen_terms_max: int) -> list[NDArray[np.bool_]]:
    """Returns, for each node, which of its keys, part after part, the map lists.

    Those with the largest weight, as many as a map may hold; the others belong to the child of
    their hash.
    """
    weights = [
        np.concatenate([part.weights(costs, 1) for part in node.parts] or [np.empty(0)])
        for node in nodes
    ]
    together = np.concatenate(weights)
    is_listed = np.ones(len(together), np.bool_)
    is_listed[np.argsort(-together, kind="stable")[chosen_terms_max:]] = False
    return np.split(is_listed, np.cumsum([len(own) for own in weights])[:-1])
