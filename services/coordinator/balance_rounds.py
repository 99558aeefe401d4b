"""Balancing at the coordinator: rounds in a separate thread, beside the watch over leases.

A round asks the evaluators, lets the scheme's balancer propose a change, and hands a due change to
the machine, which checks it like an operator's proposal.
`sirocco/protocol/coordinator/balance_turns.py` decides what is asked. A round that is slow or fails
affects only that round: another thread renews the lease, and the machine runs in a third.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TypeVar

import numpy as np
import orjson
from numpy.typing import NDArray

from sirocco.model.errors import SiroccoError
from sirocco.protocol.contract.effects import Outcome, SlotWeights
from sirocco.protocol.coordinator.balance_requests import (
    Ask,
    AskArrivals,
    AskDetails,
    AskLoads,
    AskSamples,
    AskSlots,
    Begun,
    Ended,
    Move,
    Propose,
    ReadMemory,
    RoundResult,
    Save,
    SaveMemory,
    Warm,
    Weigh,
)
from sirocco.protocol.coordinator.balance_rounds import (
    Decision,
    Rounds,
    memory_state,
    read_memory,
)
from sirocco.protocol.coordinator.balance_turns import Turns
from sirocco.protocol.coordinator.machine import CoordinatorMachine
from sirocco.protocol.coordinator.round_settings import RoundSettings
from sirocco.runtime.loop.worker import Worker
from sirocco.runtime.process.clock import Steady, monotonic_ms
from sirocco.runtime.process.membership import BALANCE_REPORT
from sirocco.schemes.balance.balancers import balancer_of
from sirocco.schemes.balance.base.view import Balancer, Memory
from sirocco.schemes.map.map import PartitionMap
from sirocco.services.coordinator.balance_report import report
from sirocco.services.coordinator.peers import Evaluators, Routers
from sirocco.telemetry.logging import event
from sirocco.telemetry.metrics.coordinator import CoordinatorMetrics
from sirocco.transport.errors import TransportUnavailable
from sirocco.transport.map_store import MapStore

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Between turns: checks for new events, and for a change in progress.
LOOK_S = 0.05

# Pause after a lost turn.
LOST_S = 1.0

# Leaves named in metrics.
LEAVES_LOGGED = 20

# How long to wait for the machine; it answers between two steps.
MACHINE_S = 20.0

# The balancer's memory for the next leader: some hundred bytes.
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
        routers: Routers,
        store: MapStore,
        metrics: CoordinatorMetrics,
        by_scheme: Callable[[str], Balancer | None] = balancer_of,
    ) -> None:
        self._turns = Turns(settings, Steady().now_ms, monotonic_ms, by_scheme)
        self._member = member
        self._settings = settings
        self._machine = machine
        self._worker = worker
        self._evaluators = evaluators
        self._routers = routers
        self._store = store
        self._metrics = metrics
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{member}-balance", daemon=True)

    @property
    def rounds(self) -> Rounds:
        """The decisions so far."""
        return self._turns.rounds

    def start(self) -> None:
        """Starts the rounds."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the rounds; a change in progress continues by itself."""
        self._stopping.set()
        self._thread.join(5)
        self._evaluators.close()
        self._routers.close()

    def _run(self) -> None:
        look_s = pause_s = min(LOOK_S, self._settings.interval_ms / 1_000)
        while not self._stopping.wait(pause_s):
            pause_s = LOST_S
            try:
                self._turn()
                pause_s = look_s
            except (TransportUnavailable, SiroccoError, FutureTimeoutError) as error:
                extra = event("balance_round_lost", member=self._member, reason=str(error))
                logger.info("balancing round lost; the next one follows", extra=extra)
                self._metrics.rounds.labels(outcome="lost").inc()
            except Exception:
                # A failing balancer must not end the coordinator.
                extra = event("balance_failed", member=self._member)
                logger.exception("balancing failed", extra=extra)
                self._metrics.rounds.labels(outcome="failed").inc()

    def _turn(self) -> None:
        if not self._worker.caught_up.is_set():
            return
        cluster_state = self._waited(self._worker.look(lambda: self._machine.cluster_state))
        turn = self._turns.turn(cluster_state)
        try:
            ask = next(turn)
            while True:
                try:
                    answer = self._answer(ask)
                except Exception as error:
                    # The turn may handle the error; otherwise it is raised here again.
                    ask = turn.throw(error)
                else:
                    ask = turn.send(answer)
        except StopIteration:
            pass

    def _answer(self, ask: Ask) -> object:
        """Does what a turn asks for, and waits for the result."""
        match ask:
            case AskArrivals(routers):
                return self._routers.arrivals(routers)
            case AskLoads(evaluators, ends_round):
                return self._evaluators.loads(evaluators, ends_round=ends_round)
            case AskSlots(evaluators):
                return self._evaluators.slots(evaluators)
            case AskSamples(sizes):
                return self._evaluators.samples(sizes)
            case AskDetails(wanted, version):
                return self._evaluators.details(wanted, version)
            case Warm(slots):
                self._evaluators.warm(slots)
            case Save(slots):
                self._evaluators.save(slots)
            case Weigh(weights):
                self._worker.post(SlotWeights(weights))
            case Move(moves):
                self._agreed(self._worker.rebalance(moves))
            case Propose(partition_map):
                self._agreed(self._worker.propose(partition_map))
            case ReadMemory():
                return self._read_memory()
            case SaveMemory(memory):
                self._store.put(MEMORY_KEY, orjson.dumps(memory_state(memory)))
            case Begun(decision):
                self._log_begin(decision)
            case Ended(decision):
                self._log_end(decision)
            case RoundResult():
                self._log_round(ask)
        return None

    def _read_memory(self) -> Memory:
        kept = self._store.get(MEMORY_KEY)
        try:
            return read_memory(None if kept is None else orjson.loads(kept))
        except orjson.JSONDecodeError:
            return read_memory(None)

    def _log_begin(self, decision: Decision) -> None:
        extra = event(
            "balance_change_begins",
            member=self._member,
            reason=decision.reason,
            moves=len(decision.moves),
            map_version=decision.map_version,
        )
        logger.info("a change for balance begins", extra=extra)

    def _log_end(self, ended: Decision) -> None:
        if ended.outcome == "done":
            kind = "map" if ended.map_version else "moves"
            self._metrics.change_seconds.labels(kind=kind).observe(ended.seconds)
            self._metrics.slot_moves.inc(len(ended.moves))
            self._metrics.map_changes.inc(bool(ended.map_version))
        extra = event(
            "balance_change_ended",
            member=self._member,
            reason=ended.reason,
            outcome=ended.outcome,
            seconds=round(ended.seconds, 3),
        )
        logger.info("a change for balance has ended", extra=extra)

    def _log_round(self, result: RoundResult) -> None:
        measured = result.measured
        # With few objects imbalance is chance, nothing is done about it, and it harms nobody: no
        # alarm.
        is_chance = float(measured.loads.objects.sum()) < self._settings.objects_min
        self._metrics.imbalance.set(0.0 if is_chance else measured.imbalance)
        self._log_leaves(measured.map, measured.cost)
        is_lost = result.is_lost and result.proposal is None
        self._metrics.rounds.labels(outcome="lost" if is_lost else "judged").inc()
        form = report(result.balancer, measured, result.state, self.rounds, result.proposal)
        self._store.put(BALANCE_REPORT, form.SerializeToString())

    def _log_leaves(self, partition_map: PartitionMap, cost: NDArray[np.float64]) -> None:
        # Only the most loaded: a map has thousands.
        whole = float(cost.sum())
        greatest = np.argsort(-cost, kind="stable")[:LEAVES_LOGGED]
        self._metrics.leaf_load.clear()
        for position in greatest.tolist() if whole > 0 else ():
            leaf = partition_map.leaves[position].id
            self._metrics.leaf_load.labels(leaf=leaf).set(float(cost[position]) / whole)

    def _agreed(self, answer: Future[Sequence[Outcome]]) -> None:
        (outcome,) = self._waited(answer)
        if outcome.error is not None:
            raise outcome.error

    @staticmethod
    def _waited(future: Future[T]) -> T:
        return future.result(MACHINE_S)
