"""Destinations of a sample's objects and queries under a map, and the resulting load."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.schemes.map.map import PartitionMap
from sirocco.schemes.map.routing import compile_map
from sirocco.schemes.workload.keyword_load import LoadCosts
from sirocco.schemes.workload.keyword_workload import KeywordWorkload

Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True, slots=True, eq=False)
class SampleRoutes:
    """A routed sample.

    Attributes:
        objects: (row of the object, position of a leaf that receives it), distinct pairs.
        queries: Likewise.
    """

    objects: Pairs
    queries: Pairs

    def objects_of(self, leaf: int) -> NDArray[np.int64]:
        """Returns the objects of a leaf, ascending."""
        rows: NDArray[np.int64] = self.objects[0][self.objects[1] == leaf]
        return rows

    def queries_of(self, leaf: int) -> NDArray[np.int64]:
        """Returns the queries of a leaf, ascending."""
        rows: NDArray[np.int64] = self.queries[0][self.queries[1] == leaf]
        return rows

    def loads(
        self, place_of_leaf: NDArray[np.int64], places: int, costs: LoadCosts
    ) -> NDArray[np.float64]:
        """Returns the load of each place (Definition 1), f8[places].

        Args:
            place_of_leaf: i8[leaves], the slot or evaluator of each leaf. Objects and queries in
                several leaves of a place count there once.
            places: Number of places.
            costs: The costs.
        """
        objects = _counted(self.objects, place_of_leaf, places)
        queries = _counted(self.queries, place_of_leaf, places)
        return load_of(objects, queries, costs)


def load_of(
    objects: NDArray[np.float64], queries: NDArray[np.float64], costs: LoadCosts
) -> NDArray[np.float64]:
    """Returns the load of places with these numbers of objects and queries (Definition 1)."""
    return costs.load(objects, np.zeros(len(objects)), objects, queries, np.zeros(len(queries)))


def routed(workload: KeywordWorkload, partition_map: PartitionMap) -> SampleRoutes:
    """Routes the objects and queries of a workload to the leaves of a map."""
    leaves = len(partition_map.leaves)
    # One slot per leaf: otherwise only one of a slot's leaves would be returned.
    apart = replace(partition_map, slots=leaves, slot_of_leaf=np.arange(leaves, dtype=np.int32))
    arrays = compile_map(apart)
    sample, queries = workload.sample, workload.sample.queries
    columns = (sample.lon, sample.lat, sample.term_offsets, sample.terms, sample.event_keys)
    to = arrays.route_objects(*columns)
    has_key = workload.key_of_query >= 0
    routes = arrays.route_boxes(
        queries.boxes,
        np.arange(len(queries) + 1),
        np.concatenate([[0], np.cumsum(has_key)]).astype(np.int64),
        workload.keys[workload.key_of_query[has_key]],
    )
    rows = np.repeat(np.arange(len(queries)), np.diff(routes.slot_offsets))
    return SampleRoutes(
        (to.row.astype(np.int64), to.slot.astype(np.int64)), (rows, routes.slots.astype(np.int64))
    )


def _counted(pairs: Pairs, place_of_leaf: NDArray[np.int64], places: int) -> NDArray[np.float64]:
    rows, leaves = pairs
    distinct = sorted_distinct(rows * places + place_of_leaf[leaves])
    return np.bincount(distinct % places, minlength=places).astype(np.float64)
