"""The rounds of balancing: from reports of evaluators to a view, and from a plan to a decision.

A balancer proposes a change; this module decides whether to carry it out now. A change must be
proposed in several rounds in a row, only one is under way at a time, and after each the cluster is
left alone for a while: the first figures after a change are those of cold caches. If one evaluator
has far more to do than others, all these waits are shortened, and so is the round. What it cannot
process queues up, and the queue grows with every round that it takes to relieve it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sirocco.protocol.contract.load_messages import LoadReport
from sirocco.protocol.contract.map_change import ChangePhase
from sirocco.protocol.coordinator.round_settings import RoundSettings
from sirocco.schemes.balance.base.placement import added
from sirocco.schemes.balance.base.view import LeafLoads, Memory, Plan, Stage
from sirocco.schemes.map.map import PartitionMap

# Decisions that are kept to be shown.
DECISIONS_MAX = 20

# A measurement covers at least this share of the time that the last change of the map took: a
# cluster with millions of queries to copy must not react to a moment's burst.
LOOK_SHARE = 0.05

# Balancers do these at intervals of hours, whatever the loads are: they are never urgent.
AT_INTERVALS = frozenset({"merge", "repartition"})

# A change that is not over after so long is no longer waited for: its cause, for example a dead
# evaluator, has changed the loads as well.
CHANGE_MS_MAX = 120_000


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ClusterState:
    """What the coordinator's machine knows between two steps.

    Attributes:
        leading: whether it leads.
        phase: of a change of the map.
        map: the one in force; None before the first.
        owners: of each slot, "" for none.
        evaluators: those that are alive and not leaving.
        is_granting: grants have been declared and not read back.
        routers: those that own intake.
    """

    leading: bool
    phase: ChangePhase
    map: PartitionMap | None
    owners: tuple[str, ...]
    evaluators: tuple[str, ...]
    is_granting: bool
    routers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A change that was decided.

    Attributes:
        at_ms: when.
        reason: its name in the paper.
        moves: slot → (owner before, owner after).
        map_version: of the map that follows; 0: none.
        maximum_before, maximum_after, moved_queries: as in the plan.
        seconds: until it was over.
        outcome: "under way", "done", or why it was not done.
    """

    at_ms: int
    reason: str
    moves: Mapping[int, tuple[str, str]]
    map_version: int
    maximum_before: float
    maximum_after: float
    moved_queries: float
    seconds: float = 0.0
    outcome: str = "under way"


def joined_loads(
    partition_map: PartitionMap, owners: tuple[str, ...], reports: Mapping[str, LoadReport]
) -> tuple[LeafLoads, tuple[int, ...]]:
    """Returns the loads of all leaves, and the slots whose owner did not report theirs.

    Args:
        partition_map: the map in force.
        owners: of each slot.
        reports: what each evaluator reported.
    """
    count = len(partition_map.leaves)
    place = {leaf.id: position for position, leaf in enumerate(partition_map.leaves)}
    columns = {name: np.zeros(count) for name in LeafLoads.__slots__}
    is_reported = np.zeros(partition_map.slots, np.bool_)
    for member, one in reports.items():
        if one.version != partition_map.version:
            continue
        own = [slot for slot in one.slots if slot < len(owners) and owners[slot] == member]
        is_reported[own] = True
        at = np.array([place.get(leaf, -1) for leaf in one.leaves.tolist()], np.int64)
        # An evaluator that has just lost a slot may still report it.
        counts = (at >= 0) & np.isin(partition_map.slot_of_leaf[at], own)
        for name, column in columns.items():
            column[at[counts]] = getattr(one.loads, name)[counts]
    return LeafLoads(**columns), tuple(np.flatnonzero(~is_reported).tolist())


def loads_since(loads: LeafLoads, before: LeafLoads) -> LeafLoads:
    """Returns what was counted after an earlier measurement in the same round."""
    columns = (
        np.maximum(getattr(loads, name) - getattr(before, name), 0.0)
        for name in LeafLoads.__slots__
    )
    return LeafLoads(*columns)


def evaluator_loads(
    slot_loads: NDArray[np.float64], owners: tuple[str, ...], evaluators: tuple[str, ...]
) -> NDArray[np.float64]:
    """Returns the load of each evaluator, f8[evaluators]; slots of other owners are left out."""
    number = {name: place for place, name in enumerate(evaluators)}
    machine = np.array([number.get(owner, -1) for owner in owners], np.int64)
    is_here = machine >= 0
    return added(slot_loads[is_here], machine[is_here], len(evaluators))


def imbalance_of(loads: NDArray[np.float64]) -> float:
    """Returns the greatest load over the mean; 0 where there is none."""
    mean = float(loads.mean()) if len(loads) else 0.0
    return float(loads.max()) / mean if mean > 0 else 0.0


