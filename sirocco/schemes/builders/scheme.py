"""The interface of a scheme, and the list of schemes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from sirocco.model.errors import InvalidArgument
from sirocco.schemes.builders.a_grid import AGrid
from sirocco.schemes.builders.kd_tree import KdTree
from sirocco.schemes.builders.kdt_tree.builder import KdtTree
from sirocco.schemes.builders.qt_tree import QtTree
from sirocco.schemes.builders.r_tree import RTree
from sirocco.schemes.builders.replicated import Replicated
from sirocco.schemes.builders.swarm import Swarm
from sirocco.schemes.builders.text_frequency import TextFrequency
from sirocco.schemes.builders.text_hypergraph import TextHypergraph
from sirocco.schemes.builders.text_metric import TextMetric
from sirocco.schemes.builders.uniform_grid import UniformGrid
from sirocco.schemes.map.map import PartitionMap
from sirocco.schemes.map.routing import RoutingArrays
from sirocco.schemes.workload.sample import Sample


class Scheme(Protocol):
    """A method to split the workload into leaves and to route it."""

    @property
    def name(self) -> str:
        """Name by which users choose the scheme."""

    def build(self, sample: Sample, leaves: int, slots: int) -> PartitionMap:
        """Splits the workload of a sample; equal input gives an equal map.

        Args:
            sample: The known workload; an empty one also gives a valid map.
            leaves: Wanted number of leaves; the scheme describes how closely it is met.
            slots: Number of slots that share them.

        Returns:
            A map of version 1.

        Raises:
            InvalidArgument: `leaves` or `slots` is out of range.
        """

    def compile(self, partition_map: PartitionMap) -> RoutingArrays:
        """Returns the arrays for routing; `partition_map` is of this scheme."""


SCHEMES: Mapping[str, Scheme] = MappingProxyType(
    {
        scheme.name: scheme
        for scheme in (
            QtTree(),
            UniformGrid(),
            AGrid(),
            KdTree(),
            RTree(),
            Swarm(),
            KdtTree(),
            TextFrequency(),
            TextHypergraph(),
            TextMetric(),
            Replicated(),
        )
    }
)


def scheme_named(name: str) -> Scheme:
    """Returns a scheme.

    Raises:
        InvalidArgument: No scheme has this name.
    """
    if name not in SCHEMES:
        raise InvalidArgument(f"{name!r:.60} is none of {', '.join(SCHEMES)}", field="scheme")
    return SCHEMES[name]
