"""Scheme `text-hypergraph`: terms that occur together stay together (PS2Stream VI.B).

Its reference 27, Cambazoglu, Kayaaslan, Jonassen, Aykanat 2013: terms are vertices weighted by
their cost, nets join terms that occur together, and a partition of low connectivity sends few
objects to several places.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.base.faults import required
from sirocco.kernels.routing.hypergraph_cut import cut_in_two
from sirocco.schemes.builders.text_cut import text_cut
from sirocco.schemes.map.map import PartitionMap
from sirocco.schemes.map.routing import RoutingArrays, compile_map
from sirocco.schemes.workload.columns import keep_values, take_rows
from sirocco.schemes.workload.keyword_load import LoadCosts
from sirocco.schemes.workload.keyword_terms import TermSet
from sirocco.schemes.workload.sample import Sample

# A net of this many terms is cut in any case, and a pass visits all its pins for each.
PINS_OF_NET_MAX = 64

# Objects whose nets are used; of more, a regular selection. Passes take time proportional to the
# pins, and frequent co-occurrence shows in some ten thousand texts.
NETS_MAX = 1 << 16

# Allowed deviation of a side from its load at each level of the recursion. Over ten levels, for
# 1,024 leaves, a leaf is then loaded up to a third over the mean; a single heavy term deviates
# more.
SLACK_SHARE = 0.03

# Each pass gains a fraction of the previous one; more than a few change nothing.
PASSES_MAX = 6


class TextHypergraph:
    """Bisects the hypergraph of terms recursively, down to one leaf per slot."""

    name = "text-hypergraph"

    def build(self, sample: Sample, leaves: int, slots: int) -> PartitionMap:
        """See `Scheme.build` and `text_cut`."""
        return text_cut(self.name, sample, leaves, slots, deal_by_hypergraph)

    def compile(self, partition_map: PartitionMap) -> RoutingArrays:
        """See `Scheme.compile`."""
        return compile_map(partition_map)


@dataclass(frozen=True, slots=True, eq=False)
class _Hypergraph:
    """Vertices with loads, and nets over them.

    Attributes:
        loads: f8[v].
        offsets: i8[e + 1], into `pins`.
        pins: i4, vertices of each net.
        weights: f8[e], the cost of cutting each net.
    """

    loads: NDArray[np.float64]
    offsets: NDArray[np.int64]
    pins: NDArray[np.int32]
    weights: NDArray[np.float64]

    def side(self, vertices: NDArray[np.int64]) -> _Hypergraph:
        """Returns the part over some vertices; a cut net continues as its part on each side."""
        number = np.full(len(self.loads), -1, np.int32)
        number[vertices] = np.arange(len(vertices))
        pins = number[self.pins]
        offsets, pins = keep_values(self.offsets, pins, pins >= 0)
        return _worth_cutting(self.loads[vertices], offsets, pins, self.weights)


def deal_by_hypergraph(
    terms: TermSet, children: int, objects: int, costs: LoadCosts
) -> NDArray[np.int32]:
    """Returns the child of each key, i4[m]; see `text_cut.Deal`.

    An object is a net over its keys: each further leaf to which they spread is one more copy. Its
    weight is the cost of handling and checking a copy. Queries are not nets: a query has one key,
    so no cut duplicates it.
    """
    del objects
    graph = _of_terms(terms, children, costs)
    child = np.zeros(len(terms), np.int32)
    alone = _too_heavy(graph.loads, children)
    child[alone] = np.arange(len(alone))
    rest = np.setdiff1d(np.arange(len(terms)), alone, assume_unique=True)
    waiting = [(rest, graph.side(rest), len(alone), children - len(alone))]
    while waiting:
        rows, graph, first, count = waiting.pop()
        if count == 1 or len(rows) == 0:
            child[rows] = first
            continue
        left = (count + 1) // 2
        side = _cut(graph, left / count)
        for part, at, wide in ((side == 0, first, left), (side == 1, first + left, count - left)):
            chosen = np.flatnonzero(part)
            waiting.append((rows[chosen], graph.side(chosen), at, wide))
    return child


def _too_heavy(loads: NDArray[np.float64], children: int) -> NDArray[np.int64]:
    """Returns the vertices that each fill a child alone; at least one child is left.

    In a bisection with others, each of them would take up the share of several children.
    """
    order = np.argsort(-loads, kind="stable")[: children - 1]
    behind = loads.sum() - np.cumsum(loads[order])
    fits = loads[order] * (children - 1 - np.arange(len(order))) < behind
    return order[: int(fits.argmax()) if fits.any() else len(order)]


def _of_terms(terms: TermSet, children: int, costs: LoadCosts) -> _Hypergraph:
    key = np.repeat(np.arange(len(terms), dtype=np.int32), np.diff(terms.offsets))
    order = np.argsort(terms.holders, kind="stable")
    holder, pins = terms.holders[order], key[order]
    starts = np.flatnonzero(np.diff(holder, prepend=-1))
    offsets = np.append(starts, len(holder)).astype(np.int64)
    count = len(starts)
    if count > NETS_MAX:
        rows = np.linspace(0, count - 1, NETS_MAX).astype(np.int64)
        offsets, pins = take_rows(offsets, pins, rows)
    copy = costs.handling + costs.check * terms.keyed / children
    weights = np.full(len(offsets) - 1, copy)
    return _worth_cutting(terms.weights(costs, children), offsets, pins, weights)


def _worth_cutting(
    loads: NDArray[np.float64],
    offsets: NDArray[np.int64],
    pins: NDArray[np.int32],
    weights: NDArray[np.float64],
) -> _Hypergraph:
    """Removes the nets that no cut, or every cut, goes through."""
    size = np.diff(offsets)
    rows = np.flatnonzero((size > 1) & (size <= PINS_OF_NET_MAX))
    offsets, pins = take_rows(offsets, pins, rows)
    return _Hypergraph(loads, offsets, pins, weights[rows])


def _cut(graph: _Hypergraph, share: float) -> NDArray[np.uint8]:
    """Returns the side of each vertex, u1[v]; side 0 has about this share of the load."""
    count = len(graph.loads)
    net = np.repeat(np.arange(len(graph.weights), dtype=np.int32), np.diff(graph.offsets))
    order = np.argsort(graph.pins, kind="stable")
    degree = np.bincount(graph.pins, minlength=count)
    side = np.empty(count, np.uint8)
    total = float(graph.loads.sum())
    weight = cut_in_two(
        graph.offsets,
        graph.pins,
        graph.weights,
        np.concatenate([[0], np.cumsum(degree)]).astype(np.int64),
        net[order],
        graph.loads,
        share * total,
        SLACK_SHARE * total,
        PASSES_MAX,
        side,
    )
    required(weight, "cut_in_two: a net of negative weight")
    return side
