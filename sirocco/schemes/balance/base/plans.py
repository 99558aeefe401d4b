"""Plans from decisions, and whether they pay."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sirocco.model.errors import InvalidArgument
from sirocco.schemes.balance.base.draft import Draft
from sirocco.schemes.balance.base.placement import Placement, added
from sirocco.schemes.balance.base.view import Memory, Plan

# A change must relieve an evaluator by this share of its load: each costs copies of queries,
# reading a checkpoint, and colder caches.
GAIN_SHARE_MIN = 0.05

# … and by this many standard deviations of a round's measurement noise. Otherwise the noise of each
# round would shift a quiet stream back and forth, with one map after another.
GAIN_DEVIATIONS_MIN = 3.0

# Mean square of an object's cost over the square of its mean: that of an exponential distribution.
# Objects with many matching queries and with none are mixed.
SQUARE_OVER_MEAN = 2.0


def least_gain(placement: Placement, machine: int) -> float:
    """Returns the minimum relief of an evaluator that can justify a change.

    Args:
        placement: The present placement.
        machine: The evaluator.
    """
    own = placement.machine_of_leaf == machine
    return least_gain_of(placement.cost[own], placement.view.loads.objects[own])


def least_gain_of(cost: NDArray[np.float64], objects: NDArray[np.float64]) -> float:
    """Returns the minimum relief that can justify a change of an evaluator's leaves.

    The load of a leaf is a sum over the objects of a round; if they arrived at random, its variance
    would be their number times the mean square of an object's cost.

    Args:
        cost: f8[n], cost of each of its leaves.
        objects: f8[n], objects of each in the round.
    """
    is_present = objects > 0
    variance = float((SQUARE_OVER_MEAN * cost[is_present] ** 2 / objects[is_present]).sum())
    by_chance: float = GAIN_DEVIATIONS_MIN * variance**0.5
    return max(GAIN_SHARE_MIN * float(cost.sum()), by_chance)


def no_change(placement: Placement, memory: Memory, wants: tuple[int, ...] = ()) -> Plan:
    """Returns the plan that only moves slots which cannot stay where they are."""
    return moves_plan(placement, placement.machine_of_slot, memory, "housing", wants)


def moves_plan(
    placement: Placement,
    machine_of_slot: NDArray[np.int64],
    memory: Memory,
    reason: str,
    wants: tuple[int, ...] = (),
) -> Plan:
    """Returns the plan that assigns slots to evaluators.

    Args:
        placement: The present placement.
        machine_of_slot: i8[slots], the evaluator of each slot.
        memory: For the next view.
        reason: Its name; a plan without moves has none.
        wants: See `Plan`.
    """
    view = placement.view
    moves = {
        slot: view.evaluators[machine_of_slot[slot]]
        for slot, owner in enumerate(view.owners)
        if view.evaluators[machine_of_slot[slot]] != owner
    }
    is_moved = np.zeros(len(view.owners), np.bool_)
    is_moved[list(moves)] = True
    travels = is_moved[placement.slot_of_leaf]
    loads = added(placement.cost_of_slot, machine_of_slot, len(view.evaluators))
    return Plan(
        memory=memory,
        reason=reason if moves else "",
        moves=moves,
        wants=wants,
        maximum_before=placement.maximum,
        maximum_after=float(loads.max()),
        moved_queries=float(view.loads.queries[travels].sum()),
        moved_bytes=float(view.loads.query_bytes[travels].sum()),
    )


def draft_loads(placement: Placement, draft: Draft) -> NDArray[np.float64]:
    """Returns the load of each evaluator under a draft, f8[evaluators]."""
    loads = np.zeros(len(placement.view.evaluators))
    for number in draft:
        leaf = draft[number]
        loads[placement.machine_of_slot[leaf.slot]] += leaf.load
    return loads


def map_plan(placement: Placement, draft: Draft, memory: Memory, reason: str) -> Plan:
    """Returns the plan that changes the map, and moves slots that cannot stay.

    If the draft exceeds the limits of a map, for example because its borders span too many cells,
    only these moves remain: they gain nothing, so another plan is taken, or none.
    """
    housed = no_change(placement, memory)
    try:
        changed = draft.finish()
    except InvalidArgument:
        return housed
    queries, size = draft.moved()
    return Plan(
        memory=memory,
        reason=reason,
        moves=housed.moves,
        map=changed,
        maximum_before=placement.maximum,
        maximum_after=float(draft_loads(placement, draft).max()),
        moved_queries=housed.moved_queries + queries,
        moved_bytes=housed.moved_bytes + size,
    )


def pays(placement: Placement, plan: Plan, query_price: float) -> bool:
    """Whether a plan's gain exceeds its cost (Tornado 4.2: Cr > Ct).

    Moves of slots that cannot stay count for neither.

    Args:
        placement: The present placement.
        plan: The plan.
        query_price: Cost of copying one standing query, in the balancer's unit of load.
    """
    housed = no_change(placement, plan.memory)
    gain = housed.maximum_after - plan.maximum_after
    price = query_price * (plan.moved_queries - housed.moved_queries)
    return gain > max(price, least_gain(placement, int(placement.loads.argmax())))
