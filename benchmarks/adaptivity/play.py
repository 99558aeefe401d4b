"""One run of a scene: a cluster, with or without balancing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.adaptivity.change_times import Settling
from benchmarks.adaptivity.cluster import TICK_S, Cluster, Course
from benchmarks.adaptivity.costs import Costs
from benchmarks.adaptivity.scenes import Scene
from benchmarks.adaptivity.selection_times import Timed
from benchmarks.adaptivity.virtual_coordinator import Coordinator, Log
from sirocco.protocol.coordinator.round_settings import RoundSettings
from sirocco.schemes.balance.base.view import Balancer
from sirocco.schemes.map.map import PartitionMap

EVALUATORS = 8

DEFAULTS = RoundSettings()

# Rounds at the lower end of sensible settings: a decision waits a fifth of the default.
HURRIED = RoundSettings(interval_ms=2_000, cooldown_ms=4_000)


@dataclass(frozen=True, slots=True, eq=False)
class Setting:
    """Shared by all runs of an experiment.

    Attributes:
        costs, settling: The costs of work and of changes.
        seed: For all random draws.
        evaluators: Number of evaluators.
        thinks: Whether the CPU time of a decision passes; without it one seed gives one course.
    """

    costs: Costs
    settling: Settling
    seed: int
    evaluators: int = EVALUATORS
    thinks: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Way:
    """A way to handle a scene.

    Attributes:
        name: In the figures.
        map: The first map.
        balancer: None: no balancing.
        rounds: When changes are due.
        clock: Measures the selection of cells to migrate, for some ways.
    """

    name: str
    map: PartitionMap
    balancer: Balancer | None = None
    rounds: RoundSettings = DEFAULTS
    clock: Timed | None = None


def play(
    scene: Scene, way: Way, setting: Setting, rate: float, tick_s: float = TICK_S
) -> tuple[Course, Log]:
    """Runs a scene at a rate of objects a second."""
    cluster = Cluster(
        scene,
        way.map,
        setting.evaluators,
        rate,
        setting.costs,
        setting.settling,
        setting.seed,
        tick_s=tick_s,
        counts=way.balancer is not None,
    )
    coordinator = None
    if way.balancer is not None:
        coordinator = Coordinator(
            cluster, way.balancer, way.rounds, setting.seed, thinks=setting.thinks
        )
    while not cluster.is_over:
        if coordinator is not None:
            coordinator.step()
        cluster.step()
    return cluster.end(), Log() if coordinator is None else coordinator.log


def borne_at_best(scene: Scene, way: Way, setting: Setting) -> float:
    """Returns the objects a second that all cores would bear with evenly shared work.

    In the middle of the measured time, under the map at the begin.
    """
    cluster = Cluster(scene, way.map, setting.evaluators, 1.0, setting.costs, setting.settling, 0)
    cluster.take_up(sum(scene.judged_s) / 2)
    return setting.evaluators / cluster.mean_cost_s()


def in_measured_time(values: NDArray[np.float64], scene: Scene) -> NDArray[np.float64]:
    """Returns the rows of a scene's measured seconds."""
    begin, end = scene.judged_s
    return values[int(begin) : int(end)]
