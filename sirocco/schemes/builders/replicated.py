"""Scheme `replicated`: every query in every slot, every object in one."""

from __future__ import annotations

import numpy as np

from sirocco.schemes.builders.text_cut import world_map
from sirocco.schemes.builders.uniform_grid import check_counts
from sirocco.schemes.map.map import PartitionMap
from sirocco.schemes.map.routing import RoutingArrays, compile_map
from sirocco.schemes.workload.keyword_workload import keyword_workload
from sirocco.schemes.workload.sample import Sample


class Replicated:
    """Spreads objects by the hash of their event keys, evenly for any distribution.

    The cost is in the queries: each is installed everywhere, so neither their memory nor the checks
    of an object decrease with the number of slots.
    """

    name = "replicated"

    def build(self, sample: Sample, leaves: int, slots: int) -> PartitionMap:
        """Makes one leaf per slot, or `leaves` if these are fewer.

        See `Scheme.build`. The sample only determines the frequencies, because the keys of queries
        outlive this map.
        """
        check_counts(leaves, slots)
        workload = keyword_workload(sample)
        children = min(leaves, slots)
        homes = np.full(children, len(sample) / children)
        keyed = np.full(children, float((workload.key_of_query >= 0).sum()))
        unkeyed = np.full(children, float((workload.key_of_query < 0).sum()))
        return world_map(
            self.name,
            children,
            slots,
            workload.costs.load(homes, homes, homes, keyed, unkeyed),
            workload,
            terms=np.empty(0, np.uint64),
            child=np.empty(0, np.int32),
            by_term=False,
        )

    def compile(self, partition_map: PartitionMap) -> RoutingArrays:
        """See `Scheme.compile`."""
        return compile_map(partition_map)
