"""How loads are balanced: what was measured, decided, and would be."""

from __future__ import annotations

from dataclasses import dataclass

from sirocco_api.v1 import balance_service_pb2 as pb


@dataclass(frozen=True, slots=True)
class SlotLoad:
    """The load of a slot in the last round.

    Attributes:
        slot: Its number.
        owner: The evaluator that owned it.
        share: Of all load, 0 to 1.
        objects_per_s, matches_per_s: Objects that came, and queries that they met.
        queries: Standing queries.
    """

    slot: int
    owner: str
    share: float
    objects_per_s: float
    matches_per_s: float
    queries: float


@dataclass(frozen=True, slots=True)
class LeafLoad:
    """The load of a leaf in the last round; see `SlotLoad`."""

    leaf: int
    slot: int
    share: float
    objects_per_s: float
    matches_per_s: float
    queries: float


@dataclass(frozen=True, slots=True)
class BalanceDecision:
    """A change that was decided, or would be.

    Attributes:
        at_ms: When.
        reason: The name of what is done in the balancer's paper.
        moves: Slots that change their owner.
        map_version: Of the map that follows; 0 without one.
        maximum_before, maximum_after: Load of the most loaded evaluator and what it is to become,
            in the balancer's unit.
        moved_queries: Standing queries that have to be copied.
        seconds: Until it was over; 0 before.
        outcome: `done`, `under way`, or why it failed.
    """

    at_ms: int
    reason: str
    moves: int
    map_version: int
    maximum_before: float
    maximum_after: float
    moved_queries: float
    seconds: float
    outcome: str


@dataclass(frozen=True, slots=True)
class Balance:
    """What the coordinator made of the last round.

    Attributes:
        is_on: Whether loads are balanced.
        balancer: The balancer of the map's scheme; empty where its maps stay as they are.
        at_ms, round_ms: When the round ended, and how long it was.
        map_version: Of the map in force.
        imbalance: Load of the most loaded evaluator over the mean; 0 without load.
        state: Why nothing was decided, or what is under way.
        slots: All slots.
        leaves: The heaviest leaves.
        decisions: The last ones, newest first.
        proposal: What the balancer would change now; None: nothing.
        moves_total, map_changes_total: Since this coordinator leads.
    """

    is_on: bool
    balancer: str
    at_ms: int
    round_ms: int
    map_version: int
    imbalance: float
    state: str
    slots: tuple[SlotLoad, ...]
    leaves: tuple[LeafLoad, ...]
    decisions: tuple[BalanceDecision, ...]
    proposal: BalanceDecision | None
    moves_total: int
    map_changes_total: int


def read_balance(message: pb.DescribeBalanceResponse) -> Balance:
    """Returns the description of a message."""
    return Balance(
        is_on=message.is_on,
        balancer=message.balancer,
        at_ms=message.at_ms,
        round_ms=message.round_ms,
        map_version=message.map_version,
        imbalance=message.imbalance,
        state=message.state,
        slots=tuple(
            SlotLoad(
                one.slot,
                one.owner,
                one.share,
                one.objects_per_s,
                one.matches_per_s,
                one.queries,
            )
            for one in message.slots
        ),
        leaves=tuple(
            LeafLoad(
                one.leaf, one.slot, one.share, one.objects_per_s, one.matches_per_s, one.queries
            )
            for one in message.leaves
        ),
        decisions=tuple(_read_decision(one) for one in message.decisions),
        proposal=_read_decision(message.proposal) if message.HasField("proposal") else None,
        moves_total=message.moves_total,
        map_changes_total=message.map_changes_total,
    )


def _read_decision(message: pb.BalanceDecision) -> BalanceDecision:
    return BalanceDecision(
        message.at_ms,
        message.reason,
        message.moves,
        message.map_version,
        message.maximum_before,
        message.maximum_after,
        message.moved_queries,
        message.seconds,
        message.outcome,
    )
