"""Balancing in the simulator: the coordinators' own code, with its requests in virtual time.

Between two requests of a round anything may happen. Evaluators answer as the real ones do, as
bytes. A paused, isolated or ended evaluator does not answer, and some calls fail for no reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import orjson

from sirocco.codec.loads import (
    read_arrivals,
    read_details,
    read_loads,
    read_sample,
    write_arrivals,
    write_details,
    write_loads,
    write_sample,
)
from sirocco.model.errors import SiroccoError
from sirocco.protocol.contract.effects import Outcome, SaveRequest, SlotWeights
from sirocco.protocol.coordinator.balance_rounds import memory_state, read_memory
from sirocco.protocol.coordinator.balance_turns import (
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
    Turn,
    Turns,
    Warm,
    Weigh,
)
from sirocco.protocol.coordinator.round_settings import RoundSettings
from sirocco.protocol.evaluator.drain import offsets, unsaved
from sirocco.protocol.evaluator.load.leaf_counts import Counted
from sirocco.protocol.evaluator.load.leaf_reports import details_of, loads_of, sample_of
from sirocco.schemes.balance.base.view import Balancer
from sirocco.schemes.balance.ps2stream.balancer import Ps2Stream, Ps2StreamSettings
from sirocco.schemes.balance.sstd.balancer import Sstd, SstdSettings
from sirocco.schemes.balance.swarm.balancer import Swarm, SwarmSettings
from sirocco.schemes.balance.tornado.balancer import Tornado, TornadoSettings
from sirocco.services.coordinator.balance_rounds import LOOK_S, MACHINE_S, MEMORY_KEY
from sirocco.services.coordinator.peers import TIMES
from sirocco.services.evaluator import loads as evaluator_loads
from tests.simulation.node import Node
from tests.simulation.services import CoordinatorNode, EvaluatorNode, RouterNode

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.faults import Profile

# Worlds are small: a random peak of a large world is a hot spot here, so each object is reported
# as this many.
WEIGHT = 400

# Share of the calls without an answer.
LOST = 0.03

# As in their papers, but with short periods: each of their changes has to appear within seconds.
EAGER: Mapping[str, Balancer] = {
    "qt-tree": Sstd(SstdSettings(threshold=1.2, epsilon=0.3)),
    "a-grid": Tornado(TornadoSettings(query_price=0.0)),
    "swarm": Swarm(SwarmSettings(repeats_max=2, merge_period_ms=4_000)),
    "kdt-tree": Ps2Stream(Ps2StreamSettings(balance=1.2, check_period_ms=4_000)),
}

# A request to a member, answered in its loop; None: it has no answer.
Question = Callable[[Any], Any]

ANSWER_S = TIMES.answer_s


class Balancers:
    """The balancing threads of all coordinators."""

    def __init__(self, cluster: Cluster, seed: int, profile: Profile) -> None:
        # A seed's world is the same with and without balancing.
        self.dice = Random(f"balance {seed}")
        self.cluster = cluster
        self._threads: dict[str, BalancingThread] = {}
        self._settings: RoundSettings | None = None
        if profile.balance_ms is not None:
            self._settings = RoundSettings(
                interval_ms=self.dice.randint(*profile.balance_ms),
                cooldown_ms=self.dice.choice([0, 500, 2_000]),
                rounds=self.dice.choice([1, 1, 2]),
                objects_min=5 * WEIGHT,
                imbalance_min=self.dice.choice([1.0, 1.1, 1.2]),
            )
            self._look()

    @property
    def is_settled(self) -> bool:
        """Whether the leader has no plan under way."""
        if self._settings is None:
            return True
        return any(
            thread.node.machine.leading and thread.turns.rounds.under_way is None
            for thread in self._threads.values()
            if thread.node.is_alive
        )

    def _look(self) -> None:
        assert self._settings is not None
        for node in self.cluster.of("coordinator"):
            if node.member not in self._threads:
                assert isinstance(node, CoordinatorNode)
                thread = BalancingThread(self, node, self._settings)
                self._threads[node.member] = thread
                thread.look()
        self.cluster.scheduler.after(1_000 * LOOK_S, self._look)


class BalancingThread:
    """The balancing of one coordinator."""

    def __init__(self, all_: Balancers, node: CoordinatorNode, settings: RoundSettings) -> None:
        self.node = node
        self._cluster = all_.cluster
        self._dice = all_.dice
        self._scheduler = all_.cluster.scheduler
        self._store = all_.cluster.store
        monotonic_ms = lambda: int(self._scheduler.now_ms)  # noqa: E731
        self.turns = Turns(settings, lambda: node.now_ms, monotonic_ms, EAGER.get)

    def look(self) -> None:
        """Runs one turn of the thread, and schedules the next ones."""
        if not self.node.is_alive:
            return
        if self.node.is_paused or not self.node.has_caught_up:
            self._scheduler.after(1_000 * LOOK_S, self.look)
            return
        turn = self.turns.turn(self.node.machine.cluster_state)
        self._go_on(turn, lambda: next(turn))

    def _go_on(self, turn: Turn, step: Callable[[], Ask]) -> None:
        """Gives a turn the answer to its last request."""
        if not self.node.is_alive:
            return
        if self.node.is_paused:
            # Records that arrive meanwhile are read when it continues.
            again_ms = self._dice.uniform(50, 300)
            self._scheduler.after(again_ms, partial(self._go_on, turn, step))
            return
        try:
            ask = step()
        except (StopIteration, SiroccoError, TimeoutError) as end:
            if not isinstance(end, StopIteration):
                self._cluster.events["balancing: a round was lost"] += 1
            self._scheduler.after(1_000 * LOOK_S, self.look)
            return
        try:
            self._answer(turn, ask)
        except SiroccoError as error:
            self._go_on(turn, partial(turn.throw, error))

    def _answer(self, turn: Turn, ask: Ask) -> None:
        send = partial(self._send, turn)
        match ask:
            case AskArrivals(members):
                self._gather("router", dict.fromkeys(members, _arrivals), TIMES.arrivals_s, send)
            case AskLoads(members, ends_round):
                reported = _loads if ends_round else _loads_so_far
                self._gather("evaluator", dict.fromkeys(members, reported), ANSWER_S, send)
            case AskSlots(members):
                self._gather("evaluator", dict.fromkeys(members, _slots), ANSWER_S, send)
            case AskSamples(sizes):
                samples = {member: partial(_sample, *size) for member, size in sizes.items()}
                self._gather(
                    "evaluator", samples, ANSWER_S, lambda found: send(list(found.values()))
                )
            case AskDetails(wanted, version):
                details = {
                    member: partial(_details, version, leaves) for member, leaves in wanted.items()
                }
                self._gather("evaluator", details, ANSWER_S, lambda found: send(_joined(found)))
            case Warm():
                send(None)
            case Save(slots):
                self._save(slots, send)
            case Weigh(weights):
                self.node.sends(SlotWeights(weights))
                send(None)
            case Move(moves):
                self._decide(turn, partial(self.node.rebalance, moves))
            case Propose(partition_map):
                self._decide(turn, partial(self.node.propose, partition_map))
            case ReadMemory():
                kept = self._store.get(MEMORY_KEY)
                send(read_memory(None if kept is None else orjson.loads(kept)))
            case SaveMemory(memory):
                self._store.put(MEMORY_KEY, orjson.dumps(memory_state(memory)))
                send(None)
            case Begun(decision):
                known = self.node.machine.view.map_in_force
                scheme = "" if known is None else known.scheme
                self._cluster.events[f"plan of {scheme}: {decision.reason}"] += 1
                hands = {member for pair in decision.moves.values() for member in pair}
                self._cluster.faults.plan_begins(self.node, hands)
                send(None)
            case Ended(decision):
                self._cluster.events[f"plan {decision.outcome}"] += 1
                send(None)
            case RoundResult():
                self._cluster.events[f"round: {ask.state}"] += 1
                send(None)

    def _send(self, turn: Turn, answer: Any) -> None:
        self._go_on(turn, partial(turn.send, answer))

    # --- calls

    def _gather(
        self,
        service: str,
        asked: Mapping[str, Question],
        patience_s: float,
        send: Callable[[Any], None],
    ) -> None:
        """Asks members in parallel; passes on the answers that arrived when the time is over."""
        # The addresses are in the store.
        self._store.check(self.node.member)
        known = {node.member: node for node in self._cluster.of(service)}
        waiting = {member for member in asked if member in known}
        found: dict[str, Any] = {}
        is_over = [False]

        def end() -> None:
            if not is_over[0]:
                is_over[0] = True
                # In the order of the requests, not of the answers.
                send({member: found[member] for member in asked if member in found})

        def take_answer(member: str, answer: Any) -> None:
            waiting.discard(member)
            if answer is not None:
                found[member] = answer
            if not waiting:
                end()

        for member in sorted(waiting):
            self._call(known[member], asked[member], partial(take_answer, member))
        if waiting:
            self._scheduler.after(1_000 * patience_s, end)
        else:
            end()

    def _call(self, node: Node, question: Question, answered: Callable[[Any], None]) -> None:
        def ask() -> None:
            answer = question(node)
            self._travel(node, lambda: answered(answer))

        self._travel(node, lambda: node.post(ask))

    def _travel(self, node: Node, arrive: Callable[[], None]) -> None:
        is_lost = self._dice.random() < LOST
        is_lost |= self._store.is_cut(node.member) or self._store.is_cut(self.node.member)
        if not is_lost:
            self._scheduler.after(self._call_ms(), arrive)

    def _call_ms(self) -> float:
        least_ms, most_ms = self._cluster.log.delays.call
        return self._dice.uniform(least_ms, most_ms)

    def _save(self, slots: Mapping[str, list[int]], send: Callable[[Any], None]) -> None:
        """Makes evaluators write checkpoints; those that are late count as missing."""
        self._store.check(self.node.member)
        known = {node.member: node for node in self._cluster.of("evaluator")}
        nodes = [known[member] for member in slots if member in known]
        waiting = {node.member for node in nodes}
        is_over = [False]

        def end() -> None:
            if not is_over[0]:
                is_over[0] = True
                send(None)

        def saved(member: str) -> None:
            waiting.discard(member)
            if not waiting:
                end()

        def look(node: EvaluatorNode, wanted: dict[int, int]) -> None:
            if not node.is_alive:
                return
            if node.is_paused or unsaved(node.machine, wanted):
                again_ms = 1_000 * evaluator_loads.LOOK_S
                self._scheduler.after(again_ms, partial(look, node, wanted))
            else:
                self._travel(node, partial(saved, node.member))

        def begin(node: EvaluatorNode) -> None:
            wanted = offsets(node.machine, tuple(slots[node.member]))
            node.sends(SaveRequest(tuple(wanted)))
            look(node, wanted)

        for node in nodes:
            assert isinstance(node, EvaluatorNode)
            self._travel(node, partial(node.post, partial(begin, node)))
        self._scheduler.after(1_000 * TIMES.save_s if nodes else 0, end)

    def _decide(
        self, turn: Turn, hand_in: Callable[[Callable[[tuple[Outcome, ...]], None]], None]
    ) -> None:
        """Makes the machine check and declare a decision."""
        is_over = [False]

        def go_on(step: Callable[[], Ask]) -> None:
            if not is_over[0]:
                is_over[0] = True
                self._go_on(turn, step)

        def answered(outcomes: tuple[Outcome, ...]) -> None:
            error = outcomes[0].error
            if error is not None:
                self._cluster.events["plan refused"] += 1
                go_on(partial(turn.throw, error))
            else:
                go_on(partial(turn.send, None))

        self.node.post(lambda: hand_in(answered))
        late = TimeoutError("the machine did not answer")
        self._scheduler.after(1_000 * MACHINE_S, lambda: go_on(partial(turn.throw, late)))


# --- answers of routers and evaluators, in their loops


def _arrivals(node: RouterNode) -> Any:
    loads = node.machine.intake.arrivals.report()
    weighted = replace(loads, objects=WEIGHT * loads.objects)
    return read_arrivals(write_arrivals(weighted))


def _loads(node: EvaluatorNode) -> Any:
    return _counts(node.machine.leaf_counts(ends_round=True))


def _loads_so_far(node: EvaluatorNode) -> Any:
    return _counts(node.machine.leaf_counts_so_far())


def _counts(counted: Counted | None) -> Any:
    weighted = _weighted(counted)
    return None if weighted is None else read_loads(write_loads(loads_of(weighted)))


def _slots(node: EvaluatorNode) -> Any:
    return tuple(sorted(node.machine.searchable))


def _sample(objects_max: int, queries_max: int, node: EvaluatorNode) -> Any:
    counted = _weighted(node.machine.leaf_counts(ends_round=False))
    if counted is None:
        return None
    return read_sample(write_sample(sample_of(counted, objects_max, queries_max)))


def _details(version: int, leaves: list[int], node: EvaluatorNode) -> Any:
    counted = _weighted(node.machine.leaf_counts(ends_round=False))
    if counted is None or counted.map.version != version:
        return None
    return read_details(write_details(details_of(counted, leaves)))


def _joined(found: Mapping[str, Mapping[int, Any]]) -> dict[int, Any]:
    return {leaf: detail for each in found.values() for leaf, detail in each.items()}


def _weighted(counted: Counted | None) -> Counted | None:
    if counted is None:
        return None
    return replace(
        counted,
        objects=WEIGHT * counted.objects,
        met=WEIGHT * counted.met,
        faded=WEIGHT * counted.faded,
        recent=replace(counted.recent, every=WEIGHT * counted.recent.every),
    )
