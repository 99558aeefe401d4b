"""The reports of evaluators at the end of a round, derived from the counts of a virtual cluster.

The evaluators' own code computes the numbers, details and samples
(`sirocco.protocol.evaluator.load.leaf_reports`); this module only creates its input, which
`LeafCounts` would pass to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.adaptivity.costs import handles_of, terms_of
from benchmarks.adaptivity.routing import PoolRoutes, Routed
from benchmarks.adaptivity.scenes import Scene
from benchmarks.schemes.streams import Stream
from sirocco.model.text import TermColumns
from sirocco.protocol.evaluator.limits import LIMITS
from sirocco.protocol.evaluator.load.leaf_counts import (
    NO_QUERIES,
    Counted,
    QueryCounts,
    RecentObjects,
    greatest_draw,
)


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """The counts of one evaluator in a round, under one map.

    Attributes:
        by_group: f8[groups, leaves], objects.
        met: f8[leaves], pairs.
        faded: f8[leaves], see `LeafLoads`.
        arrived: f8[slots], queries that were registered.
    """

    by_group: NDArray[np.float64]
    met: NDArray[np.float64]
    faded: NDArray[np.float64]
    arrived: NDArray[np.float64]


def counted(
    scene: Scene,
    routed: Routed,
    round_: Round,
    slots: tuple[int, ...],
    standing: NDArray[np.bool_],
    query_bytes: float,
    rng: np.random.Generator,
    *,
    with_objects: bool,
) -> Counted:
    """Returns an evaluator's state at the end of a round.

    Args:
        scene, routed: The workload and its routes.
        round_: The counts.
        slots: Owned and up to date.
        standing: bool[q], the standing queries.
        query_bytes: Memory of one.
        rng: Draws the remembered objects.
        with_objects: Whether remembered objects are needed; for numbers they are not.
    """
    queries = {slot: _slot_queries(scene, routed, round_, slot, standing, query_bytes)
               for slot in slots}  # fmt: skip
    objects = round_.by_group.sum(0)
    none = _joined([], 1)
    some = _recent(scene, routed, round_, standing, rng) if with_objects else none
    return Counted(
        map=routed.map,
        routing=routed.by_leaf,
        queries=queries,
        objects=objects,
        met=round_.met,
        faded=round_.faded,
        recent=some,
    )


def counted_so_far(routed: Routed, round_: Round, slots: tuple[int, ...]) -> Counted:
    """Returns an evaluator's report during a round, see `LeafCounts.so_far`."""
    queries = dict.fromkeys(slots, NO_QUERIES)
    objects, none = round_.by_group.sum(0), _joined([], 1)
    return Counted(
        map=routed.map,
        routing=routed.by_leaf,
        queries=queries,
        objects=objects,
        met=round_.met,
        faded=round_.faded,
        recent=none,
    )


def _slot_queries(
    scene: Scene,
    routed: Routed,
    round_: Round,
    slot: int,
    standing: NDArray[np.bool_],
    query_bytes: float,
) -> QueryCounts:
    mine = routed.query[routed.slot == slot]
    mine = mine[standing[mine]]
    handles = handles_of(mine)
    greatest = greatest_draw(len(mine))
    is_chosen = handles <= np.uint64(greatest)
    return QueryCounts(
        sampled=scene.queries.take(mine[is_chosen]).rows(),
        draws=handles[is_chosen],
        ranges=len(mine),
        others=0,
        arrived=int(round_.arrived[slot]),
        bytes_total=int(len(mine) * query_bytes),
        greatest_draw=greatest,
    )


def _recent(
    scene: Scene,
    routed: Routed,
    round_: Round,
    standing: NDArray[np.bool_],
    rng: np.random.Generator,
) -> RecentObjects:
    """Returns objects of the pools, drawn by their counts in each leaf."""
    total = int(round_.by_group.sum())
    every = 1 << max(0, (total - 1) // LIMITS.recent_objects_max).bit_length()
    present = scene.present(standing)
    parts = []
    for group, (pool, routes) in enumerate(zip(scene.pools, routed.pools, strict=True)):
        in_leaf = np.bincount(routes.leaf, minlength=round_.by_group.shape[1])
        each = round_.by_group[group] / np.maximum(in_leaf, 1) / every
        pair = np.repeat(np.arange(len(routes.row)), rng.poisson(each[routes.leaf]))
        rng.shuffle(pair)
        parts.append(_taken(pool, routes, pair, scene.met[group] @ present, every))
    return _joined(parts, every)


def _taken(
    pool: Stream,
    routes: PoolRoutes,
    pair: NDArray[np.int64],
    met: NDArray[np.float64],
    every: int,
) -> RecentObjects:
    rows = routes.row[pair]
    some = pool.take(rows)
    return RecentObjects(
        lon=some.lon,
        lat=some.lat,
        terms=terms_of(some),
        event_keys=some.keys,
        met=np.rint(met[rows]).astype(np.int64),
        leaf=routes.leaf[pair].astype(np.int32),
        is_home=routes.is_home[pair],
        every=every,
    )


def _joined(parts: list[RecentObjects], every: int) -> RecentObjects:
    """Returns all of them, interleaved by their order in each part: they arrived in parallel."""
    sizes = [np.diff(part.terms.offsets) for part in parts]
    offsets = np.cumsum(np.concatenate([np.zeros(1, np.int64), *sizes]))

    def column(name: str, kind: type) -> NDArray[Any]:
        return np.concatenate([np.empty(0, kind), *(getattr(part, name) for part in parts)])

    terms = np.concatenate([np.empty(0, np.uint64), *(part.terms.terms for part in parts)])
    lengths = np.concatenate([np.empty(0, np.int32), *(part.terms.lengths for part in parts)])
    return RecentObjects(
        lon=column("lon", np.float64),
        lat=column("lat", np.float64),
        terms=TermColumns(terms, offsets, lengths, np.ones(len(terms), np.uint16)),
        event_keys=column("event_keys", np.uint64),
        met=column("met", np.int64),
        leaf=column("leaf", np.int32),
        is_home=column("is_home", np.bool_),
        every=every,
    )
