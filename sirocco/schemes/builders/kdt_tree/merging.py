"""Allocation of the kdt-tree's leaves to slots (PS2Stream IV.B, MergeNodesIntoPartitions)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.kernels.routing.leaf_merging import loads_of_slots, merge_leaves
from sirocco.schemes.builders.kdt_tree.areas import stray_misses
from sirocco.schemes.builders.kdt_tree.nodes import Node
from sirocco.schemes.workload.allocation import karmarkar_karp
from sirocco.schemes.workload.columns import keep_values
from sirocco.schemes.workload.keyword_workload import KeywordWorkload

# Maximum of (leaf, query or object) pairs; of more, a regular selection of queries and objects
# represents the rest. Merging is repeated some ten times and takes time proportional to pairs times
# slots if queries reach all leaves; a better estimate is not worth seconds each.
PAIRS_MAX = 1 << 18


@dataclass(frozen=True, slots=True, eq=False)
class Merged:
    """An allocation of leaves to slots.

    Attributes:
        slot_of_leaf: i4[n].
        loads: f8[slots]; queries and objects shared by the leaves of a slot count once.
    """

    slot_of_leaf: NDArray[np.int32]
    loads: NDArray[np.float64]

    @property
    def balance(self) -> float:
        """Lmax / Lmin."""
        greatest, least = float(self.loads.max()), float(self.loads.min())
        return greatest / least if least > 0 else np.inf


class Shared:
    """Queries and objects of leaves: numbers of queries, and after them of objects.

    Only leaves of keyword nodes share objects.
    """

    def __init__(self, rows: Sequence[NDArray[np.int32]], workload: KeywordWorkload) -> None:
        """Joins the rows of `handled_by`, one per leaf."""
        queries, objects = len(workload.key_of_query), len(workload.sample)
        costs = workload.costs
        offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        items = np.concatenate([*rows, np.empty(0, np.int32)])
        weights = np.repeat([costs.update, costs.handling], [queries, objects])
        stride = -(-len(items) // PAIRS_MAX)
        if stride > 1:
            offsets, items = keep_values(offsets, items, items % stride == 0)
            weights = weights * stride
        self._offsets, self._items, self._weights = offsets, items, weights

    def merge(self, loads: NDArray[np.float64], slots: int) -> Merged:
        """Merges leaves, the heaviest first; see `merge_leaves`."""
        slot_of_leaf = np.empty(len(loads), np.int32)
        sums = np.zeros(slots)
        order = np.argsort(-loads, kind="stable")
        merge_leaves(order, loads, self._offsets, self._items, self._weights, slot_of_leaf, sums)
        return Merged(slot_of_leaf, sums)

    def difference(self, loads: NDArray[np.float64], slots: int) -> Merged:
        """Balances leaves by differencing, ignoring shared queries and objects."""
        slot_of_leaf = karmarkar_karp(loads, slots)
        sums = np.zeros(slots)
        loads_of_slots(loads, self._offsets, self._items, self._weights, slot_of_leaf, sums)
        return Merged(slot_of_leaf, sums)


def handled_by(node: Node, workload: KeywordWorkload) -> list[NDArray[np.int32]]:
    """Returns, for each leaf of a node, what it may share with others, see `Shared`.

    The leaves to which stray words send an object are drawn at random, with the hash's probability.
    """
    queries = node.area.queries
    if not node.parts:
        return [queries]
    child_of_key = np.zeros(len(workload.keys) + 1, np.int64)
    for child, part in enumerate(node.parts):
        child_of_key[part.keys] = child
    keys = workload.key_of_query[queries]
    unkeyed, keyed = queries[keys < 0], queries[keys >= 0]
    child_of = child_of_key[keys[keys >= 0]]
    order = np.argsort(child_of, kind="stable")
    ends = np.cumsum(np.bincount(child_of, minlength=len(node.parts)))
    own = np.split(keyed[order], ends[:-1])
    first_object = np.int32(len(workload.key_of_query))
    dice = np.random.default_rng(len(node.area.objects))
    missed = stray_misses(len(node.parts), node.area.strays)
    sent = [
        sorted_distinct(
            np.concatenate([part.holders, node.area.objects[_strayed(dice, node, missed)]])
        )
        for part in node.parts
    ]
    return [
        np.concatenate([unkeyed, own_objects, first_object + objects]).astype(np.int32)
        for objects, own_objects in zip(sent, own, strict=True)
    ]


def _strayed(
    dice: np.random.Generator, node: Node, missed: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Draws the objects sent to a leaf by a stray word, or with their home there."""
    return (node.area.strays > 0) & (dice.random(len(missed)) >= missed)
