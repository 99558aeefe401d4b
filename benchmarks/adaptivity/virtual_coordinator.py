"""The coordinator of a virtual cluster: its real code, answered in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from benchmarks.adaptivity.cluster import Cluster
from benchmarks.adaptivity.round_reports import Round, counted, counted_so_far
from benchmarks.schemes.timing import seconds_of
from sirocco.protocol.contract.load_messages import ArrivalReport
from sirocco.protocol.coordinator.balance_requests import (
    Ask,
    AskArrivals,
    AskDetails,
    AskLoads,
    AskSamples,
    AskSlots,
    Ended,
    Move,
    Propose,
    ReadMemory,
    RoundResult,
    Save,
    Turn,
    Warm,
)
from sirocco.protocol.coordinator.balance_rounds import Decision
from sirocco.protocol.coordinator.balance_turns import Turns
from sirocco.protocol.coordinator.round_settings import RoundSettings
from sirocco.protocol.evaluator.load.leaf_counts import Counted
from sirocco.protocol.evaluator.load.leaf_reports import details_of, loads_of, sample_of
from sirocco.schemes.balance.base.view import Balancer, Memory
from sirocco.schemes.map.map_bytes import from_bytes
from sirocco.services.coordinator.balance_rounds import LOOK_S

# Requests to evaluators, and effects of a decision.
ASKED = AskLoads | AskDetails | AskSamples | AskSlots
DECIDED = Warm | Save | Move | Propose


@dataclass(slots=True)
class Log:
    """The decisions.

    Attributes:
        decisions: Those that are finished.
        rounds: (time, imbalance by the balancer's measure, why nothing was decided).
        thinking_s: CPU seconds of each round at the coordinator.
    """

    decisions: list[Decision] = field(default_factory=list)
    rounds: list[tuple[float, float, str]] = field(default_factory=list)
    thinking_s: list[float] = field(default_factory=list)


class Coordinator:
    """Runs the turns of the leading coordinator.

    Args:
        cluster: The cluster.
        balancer: Of the map's scheme.
        settings: When a change is due.
        seed: For the objects that evaluators remember.
        thinks: Whether the CPU time of a decision passes.
    """

    def __init__(
        self,
        cluster: Cluster,
        balancer: Balancer,
        settings: RoundSettings,
        seed: int,
        *,
        thinks: bool = True,
    ) -> None:
        self.log = Log()
        self._thinks = thinks
        self._cluster = cluster
        self._rng = np.random.default_rng(seed)
        now_ms: Callable[[], int] = lambda: round(1_000 * cluster.now_s)  # noqa: E731
        self._turns = Turns(settings, now_ms, now_ms, lambda _: balancer)
        self._rounds: dict[str, Round] = {}
        self._is_waiting = False
        self._looked_s, self._thought_s = -LOOK_S, 0.0

    def step(self) -> None:
        """Runs a turn, if one is due and none waits for an answer."""
        if self._is_waiting or self._cluster.now_s - self._looked_s < LOOK_S:
            return
        self._looked_s, self._thought_s = self._cluster.now_s, 0.0
        turn = self._turns.turn(self._cluster.look())
        self._go_on(turn, partial(next, turn))

    def _go_on(self, turn: Turn, first: Callable[[], Ask]) -> None:
        """Answers requests until one takes time, or the turn ends."""
        self._is_waiting = False
        begin: Callable[[], Ask] = first
        thought_s = 0.0
        try:
            while True:
                seconds, ask = seconds_of(begin)
                thought_s += seconds
                self._thought_s += seconds
                if isinstance(ask, ASKED | DECIDED):
                    # By then the decision is made, and the evaluators' loops have reached it.
                    takes_s = thought_s if self._thinks else 0.0
                    takes_s += self._cluster.settling.ask_s if isinstance(ask, ASKED) else 0.0
                    self._is_waiting = True
                    self._cluster.after(takes_s, partial(self._decided, turn, ask))
                    return
                begin = partial(turn.send, self._answer(ask))
                if isinstance(ask, RoundResult):
                    self.log.thinking_s.append(self._thought_s)
        except StopIteration:
            pass

    def _decided(self, turn: Turn, ask: Ask) -> None:
        if isinstance(ask, Warm):
            number = self._cluster.members.index
            takers = {number(taker): slots for taker, slots in ask.slots.items()}
            self._cluster.warm(takers, partial(self._go_on, turn, partial(turn.send, None)))
        elif isinstance(ask, Save):
            slots = [slot for each in ask.slots.values() for slot in each]
            self._cluster.save(slots, partial(self._go_on, turn, partial(turn.send, None)))
        else:
            self._go_on(turn, partial(turn.send, self._answer(ask)))

    def _answer(self, ask: Ask) -> Any:
        cluster = self._cluster
        match ask:
            case AskArrivals(routers):
                ids = np.array([leaf.id for leaf in cluster.routed.map.leaves], np.int32)
                reported = ArrivalReport(cluster.routed.map.version, ids, cluster.sent.copy())
                return dict.fromkeys(routers, reported)
            case AskLoads(members, ends_round=True):
                self._rounds = cluster.end_round()
                return {one: loads_of(self._counted(one, with_objects=False)) for one in members}
            case AskLoads(members):
                so_far = cluster.round_so_far()
                return {one: loads_of(self._so_far(one, so_far[one])) for one in members}
            case AskSlots(members):
                return {one: cluster.slots_of(cluster.members.index(one)) for one in members}
            case AskDetails(wanted, _):
                return {
                    leaf: detail
                    for one, leaves in wanted.items()
                    for leaf, detail in details_of(self._counted(one), leaves).items()
                }
            case AskSamples(sizes):
                return [sample_of(self._counted(one), *size) for one, size in sizes.items()]
            case Move(moves):
                number = cluster.members.index
                cluster.move({slot: number(taker) for slot, (_, taker) in moves.items()})
            case Propose(partition_map):
                cluster.change_map(from_bytes(partition_map))
            case ReadMemory():
                return Memory()
            case Ended(decision):
                self.log.decisions.append(decision)
            case RoundResult():
                self._note(ask)
            case _:
                pass
        return None

    def _counted(self, member: str, *, with_objects: bool = True) -> Any:
        cluster = self._cluster
        slots = cluster.slots_of(cluster.members.index(member))
        return counted(
            cluster.scene,
            cluster.routed,
            self._rounds[member],
            slots,
            cluster.standing,
            cluster.costs.query_bytes,
            self._rng,
            with_objects=with_objects,
        )

    def _so_far(self, member: str, round_: Round) -> Counted:
        cluster = self._cluster
        slots = cluster.slots_of(cluster.members.index(member))
        return counted_so_far(cluster.routed, round_, slots)

    def _note(self, result: RoundResult) -> None:
        measured = result.measured
        self.log.rounds.append((self._cluster.now_s, measured.imbalance, result.state))
