"""Scheme `text-frequency`: terms distributed by their frequency (PS2Stream VI.B)."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.builders.text_cut import text_cut
from sirocco.schemes.map.map import PartitionMap
from sirocco.schemes.map.routing import RoutingArrays, compile_map
from sirocco.schemes.workload.keyword_load import LoadCosts
from sirocco.schemes.workload.keyword_terms import TermSet
from sirocco.schemes.workload.sample import Sample


class TextFrequency:
    """Assigns terms to the least loaded leaf, the heaviest first, ignoring which occur together.

    Longest processing time first (Graham 1969) over the load of a term's frequencies in objects and
    queries.
    """

    name = "text-frequency"

    def build(self, sample: Sample, leaves: int, slots: int) -> PartitionMap:
        """See `Scheme.build` and `text_cut`."""
        return text_cut(self.name, sample, leaves, slots, deal_by_frequency)

    def compile(self, partition_map: PartitionMap) -> RoutingArrays:
        """See `Scheme.compile`."""
        return compile_map(partition_map)


def deal_by_frequency(
    terms: TermSet, children: int, objects: int, costs: LoadCosts
) -> NDArray[np.int32]:
    """Returns the child of each key, i4[m]; see `text_cut.Deal`."""
    del objects
    weights = terms.weights(costs, children)
    child = np.empty(len(terms), np.int32)
    heap = [(0.0, number) for number in range(children)]
    for row in np.argsort(-weights, kind="stable"):
        load, number = heap[0]
        child[row] = number
        heapq.heapreplace(heap, (load + float(weights[row]), number))
    return child
