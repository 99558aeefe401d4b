"""Balancing at the coordinator: rounds in a thread of its own, beside the watch over leases.

A round asks the evaluators, has the scheme's balancer say what it would change, and hands what is
due to the machine, which checks it as it checks what people propose. Whatever happens here, slow or
wrong, costs a round: the lease is renewed by another thread, and the machine runs in a third.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace
from typing import TypeVar

import numpy as np
import orjson
from numpy.typing import NDArray

from services.coordinator.balance_report import Measured, report
from services.coordinator.peers import Evaluators
from sirocco.model.errors import SiroccoError
from sirocco.protocol.coordinator import CoordinatorMachine
from sirocco.protocol.effects import Outcome, SlotsWeighed
from sirocco.protocol.leaf_loads import ToldLoads, joined_sample
from sirocco.protocol.map_change import Phase
from sirocco.protocol.rounds import (
    Decision,
    Rounds,
    RoundSettings,
    Standing,
    evaluator_loads,
    imbalance_of,
    joined_loads,
    memory_state,
    proposed,
    read_memory,
)
from sirocco.runtime.clock import monotonic_ms, now_ms
from sirocco.runtime.membership import BALANCE_REPORT
from sirocco.runtime.worker import Worker
from sirocco.schemes.balance.balancers import SAMPLED, balancer_of, leaf_costs
from sirocco.schemes.balance.placement import added
from sirocco.schemes.balance.view import Balancer, Plan, View
from sirocco.schemes.map import PartitionMap
from sirocco.schemes.map_bytes import to_bytes
from sirocco.telemetry.logging import event
from sirocco.telemetry.metrics import CoordinatorMetrics
from sirocco.transport.errors import Unavailable
from sirocco.transport.map_store import MapStore

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Between looks at a change that is under way.
LOOK_S = 0.25

# Leaves that metrics name.
LEAVES_TOLD = 20

# How long the machine is waited for; it answers between two steps.
MACHINE_S = 20.0

# What the balancer remembers, for the next leader: some hundred bytes.
MEMORY_KEY = "balance/memory"


class Balancing:
    """The thread that balances.

    Args:
        member: the coordinator's id.
        settings: when a change is due.
        by_scheme: scheme → its balancer.
    """

    def __init__(
        self,
        member: str,
        settings: RoundSettings,
        machine: CoordinatorMachine,
        worker: Worker,
        evaluators: Evaluators,
        store: MapStore,
        metrics: CoordinatorMetrics,
        by_scheme: Callable[[str], Balancer | None] = balancer_of,
    ) -> None:
        self.rounds = Rounds(settings)
        self._member = member
        self._settings = settings
        self._machine = machine
        self._worker = worker
        self._evaluators = evaluators
        self._store = store
        self._metrics = metrics
        self._by_scheme = by_scheme
        self._is_leading = False
        self._round_began_ms = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{member}-balance", daemon=True)

    def start(self) -> None:
        """Begins with the rounds."""
        self._thread.start()

    def stop(self) -> None:
        """Ends them; what is under way goes on by itself."""
        self._stopping.set()
        self._thread.join(5)
        self._evaluators.close()

    def _run(self) -> None:
        look_s = min(LOOK_S, self._settings.interval_ms / 1_000)
        while not self._stopping.wait(look_s):
            try:
                self._turn()
            except (Unavailable, SiroccoError, FutureTimeoutError) as error:
                extra = event("balance_round_lost", member=self._member, reason=str(error))
                logger.info("", extra=extra)
                self._metrics.rounds.labels(outcome="lost").inc()
            except Exception:
                # A balancer that fails must not take the coordinator with it.
                extra = event("balance_failed", member=self._member)
                logger.exception("balancing failed", extra=extra)
                self._metrics.rounds.labels(outcome="failed").inc()

    def _turn(self) -> None:
        if not self._worker.caught_up.is_set():
            return
        standing = self._waited(self._worker.look(lambda: self._machine.standing))
        if not standing.leading:
            self._is_leading = False
            return
        if not self._is_leading:
            self._begin()
        if self.rounds.under_way is not None:
            self._look_after(self.rounds.under_way, standing)
        elapsed_ms = monotonic_ms() - self._round_began_ms
        if elapsed_ms >= self._settings.interval_ms and standing.map is not None:
            self._round_began_ms = monotonic_ms()
            self._round(standing, standing.map, elapsed_ms)

    def _begin(self) -> None:
        """Leads from now on, with what the leader before remembered."""
        self._is_leading = True
        self._round_began_ms = monotonic_ms()
        kept = self._store.get(MEMORY_KEY)
        try:
            memory = read_memory(None if kept is None else orjson.loads(kept))
        except orjson.JSONDecodeError:
            memory = read_memory(None)
        self.rounds = Rounds(self._settings, memory)

    def _look_after(self, decision: Decision, standing: Standing) -> None:
        slots = self._evaluators.slots(standing.evaluators)
        if self.rounds.is_over(decision, standing, slots):
            self._end("done")
        elif self.rounds.is_late(now_ms()):
            self._end("not waited for any longer")

    def _end(self, outcome: str) -> None:
        ended = self.rounds.ended(now_ms(), outcome)
        if ended is None:
            return
        if outcome == "done":
            kind = "map" if ended.map_version else "moves"
            self._metrics.change_seconds.labels(kind=kind).observe(ended.seconds)
            self._metrics.slot_moves.inc(len(ended.moves))
            self._metrics.map_changes.inc(bool(ended.map_version))
        extra = event(
            "balance_change_ended",
            member=self._member,
            reason=ended.reason,
            outcome=outcome,
            seconds=round(ended.seconds, 3),
        )
        logger.info("", extra=extra)

    def _round(self, standing: Standing, partition_map: PartitionMap, elapsed_ms: int) -> None:
        at_ms = now_ms()
        told = self._evaluators.loads(standing.evaluators)
        loads, missing = joined_loads(partition_map, standing.owners, told)
        cost = leaf_costs(partition_map.scheme, loads)
        slot_cost = added(cost, partition_map.slot_of_leaf.astype(np.int64), partition_map.slots)
        balancer = self._by_scheme(partition_map.scheme)
        imbalance = imbalance_of(evaluator_loads(slot_cost, standing.owners, standing.evaluators))
        measured = Measured(
            at_ms, elapsed_ms, partition_map, standing.owners, loads, cost, imbalance
        )
        self._metrics.imbalance.set(imbalance)
        self._tell_leaves(partition_map, cost)
        state, proposal = self._reason_to_skip(standing, missing, balancer), None
        if not missing and float(slot_cost.sum()) > 0:
            self._worker.tell(SlotsWeighed(tuple(slot_cost.tolist())))
        if not state and balancer is not None:
            view = View(
                partition_map, standing.owners, standing.evaluators, loads, self.rounds.memory
            )
            plan = self._plan(balancer, view, imbalance, told, at_ms)
            proposal = proposed(plan, standing.owners, at_ms) if plan.changes else None
            objects = float(loads.objects.sum())
            decision, state = self.rounds.judge(plan, standing.owners, objects, imbalance, at_ms)
            self._remember()
            if decision is not None:
                state = "changing"
                self._carry_out(decision, plan)
        self._metrics.rounds.labels(outcome="judged" if proposal or not missing else "lost").inc()
        name = "" if balancer is None else balancer.name
        form = report(name, measured, state, self.rounds, proposal)
        self._store.put(BALANCE_REPORT, form.SerializeToString())

    def _tell_leaves(self, partition_map: PartitionMap, cost: NDArray[np.float64]) -> None:
        # The most loaded alone: a map has thousands.
        whole = float(cost.sum())
        greatest = np.argsort(-cost, kind="stable")[:LEAVES_TOLD]
        self._metrics.leaf_load.clear()
        for position in greatest.tolist() if whole > 0 else ():
            leaf = partition_map.leaves[position].id
            self._metrics.leaf_load.labels(leaf=leaf).set(float(cost[position]) / whole)

    def _reason_to_skip(
        self, standing: Standing, missing: tuple[int, ...], balancer: Balancer | None
    ) -> str:
        if balancer is None:
            return "the scheme has no balancer"
        if missing:
            return f"nothing was told of {len(missing)} slots"
        if self.rounds.under_way is not None or standing.is_granting:
            return "changing"
        if standing.phase is not Phase.NONE:
            return f"a change of the map is under way ({standing.phase.value})"
        if len(standing.evaluators) < 2:
            return "there is one evaluator"
        return ""

    def _plan(
        self,
        balancer: Balancer,
        view: View,
        imbalance: float,
        told: dict[str, ToldLoads],
        at_ms: int,
    ) -> Plan:
        if view.map.scheme in SAMPLED and imbalance >= self._settings.imbalance_min:
            view = replace(view, sample=joined_sample(self._evaluators.samples(told)))
        plan = balancer.adjust(view, at_ms)
        # Once, and for SWARM once more for each evaluator that cannot be relieved.
        for _ in view.evaluators:
            if not plan.wants:
                break
            owner_of = {
                leaf.id: view.owners[slot]
                for leaf, slot in zip(view.map.leaves, view.map.slot_of_leaf.tolist(), strict=True)
            }
            wanted: dict[str, list[int]] = {}
            for leaf in plan.wants:
                wanted.setdefault(owner_of[leaf], []).append(leaf)
            found = self._evaluators.details(wanted, view.map.version)
            if not found.keys() & set(plan.wants):
                break
            view = replace(view, details={**view.details, **found})
            plan = balancer.adjust(view, at_ms)
        return plan

    def _carry_out(self, decision: Decision, plan: Plan) -> None:
        extra = event(
            "balance_change_begins",
            member=self._member,
            reason=decision.reason,
            moves=len(decision.moves),
            map_version=decision.map_version,
        )
        logger.info("", extra=extra)
        try:
            if decision.moves:
                givers: dict[str, list[int]] = {}
                for slot, (owner, _) in decision.moves.items():
                    givers.setdefault(owner, []).append(slot)
                self._evaluators.save(givers)
                self._agreed(self._worker.rebalance(decision.moves))
            if plan.map is not None:
                self._agreed(self._worker.propose(to_bytes(plan.map)))
        except SiroccoError as error:
            self._end(str(error))

    def _agreed(self, answer: Future[tuple[Outcome, ...]]) -> None:
        (outcome,) = self._waited(answer)
        if outcome.error is not None:
            raise outcome.error

    def _remember(self) -> None:
        self._store.put(MEMORY_KEY, orjson.dumps(memory_state(self.rounds.memory)))

    @staticmethod
    def _waited(future: Future[T]) -> T:
        return future.result(MACHINE_S)
