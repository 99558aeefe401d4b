"""PS2Stream's phase I: cells are split by text or merged if that saves work (V.A)."""

from __future__ import annotations

import numpy as np

from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.schemes.balance.base.draft import Draft, Part
from sirocco.schemes.balance.base.placement import Placement
from sirocco.schemes.balance.base.sample_routes import SampleRoutes, load_of
from sirocco.schemes.builders.kdt_tree.areas import Areas
from sirocco.schemes.builders.kdt_tree.nodes import Node
from sirocco.schemes.map.map import KeywordNode, Place
from sirocco.schemes.workload.keyword_terms import TermSet, halves, term_set
from sirocco.schemes.workload.keyword_workload import KeywordWorkload

# Share of a cell's load that a split or merge must save: about the accuracy of the sample.
SAVED_SHARE_MIN = 0.05

# Minimum of sample objects in a cell for a decision about its words.
OBJECTS_MIN = 32


class PhaseOne:
    """Phase I between two evaluators, on a draft."""

    def __init__(
        self,
        placement: Placement,
        draft: Draft,
        workload: KeywordWorkload,
        routes: SampleRoutes,
    ) -> None:
        self._placement, self._draft = placement, draft
        self._workload, self._routes = workload, routes
        self._nodes = {node.id: node for node in placement.view.map.keyword_nodes}

    def split(self, leaf: int, target: int, room: float) -> bool:
        """Splits a leaf by text in two and moves the smaller part to another slot.

        Args:
            leaf: A leaf that is not a child of a keyword node.
            target: The slot.
            room: Load that may be added to that slot's evaluator.

        Returns:
            Whether it saves work and was done.
        """
        old = self._draft[leaf]
        objects = self._routes.objects_of(leaf).astype(np.int32)
        queries = self._routes.queries_of(leaf).astype(np.int32)
        if len(objects) < OBJECTS_MIN or len(queries) == 0:
            return False
        terms = term_set(self._workload, objects, queries)
        pair = halves(terms, len(self._workload.sample), self._workload.costs)
        if pair is None:
            return False
        area = Areas(self._workload).area(old.box, objects, queries)
        shares = Node(area, True, pair).loads(self._workload.costs) / area.load
        standing = float(len(queries))
        sizes = [(part.keyed + standing - area.keyed) / standing for part in pair]
        moving = int(np.argmin(sizes))
        if shares.sum() > 1 - SAVED_SHARE_MIN or old.load * shares[moving] > room:
            return False
        node = self._keyword_node(leaf, pair)
        self._draft.add_keyword_node(node)
        parts = [
            Part(old.box, Place(node.id, child), old.load * float(shares[child]), sizes[child])
            for child in range(2)
        ]
        self._draft.put(self._draft.cut(leaf, parts)[moving], target)
        return True

    def merge(self, leaf: int, evaluator: int, room: float) -> bool:
        """Moves a child of a keyword node to the slot of a sibling, where both are one cell.

        In one slot, an object of both is sent once, and so is a query without a key: that is the
        only effect of merging two cells of the same space.

        Args:
            leaf: A child of a keyword node.
            evaluator: Evaluator of the siblings.
            room: Load that may be added to that evaluator.

        Returns:
            Whether it saves work and was done.
        """
        draft, within = self._draft, self._draft[leaf].within
        if within is None:
            return False
        for sibling in draft:
            other = draft[sibling]
            if sibling == leaf or other.within is None or other.within.node != within.node:
                continue
            if self._placement.machine_of_slot[other.slot] != evaluator:
                continue
            share = self._joint_share(leaf, sibling)
            together = (draft[leaf].load + other.load) * share
            if share > 1 - SAVED_SHARE_MIN or together - other.load > room:
                continue
            draft.put(leaf, other.slot, max(together - other.load, 0.0))
            self._join(within.node)
            return True
        return False

    def _joint_share(self, leaf: int, sibling: int) -> float:
        """Returns the cost of two leaves in one place over their separate costs."""
        routes, costs = self._routes, self._workload.costs
        objects = [routes.objects_of(one) for one in (leaf, sibling)]
        queries = [routes.queries_of(one) for one in (leaf, sibling)]
        if sum(len(one) for one in objects) < OBJECTS_MIN:
            return 1.0
        objects.append(sorted_distinct(np.concatenate(objects)))
        queries.append(sorted_distinct(np.concatenate(queries)))
        loads = load_of(
            np.array([float(len(one)) for one in objects]),
            np.array([float(len(one)) for one in queries]),
            costs,
        )
        return float(loads[2] / (loads[0] + loads[1]))

    def _join(self, node: int) -> None:
        """Replaces a keyword node by a plain leaf when all its children are in one slot."""
        draft = self._draft
        children = [n for n in draft if (place := draft[n].within) and place.node == node]
        slots = {draft[number].slot for number in children}
        if len(slots) == 1:
            load = sum(draft[number].load for number in children)
            draft.join_node(node, tuple(children), slots.pop(), load)

    def _keyword_node(self, leaf: int, pair: tuple[TermSet, TermSet]) -> KeywordNode:
        keys = np.concatenate([part.keys for part in pair])
        child = np.repeat(np.arange(2, dtype=np.int32), [len(part) for part in pair])
        order = np.argsort(keys)
        terms = self._workload.keys[keys[order]]
        old = self._draft[leaf]
        return KeywordNode(
            id=self._draft.next_node,
            box=old.box,
            within=old.within,
            children=2,
            terms=terms,
            child_of_term=child[order],
        )
