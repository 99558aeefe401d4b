"""What a turn of balancing asks for, and what it reports to observers.

A turn is a generator. It yields a request (`Ask`) and is sent the answer, or the error is thrown
into it.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.protocol.coordinator.balance_rounds import Decision
from sirocco.schemes.balance.base.view import LeafLoads, Memory
from sirocco.schemes.map.map import PartitionMap


@dataclass(frozen=True, slots=True)
class ReadMemory:
    """Asks for the memory that the leader before wrote; answered by a `Memory`."""


@dataclass(frozen=True, slots=True)
class SaveMemory:
    """Writes the balancer's memory."""

    memory: Memory


@dataclass(frozen=True, slots=True)
class AskSlots:
    """Asks which slots evaluators own and are up to date with.

    Answered by evaluator → slots, without evaluators that do not answer.
    """

    evaluators: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AskArrivals:
    """Asks what routers have sent to leaves; answered by router → `ArrivalReport`."""

    routers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AskLoads:
    """Asks what evaluators counted in the round; answered by evaluator → `LoadReport`.

    Attributes:
        evaluators: those that are asked.
        ends_round: the round ends here; else it continues, and only objects so far are reported.
    """

    evaluators: tuple[str, ...]
    ends_round: bool = True


@dataclass(frozen=True, slots=True)
class AskSamples:
    """Asks for some objects and queries of evaluators; answered by a list of `SampleReport`.

    Attributes:
        sizes: evaluator → how many objects and queries at most.
    """

    sizes: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class AskDetails:
    """Asks for details of leaves; answered by leaf id → `LeafDetail`.

    Attributes:
        wanted: evaluator → ids of leaves in its slots.
        version: of their map.
    """

    wanted: Mapping[str, list[int]]
    version: int


@dataclass(frozen=True, slots=True)
class Warm:
    """Makes evaluators load past objects of slots that they will own.

    Without them the slots are searched later.
    """

    slots: Mapping[str, list[int]]


@dataclass(frozen=True, slots=True)
class Save:
    """Makes evaluators write checkpoints of slots; without them a move only takes longer."""

    slots: Mapping[str, list[int]]


@dataclass(frozen=True, slots=True)
class Weigh:
    """Gives the machine each slot's share of the load."""

    weights: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """Makes the machine move slots; answered once it has declared it, or refused: SiroccoError."""

    moves: Mapping[int, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Propose:
    """Proposes a map to the machine; answered once it has declared it, or refused: SiroccoError."""

    partition_map: bytes


@dataclass(frozen=True, slots=True)
class Begun:
    """Reports to observers that a change begins."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class Ended:
    """Reports to observers that a change is over, or no longer waited for."""

    decision: Decision


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Measured:
    """What a round measured.

    Attributes:
        at_ms: when it ended.
        round_ms: how long it was.
        map: the one in force.
        owners: of each slot.
        loads: of each leaf, as if all that arrived had been processed.
        cost: f8[leaves], see `work.work`.
        imbalance: see `imbalance_of`.
    """

    at_ms: int
    round_ms: int
    map: PartitionMap
    owners: tuple[str, ...]
    loads: LeafLoads
    cost: NDArray[np.float64]
    imbalance: float


@dataclass(frozen=True, slots=True, eq=False)
class RoundResult:
    """Reports to observers that a round is over.

    Attributes:
        balancer: its name; empty where the scheme has none.
        measured: what was measured.
        state: why nothing was decided, or that something is under way.
        proposal: what the balancer would change, whether or not it is carried out.
        is_lost: some process did not answer.
    """

    balancer: str
    measured: Measured
    state: str
    proposal: Decision | None
    is_lost: bool


Ask = (
    ReadMemory
    | SaveMemory
    | AskSlots
    | AskArrivals
    | AskLoads
    | AskSamples
    | AskDetails
    | Warm
    | Save
    | Weigh
    | Move
    | Propose
    | Begun
    | Ended
    | RoundResult
)

# Yields requests, is sent the answers.
Turn = Generator[Ask, Any, None]
