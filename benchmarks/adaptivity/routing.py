"""Routes the pools and queries of a scene under a map, by the real routing arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.adaptivity.scenes import Scene
from benchmarks.schemes.loads import route_stream
from sirocco.schemes.builders.scheme import scheme_named
from sirocco.schemes.map.map import PartitionMap
from sirocco.schemes.map.routing import RoutingArrays, compile_map


@dataclass(frozen=True, slots=True, eq=False)
class PoolRoutes:
    """The routes of the objects of one pool, r pairs of an object and a leaf.

    Attributes:
        row: i8[r], of the object.
        leaf: i8[r], position in the map.
        is_home: bool[r], whether the leaf stores the object.
    """

    row: NDArray[np.int64]
    leaf: NDArray[np.int64]
    is_home: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Routed:
    """A scene under a map, m groups, c crowds, l leaves.

    Attributes:
        map: The map.
        by_leaf: Its arrays with one slot for each leaf, as evaluators count.
        pools: Of each group.
        shares: f8[m, l], for an object of the group its share at each leaf; the sum over leaves is
            the number of copies.
        hits: f8[m, c, l], pairs of an object of the group there with all queries of a crowd. The
            copies of an object are assumed to make equally many.
        query, slot: i8[p], pairs of a query and one of its slots, by query.
    """

    map: PartitionMap
    by_leaf: RoutingArrays
    pools: tuple[PoolRoutes, ...]
    shares: NDArray[np.float64]
    hits: NDArray[np.float64]
    query: NDArray[np.int64]
    slot: NDArray[np.int64]

    def queries_of_slots(self, standing: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Returns how many of the standing queries each slot holds, f8[slots]."""
        return np.bincount(self.slot, standing[self.query], self.map.slots).astype(np.float64)

    def held(self) -> NDArray[np.int64]:
        """Returns query x slots + slot of all pairs, ascending."""
        return np.sort(self.query * self.map.slots + self.slot)


def kept_shares(before: Routed, after: Routed) -> NDArray[np.float64]:
    """Returns the objects of a slot under one map that belong to its leaves under the next.

    f8[m, l], for an object of the group, by leaf of the second map, see `Routed.shares`.
    """
    found = []
    slots = after.map.slots
    for was, now, shares in zip(before.pools, after.pools, after.shares, strict=True):
        came = was.row * slots + before.map.slot_of_leaf[was.leaf]
        wanted = now.row * slots + after.map.slot_of_leaf[now.leaf]
        all_ = np.bincount(now.leaf, minlength=len(shares))
        kept = np.bincount(now.leaf, np.isin(wanted, came), len(shares))
        found.append(shares * kept / np.maximum(all_, 1))
    return np.array(found)


def route(scene: Scene, partition_map: PartitionMap) -> Routed:
    """Routes all objects and queries of a scene."""
    leaves = len(partition_map.leaves)
    own = np.arange(leaves, dtype=np.int32)
    by_leaf = compile_map(replace(partition_map, slots=leaves, slot_of_leaf=own))
    shares, hits, pools = [], [], []
    for pool, met in zip(scene.pools, scene.met, strict=True):
        found = route_stream(by_leaf, pool)
        row, leaf = found.row.astype(np.int64), found.slot.astype(np.int64)
        home = np.ones(len(row), np.bool_) if found.homes is None else found.homes
        copies = np.bincount(row, minlength=len(pool))
        each = met / np.maximum(copies, 1)[:, None]
        pools.append(PoolRoutes(row, leaf, home))
        shares.append(np.bincount(leaf, minlength=leaves) / len(pool))
        hits.append(
            [
                np.bincount(leaf, each[row, crowd], leaves) / len(pool)
                for crowd in range(met.shape[1])
            ]
        )
    arrays = scheme_named(partition_map.scheme).compile(partition_map)
    stands = scene.queries.route(arrays)
    query = np.repeat(np.arange(len(scene.queries)), np.diff(stands.slot_offsets))
    return Routed(
        map=partition_map,
        by_leaf=by_leaf,
        pools=tuple(pools),
        shares=np.array(shares),
        hits=np.array(hits),
        query=query,
        slot=stands.slots.astype(np.int64),
    )
