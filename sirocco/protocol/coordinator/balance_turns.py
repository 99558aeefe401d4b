"""Balancing at the coordinator, turn by turn: what follows from the answers to its requests.

A turn is a generator that yields requests (`balance_requests`). So the same code runs in the
coordinator's thread, which waits for answers, and in the simulator, where the cluster advances
between any two requests.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.model.errors import SiroccoError
from sirocco.protocol.contract.load_messages import ArrivalReport, LoadReport, SampleReport
from sirocco.protocol.contract.map_change import ChangePhase
from sirocco.protocol.coordinator.arrival_rates import RoutedTotals, routed_totals, with_arrivals
from sirocco.protocol.coordinator.balance_requests import (
    Ask,
    AskArrivals,
    AskDetails,
    AskLoads,
    AskSamples,
    AskSlots,
    Begun,
    Ended,
    Measured,
    Move,
    Propose,
    ReadMemory,
    RoundResult,
    Save,
    SaveMemory,
    Turn,
    Warm,
    Weigh,
)
from sirocco.protocol.coordinator.balance_rounds import (
    ClusterState,
    Decision,
    Rounds,
    evaluator_loads,
    imbalance_of,
    joined_loads,
    loads_since,
    proposed,
)
from sirocco.protocol.coordinator.round_settings import LOOKS, RoundSettings
from sirocco.protocol.coordinator.sample_merge import joined_sample
from sirocco.schemes.balance.balancers import SAMPLED, balancer_of
from sirocco.schemes.balance.base.placement import added
from sirocco.schemes.balance.base.view import Balancer, LeafDetail, LeafLoads, Plan, View
from sirocco.schemes.balance.base.work import work
from sirocco.schemes.map.map import PartitionMap
from sirocco.schemes.map.map_bytes import to_bytes

__all__ = [
    "MET_LOOKS",
    "Ask",
    "AskArrivals",
    "AskDetails",
    "AskLoads",
    "AskSamples",
    "AskSlots",
    "Begun",
    "Ended",
    "Move",
    "Propose",
    "ReadMemory",
    "RoundResult",
    "Save",
    "SaveMemory",
    "Turn",
    "Turns",
    "Warm",
    "Weigh",
]

# Objects, and queries, in a sample of all evaluators: some 2 MB on the wire.
SAMPLE = 4_096

# The least from one evaluator, also if it has hardly any load. Its share is a count over leaves: an
# object or query in several leaves is sent once, and others may be asked for more than they have.
SAMPLE_MIN = 64

# Pause after a measurement, in units of its duration: even with hundreds of routers to ask,
# measuring takes the coordinator a tenth of its time at most.
LOOK_APART = 9

# Measurements between two questions to evaluators how much objects match. That costs each of them a
# millisecond, and waits for its loop. Arrivals change at once, matches per object do not.
MET_LOOKS = 5

# Pause in units of a measurement after one with too few objects, or with an answer missing.
FEW_LOOKS = 5


class Turns:
    """Makes the turns of one coordinator.

    Args:
        settings: when a change is due.
        wall_ms: the time of day, by which decisions are dated.
        monotonic_ms: the time by which rounds are measured.
        by_scheme: scheme → its balancer.

    Attributes:
        rounds: decisions, and the balancer's memory.
    """

    def __init__(
        self,
        settings: RoundSettings,
        wall_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
        by_scheme: Callable[[str], Balancer | None] = balancer_of,
    ) -> None:
        self.rounds = Rounds(settings)
        self._settings = settings
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms
        self._by_scheme = by_scheme
        self._is_leading = False
        self._looks_left = LOOKS
        self._next_look_ms = 0
        # Map version, and what evaluators counted last with it: how much an object of a leaf
        # matches.
        self._counted: tuple[int, LeafLoads] | None = None
        # When they are asked again.
        self._next_count_ms = 0
        self._begin()

    def _begin(self) -> None:
        """Begins a round."""
        self._round_began_ms = self._monotonic_ms()
        self._looks = 0
        # What routers had sent at the begin of the round, and at the measurement before.
        self._began: RoutedTotals | None = None
        self._seen: RoutedTotals | None = None
        # Of the round so far, when evaluators were asked last: the map's version, the loads.
        self._so_far: tuple[int, LeafLoads] | None = None

    def turn(self, cluster_state: ClusterState) -> Turn:
        """Does what is due now.

        Args:
            cluster_state: what the machine knows at the begin of the turn. It may change before a
                decision, so the machine checks decisions against what it knows then.
        """
        if not cluster_state.leading:
            self._is_leading = False
            return
        if not self._is_leading:
            self._is_leading = True
            self._looks_left = LOOKS
            self._begin()
            self.rounds = Rounds(self._settings)
            self.rounds.memory = yield ReadMemory()
            self._began = yield from self._sent(cluster_state, cluster_state.map)
        if self.rounds.under_way is not None:
            yield from self._look_after(self.rounds.under_way, cluster_state)
        if cluster_state.map is None:
            return
        elapsed_ms = self._monotonic_ms() - self._round_began_ms
        is_whole = elapsed_ms >= self._settings.interval_ms
        if is_whole or (yield from self._is_cut(cluster_state, cluster_state.map, elapsed_ms)):
            # An attempt that relieved nothing is not repeated at once: a whole round comes first.
            self._looks_left = LOOKS if is_whole else 0
            yield from self._round(cluster_state, cluster_state.map, elapsed_ms)

    def _is_cut(
        self, cluster_state: ClusterState, partition_map: PartitionMap, elapsed_ms: int
    ) -> Generator[Ask, Any, bool]:
        """Whether a round ends early: at its first measurement, if that is urgent.

        A measurement covers the arrivals since the one before; with too few arrivals it is skipped.
        If a later one is urgent, counting starts again. Otherwise the round would include the time
        before, and a leaf that has just become hot would be relieved of little.
        """
        looks = elapsed_ms // self.rounds.look_ms
        balancer = self._by_scheme(partition_map.scheme)
        begin_ms = self._monotonic_ms()
        is_idle = looks == self._looks or not self._looks_left or begin_ms < self._next_look_ms
        if is_idle or self._reason_to_skip(cluster_state, (), balancer):
            return False
        self._looks = looks
        sent = yield from self._sent(cluster_state, partition_map)
        self._pause_behind(begin_ms)
        counted = yield from self._what_objects_meet(cluster_state, partition_map)
        if sent is None or counted is None:
            self._pause_behind(begin_ms, self.rounds.look_ms * FEW_LOOKS)
            return False
        is_first, before = self._seen is None, self._seen or self._began
        arrived = sent.since(before)
        if arrived is not None and float(arrived.sum()) < self._settings.objects_min:
            # With so few arrivals there is no need to ask as often.
            self._pause_behind(begin_ms, self.rounds.look_ms * FEW_LOOKS)
            return False
        self._seen = sent
        if arrived is None:
            return False
        self._looks_left -= 1
        _, imbalance = _slot_work(
            partition_map, cluster_state, work(with_arrivals(counted, arrived))
        )
        if not self._settings.is_urgent(imbalance):
            return False
        if not is_first:
            yield from self._restart(cluster_state)
            # At least one round has to end, whatever changes between measurements.
            self._looks_left = 1
        return is_first

    def _pause_behind(self, begin_ms: int, least_ms: int = 0) -> None:
        """Pauses measurements after one that began at a time."""
        now_ms = self._monotonic_ms()
        apart_ms = now_ms + LOOK_APART * (now_ms - begin_ms)
        self._next_look_ms = max(apart_ms, begin_ms + least_ms)

    def _sent(
        self, cluster_state: ClusterState, partition_map: PartitionMap | None
    ) -> Generator[Ask, Any, RoutedTotals | None]:
        if partition_map is None:
            return None
        reports: dict[str, ArrivalReport] = yield AskArrivals(cluster_state.routers)
        return routed_totals(partition_map, cluster_state.routers, reports)

    def _what_objects_meet(
        self, cluster_state: ClusterState, partition_map: PartitionMap
    ) -> Generator[Ask, Any, LeafLoads | None]:
        """Returns what evaluators counted recently; None while some do not report it."""
        version, begin_ms, so_far = partition_map.version, self._monotonic_ms(), self._so_far
        known = self._counted
        if known is not None and known[0] == version and begin_ms < self._next_count_ms:
            return known[1]
        reports: dict[str, LoadReport] = yield AskLoads(cluster_state.evaluators, ends_round=False)
        loads, missing = joined_loads(partition_map, cluster_state.owners, reports)
        if missing:
            return None
        self._so_far = version, loads
        if so_far is not None and so_far[0] == version:
            loads = loads_since(loads, so_far[1])
        self._count(version, loads, begin_ms)
        return loads

    def _count(self, version: int, loads: LeafLoads, begin_ms: int) -> None:
        """Stores what evaluators counted, and when they are asked again."""
        now_ms = self._monotonic_ms()
        pause_ms = max(MET_LOOKS * self.rounds.look_ms, LOOK_APART * (now_ms - begin_ms))
        self._counted, self._next_count_ms = (version, loads), now_ms + pause_ms

    def _restart(self, cluster_state: ClusterState) -> Turn:
        """Ends a round whose figures are not used."""
        yield AskLoads(cluster_state.evaluators)
        self._begin()
        self._began = yield from self._sent(cluster_state, cluster_state.map)

    def _look_after(self, decision: Decision, cluster_state: ClusterState) -> Turn:
        slots: dict[str, tuple[int, ...]] = yield AskSlots(cluster_state.evaluators)
        if self.rounds.is_over(decision, cluster_state, slots):
            yield from self._end("done")
        elif self.rounds.is_late(self._wall_ms()):
            yield from self._end("not waited for any longer")
        if self.rounds.under_way is None:
            # The next decision uses figures from after the change only.
            yield from self._restart(cluster_state)

    def _end(self, outcome: str) -> Turn:
        ended = self.rounds.ended(self._wall_ms(), outcome)
        if ended is not None:
            yield Ended(ended)

    def _round(
        self, cluster_state: ClusterState, partition_map: PartitionMap, elapsed_ms: int
    ) -> Turn:
        at_ms, begin_ms, before = self._wall_ms(), self._monotonic_ms(), self._began
        self._begin()
        reports: dict[str, LoadReport] = yield AskLoads(cluster_state.evaluators)
        self._began = yield from self._sent(cluster_state, partition_map)
        loads, missing = joined_loads(partition_map, cluster_state.owners, reports)
        if not missing:
            self._count(partition_map.version, loads, begin_ms)
        arrived = None if self._began is None else self._began.since(before)
        if arrived is not None:
            loads = with_arrivals(loads, arrived)
        cost = work(loads)
        slot_cost, imbalance = _slot_work(partition_map, cluster_state, cost)
        balancer = self._by_scheme(partition_map.scheme)
        measured = Measured(
            at_ms=at_ms,
            round_ms=elapsed_ms,
            map=partition_map,
            owners=cluster_state.owners,
            loads=loads,
            cost=cost,
            imbalance=imbalance,
        )
        state, proposal = self._reason_to_skip(cluster_state, missing, balancer), None
        if not missing and float(slot_cost.sum()) > 0:
            yield Weigh(tuple(slot_cost.tolist()))
        if not state and balancer is not None:
            view = View(
                map=partition_map,
                owners=cluster_state.owners,
                evaluators=cluster_state.evaluators,
                loads=self._as_of_whole(loads, elapsed_ms),
                memory=self.rounds.memory,
            )
            plan = yield from self._plan(balancer, view, imbalance, tuple(reports), at_ms)
            proposal = proposed(plan, cluster_state.owners, at_ms) if plan.changes else None
            objects = float(loads.objects.sum())
            decision, state = self.rounds.decide(
                plan, cluster_state.owners, objects, imbalance, at_ms
            )
            if decision is not None:
                state, self._looks_left = "changing", LOOKS
                yield from self._carry_out(decision, plan)
            # After it: the decision does not depend on what is written here.
            yield SaveMemory(self.rounds.memory)
        name = "" if balancer is None else balancer.name
        yield RoundResult(name, measured, state, proposal, bool(missing))

    def _as_of_whole(self, loads: LeafLoads, elapsed_ms: int) -> LeafLoads:
        """Scales arrivals to a whole round: SWARM compares them with those of the round before."""
        missing = self._settings.interval_ms / max(elapsed_ms, 1)
        return replace(loads, arrivals=loads.arrivals * max(missing, 1.0))

    def _reason_to_skip(
        self, cluster_state: ClusterState, missing: tuple[int, ...], balancer: Balancer | None
    ) -> str:
        if balancer is None:
            return "the scheme has no balancer"
        if missing:
            return f"no report for {len(missing)} slots"
        if self.rounds.under_way is not None or cluster_state.is_granting:
            return "changing"
        if cluster_state.phase is not ChangePhase.NONE:
            return f"a change of the map is under way ({cluster_state.phase.value})"
        if len(cluster_state.evaluators) < 2:
            return "there is one evaluator"
        return ""

    def _plan(
        self,
        balancer: Balancer,
        view: View,
        imbalance: float,
        reports: tuple[str, ...],
        at_ms: int,
    ) -> Generator[Ask, Any, Plan]:
        # So few objects decide nothing, so no map need be built from them.
        has_enough = float(view.loads.objects.sum()) >= self._settings.objects_min
        is_uneven = imbalance >= self._settings.imbalance_min
        if view.map.scheme in SAMPLED and has_enough and is_uneven:
            samples: list[SampleReport] = yield AskSamples(_sample_sizes(view, reports))
            view = replace(view, sample=joined_sample(samples))
        plan = balancer.adjust(view, at_ms)
        # Once, and for SWARM once more for each evaluator that cannot be relieved.
        for _ in view.evaluators:
            if not plan.wants:
                break
            found: dict[int, LeafDetail] = yield AskDetails(
                _by_owner(view, plan.wants), view.map.version
            )
            if not found.keys() & set(plan.wants):
                break
            view = replace(view, details={**view.details, **found})
            plan = balancer.adjust(view, at_ms)
        return plan

    def _carry_out(self, decision: Decision, plan: Plan) -> Turn:
        yield Begun(decision)
        try:
            if decision.moves:
                givers: dict[str, list[int]] = {}
                takers: dict[str, list[int]] = {}
                for slot, (owner, following) in decision.moves.items():
                    givers.setdefault(owner, []).append(slot)
                    takers.setdefault(following, []).append(slot)
                yield Warm(takers)
                yield Save(givers)
                yield Move(decision.moves)
            if plan.map is not None:
                yield Propose(to_bytes(plan.map))
        except SiroccoError as error:
            yield from self._end(str(error))
        except Exception as error:
            # It may not even have been asked for, so nothing would report that it is over.
            yield from self._end(f"given up: {error}")
            raise


def _slot_work(
    partition_map: PartitionMap, cluster_state: ClusterState, cost: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float]:
    """Returns the work of each slot, f8[slots], and the imbalance of evaluators by it.

    Args:
        partition_map: the one in force.
        cluster_state: has the owners of the slots.
        cost: f8[leaves].
    """
    slot_cost = added(cost, partition_map.slot_of_leaf.astype(np.int64), partition_map.slots)
    loads = evaluator_loads(slot_cost, cluster_state.owners, cluster_state.evaluators)
    return slot_cost, imbalance_of(loads)


def _sample_sizes(view: View, reports: tuple[str, ...]) -> dict[str, tuple[int, int]]:
    """Returns how many objects and queries each evaluator is asked for: its share of them all.

    If all were asked for equally many, a sample of many evaluators would be thinned to the few that
    the busiest one had been asked for.
    """
    shares = []
    for column in (view.loads.objects, view.loads.queries):
        by_slot = added(column, view.map.slot_of_leaf.astype(np.int64), view.map.slots)
        own = evaluator_loads(by_slot, view.owners, reports)
        shares.append(own / max(float(own.sum()), 1.0))
    return {
        member: (max(SAMPLE_MIN, round(objects * SAMPLE)), max(SAMPLE_MIN, round(queries * SAMPLE)))
        for member, objects, queries in zip(
            reports, *(each.tolist() for each in shares), strict=True
        )
    }


def _by_owner(view: View, leaves: tuple[int, ...]) -> dict[str, list[int]]:
    """Evaluator → which of the leaves are in its slots."""
    owner_of = {
        leaf.id: view.owners[slot]
        for leaf, slot in zip(view.map.leaves, view.map.slot_of_leaf.tolist(), strict=True)
    }
    wanted: dict[str, list[int]] = {}
    for leaf in leaves:
        wanted.setdefault(owner_of[leaf], []).append(leaf)
    return wanted
