"""Scheme `kdt-tree`: the hybrid of a kd-tree and text cuts (PS2Stream IV.B, Algorithm 1)."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.kdt_tree_areas import Area, Areas
from sirocco.schemes.kdt_tree_merging import Shared, handled_by
from sirocco.schemes.kdt_tree_nodes import Cutter, Node
from sirocco.schemes.kdt_tree_numbers import numbers_of_parts
from sirocco.schemes.kdt_tree_similarity import Similarity
from sirocco.schemes.keyword_load import LoadCosts
from sirocco.schemes.keyword_workload import KeywordWorkload, keyword_workload
from sirocco.schemes.map import WORLD, KeywordNode, Leaf, PartitionMap, Place
from sirocco.schemes.qt_tree import UNSEEN_LEAF_SHARE
from sirocco.schemes.routing import RoutingArrays, compile_map
from sirocco.schemes.sample import Sample
from sirocco.schemes.text_cut import CHOSEN_TERMS_MAX
from sirocco.schemes.uniform_grid import check_counts

# Leaves of a map at most. Their boxes are two megabytes before they are packed; with the terms
# they still fit the megabyte that brokers allow by default.
LEAVES_MAX = 4096

# |alpha - sim| up to which a cut does not change the similarity ("is minor"). Cosines of few
# keywords differ by chance, about as one over the root of their number.
SIMILARITY_CHANGE_MIN = 0.05

# A part of less than this share of a slot is not cut further when the numbers of parts are
# found: it can neither be what makes a slot too heavy nor what fills a gap.
SLOT_SHARE_MIN = 1 / 8

# Leaves that are cut before merging is tried again, as a share of all: one up to 32 leaves, as
# in the paper, and some hundred rounds of merging for a thousand instead of a thousand.
CUT_SHARE = 1 / 32


@dataclass(frozen=True, slots=True)
class KdtSettings:
    """Parameters of Algorithm 1.

    Attributes:
        similarity: delta, text similarity from which on a node is not fit for text.
        balance: sigma, the greatest Lmax / Lmin of slots.
        costs: Constants of Definition 1; None: `costs_for` the sample.
    """

    similarity: float = 0.5
    balance: float = 1.2
    costs: LoadCosts | None = None


class KdtTree:
    """Cuts by space where words are common or regions small, by text where they are not."""

    name = "kdt-tree"

    def __init__(self, settings: KdtSettings | None = None) -> None:
        self._settings = settings or KdtSettings()

    def build(self, sample: Sample, leaves: int, slots: int) -> PartitionMap:
        """Runs Algorithm 1.

        See `Scheme.build`. The workers m are the slots, the bound theta is `leaves` (at most
        `LEAVES_MAX`): there are at least min(m, theta) leaves, and more until the slots are
        balanced, up to theta; fewer where nothing is left to cut. A sample without queries is
        taken with those of `keyword_workload`.
        """
        check_counts(leaves, slots)
        workload = keyword_workload(sample, self._settings.costs)
        builder = _Builder(workload, self._settings, min(leaves, LEAVES_MAX), slots)
        return _map_of(workload, *builder.run(), slots)

    def compile(self, partition_map: PartitionMap) -> RoutingArrays:
        """See `Scheme.compile`."""
        return compile_map(partition_map)


class _Builder:
    """Algorithm 1 over one workload."""

    def __init__(
        self, workload: KeywordWorkload, settings: KdtSettings, leaves: int, slots: int
    ) -> None:
        self._workload = workload
        self._settings = settings
        self._leaves_max = leaves
        self._slots = min(leaves, slots)
        self._areas = Areas(workload)
        self._cutter = Cutter(self._areas)

    def run(self) -> tuple[list[Node], NDArray[np.float64], NDArray[np.int32]]:
        """Returns the nodes, and the load and slot of each of their leaves in turn."""
        nodes = self._subspaces()
        if len(nodes) < self._slots:
            nodes = self._cut(nodes)
        return self._balance(nodes)

    def _subspaces(self) -> list[Node]:
        """Lines 1-12: divides space by the text similarity of objects and queries.

        The heaviest node comes first. No more are made than there are slots, since a node needs
        a part at least: what is still undecided then counts as consistent (N_t).
        """
        similarity = Similarity(self._workload)
        world = self._areas.world()
        undecided = [(-world.load, 0, world, similarity.of(world))]
        serial = 1
        nodes: list[Node] = []
        while undecided:
            _, _, area, alike = heapq.heappop(undecided)
            if alike >= self._settings.similarity:
                nodes.append(Node(area, is_text=False))
                continue
            pair = None
            if len(nodes) + len(undecided) + 2 <= self._slots:
                pair = self._unlike_halves(area, alike, similarity)
            if pair is None:
                nodes.append(Node(area, is_text=True))
                continue
            for half, half_alike in pair:
                heapq.heappush(undecided, (-half.load, serial, half, half_alike))
                serial += 1
        return nodes

    def _unlike_halves(
        self, area: Area, alike: float, similarity: Similarity
    ) -> list[tuple[Area, float]] | None:
        """Lines 8-9: halves in the direction of least alpha; None where it is about `alike`."""
        pairs = [pair for axis in (0, 1) if (pair := self._areas.cut(area, axis)) is not None]
        if not pairs:
            return None
        rated = [[(half, similarity.of(half)) for half in pair] for pair in pairs]
        best = min(rated, key=lambda pair: min(each[1] for each in pair))
        alpha = min(each[1] for each in best)
        keywords = min(similarity.keywords(half) for half, _ in best)
        chance = 1 / np.sqrt(max(keywords, 1))
        return best if abs(alpha - alike) > max(SIMILARITY_CHANGE_MIN, chance) else None

    def _cut(self, nodes: list[Node]) -> list[Node]:
        """Lines 13-16: cuts the nodes into as many parts as there are slots."""
        total = sum(node.area.load for node in nodes)
        floor = SLOT_SHARE_MIN * total / self._slots
        parts_max = self._slots - len(nodes) + 1
        options = [self._cutter.options(node, parts_max, floor) for node in nodes]
        numbers = numbers_of_parts([one.totals() for one in options], self._slots)
        return [
            node for one, number in zip(options, numbers, strict=True) for node in one.cut(number)
        ]

    def _balance(
        self, nodes: list[Node]
    ) -> tuple[list[Node], NDArray[np.float64], NDArray[np.int32]]:
        """Lines 17-27: merges leaves into slots, and cuts the heaviest until they are balanced.

        Where theta is reached before, or nothing heavy can be cut, what differencing finds is
        taken if it is better balanced.
        """
        handled = [handled_by(node, self._workload) for node in nodes]
        while True:
            loads = _loads(nodes, self._workload.costs)
            shared = Shared([row for rows in handled for row in rows], self._workload)
            merged = shared.merge(loads, self._slots)
            if merged.balance <= self._settings.balance:
                break
            if self._is_hopeless(nodes, loads) or not self._cut_heaviest(nodes, handled, loads):
                other = shared.difference(loads, self._slots)
                merged = other if other.balance < merged.balance else merged
                break
        return nodes, loads, merged.slot_of_leaf

    def _is_hopeless(self, nodes: list[Node], loads: NDArray[np.float64]) -> bool:
        """Whether one leaf that cannot be cut is heavier than balanced slots may be."""
        places = _places(nodes)
        whole = [load for (i, c), load in zip(places, loads, strict=True) if c in nodes[i].whole]
        heaviest = max(whole, default=0.0)
        rest = float(loads.sum()) - heaviest
        return heaviest * (self._slots - 1) > self._settings.balance * rest

    def _cut_heaviest(
        self,
        nodes: list[Node],
        handled: list[list[NDArray[np.int32]]],
        loads: NDArray[np.float64],
    ) -> bool:
        """Lines 23-24: cuts some of the heaviest leaves in two, in place; False if none."""
        room = min(self._leaves_max - len(loads), max(1, int(len(loads) * CUT_SHARE)))
        places = _places(nodes)
        done = 0
        for leaf in np.argsort(-loads, kind="stable"):
            if done >= room:
                break
            at, child = places[leaf]
            node = nodes[at]
            # A leaf of no load is not what unbalances the slots.
            if child in node.whole or loads[leaf] <= UNSEEN_LEAF_SHARE * loads.mean():
                continue
            new = self._cutter.halved(node, child)
            if new is None:
                nodes[at] = replace(node, whole=node.whole | {child})
                continue
            nodes[at] = new[0]
            handled[at] = handled_by(new[0], self._workload)
            nodes += new[1:]
            handled += [handled_by(one, self._workload) for one in new[1:]]
            done += 1
        return done > 0


def _places(nodes: list[Node]) -> list[tuple[int, int]]:
    """Returns of each leaf its node and its place there."""
    return [(i, c) for i, node in enumerate(nodes) for c in range(max(len(node.parts), 1))]


def _loads(nodes: list[Node], costs: LoadCosts) -> NDArray[np.float64]:
    """Returns the load of each leaf; leaves that the sample never saw have a little, too."""
    loads: NDArray[np.float64] = np.concatenate([node.loads(costs) for node in nodes])
    floor = UNSEEN_LEAF_SHARE * float(loads.mean()) if loads.any() else 1.0
    floored: NDArray[np.float64] = np.maximum(loads, floor)
    return floored


def _map_of(
    workload: KeywordWorkload,
    nodes: list[Node],
    loads: NDArray[np.float64],
    slot_of_leaf: NDArray[np.int32],
    slots: int,
) -> PartitionMap:
    listed = _listed(nodes, workload.costs)
    leaves: list[Leaf] = []
    keyword_nodes: list[KeywordNode] = []
    for number, node in enumerate(nodes):
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
        keyword_nodes.append(KeywordNode(number, box, None, children, terms, child[order]))
    return PartitionMap(
        version=1,
        scheme=KdtTree.name,
        world=WORLD,
        leaves=tuple(leaves),
        text_nodes=(),
        slot_of_leaf=slot_of_leaf,
        load_of_leaf=loads,
        slots=slots,
        keyword_nodes=tuple(keyword_nodes),
        frequent_terms=workload.frequent,
        frequencies=workload.frequencies,
    )


def _listed(nodes: list[Node], costs: LoadCosts) -> list[NDArray[np.bool_]]:
    """Returns of each node which of its keys, part after part, the map lists.

    Those that weigh most, as many as a map may hold; the others go to the child of their hash.
    """
    weights = [
        np.concatenate([part.weights(costs, 1) for part in node.parts] or [np.empty(0)])
        for node in nodes
    ]
    together = np.concatenate(weights)
    is_listed = np.ones(len(together), np.bool_)
    is_listed[np.argsort(-together, kind="stable")[CHOSEN_TERMS_MAX:]] = False
    return np.split(is_listed, np.cumsum([len(own) for own in weights])[:-1])
