"""Nodes of the kdt-tree, and their splits by space or by text (PS2Stream IV.B)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.builders.kdt_tree.areas import Area, Areas
from sirocco.schemes.builders.kdt_tree.numbers import Refinement, refine
from sirocco.schemes.workload.keyword_load import LoadCosts
from sirocco.schemes.workload.keyword_terms import TermSet, halves

# Sums of loads with a smaller difference are equal: rounding must not decide between space and
# text.
EQUAL_LOAD = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A node of the kdt-tree that is not split further by space.

    Attributes:
        area: Its box with objects and queries.
        is_text: Whether it is one of N_t: words of objects and queries differ there.
        parts: Its keys in the sets of the text split, two or more; none: the node is one leaf.
        whole: Leaves that cannot be split: indices of `parts`, 0 for a node of one leaf.
    """

    area: Area
    is_text: bool
    parts: tuple[TermSet, ...] = ()
    whole: frozenset[int] = frozenset()

    def loads(self, costs: LoadCosts) -> NDArray[np.float64]:
        """Returns the load of each of its leaves.

        The home of an object is a child by a hash, and its stray words lead to others by a hash, so
        each child gets an equal share of the objects that are not sent to it anyway.
        """
        if not self.parts:
            return np.array([self.area.load])
        children, objects = len(self.parts), float(len(self.area.objects))
        seekers = np.array([float(part.seekers) for part in self.parts])
        return costs.load(
            seekers + (objects - seekers) * self.area.sent_share(children),
            np.full(children, objects / children),
            seekers,
            np.array([part.keyed for part in self.parts]),
            np.full(children, float(len(self.area.queries) - self.area.keyed)),
        )


class Cutter:
    """Splits nodes."""

    def __init__(self, areas: Areas) -> None:
        self._areas = areas
        self._costs = areas.workload.costs
        self._objects = len(areas.workload.sample)

    def options(self, node: Node, parts_max: int, floor: float) -> Options:
        """Returns all splits by PartitionNode of a node of one leaf.

        Args:
            node: The node.
            parts_max: Maximum number of parts.
            floor: Lighter parts are not split.
        """
        costs, objects = self._costs, float(len(node.area.objects))
        unkeyed = float(len(node.area.queries) - node.area.keyed)

        def text_total(sums: NDArray[np.float64], count: int) -> float:
            checked, seekers, keyed = sums.tolist()
            checks = checked + objects * unkeyed
            sent = seekers + (count * objects - seekers) * node.area.sent_share(count)
            updates = keyed + count * unkeyed
            return float(costs.check * checks + costs.handling * sent + costs.update * updates)

        def measure(part: TermSet) -> NDArray[np.float64]:
            return np.array([part.seekers * part.keyed, part.seekers, part.keyed])

        space = refine(
            node.area,
            parts_max,
            floor,
            lambda area: area.load,
            self._areas.halves,
            lambda area: np.array([area.load]),
            lambda sums, _: float(sums[0]),
        )
        text = refine(
            self._areas.terms(node.area),
            parts_max,
            floor,
            lambda part: costs.load(float(part.seekers), 0.0, float(part.seekers), part.keyed, 0.0),
            self._text_halves,
            measure,
            text_total,
        )
        return Options(node, space, text)

    def halved(self, node: Node, leaf: int) -> list[Node] | None:
        """Splits one leaf of a node in two (PartitionNode with p = 2); None if that fails."""
        if not node.parts:
            options = self.options(node, 2, 0.0)
            return options.cut(2) if options.parts_max == 2 else None
        pair = self._text_halves(node.parts[leaf])
        if pair is None:
            return None
        parts = (*node.parts[:leaf], pair[0], *node.parts[leaf + 1 :], pair[1])
        return [replace(node, parts=parts)]

    def _text_halves(self, part: TermSet) -> tuple[TermSet, TermSet] | None:
        # Without any key, the hash that determines the homes of objects remains.
        if len(part) == 0:
            return part, part
        return halves(part, self._objects, self._costs)


@dataclass(frozen=True, slots=True, eq=False)
class Options:
    """The possible splits of one node of one leaf.

    The paper always splits nodes of N_t by text. There objects are only sent to the leaves of their
    terms; here each also has a home, and queries without keys are in every leaf, so that text may
    be more expensive even there. Both ways are therefore compared in all nodes; ties prefer text in
    N_t and space in N_s.
    """

    node: Node
    space: Refinement[Area]
    text: Refinement[TermSet]

    @property
    def parts_max(self) -> int:
        """Maximum number of parts of the node."""
        return max(len(self.space.totals), len(self.text.totals))

    def totals(self) -> NDArray[np.float64]:
        """Returns C[i, k], the least sum of loads in 1, 2, … parts."""
        totals = np.full(self.parts_max, np.inf)
        for one in (self.space.totals, self.text.totals):
            totals[: len(one)] = np.minimum(totals[: len(one)], one)
        return totals

    def cut(self, count: int) -> list[Node]:
        """Returns the nodes into which the node is split for this many parts."""
        if count == 1:
            return [self.node]
        if self._is_by_text(count):
            return [replace(self.node, parts=tuple(self.text.parts(count)))]
        return [replace(self.node, area=area) for area in self.space.parts(count)]

    def _is_by_text(self, count: int) -> bool:
        if count > len(self.text.totals):
            return False
        if count > len(self.space.totals):
            return True
        text, space = float(self.text.totals[count - 1]), float(self.space.totals[count - 1])
        if abs(text - space) <= EQUAL_LOAD * space:
            return self.node.is_text
        return text < space
