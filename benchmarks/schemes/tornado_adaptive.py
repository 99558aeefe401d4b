"""Tornado's adaptive and static partitioning (6.4, Figure 13), by its balancer.

All coordinates are multiplied by a factor, so that objects and queries belong to only a part of the
machines. The static map stays. The other is changed round by round, as by the coordinator:
evaluators report the numbers of their leaves, the balancer requests the details of a few and
chooses one operation (`sirocco.schemes.balance.tornado.balancer`), whose map is that of the next
round. The reports are those of the services, byte by byte (`sirocco.codec.loads`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.schemes.loads import all_pairs
from benchmarks.schemes.queries import Queries
from benchmarks.schemes.streams import Stream
from sirocco.codec.loads import write_details, write_loads
from sirocco.model.text import TermColumns
from sirocco.protocol.evaluator.limits import LIMITS
from sirocco.protocol.evaluator.load.leaf_counts import (
    Counted,
    QueryCounts,
    RecentObjects,
    greatest_draw,
)
from sirocco.protocol.evaluator.load.leaf_reports import details_of, loads_of
from sirocco.schemes.balance.base.placement import added
from sirocco.schemes.balance.base.view import View
from sirocco.schemes.balance.base.work import work
from sirocco.schemes.balance.tornado.balancer import Tornado, TornadoSettings
from sirocco.schemes.map.map import WORLD, PartitionMap
from sirocco.schemes.map.routing import compile_map
from sirocco.schemes.workload.spatial_grid import even_grid

# Tornado 6.4; 1 is the workload of the map.
SCALES = (1.0, 0.7, 0.6, 0.5, 0.4)
ROUNDS = 32

# Tornado moves queries if the matching saved in a round outweighs them (4.2). This many objects for
# each standing query are five seconds of 20,000 objects/s over 25,000 queries.
OBJECTS_PER_QUERY = 4

# Tornado 6: the fine grid whose cell costs a central balancer would receive, each as the cell's
# number, its cost and its queries in four bytes. Empty cells are not sent.
GRID_SIDE = 1_000
CELL_BYTES = 12


@dataclass(frozen=True, slots=True, eq=False)
class Past:
    """Objects from which rounds are drawn, and their matches.

    Attributes:
        objects: At their places when the map was built.
        queries: Standing all the time, at their former places.
        met: i8[n], queries that each object meets: as many at any scale.
    """

    objects: Stream
    queries: Queries
    met: NDArray[np.int64]

    @classmethod
    def of(cls, objects: Stream, queries: Queries) -> Past:
        """Matches them."""
        rows = all_pairs(objects, queries) // len(queries)
        return cls(objects, queries, np.bincount(rows, minlength=len(objects)))


@dataclass(frozen=True, slots=True)
class Adaptation:
    """The result of some rounds.

    Attributes:
        operations: Changes of the map.
        imbalance_first, imbalance_last: Load of the busiest evaluator over the mean, as reported at
            the end of the first and of the last round.
        reported_bytes: Reported in a round by all evaluators together, on average.
        central_bytes: The bytes of all cells of the fine grid instead.
    """

    operations: int
    imbalance_first: float
    imbalance_last: float
    reported_bytes: float
    central_bytes: float


def scaled_places(stream: Stream, scale: float) -> Stream:
    """Returns the objects moved towards the south-western corner of the world."""
    west, south = WORLD[:2]
    return stream.moved(west + (stream.lon - west) * scale, south + (stream.lat - south) * scale)


def scaled_boxes(queries: Queries, scale: float) -> Queries:
    """Returns the queries moved towards the south-western corner, and made smaller, alike."""
    corner = np.array((*WORLD[:2], *WORLD[:2]))
    return replace(queries, boxes=corner + (queries.boxes - corner) * scale)


def adapt(
    partition_map: PartitionMap, past: Past, scale: float, seed: int
) -> tuple[PartitionMap, Adaptation]:
    """Makes Tornado's balancer change a map; each slot has an evaluator of its own.

    Args:
        partition_map: The first map.
        past: The workload, drawn with repeats.
        scale: The factor.
        seed: For all random draws.
    """
    rng = np.random.default_rng(seed)
    queries = scaled_boxes(past.queries, scale)
    count = OBJECTS_PER_QUERY * len(queries)
    central = _Central(queries)
    balancer = Tornado(TornadoSettings(operations_max=1))
    evaluators = tuple(f"evaluator-{slot}" for slot in range(partition_map.slots))
    imbalances, reported, central_bytes, operations = [], 0, 0, 0
    for _ in range(ROUNDS):
        drawn = rng.integers(0, len(past.objects), count)
        objects = scaled_places(past.objects.take(drawn), scale)
        counted = _counted(partition_map, objects, past.met[drawn], queries)
        view = View(
            map=partition_map,
            owners=evaluators,
            evaluators=evaluators,
            loads=loads_of(counted).loads,
        )
        imbalances.append(_imbalance(view))
        reported += sum(write_loads(loads_of(own)).ByteSize() for own in _by_evaluator(counted))
        central_bytes += central.reported_bytes(objects)
        plan = balancer.adjust(view, 0)
        if plan.wants:
            details = details_of(counted, list(plan.wants))
            reported += write_details(details).ByteSize()
            plan = balancer.adjust(replace(view, details=details), 0)
        if plan.map is not None:
            partition_map = plan.map
            operations += 1
    return partition_map, Adaptation(
        operations, imbalances[0], imbalances[-1], reported / ROUNDS, central_bytes / ROUNDS
    )


def _counted(
    partition_map: PartitionMap, objects: Stream, met: NDArray[np.int64], queries: Queries
) -> Counted:
    """Returns the counts of all evaluators together at the end of a round, see `LeafCounts`."""
    leaves = len(partition_map.leaves)
    own = np.arange(leaves, dtype=np.int32)
    routing = compile_map(replace(partition_map, slots=leaves, slot_of_leaf=own))
    routes = routing.route_objects(
        objects.lon, objects.lat, objects.term_offsets, objects.terms, objects.keys
    )
    # A map of Tornado sends each object to one leaf.
    leaf = np.empty(len(objects), np.int32)
    leaf[routes.row] = routes.slot
    came = np.bincount(leaf, minlength=leaves).astype(np.float64)
    has_met = np.bincount(leaf, met, leaves).astype(np.float64)
    standing, recent = _standing(partition_map, queries), _recent(objects, met, leaf)
    return Counted(
        map=partition_map,
        routing=routing,
        queries=standing,
        objects=came,
        met=has_met,
        faded=came,
        recent=recent,
    )


def _recent(objects: Stream, met: NDArray[np.int64], leaf: NDArray[np.int32]) -> RecentObjects:
    """Returns as many objects of the round as evaluators remember."""
    every = 1 << max(0, (len(objects) - 1) // LIMITS.recent_objects_max).bit_length()
    rows = np.arange(0, len(objects), every)
    some = objects.take(rows)
    lengths = np.diff(some.term_offsets).astype(np.int32)
    terms = TermColumns(some.terms, some.term_offsets, lengths, np.ones(len(some.terms), np.uint16))
    homes = np.ones(len(rows), np.bool_)
    return RecentObjects(
        lon=some.lon,
        lat=some.lat,
        terms=terms,
        event_keys=some.keys,
        met=met[rows],
        leaf=leaf[rows],
        is_home=homes,
        every=every,
    )


def _standing(partition_map: PartitionMap, queries: Queries) -> dict[int, QueryCounts]:
    """Returns the queries of each slot, of which it examines some."""
    found = queries.route(compile_map(partition_map))
    rows = np.repeat(np.arange(len(queries)), np.diff(found.slot_offsets))
    standing = {}
    for slot in range(partition_map.slots):
        mine = rows[found.slots == slot]
        # A query's number serves as well as the hash of its id: neither depends on the place.
        every = 1 << max(0, (len(mine) - 1) // LIMITS.sampled_queries_max).bit_length()
        chosen = mine[mine % every == 0]
        # Their size has no influence here.
        sampled = queries.take(chosen).rows()
        standing[slot] = QueryCounts(
            sampled=sampled,
            draws=chosen.astype(np.uint64),
            ranges=len(mine),
            others=0,
            arrived=0,
            bytes_total=len(mine),
            greatest_draw=greatest_draw(len(mine)),
        )
    return standing


def _by_evaluator(counted: Counted) -> Iterator[Counted]:
    for slot, standing in counted.queries.items():
        yield replace(counted, queries={slot: standing})


def _imbalance(view: View) -> float:
    slots = view.map.slot_of_leaf.astype(np.int64)
    loads = added(work(view.loads), slots, view.map.slots)
    return float(loads.max() / loads.mean())


class _Central:
    """The input of a central balancer: the cells of the fine grid that are not empty."""

    def __init__(self, queries: Queries) -> None:
        self._grid = even_grid(GRID_SIDE, GRID_SIDE)
        self._asked = np.zeros((GRID_SIDE, GRID_SIDE), np.bool_)
        _, spans = self._grid.spans_of(queries.boxes)
        for x0, y0, x1, y1 in spans.tolist():
            self._asked[y0 : y1 + 1, x0 : x1 + 1] = True

    def reported_bytes(self, objects: Stream) -> int:
        """Returns the bytes of a round."""
        taken = self._asked.copy()
        taken[self._grid.rows_of(objects.lat), self._grid.columns_of(objects.lon)] = True
        return CELL_BYTES * int(taken.sum())
