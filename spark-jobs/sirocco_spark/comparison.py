"""The result of each scheme for a history: balance, copies, sizes."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.builders.kdt_tree.builder import KdtTree
from sirocco.schemes.builders.kdt_tree.plan import KdtSettings
from sirocco.schemes.builders.scheme import scheme_named
from sirocco.schemes.map.map import PartitionMap
from sirocco.schemes.map.map_bytes import to_bytes
from sirocco.schemes.map.routing import RoutingArrays
from sirocco.schemes.workload.sample import QueryKind, Sample
from sirocco_spark.job import Warning


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one scheme.

    Attributes:
        scheme: Its name.
        leaves: Number of its leaves.
        build_seconds: Build time on the driver.
        load_max_over_mean, load_max_over_min: Of the slots, by the scheme's own model;
            None where a slot has no load.
        objects_max_over_mean: Of the slots, by the routes of the sample's objects.
        object_copies: Slots that an object is sent to, on average.
        query_copies: Slots that a query is sent to, on average.
        map_bytes, routing_bytes: Of the map in `control`, of the arrays in a router.
    """

    scheme: str
    leaves: int
    build_seconds: float
    load_max_over_mean: float
    load_max_over_min: float | None
    objects_max_over_mean: float
    object_copies: float
    query_copies: float | None
    map_bytes: int
    routing_bytes: int

    def members(self) -> dict[str, Any]:
        """Returns the members for JSON."""
        return asdict(self)


def try_scheme(name: str, sample: Sample, leaves: int, slots: int) -> tuple[PartitionMap, Outcome]:
    """Builds a map and routes the sample by it.

    Raises:
        InvalidArgument: There is no such scheme, or it cannot build this many leaves or slots.
    """
    scheme = scheme_named(name)
    begun = time.monotonic()
    partition_map = scheme.build(sample, leaves, slots)
    seconds = time.monotonic() - begun
    routing = scheme.compile(partition_map)
    routes = routing.route_objects(
        sample.lon, sample.lat, sample.term_offsets, sample.terms, sample.event_keys
    )
    sent = np.bincount(routes.slot, minlength=slots)
    load = partition_map.load_of_slot()
    return partition_map, Outcome(
        scheme=name,
        leaves=len(partition_map.leaves),
        build_seconds=round(seconds, 3),
        load_max_over_mean=_ratio(load.max(), load.mean()),
        load_max_over_min=_ratio(load.max(), load.min()) if load.min() > 0 else None,
        objects_max_over_mean=_ratio(sent.max(), sent.mean()),
        object_copies=_ratio(len(routes.row), len(sample)),
        query_copies=_query_copies(routing, sample),
        map_bytes=len(to_bytes(partition_map)),
        routing_bytes=routing.nbytes(),
    )


def unbalanced(partition_map: PartitionMap) -> list[Warning]:
    """Returns a warning if kdt-tree, which should balance slots within sigma, could not do it."""
    load = partition_map.load_of_slot()
    sigma = KdtSettings().balance
    if partition_map.scheme != KdtTree.name or load.max() <= sigma * load.min():
        return []
    found = (
        f"the most loaded slot has {load.max() / load.min():.2f} times the load of the least loaded"
        if load.min() > 0
        else f"{int((load == 0).sum())} of {len(load)} slots have no load at all"
    )
    return [
        Warning(
            "unbalanced",
            f"{found}, kdt-tree aims at {sigma} times: its {len(partition_map.leaves)} leaves are "
            "as many as it may make, or cannot be cut further",
        )
    ]


def _query_copies(routing: RoutingArrays, sample: Sample) -> float | None:
    """Returns the slots of each query: those of its key, if it has one (PS2Stream IV)."""
    queries = sample.queries
    count = len(queries)
    if count == 0:
        return None
    lengths = np.diff(queries.term_offsets)
    # Only plain standing range queries are routed by a key; all others go to all children.
    is_keyed = (queries.kinds == QueryKind.RANGE_CONTINUOUS) & (lengths > 0)
    keys = _keys(routing, sample, is_keyed)
    key_offsets = np.concatenate([[0], np.cumsum(is_keyed)]).astype(np.int64)
    offsets = np.arange(count + 1, dtype=np.int64)
    routes = routing.route_boxes(np.ascontiguousarray(queries.boxes), offsets, key_offsets, keys)
    return _ratio(len(routes.slots), count)


def _keys(
    routing: RoutingArrays, sample: Sample, is_keyed: NDArray[np.bool_]
) -> NDArray[np.uint64]:
    queries = sample.queries
    belongs = np.repeat(is_keyed, np.diff(queries.term_offsets))
    lengths = np.diff(queries.term_offsets)[is_keyed]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return routing.choose_keys(offsets, queries.terms[belongs])


def _ratio(value: float, of: float) -> float:
    return round(float(value) / max(float(of), 1e-300), 4)


def lorenz(counts: NDArray[Any]) -> tuple[NDArray[np.float64], float]:
    """Returns (shares f8[n + 1] of the fullest 0, 1, … n cells, Gini coefficient)."""
    ordered = np.sort(counts.astype(np.float64))[::-1]
    shares = np.concatenate([[0.0], ordered.cumsum() / max(float(ordered.sum()), 1e-300)])
    # Twice the area between the curve and the diagonal.
    gini = 2 * float(np.trapezoid(shares, dx=1 / max(len(ordered), 1))) - 1
    return shares, round(gini, 4)
