"""Input and output of a balancer in each round.

Balancers are pure. In a round, evaluators report a few numbers per leaf; the leader makes a `View`
of them and calls `adjust`. If the answer lists leaves in `wants`, their owners are asked for the
row and column statistics of only these leaves, and `adjust` is called again with them in `details`:
most statistics stay where they are counted (SWARM 4.3.1, Tornado 4.3). Each evaluator is asked at
most once. One that does not answer only costs a round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sirocco.model.errors import InvalidArgument
from sirocco.schemes.map.map import PartitionMap
from sirocco.schemes.workload.sample import Sample
from sirocco.schemes.workload.spatial_aggregates import Aggregates
from sirocco.schemes.workload.spatial_grid import FineGrid
from sirocco.schemes.workload.swarm_statistics import LeafStatistics


@dataclass(frozen=True, slots=True, eq=False)
class LeafLoads:
    """Measurements of each leaf in the last round, f8[leaves] in the map's order.

    Attributes:
        objects: Objects that arrived.
        met: Sum of the queries that these objects met (Tornado, equation 1).
        faded: All objects so far, with less weight for older rounds (SWARM's N).
        queries: Standing queries in the leaf.
        arrivals: Objects and queries that arrived (SWARM's R).
        query_bytes: Size of the standing queries.
    """

    objects: NDArray[np.float64]
    met: NDArray[np.float64]
    faded: NDArray[np.float64]
    queries: NDArray[np.float64]
    arrivals: NDArray[np.float64]
    query_bytes: NDArray[np.float64]

    def __post_init__(self) -> None:
        """Checks the columns; raises InvalidArgument."""
        for name in self.__slots__:
            column = getattr(self, name)
            if column.shape != self.objects.shape:
                raise InvalidArgument("needs one number for each leaf", field=f"loads.{name}")
            if not (np.isfinite(column) & (column >= 0)).all():
                raise InvalidArgument("a number is negative or not finite", field=f"loads.{name}")


@dataclass(frozen=True, slots=True, eq=False)
class LeafDetail:
    """The statistics of one leaf by column and row, from its evaluator.

    Attributes:
        grid: The leaf's part of the grid of possible borders.
        statistics: Objects and queries, counted as in SWARM (4.2).
        met: Queries met by objects of the last round, by column and row (Tornado 4.3).
    """

    grid: FineGrid
    statistics: LeafStatistics
    met: Aggregates


class Stage(IntEnum):
    """Stages of SWARM's decision ladder, from left to right (4.3.1, Figure 9)."""

    FLIP = 0
    BAD = 1
    START = 2
    GOOD = 3
    GREAT = 4


@dataclass(frozen=True, slots=True)
class Memory:
    """State of a balancer between rounds; losing it only costs some rounds.

    Attributes:
        stage: Position on SWARM's ladder.
        rebalances: SWARM's last decision.
        repeats: Number of times in a row that it was taken.
        recent_total: R(S) of the last round; negative: there was no round.
        merged_ms: When leaves were last merged in the background; None: never.
        checked_ms: When a new map of everything was last considered; None: never.
    """

    stage: Stage = Stage.START
    rebalances: bool = False
    repeats: int = 0
    recent_total: float = -1.0
    merged_ms: int | None = None
    checked_ms: int | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class View:
    """The state at the end of a round.

    Attributes:
        map: The map in force; no change of it is under way.
        owners: The evaluator that owns each slot.
        evaluators: Living evaluators that may have load. Slots of others must move.
        loads: The measurements.
        memory: The memory of the last plan.
        details: Statistics of leaves, by leaf id, as requested by a plan.
        sample: Recent objects and standing queries, if the scheme needs them.
        reserved: Leaf ids of older maps that cannot be reused yet.
    """

    map: PartitionMap
    owners: tuple[str, ...]
    evaluators: tuple[str, ...]
    loads: LeafLoads
    memory: Memory = Memory()
    details: Mapping[int, LeafDetail] = field(default_factory=dict)
    sample: Sample | None = None
    reserved: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        """Checks the view; raises InvalidArgument."""
        if len(self.owners) != self.map.slots:
            raise InvalidArgument("needs an owner for each slot", field="view.owners")
        if not self.evaluators or len(set(self.evaluators)) != len(self.evaluators):
            raise InvalidArgument("needs distinct evaluators", field="view.evaluators")
        if self.loads.objects.shape != (len(self.map.leaves),):
            raise InvalidArgument("needs one number for each leaf", field="view.loads")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Plan:
    """The changes to make.

    Attributes:
        memory: For the next view.
        reason: The paper's name of the operation; "" for none.
        moves: Slot → its new evaluator; only slots whose owner changes.
        map: The map to change to, of the next version; None: no map change.
        wants: Leaf ids whose statistics are needed for a decision; then nothing is changed.
        maximum_before, maximum_after: Load of the most loaded evaluator now and as predicted, in
            the balancer's own unit: only their ratio is meaningful to others.
        moved_queries, moved_bytes: Standing queries that have to be copied, and their size; one in
            several leaves of a slot counts for each.
    """

    memory: Memory
    reason: str = ""
    moves: Mapping[int, str] = field(default_factory=dict)
    map: PartitionMap | None = None
    wants: tuple[int, ...] = ()
    maximum_before: float = 0.0
    maximum_after: float = 0.0
    moved_queries: float = 0.0
    moved_bytes: float = 0.0

    @property
    def changes(self) -> bool:
        """Whether there is anything to change."""
        return bool(self.moves) or self.map is not None

    @property
    def gain(self) -> float:
        """Expected reduction of the load of the most loaded evaluator."""
        return self.maximum_before - self.maximum_after


class Balancer(Protocol):
    """Adjusts the maps of one scheme."""

    @property
    def name(self) -> str:
        """Name of the paper's system."""

    def adjust(self, view: View, now_ms: int) -> Plan:
        """Returns what to change; equal input gives an equal plan.

        Args:
            view: The state at the end of a round.
            now_ms: The time, ms; only differences matter.
        """
