"""Load of each evaluator, and the slots that cannot stay where they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.balance.base.view import View


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Slots on evaluators.

    Attributes:
        view: The view from which it was made.
        cost: f8[leaves], cost of each leaf of the map in force, in the balancer's unit.
        machine_of_slot: i8[slots], index of each slot's owner in `view.evaluators`. Slots that
            cannot stay already have a new owner.
        moves: The moves of these slots, slot → evaluator.
        maximum: Load of the most loaded evaluator before any move, including dead evaluators.
    """

    view: View
    cost: NDArray[np.float64]
    machine_of_slot: NDArray[np.int64]
    moves: Mapping[int, str]
    maximum: float

    @property
    def slot_of_leaf(self) -> NDArray[np.int64]:
        """The slot of each leaf, i8[leaves]."""
        return self.view.map.slot_of_leaf.astype(np.int64)

    @property
    def machine_of_leaf(self) -> NDArray[np.int64]:
        """The evaluator of each leaf, i8[leaves]."""
        return self.machine_of_slot[self.slot_of_leaf]

    @property
    def cost_of_slot(self) -> NDArray[np.float64]:
        """Cost of each slot, f8[slots]."""
        return added(self.cost, self.slot_of_leaf, len(self.machine_of_slot))

    @property
    def loads(self) -> NDArray[np.float64]:
        """Load of each evaluator, f8[evaluators]."""
        return added(self.cost, self.machine_of_leaf, len(self.view.evaluators))


def added(
    values: NDArray[np.float64], group: NDArray[np.int64], groups: int
) -> NDArray[np.float64]:
    """Returns the sum of each group's values, f8[groups]."""
    return np.bincount(group, values, groups).astype(np.float64)


def imbalance(loads: NDArray[np.float64]) -> float:
    """Returns Lmax / Lmin (SSTD, Definition 4); 1 without load."""
    high, low = float(loads.max()), float(loads.min())
    if high <= 0:
        return 1.0
    return high / low if low > 0 else float("inf")


def placed(view: View, cost: NDArray[np.float64]) -> Placement:
    """Returns the placement of a view; slots whose owner is gone or leaves get new owners.

    None of the papers lets machines join and leave. A slot without a living owner moves to the
    least loaded evaluator, the heaviest first. An evaluator without slots then gets one from the
    most loaded evaluator that can spare it, so that new evaluators work at once.

    Args:
        view: The view.
        cost: f8[leaves], the cost of each leaf.
    """
    number = {name: place for place, name in enumerate(view.evaluators)}
    slot_cost = added(cost, view.map.slot_of_leaf.astype(np.int64), view.map.slots)
    machine = np.array([number.get(owner, -1) for owner in view.owners], np.int64)
    of_all: dict[str, float] = {}
    for slot, owner in enumerate(view.owners):
        of_all[owner] = of_all.get(owner, 0.0) + float(slot_cost[slot])
    _house(machine, slot_cost, len(number))
    _welcome(machine, slot_cost, len(number))
    moves = {
        slot: view.evaluators[machine[slot]]
        for slot, owner in enumerate(view.owners)
        if view.evaluators[machine[slot]] != owner
    }
    return Placement(view, cost, machine, moves, max(of_all.values()))


def _house(machine: NDArray[np.int64], cost: NDArray[np.float64], machines: int) -> None:
    homeless = np.flatnonzero(machine < 0)
    is_housed = machine >= 0
    loads = added(cost[is_housed], machine[is_housed], machines)
    held = np.bincount(machine[is_housed], minlength=machines)
    for slot in homeless[np.argsort(-cost[homeless], kind="stable")]:
        least = int(np.lexsort((held, loads))[0])
        machine[slot] = least
        loads[least] += cost[slot]
        held[least] += 1


def _welcome(machine: NDArray[np.int64], cost: NDArray[np.float64], machines: int) -> None:
    while True:
        held = np.bincount(machine, minlength=machines)
        empty = np.flatnonzero(held == 0)
        donors = np.flatnonzero(held > 1)
        if len(empty) == 0 or len(donors) == 0:
            return
        loads = added(cost, machine, machines)
        donor = donors[np.lexsort((-held[donors], -loads[donors]))[0]]
        slots = np.flatnonzero(machine == donor)
        # Half of the donor's load makes the two equal.
        off = np.abs(loads[donor] / 2 - cost[slots])
        machine[slots[off.argmin()]] = empty[0]
