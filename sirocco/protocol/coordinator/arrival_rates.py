"""Objects that arrived for each leaf as routers count them, including those still waiting.

Evaluators count what they have processed, and an overloaded one processes no more than it can. By
that count the busiest of eight looks four times as busy as the mean where it is sent six times as
much, and one that works off a backlog looks busy while little arrives. So a load is the number of
arrivals times what an object of the leaf was measured to match.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sirocco.protocol.contract.load_messages import ArrivalReport
from sirocco.schemes.balance.base.view import LeafLoads
from sirocco.schemes.map.map import PartitionMap


@dataclass(frozen=True, slots=True, eq=False)
class RoutedTotals:
    """What all routers together had sent at some time.

    Attributes:
        version: of the map in force.
        routers: those that were asked; a restarted one has another name.
        objects: f8[leaves].
    """

    version: int
    routers: tuple[str, ...]
    objects: NDArray[np.float64]

    def since(self, before: RoutedTotals | None) -> NDArray[np.float64] | None:
        """Returns the arrivals of each leaf since then, f8[leaves]; None if that is not known."""
        if before is None or (before.version, before.routers) != (self.version, self.routers):
            return None
        return np.maximum(self.objects - before.objects, 0.0)


def routed_totals(
    partition_map: PartitionMap, routers: tuple[str, ...], reports: Mapping[str, ArrivalReport]
) -> RoutedTotals | None:
    """Adds up reports of routers; None if one is missing, or is for another map."""
    ids = np.array([leaf.id for leaf in partition_map.leaves], np.int64)
    by_id = np.zeros(int(ids.max()) + 1)
    for router in routers:
        one = reports.get(router)
        if one is None or one.version != partition_map.version:
            return None
        is_known = one.leaves < len(by_id)
        np.add.at(by_id, one.leaves[is_known], one.objects[is_known])
    return RoutedTotals(partition_map.version, routers, by_id[ids]) if routers else None


def with_arrivals(loads: LeafLoads, arrived: NDArray[np.float64]) -> LeafLoads:
    """Returns loads as if all that arrived had been processed.

    Args:
        loads: what evaluators counted. An object of a leaf with no processed objects matches as
            much as one does on average.
        arrived: f8[leaves], objects.
    """
    objects = float(loads.objects.sum())
    mean = float(loads.met.sum()) / objects if objects else 0.0
    of_one = np.full(len(arrived), mean)
    np.divide(loads.met, loads.objects, out=of_one, where=loads.objects > 0)
    arrivals = np.maximum(loads.arrivals - loads.objects, 0.0) + arrived
    return replace(loads, objects=arrived, met=arrived * of_one, arrivals=arrivals)
