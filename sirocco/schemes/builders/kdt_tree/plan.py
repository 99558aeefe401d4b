"""The plan of a kdt-tree: nodes, leaves and their slots (PS2Stream IV.B, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.builders.kdt_tree.areas import Areas
from sirocco.schemes.builders.kdt_tree.merging import Merged, Shared, handled_by
from sirocco.schemes.builders.kdt_tree.nodes import Cutter, Node
from sirocco.schemes.builders.kdt_tree.numbers import numbers_of_parts
from sirocco.schemes.builders.kdt_tree.subspaces import subspaces
from sirocco.schemes.builders.qt_tree import UNSEEN_LEAF_SHARE
from sirocco.schemes.builders.text_cut import CHOSEN_TERMS_MAX
from sirocco.schemes.workload.keyword_load import LoadCosts
from sirocco.schemes.workload.keyword_workload import KeywordWorkload

# A part of less than this share of a slot is not split further when the numbers of parts are
# computed: it can neither make a slot too heavy nor fill a gap.
SLOT_SHARE_MIN = 1 / 4

# Leaves split before merging is tried again, as a share of all: one up to 63 leaves, as in the
# paper, and some hundred merging rounds for a thousand leaves instead of a thousand.
CUT_SHARE = 1 / 32


@dataclass(frozen=True, slots=True)
class KdtSettings:
    """Parameters of Algorithm 1.

    Attributes:
        similarity: delta, text similarity from which on a node is not suitable for text. Keys
            distributed like the words of objects give nearly 1, rare ones nearly 0, and a half of
            each a value between: a lower delta would hide the rare ones.
        balance: sigma, the greatest Lmax / Lmin of slots.
        is_filtered: Whether routers hold back objects that no query of a leaf needs, like
            PS2Stream's dispatchers (IV.C, H2). Ours send an object to the leaves of all its words,
            since it is stored for later queries; without these copies, a split by text would look
            twice as cheap as it is.
        costs: Constants of Definition 1; None: `costs_for` the sample.
        chosen_terms_max: Keys of a map with a chosen child.
    """

    similarity: float = 0.9
    balance: float = 1.2
    is_filtered: bool = False
    costs: LoadCosts | None = None
    chosen_terms_max: int = CHOSEN_TERMS_MAX


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Result of Algorithm 1.

    Attributes:
        nodes: The nodes that are not split further by space.
        loads: f8[n], load of each of their leaves in turn.
        merged: Slots of these leaves, and the loads of slots.
    """

    nodes: list[Node]
    loads: NDArray[np.float64]
    merged: Merged


def plan(workload: KeywordWorkload, settings: KdtSettings, leaves: int, slots: int) -> Plan:
    """Runs Algorithm 1.

    Args:
        workload: The workload.
        settings: delta, sigma and the costs.
        leaves: theta, the greatest number of leaves.
        slots: m, the number of workers; not over `leaves`.
    """
    areas = Areas(workload, is_filtered=settings.is_filtered)
    planner = _Planner(workload, Cutter(areas), leaves, slots)
    nodes = subspaces(areas, settings.similarity, slots)
    if len(nodes) < slots:
        nodes = planner.cut(nodes)
    return planner.balance(nodes, settings.balance)


class _Planner:
    """Phase 2 over one workload."""

    def __init__(self, workload: KeywordWorkload, cutter: Cutter, leaves: int, slots: int) -> None:
        self._workload = workload
        self._cutter = cutter
        self._leaves_max = leaves
        self._slots = slots

    def cut(self, nodes: list[Node]) -> list[Node]:
        """Lines 13-16: splits the nodes into as many parts as there are slots."""
        total = sum(node.area.load for node in nodes)
        floor = SLOT_SHARE_MIN * total / self._slots
        parts_max = self._slots - len(nodes) + 1
        options = [self._cutter.options(node, parts_max, floor) for node in nodes]
        numbers = numbers_of_parts([one.totals() for one in options], self._slots)
        return [
            node for one, number in zip(options, numbers, strict=True) for node in one.cut(number)
        ]

    def balance(self, nodes: list[Node], balance: float) -> Plan:
        """Lines 17-27: merges leaves into slots, and splits the heaviest until they are balanced.

        The paper guarantees sigma only up to theta. If that is reached first, or nothing heavy can
        be split, the best balanced of all tried divisions is used, including differencing: one more
        split may also make the balance worse.
        """
        handled = [handled_by(node, self._workload) for node in nodes]
        best = Plan(nodes, np.empty(0), Merged(np.empty(0, np.int32), np.zeros(self._slots)))
        while True:
            loads = _loads(nodes, self._workload.costs)
            shared = Shared([row for rows in handled for row in rows], self._workload)
            merged = shared.merge(loads, self._slots)
            if merged.balance <= balance:
                return Plan(nodes, loads, merged)
            for one in (merged, shared.difference(loads, self._slots)):
                if len(best.loads) == 0 or one.balance < best.merged.balance:
                    best = Plan(list(nodes), loads, one)
            if self._is_hopeless(nodes, loads, balance):
                return best
            if not self._cut_heaviest(nodes, handled, loads):
                return best

    def _is_hopeless(self, nodes: list[Node], loads: NDArray[np.float64], balance: float) -> bool:
        """Whether one unsplittable leaf is heavier than balanced slots may be."""
        places = _places(nodes)
        whole = [load for (i, c), load in zip(places, loads, strict=True) if c in nodes[i].whole]
        heaviest = max(whole, default=0.0)
        rest = float(loads.sum()) - heaviest
        return heaviest * (self._slots - 1) > balance * rest

    def _cut_heaviest(
        self,
        nodes: list[Node],
        handled: list[list[NDArray[np.int32]]],
        loads: NDArray[np.float64],
    ) -> bool:
        """Lines 23-24: splits some of the heaviest leaves in two, in place; False if none."""
        room = min(self._leaves_max - len(loads), max(1, int(len(loads) * CUT_SHARE)))
        places = _places(nodes)
        changed: set[int] = set()
        done = 0
        for leaf in np.argsort(-loads, kind="stable"):
            if done >= room:
                break
            at, child = places[leaf]
            node = nodes[at]
            # A leaf without load does not unbalance the slots.
            if child in node.whole or loads[leaf] <= UNSEEN_LEAF_SHARE * loads.mean():
                continue
            new = self._cutter.halved(node, child)
            if new is None:
                nodes[at] = replace(node, whole=node.whole | {child})
                continue
            nodes[at] = new[0]
            changed |= {at, *range(len(nodes), len(nodes) + len(new) - 1)}
            nodes += new[1:]
            done += 1
        handled += [[] for _ in range(len(nodes) - len(handled))]
        for at in changed:
            handled[at] = handled_by(nodes[at], self._workload)
        return done > 0


def _places(nodes: list[Node]) -> list[tuple[int, int]]:
    """Returns, for each leaf, its node and its index there."""
    return [(i, c) for i, node in enumerate(nodes) for c in range(max(len(node.parts), 1))]


def _loads(nodes: list[Node], costs: LoadCosts) -> NDArray[np.float64]:
    """Returns the load of each leaf; leaves without sample objects have a small one."""
    loads: NDArray[np.float64] = np.concatenate([node.loads(costs) for node in nodes])
    floor = UNSEEN_LEAF_SHARE * float(loads.mean()) if loads.any() else 1.0
    floored: NDArray[np.float64] = np.maximum(loads, floor)
    return floored
