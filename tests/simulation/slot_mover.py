"""Makes slots change owners, as a balancer would, while everything else continues.

Coordinators of the simulator spread slots by count, so a moved slot is moved back a moment later:
twice as many moves, each in the middle of the work that the one before has begun.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from sirocco.protocol.contract.effects import Outcome
from sirocco.protocol.contract.messages import SLOTS
from tests.simulation.faults import Profile
from tests.simulation.services import CoordinatorNode

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

# Before this nothing may be owned yet.
FIRST_MS = 2_000.0

# Greatest number of slots that change owners at once.
MOVES_MAX = 3


class SlotMover:
    """Moves slots until the world's time is over."""

    def __init__(self, cluster: Cluster, seed: int, profile: Profile) -> None:
        # A seed's world is the same whether slots move or not.
        self._dice = Random(f"slots {seed}")
        self._cluster = cluster
        self._mean_ms = profile.slot_moves_ms
        self._end_ms = profile.duration_ms
        if self._mean_ms:
            cluster.scheduler.at(FIRST_MS, self._move)

    def _move(self) -> None:
        scheduler = self._cluster.scheduler
        if scheduler.now_ms >= self._end_ms:
            return
        scheduler.after(self._dice.expovariate(1 / self._mean_ms), self._move)
        leaders = [
            node
            for node in self._cluster.of("coordinator")
            if isinstance(node, CoordinatorNode) and node.machine.leading
        ]
        evaluators = sorted(node.member for node in self._cluster.of("evaluator"))
        if not leaders or len(evaluators) < 2:
            return
        node = self._dice.choice(leaders)
        owners = {
            slot: owner.member
            for (topic, slot), owner in node.machine.view.owners.items()
            if topic == SLOTS
        }
        count = min(len(owners), self._dice.randint(1, MOVES_MAX))
        moves = {
            slot: (owners[slot], self._dice.choice(evaluators))
            for slot in self._dice.sample(sorted(owners), count)
        }

        def answered(outcomes: Sequence[Outcome]) -> None:
            is_done = outcomes[0].error is None
            self._cluster.events["slots moved" if is_done else "slots not moved"] += 1

        node.post(lambda: node.rebalance(moves, answered))
