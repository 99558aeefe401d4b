"""SWARM's balancer: rounds, a lazy decision, and the least sufficient change (SWARM 4.3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.balance.base.draft import Draft
from sirocco.schemes.balance.base.neighbours import Neighbourhood
from sirocco.schemes.balance.base.placement import Placement, added, placed
from sirocco.schemes.balance.base.plans import (
    least_gain,
    map_plan,
    moves_plan,
    no_change,
)
from sirocco.schemes.balance.base.reallocation import move_leaves
from sirocco.schemes.balance.base.view import LeafDetail, Memory, Plan, View
from sirocco.schemes.balance.swarm.cost import WORK, Measure
from sirocco.schemes.balance.swarm.ladder import REPEATS_MAX, Step, beyond_noise, climbed
from sirocco.schemes.balance.swarm.reduction import find_subset
from sirocco.schemes.builders.swarm_split import CutCosts, Split, best_cut
from sirocco.schemes.workload.swarm_statistics import AxisStatistics


@dataclass(frozen=True, slots=True)
class SwarmSettings:
    """Parameters of section 4.3.

    Attributes:
        repeats_max, step: β and the steps on the ladder, see `ladder`.
        merge_period_ms: How often neighbours are merged; the paper: every five hours. Unnecessary
            small leaves cost an entry for every overlapping query.
        leaves_max: Leaves of one machine whose details are requested at once. The most expensive
            one is split unless it is a single cell.
        query_price: Cost of copying a standing query, in the measure's unit.
        measure: Measure for comparing machines. The paper's is `cost.EQUATION_5`.
    """

    repeats_max: int = REPEATS_MAX
    step: Step = beyond_noise
    merge_period_ms: int = 5 * 3_600_000
    leaves_max: int = 2
    query_price: float = 0.0
    measure: Measure = WORK


class Swarm:
    """Makes at most one reduction of the most expensive machine's load per round.

    The paper's machine is our evaluator, its partition our leaf. A machine's cost is its work
    instead of the paper's objects times queries: see `work`. A subset is searched among whole slots
    first, which only change their owner, and then among leaves, which need a new map.
    """

    name = "swarm"

    def __init__(self, settings: SwarmSettings | None = None) -> None:
        self._settings = settings or SwarmSettings()

    def adjust(self, view: View, now_ms: int) -> Plan:
        """See `Balancer.adjust`. Requests the details of leaves that it may split."""
        recent_total = float(view.loads.arrivals.sum())
        placement = placed(view, self._settings.measure.leaves(view.loads))
        given = self._settings
        memory = climbed(view.memory, recent_total, given.repeats_max, given.step)
        if memory.merged_ms is None:
            memory = replace(memory, merged_ms=now_ms)
        if memory.rebalances:
            plan = self._rebalance(placement, memory)
            if plan is not None:
                return plan
        if now_ms - (memory.merged_ms or 0) >= self._settings.merge_period_ms:
            memory = replace(memory, merged_ms=now_ms)
            merged = merged_neighbours(placement, memory)
            if merged is not None:
                return merged
        return no_change(placement, memory)

    def _rebalance(self, placement: Placement, memory: Memory) -> Plan | None:
        """Relieves the most expensive machine possible, to the cheapest (Figure 10)."""
        loads = placement.loads
        cheapest = int(loads.argmin())
        for dearest in np.argsort(-loads, kind="stable").tolist():
            room = float(loads[dearest] - loads[cheapest]) / 2
            if room <= least_gain(placement, dearest):
                return None
            for plan in self._reductions(placement, memory, dearest, cheapest):
                if plan.wants or pays_for(placement, plan, dearest, self._settings.query_price):
                    return plan
        return None

    def _reductions(
        self, placement: Placement, memory: Memory, dearest: int, cheapest: int
    ) -> Iterator[Plan]:
        """Yields the possible reliefs of a machine, in the order of trial."""
        loads = placement.loads
        capacity = float(loads[dearest] - loads[cheapest]) / 2
        slots = np.flatnonzero(placement.machine_of_slot == dearest)
        chosen = slots[find_subset(placement.cost_of_slot[slots], capacity)]
        machine = placement.machine_of_slot.copy()
        machine[chosen] = cheapest
        yield moves_plan(placement, machine, memory, "subset of slots")
        target = _lightest_slot(placement, cheapest)
        if target is None:
            return
        leaves = np.flatnonzero(placement.machine_of_leaf == dearest)
        subset = leaves[find_subset(placement.cost[leaves], capacity)]
        if len(subset):
            draft = Draft(placement.view, placement.cost)
            move_leaves(placement, draft, subset.tolist(), cheapest)
            yield map_plan(placement, draft, memory, "subset")
        yield from self._split(placement, memory, leaves, (dearest, cheapest), target)

    def _split(
        self,
        placement: Placement,
        memory: Memory,
        leaves: NDArray[np.int64],
        machines: tuple[int, int],
        target: int,
    ) -> Iterator[Plan]:
        """Yields the best split of the most expensive leaf of more than one cell."""
        view, loads = placement.view, placement.loads
        order = leaves[np.argsort(-placement.cost[leaves], kind="stable")]
        uncut = Draft(view, placement.cost)
        can_be_cut = np.array([uncut.is_spatial(leaf) for leaf in order.tolist()], np.bool_)
        order = order[can_be_cut & (placement.cost[order] > 0)][: self._settings.leaves_max]
        ids = [view.map.leaves[leaf].id for leaf in order]
        wants = tuple(one for one in ids if one not in view.details)
        if wants:
            # The round is not over: the ladder must not advance twice.
            yield no_change(placement, view.memory, wants)
            return
        for leaf, name in zip(order.tolist(), ids, strict=True):
            detail = view.details[name]
            own, met = float(placement.cost[leaf]), float(view.loads.met[leaf])
            costs = self._settings.measure.cuts(detail, own, met)
            if costs is None:
                continue
            dearest, cheapest = (float(loads[machine]) for machine in machines)
            split = best_cut(costs, dearest - own - cheapest)
            if split is None:
                continue
            draft = Draft(view, placement.cost)
            parts = _cut(draft, leaf, detail, split, costs[split.axis])
            draft.put(parts[0] if split.moves_first else parts[1], target)
            yield map_plan(placement, draft, memory, "split")
            return


def pays_for(placement: Placement, plan: Plan, machine: int, query_price: float) -> bool:
    """Whether a plan relieves a machine enough.

    Only the two machines involved count: another may be as expensive, and be next.

    Args:
        placement: The present placement.
        plan: The plan.
        machine: The machine to relieve.
        query_price: See `plans.pays`.
    """
    loads, after = placement.loads, _loads_after(placement, plan)
    cheapest = int(loads.argmin())
    gain = float(loads[machine] - max(after[machine], after[cheapest]))
    queries = plan.moved_queries - no_change(placement, plan.memory).moved_queries
    return gain > max(query_price * queries, least_gain(placement, machine))


def _loads_after(placement: Placement, plan: Plan) -> NDArray[np.float64]:
    number = {name: place for place, name in enumerate(placement.view.evaluators)}
    machine = placement.machine_of_slot.copy()
    for slot, owner in plan.moves.items():
        machine[slot] = number[owner]
    cost = placement.cost_of_slot if plan.map is None else plan.map.load_of_slot()
    return added(cost, machine, len(number))


def _cut(
    draft: Draft, leaf: int, detail: LeafDetail, split: Split, costs: CutCosts
) -> tuple[int, int]:
    """Splits a leaf of a draft; returns the numbers of both parts."""
    statistics = (detail.statistics.columns, detail.statistics.rows)[split.axis]
    borders = (detail.grid.x_borders, detail.grid.y_borders)[split.axis]
    share = _query_shares(statistics, split.at)
    return draft.split(leaf, split.axis, float(borders[split.at]), costs.parts(split.at - 1), share)


def _query_shares(statistics: AxisStatistics, at: int) -> tuple[float, float]:
    """Returns the shares of a leaf's queries that overlap the parts before and after a split."""
    total, before = float(statistics.queries[-1]), float(statistics.queries[at - 1])
    if total <= 0:
        return 1.0, 1.0
    return before / total, (total - before + float(statistics.spans[at])) / total


