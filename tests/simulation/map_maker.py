"""Proposes maps: others of the same slots, one after the other, while everything else continues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from sirocco.model.errors import FailedPrecondition, InvalidArgument
from sirocco.protocol.contract.effects import Outcome
from sirocco.protocol.contract.map_change import ChangePhase, progress
from sirocco.schemes.map.map_bytes import from_bytes, to_bytes
from tests.simulation.faults import Profile
from tests.simulation.keyword_map import quartered_map
from tests.simulation.map_steps import stepped
from tests.simulation.services import CoordinatorNode
from tests.simulation.world import WORDS, built_map

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

# Before this there may be no map yet.
FIRST_MS = 2_000.0

# How long it waits for an answer.
PATIENCE_MS = 3_000.0

SCHEMES = (
    *("qt-tree", "uniform-grid", "quarters", "quarters"),
    *("text-frequency", "kdt-tree", "replicated"),
)


class MapMaker:
    """Proposes maps until the world's time is over."""

    def __init__(self, cluster: Cluster, seed: int, profile: Profile) -> None:
        # A seed's world is the same whether its map changes or not.
        self._dice = Random(f"maps {seed}")
        self._cluster = cluster
        self._scheduler = cluster.scheduler
        self._attempt = 0
        self._end_ms = profile.duration_ms
        self._left = self._dice.randint(1, 3) if self._dice.random() < profile.maps else 0
        self._steps = profile.steps
        if profile.steps and self._left:
            self._left += 2
        if self._left:
            self._scheduler.at(FIRST_MS + self._dice.uniform(0, self._end_ms / 2), self._try)

    @property
    def is_done(self) -> bool:
        """Whether it makes no more proposals."""
        return self._left == 0 or self._scheduler.now_ms >= self._end_ms

    def is_settled(self) -> bool:
        """Whether no change is under way, as the leader sees it."""
        shape = self._cluster.world.shape
        leaders = [node for node in self._coordinators() if node.machine.leading]
        return any(
            progress(node.machine.view, shape.intake, shape.registry).phase is ChangePhase.NONE
            for node in leaders
        )

    def _coordinators(self) -> list[CoordinatorNode]:
        return [n for n in self._cluster.of("coordinator") if isinstance(n, CoordinatorNode)]

    def _try(self) -> None:
        if self.is_done:
            return
        self._attempt += 1
        attempt = self._attempt
        nodes = self._coordinators()
        if not nodes:
            self._again()
            return
        node = self._dice.choice(nodes)
        version = node.machine.view.map_version
        proposal = self._proposal(version + 1, node.machine.view.partition_map)

        def answered(outcomes: Sequence[Outcome]) -> None:
            self._scheduler.after(self._call_ms(), lambda: self._take_outcome(attempt, outcomes[0]))

        def arrive() -> None:
            node.post(lambda: node.propose(proposal, answered))

        self._scheduler.after(self._call_ms(), arrive)
        self._scheduler.after(PATIENCE_MS, lambda: self._time_out(attempt))

    def _proposal(self, version: int, in_force: bytes) -> bytes:
        """Returns a map with other owners for everything; sometimes one that is refused.

        Or one that differs little from the map in force.
        """
        if self._steps and in_force and self._dice.random() < self._steps:
            return to_bytes(stepped(self._dice, from_bytes(in_force)))
        slots = self._cluster.world.shape.slots
        scheme = self._dice.choice(SCHEMES)
        if scheme == "quarters":
            built = from_bytes(quartered_map(tuple(WORDS), slots, self._dice.randrange(8)))
        else:
            built = from_bytes(built_map(scheme, slots, self._dice.randrange(4)))
        leaves = [self._dice.randrange(slots) for _ in built.leaves]
        moved = replace(built, slot_of_leaf=np.array(leaves, np.int32), version=version)
        data = to_bytes(moved)
        return data[:-1] if self._dice.random() < 0.1 else data

    def _take_outcome(self, attempt: int, outcome: Outcome) -> None:
        if attempt != self._attempt:
            return
        if outcome.error is None:
            self._cluster.events["map changed"] += 1
            self._left -= 1
            self._cluster.faults.map_changes()
        elif isinstance(outcome.error, InvalidArgument | FailedPrecondition):
            self._cluster.events["map refused"] += 1
        self._again()

    def _time_out(self, attempt: int) -> None:
        if attempt == self._attempt:
            self._again()

    def _again(self) -> None:
        self._attempt += 1
        self._scheduler.after(self._dice.uniform(200, 4_000), self._try)

    def _call_ms(self) -> float:
        return self._scheduler.between(*self._cluster.log.delays.call)
