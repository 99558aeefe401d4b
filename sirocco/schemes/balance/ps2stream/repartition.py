"""PS2Stream's global adjustment: a complete new map, if it pays (V.B)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.schemes.balance.base.assignment import hungarian
from sirocco.schemes.balance.base.placement import Placement, added
from sirocco.schemes.balance.base.plans import no_change
from sirocco.schemes.balance.base.sample_routes import SampleRoutes, routed
from sirocco.schemes.balance.base.view import Memory, Plan
from sirocco.schemes.map.map import Leaf, PartitionMap
from sirocco.schemes.workload.keyword_workload import KeywordWorkload
from sirocco.schemes.workload.sample import Sample

Build = Callable[[Sample, int, int], PartitionMap]

# A new map must relieve the most loaded evaluator by this share: nearly all queries are copied, and
# all statistics start afresh.
REPARTITION_GAIN_MIN = 0.2

# Slots up to which new slots get the numbers of those with the most queries in common.
SLOTS_MATCHED_MAX = 512


def repartitioned(
    placement: Placement, memory: Memory, workload: KeywordWorkload, build: Build
) -> Plan | None:
    """Returns the change to a map built from the sample; None if it is not needed.

    PS2Stream keeps two maps until few old queries are left, because moving them is too expensive.
    Our map change keeps both maps while queries are copied in bounded portions, so that no such
    wait is needed: see docs/adr/0014.

    Args:
        placement: The present placement.
        memory: For the next view.
        workload: The view's sample.
        build: Builds a map of the scheme from (sample, leaves, slots).
    """
    view = placement.view
    proposed = build(workload.sample, len(view.map.leaves), view.map.slots)
    before, after = routed(workload, view.map), routed(workload, proposed)
    old_slot = placement.slot_of_leaf
    slot_of_leaf = _matched(before, old_slot, after, proposed)
    machines = len(view.evaluators)
    loads = before.loads(placement.machine_of_leaf, machines, workload.costs)
    machine_of_new = placement.machine_of_slot[slot_of_leaf]
    new_loads = after.loads(machine_of_new, machines, workload.costs)
    if new_loads.max() >= (1 - REPARTITION_GAIN_MIN) * loads.max():
        return None
    own = after.loads(np.arange(len(slot_of_leaf)), len(slot_of_leaf), workload.costs)
    scale = float(placement.loads.max()) / float(loads.max())
    copied = _copied_share(before, old_slot, after, slot_of_leaf, view.map.slots)
    housed = no_change(placement, memory)
    return replace(
        housed,
        reason="repartition",
        map=replace(
            proposed,
            version=view.map.version + 1,
            leaves=_with_free_ids(placement, proposed),
            slot_of_leaf=slot_of_leaf.astype(np.int32),
            load_of_leaf=own * scale,
        ),
        maximum_after=float(added(own * scale, machine_of_new, machines).max()),
        moved_queries=copied * float(view.loads.queries.sum()),
        moved_bytes=copied * float(view.loads.query_bytes.sum()),
    )


def _matched(
    before: SampleRoutes, old_slot: NDArray[np.int64], after: SampleRoutes, proposed: PartitionMap
) -> NDArray[np.int64]:
    """Returns the slot of each new leaf, numbered so that most queries stay in their slot."""
    slot = proposed.slot_of_leaf.astype(np.int64)
    slots = proposed.slots
    if slots > SLOTS_MATCHED_MAX:
        return slot
    held = np.zeros((max(before.queries[0].max(initial=-1), 0) + 1, slots), np.float64)
    held[before.queries[0], old_slot[before.queries[1]]] = 1.0
    common = np.zeros((slots, slots))
    pairs = np.unique(np.stack([after.queries[0], slot[after.queries[1]]]), axis=1)
    np.add.at(common, pairs[1], held[pairs[0]])
    return hungarian(-common)[slot]


def _copied_share(
    before: SampleRoutes,
    old_slot: NDArray[np.int64],
    after: SampleRoutes,
    new_slot: NDArray[np.int64],
    slots: int,
) -> float:
    """Returns the share of new (query, slot) pairs relative to the former pairs."""
    had = sorted_distinct(before.queries[0] * slots + old_slot[before.queries[1]])
    has = sorted_distinct(after.queries[0] * slots + new_slot[after.queries[1]])
    return len(np.setdiff1d(has, had, assume_unique=True)) / max(len(had), 1)


def _with_free_ids(placement: Placement, proposed: PartitionMap) -> tuple[Leaf, ...]:
    view = placement.view
    taken = {leaf.id for leaf in view.map.leaves} | view.reserved
    free = (number for number in range(len(taken) + len(proposed.leaves)) if number not in taken)
    return tuple(
        replace(leaf, id=number) for leaf, number in zip(proposed.leaves, free, strict=False)
    )