class Rounds:
    """Decides which plans are carried out.

    Attributes:
        memory: of the balancer.
        decisions: the last ones, newest first; the first may be under way.
        moves_total, map_changes_total: carried out so far.
    """

    def __init__(self, settings: RoundSettings, memory: Memory | None = None) -> None:
        self.settings = settings
        self.memory = memory or Memory()
        self.decisions: list[Decision] = []
        self.moves_total = 0
        self.map_changes_total = 0
        self._agreed = 0
        self._ended_ms: int | None = None

    @property
    def under_way(self) -> Decision | None:
        """The decision that is being carried out."""
        newest = self.decisions[0] if self.decisions else None
        return newest if newest is not None and newest.outcome == "under way" else None

    @property
    def look_ms(self) -> int:
        """The time that a measurement covers, and an urgent round."""
        # A change under way has no seconds yet.
        seconds = (each.seconds for each in self.decisions if each.map_version and each.seconds)
        by_change_ms = round(LOOK_SHARE * next(seconds, 0.0) * 1_000)
        return min(max(self.settings.look_ms, by_change_ms), self.settings.interval_ms)

    def decide(
        self, plan: Plan, owners: tuple[str, ...], objects: float, imbalance: float, now_ms: int
    ) -> tuple[Decision | None, str]:
        """Takes the plan of a round; returns the decision, or None and why there is none.

        Args:
            plan: of the balancer. Its memory is kept whatever is decided, except for times of
                changes at intervals: see `_memory_of`.
            owners: of each slot, at the time of the plan.
            objects: how many arrived in the round.
            imbalance: see `imbalance_of`.
            now_ms: when the round ended.
        """
        reason = self._reason_to_wait(plan, objects, imbalance, now_ms)
        self.memory = self._memory_of(plan, is_decided=not reason)
        if reason:
            return None, reason
        self._agreed = 0
        decision = proposed(plan, owners, now_ms)
        self.decisions = [decision, *self.decisions[: DECISIONS_MAX - 1]]
        return decision, ""

    def _memory_of(self, plan: Plan, *, is_decided: bool) -> Memory:
        """Returns the plan's memory; a change that was proposed and has to wait stays due.

        A balancer notes the time of a change at intervals as soon as it proposes it. If that were
        kept, the next round would not propose it again, and no such change would be wanted twice.
        """
        if is_decided or not plan.changes:
            return plan.memory
        # For a change that it has never made it notes the present, which starts the interval.
        kept, given = self.memory, plan.memory
        return replace(
            given,
            merged_ms=given.merged_ms if kept.merged_ms is None else kept.merged_ms,
            checked_ms=given.checked_ms if kept.checked_ms is None else kept.checked_ms,
        )

    def _reason_to_wait(self, plan: Plan, objects: float, imbalance: float, now_ms: int) -> str:
        if plan.wants or not plan.changes:
            self._agreed = 0
            return "details are missing" if plan.wants else "nothing to change"
        if objects < self.settings.objects_min:
            self._agreed = 0
            return "too few objects to decide"
        if imbalance < self.settings.imbalance_min and plan.reason != "merge":
            self._agreed = 0
            return "balanced well enough"
        self._agreed += 1
        given = self.settings
        is_urgent = given.is_urgent(imbalance) and plan.reason not in AT_INTERVALS
        pause_ms = min(given.cooldown_ms, self.look_ms) if is_urgent else given.cooldown_ms
        if self._ended_ms is not None and now_ms - self._ended_ms < pause_ms:
            return "pausing after a change"
        if self._agreed < given.rounds and not is_urgent:
            return f"needed in {self._agreed} of {given.rounds} rounds"
        return ""

    def is_over(
        self,
        decision: Decision,
        cluster_state: ClusterState,
        reports: Mapping[str, tuple[int, ...]],
    ) -> bool:
        """Whether a decision has been carried out.

        Args:
            decision: the one under way.
            cluster_state: the present state.
            reports: slots that each evaluator owns and is up to date with.
        """
        if cluster_state.is_granting or cluster_state.phase is not ChangePhase.NONE:
            return False
        if decision.map_version:
            version = cluster_state.map.version if cluster_state.map is not None else 0
            if version < decision.map_version:
                return False
        # A slot may have moved on: its present owner has to be up to date.
        return all(slot in reports.get(cluster_state.owners[slot], ()) for slot in decision.moves)

    def ended(self, now_ms: int, outcome: str = "done") -> Decision | None:
        """Ends the decision under way."""
        decision = self.under_way
        if decision is None:
            return None
        seconds = max(now_ms - decision.at_ms, 1) / 1_000
        ended = replace(decision, seconds=seconds, outcome=outcome)
        self.decisions[0] = ended
        self._ended_ms = now_ms
        if outcome == "done":
            self.moves_total += len(decision.moves)
            self.map_changes_total += bool(decision.map_version)
        return ended

    def is_late(self, now_ms: int) -> bool:
        """Whether to stop waiting for the decision under way."""
        decision = self.under_way
        return decision is not None and now_ms - decision.at_ms > CHANGE_MS_MAX


def proposed(plan: Plan, owners: tuple[str, ...], now_ms: int) -> Decision:
    """Returns a plan as a decision."""
    return Decision(
        at_ms=now_ms,
        reason=plan.reason,
        moves={slot: (owners[slot], member) for slot, member in plan.moves.items()},
        map_version=plan.map.version if plan.map is not None else 0,
        maximum_before=plan.maximum_before,
        maximum_after=plan.maximum_after,
        moved_queries=plan.moved_queries,
    )


def memory_state(memory: Memory) -> dict[str, float | int | bool | None]:
    """Returns a balancer's memory as plain values; some hundred bytes."""
    return {name: getattr(memory, name) for name in Memory.__slots__}


def read_memory(state: object) -> Memory:
    """Returns the memory of plain values; an empty memory if they are invalid."""
    if not isinstance(state, dict) or set(state) != set(Memory.__slots__):
        return Memory()
    try:
        return Memory(**{**state, "stage": Stage(state["stage"])})
    except (TypeError, ValueError):
        return Memory()
