"""PS2Stream's balancer: local phases I and II, and a new map at most once a day (PS2Stream V)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.balance.base.draft import Draft
from sirocco.schemes.balance.base.placement import Placement, added, imbalance, placed
from sirocco.schemes.balance.base.plans import draft_loads, map_plan, moves_plan, no_change, pays
from sirocco.schemes.balance.base.reallocation import move_leaves
from sirocco.schemes.balance.base.sample_routes import load_of, routed
from sirocco.schemes.balance.base.view import LeafLoads, Memory, Plan, View
from sirocco.schemes.balance.ps2stream.migration import Select, greedy
from sirocco.schemes.balance.ps2stream.repartition import Build, repartitioned
from sirocco.schemes.balance.ps2stream.text_split import PhaseOne
from sirocco.schemes.builders.kdt_tree.builder import KdtTree
from sirocco.schemes.workload.keyword_load import LoadCosts, costs_for
from sirocco.schemes.workload.keyword_workload import KeywordWorkload, keyword_workload

# Maximum migrated load, in τ, if possible: beyond it the formerly least loaded evaluator comes
# closer to being the most loaded one than to balance.
EXCESS_MAX = 1.5


def _build() -> Build:
    return KdtTree().build


@dataclass(frozen=True, slots=True, kw_only=True)
class Ps2StreamSettings:
    """Parameters of section V.

    Attributes:
        balance: σ, the greatest Lmax / Lmin. Larger than that of the map's construction (1.2),
            which a round's noise alone would exceed.
        cells_max: p, the number of most loaded cells in phase I.
        select: How phase II selects cells: GR, or DP, SI, RA of `migration`.
        check_period_ms: How often a complete new map is considered; the paper: once a day.
        costs: Constants of Definition 1; None: `costs_for` the standing queries.
        query_price: Cost of copying a standing query, in handlings of an object.
        build: How a new map is built.
    """

    balance: float = 1.5
    cells_max: int = 5
    select: Select = greedy
    check_period_ms: int = 24 * 3_600_000
    costs: LoadCosts | None = None
    query_price: float = 0.0
    build: Callable[[], Build] = _build


class Ps2Stream:
    """Relieves the most loaded evaluator in favour of the least loaded.

    The paper's worker is our evaluator and its cell our leaf. Cells are selected among whole slots
    first, which only change their owner, and then among leaves.
    """

    name = "ps2stream"

    def __init__(self, settings: Ps2StreamSettings | None = None) -> None:
        self._settings = settings or Ps2StreamSettings()

    def adjust(self, view: View, now_ms: int) -> Plan:
        """See `Balancer.adjust`. Without a sample there is neither phase I nor a new map."""
        placement = placed(view, self._loads(view.loads))
        memory, is_due = view.memory, self._is_due(view.memory, now_ms)
        is_uneven = imbalance(placement.loads) > self._settings.balance
        is_uneven &= len(view.evaluators) > 1
        workload = None
        if (is_due or is_uneven) and view.sample is not None and len(view.sample.queries):
            workload = keyword_workload(view.sample, self._settings.costs)
        if memory.checked_ms is None:
            # The map or its balancer is new: a day has to pass first.
            memory = replace(memory, checked_ms=now_ms)
        if is_due and workload is not None and len(workload.sample):
            # Only here: without a sample the daily check waits for a round with a sample.
            memory = replace(memory, checked_ms=now_ms)
            plan = repartitioned(placement, memory, workload, self._settings.build())
            if plan is not None:
                return plan
        if is_uneven:
            return self._locally(placement, memory, workload)
        return no_change(placement, memory)

    def _is_due(self, memory: Memory, now_ms: int) -> bool:
        last = memory.checked_ms
        return last is not None and now_ms - last >= self._settings.check_period_ms

    def _loads(self, loads: LeafLoads) -> NDArray[np.float64]:
        costs = self._settings.costs or costs_for(int(loads.queries.sum()))
        return load_of(loads.objects, loads.queries, costs)

    def _locally(
        self, placement: Placement, memory: Memory, workload: KeywordWorkload | None
    ) -> Plan:
        loads = placement.loads
        busy, idle = int(loads.argmax()), int(loads.argmin())
        draft = Draft(placement.view, placement.cost)
        target = self._lightest_slot(placement, idle)
        changed = False
        if workload is not None and target is not None:
            changed = self._phase_one(placement, draft, workload, (busy, idle), target)
        options = []
        if changed:
            options.append(map_plan(placement, draft, memory, "phase I"))
            if imbalance(draft_loads(placement, draft)) <= self._settings.balance:
                return self._best(placement, memory, options)
        else:
            moves = self._slots(placement, memory, busy, idle)
            options.append(moves)
            if self._is_balanced(placement, moves):
                return self._best(placement, memory, options)
        if target is not None and self._phase_two(placement, draft, (busy, idle)):
            reason = "phases I and II" if changed else "phase II"
            options.append(map_plan(placement, draft, memory, reason))
        return self._best(placement, memory, options)

    def _best(self, placement: Placement, memory: Memory, options: list[Plan]) -> Plan:
        paying = [one for one in options if pays(placement, one, self._settings.query_price)]
        unchanged = no_change(placement, memory)
        return min(paying, key=lambda plan: plan.maximum_after, default=unchanged)

    def _phase_one(
        self,
        placement: Placement,
        draft: Draft,
        workload: KeywordWorkload,
        pair: tuple[int, int],
        target: int,
    ) -> bool:
        """Splits and merges the most loaded cells by text; returns whether any was changed."""
        busy, idle = pair
        phase = PhaseOne(placement, draft, workload, routed(workload, placement.view.map))
        keyword_nodes = {node.id for node in placement.view.map.keyword_nodes}
        own = np.flatnonzero(placement.machine_of_leaf == busy)
        own = own[np.argsort(-placement.cost[own], kind="stable")]
        changed = False
        for leaf in own[: self._settings.cells_max].tolist():
            loads = draft_loads(placement, draft)
            room = float(loads[busy] - loads[idle]) / 2
            if room <= 0 or imbalance(loads) <= self._settings.balance:
                break
            within = draft[leaf].within
            if within is not None and within.node in keyword_nodes:
                changed |= phase.merge(leaf, idle, room)
            else:
                changed |= phase.split(leaf, target, room)
        return changed

    def _slots(self, placement: Placement, memory: Memory, busy: int, idle: int) -> Plan:
        """Phase II with slots as cells."""
        slots = np.flatnonzero(placement.machine_of_slot == busy)
        size = added(
            placement.view.loads.query_bytes, placement.slot_of_leaf, placement.view.map.slots
        )
        rows = self._select(
            size[slots],
            placement.cost_of_slot[slots],
            float(placement.loads[busy]),
            float(placement.loads[idle]),
        )
        machine = placement.machine_of_slot.copy()
        machine[slots[rows]] = idle
        return moves_plan(placement, machine, memory, "phase II of slots")

    def _phase_two(self, placement: Placement, draft: Draft, pair: tuple[int, int]) -> bool:
        """Phase II with leaves as cells; returns whether any was migrated."""
        busy, idle = pair
        loads = draft_loads(placement, draft)
        numbers = [n for n in draft if placement.machine_of_slot[draft[n].slot] == busy]
        bytes_of = placement.view.loads.query_bytes
        size = np.array(
            [sum(share * bytes_of[one] for one, share in draft[n].sources.items()) for n in numbers]
        )
        load = np.array([draft[number].load for number in numbers])
        rows = self._select(size, load, float(loads[busy]), float(loads[idle]))
        move_leaves(placement, draft, [numbers[row] for row in rows], idle)
        return len(rows) > 0

    def _select(
        self, size: NDArray[np.float64], load: NDArray[np.float64], high: float, low: float
    ) -> NDArray[np.int64]:
        """Selects cells with half of the load difference, or as much as does no harm.

        A set of least size may have far more load than τ: a single hot cell would only change
        places. So a set with more than 1.5 τ is chosen only if cells no heavier than τ do not
        relieve the evaluator more.
        """
        wanted = (high - low) / 2
        chosen = np.empty(0, np.int64)
        for heaviest in (EXCESS_MAX * wanted, wanted, 2 * wanted):
            rows = np.flatnonzero(load < heaviest if heaviest > wanted else load <= wanted)
            whole = np.ceil(size[rows]).astype(np.int64)
            found = rows[self._settings.select(whole, load[rows], wanted)]
            off = abs(float(load[found].sum()) - wanted)
            if off < abs(float(load[chosen].sum()) - wanted):
                chosen = found
            if off <= (EXCESS_MAX - 1) * wanted:
                break
        return chosen

    def _is_balanced(self, placement: Placement, plan: Plan) -> bool:
        number = {name: place for place, name in enumerate(placement.view.evaluators)}
        machine = placement.machine_of_slot.copy()
        for slot, owner in plan.moves.items():
            machine[slot] = number[owner]
        loads = added(placement.cost_of_slot, machine, len(number))
        return imbalance(loads) <= self._settings.balance

    @staticmethod
    def _lightest_slot(placement: Placement, machine: int) -> int | None:
        slots = np.flatnonzero(placement.machine_of_slot == machine)
        return int(slots[placement.cost_of_slot[slots].argmin()]) if len(slots) else None
