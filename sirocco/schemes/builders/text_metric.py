"""Scheme `text-metric`: terms placed one by one by a metric of spread and balance.

PS2Stream VI.B, its reference 28: S3-TM (Basik, Gedik, Ferhatosmanoglu, Kalender 2015), whose SALB
algorithm works on the bipartite graph of words and posts, so that posts are sent to few matchers
and matchers are loaded evenly.
"""

from __future__ import annotations

from sirocco.schemes.builders.text_cut import text_cut
from sirocco.schemes.map.map import PartitionMap
from sirocco.schemes.map.routing import RoutingArrays, compile_map
from sirocco.schemes.workload.keyword_terms import deal
from sirocco.schemes.workload.sample import Sample


class TextMetric:
    """Assigns each term to the leaf where the metric grows least, the heaviest term first.

    Our metric is the sum of squared loads (Definition 1): it decreases with the number of leaves
    per object, and with every unevenness.
    """

    name = "text-metric"

    def build(self, sample: Sample, leaves: int, slots: int) -> PartitionMap:
        """See `Scheme.build` and `text_cut`."""
        return text_cut(self.name, sample, leaves, slots, deal)

    def compile(self, partition_map: PartitionMap) -> RoutingArrays:
        """See `Scheme.compile`."""
        return compile_map(partition_map)
