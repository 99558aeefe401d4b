"""SSTD's reallocation without new splits: PM and FM (SSTD 5.2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.schemes.balance.base.assignment import assign_subsets
from sirocco.schemes.balance.base.draft import Draft
from sirocco.schemes.balance.base.placement import Placement, added
from sirocco.schemes.workload.allocation import karmarkar_karp


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """Units of allocation: slots, which only change their owner, or leaves of a new map.

    Attributes:
        load: f8[n].
        transfer: f8[n, machines], standing queries that are copied if the unit moves there.
        machine: i8[n], its present machine.
        machines: i8[m], ascending, the possible machines.
    """

    load: NDArray[np.float64]
    transfer: NDArray[np.float64]
    machine: NDArray[np.int64]
    machines: NDArray[np.int64]


def slot_units(placement: Placement) -> Units:
    """Returns the slots as units."""
    queries = added(placement.view.loads.queries, placement.slot_of_leaf, placement.view.map.slots)
    machine = placement.machine_of_slot
    everyone = np.arange(len(placement.view.evaluators))
    transfer = np.where(machine[:, None] == everyone, 0.0, queries[:, None])
    return Units(placement.cost_of_slot, transfer, machine, everyone)


def leaf_units(placement: Placement, draft: Draft) -> Units:
    """Returns a draft's leaves as units, in its order; machines without slots cannot hold any."""
    queries = placement.view.loads.queries
    home = placement.machine_of_leaf
    everyone = np.arange(len(placement.view.evaluators))
    leaves = [draft[number] for number in draft]
    transfer = np.zeros((len(leaves), len(everyone)))
    for row, leaf in enumerate(leaves):
        for source, share in leaf.sources.items():
            transfer[row] += np.where(everyone == home[source], 0.0, share * queries[source])
    return Units(
        np.array([leaf.load for leaf in leaves]),
        transfer,
        placement.machine_of_slot[[leaf.slot for leaf in leaves]],
        sorted_distinct(placement.machine_of_slot),
    )


def partial(units: Units) -> NDArray[np.int64]:
    """PM: reallocates between the most and the least loaded machine; i8[n], new machines."""
    loads = added(units.load, units.machine, int(units.machines.max()) + 1)[units.machines]
    pair = units.machines[[int(loads.argmax()), int(loads.argmin())]]
    return _shared(units, np.sort(pair)) if pair[0] != pair[1] else units.machine


def full(units: Units) -> NDArray[np.int64]:
    """FM: reallocates all units among all machines; i8[n], the new machines."""
    return _shared(units, units.machines)


def _shared(units: Units, machines: NDArray[np.int64]) -> NDArray[np.int64]:
    """Divides units by Karmarkar-Karp and assigns each subset to the machine of least transfer.

    Units without load stay, because moving them gains nothing.
    """
    rows = np.flatnonzero(np.isin(units.machine, machines) & (units.load > 0))
    subset_of = karmarkar_karp(units.load[rows], len(machines)).astype(np.int64)
    place = assign_subsets(subset_of, units.transfer[np.ix_(rows, machines)])
    machine = units.machine.copy()
    machine[rows] = machines[place]
    return machine


def move_leaves(placement: Placement, draft: Draft, numbers: Iterable[int], machine: int) -> None:
    """Moves some leaves to slots of another machine, see `place_leaves`."""
    chosen = set(numbers)
    owners = [
        machine if number in chosen else placement.machine_of_slot[draft[number].slot]
        for number in draft
    ]
    place_leaves(placement, draft, np.array(owners, np.int64))


def place_leaves(placement: Placement, draft: Draft, machine: NDArray[np.int64]) -> None:
    """Moves a draft's leaves to slots of their new machines.

    A leaf on the right machine stays in its slot; the others move, the heaviest first, to the least
    loaded slot of their machine.

    Args:
        placement: The present placement.
        draft: Changed.
        machine: i8[n], the machine of each of its leaves.
    """
    slots = len(placement.machine_of_slot)
    loads, moving = np.zeros(slots), []
    for number, wanted in zip(draft, machine.tolist(), strict=True):
        leaf = draft[number]
        if placement.machine_of_slot[leaf.slot] == wanted:
            loads[leaf.slot] += leaf.load
        else:
            moving.append((-leaf.load, number, wanted))
    for load, number, wanted in sorted(moving):
        own = np.flatnonzero(placement.machine_of_slot == wanted)
        slot = int(own[loads[own].argmin()])
        draft.put(number, slot)
        loads[slot] -= load