def _lightest_slot(placement: Placement, machine: int) -> int | None:
    slots = np.flatnonzero(placement.machine_of_slot == machine)
    return int(slots[placement.cost_of_slot[slots].argmin()]) if len(slots) else None


def merged_neighbours(placement: Placement, memory: Memory) -> Plan | None:
    """Merges neighbouring leaves with an unnecessary border (4.3.1); None if there are none.

    The paper merges leaves of one machine. We merge leaves of one slot: no query is copied, and
    slots remain movable. The joint leaf's queries are at most those of both, so its N Q R is at
    most the product of the sums; if this growth would make a machine the most expensive one, the
    two stay separate. With any measure, a growth of N Q R is converted at the rate of the whole
    map. (Work itself would not grow: each slot would become one leaf, and at the next hot spot only
    slots could be moved.) If no leaf has any N Q R, nothing is merged, because otherwise each slot
    would become one leaf: a night without queries says nothing about the day.
    """
    view_loads = placement.view.loads
    columns = np.stack([view_loads.faded, view_loads.queries, view_loads.arrivals], 1)
    whole = float(columns.prod(1).sum())
    if whole <= 0:
        return None
    price = float(placement.cost.sum()) / whole
    draft = Draft(placement.view, placement.cost)
    loads, limit = placement.loads.copy(), float(placement.loads.max())
    numbers = {number: columns[number] for number in draft}
    is_done = False
    while not is_done:
        is_done = True
        near = Neighbourhood((n, draft[n]) for n in draft if draft.is_spatial(n))
        merged: set[int] = set()
        for first, second in tuple(near.pairs()):
            if {first, second} & merged or draft[first].slot != draft[second].slot:
                continue
            slot = draft[first].slot
            joint = numbers[first] + numbers[second]
            growth = float(joint.prod() - numbers[first].prod() - numbers[second].prod())
            machine = placement.machine_of_slot[slot]
            grown = loads[machine] + price * growth
            if grown > limit:
                continue
            loads[machine] = grown
            cost = draft[first].load + draft[second].load + price * growth
            numbers[draft.merge((first, second), slot, cost)] = joint
            merged |= {first, second}
            is_done = False
    if len(draft) == len(placement.cost):
        return None
    return map_plan(placement, draft, memory, "merge")
