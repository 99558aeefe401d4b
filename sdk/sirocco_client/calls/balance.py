"""State of load balancing: measured loads, decisions, and the proposed change."""

from __future__ import annotations

from dataclasses import dataclass

from sirocco_api.v1 import balance_service_pb2 as pb


@dataclass(frozen=True, slots=True)
class SlotLoad:
    """The load of a slot in the last round.

    Attributes:
        slot: Its number.
        owner: The evaluator that owned it.
        share: Its part of the total load, 0 to 1.
        objects_per_s, matches_per_s: Arriving objects and their matches per second.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceDecision:
    """A change that was decided or is proposed.

    Attributes:
        at_ms: When it was decided, epoch ms.
        reason: Name of the operation in the balancer's paper.
        moves: Slots that change their owner.
        map_version: Version of the next map; 0 without one.
        maximum_before, maximum_after: Load of the most loaded evaluator, now and as expected, in
            the balancer's unit.
        moved_queries: Standing queries that have to be copied.
        seconds: Duration; 0 until it is over.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """The coordinator's view of the last balancing round.

    Attributes:
        is_on: Whether load balancing is on.
        balancer: The balancer of the map's scheme; empty if its maps never change.
        at_ms, round_ms: When the round ended, epoch ms, and its length.
        map_version: Of the map in force.
        imbalance: Load of the most loaded evaluator over the mean; 0 if there is no load.
        state: Why nothing was decided, or which change is under way.
        slots: All slots.
        leaves: The heaviest leaves.
        decisions: The last ones, newest first.
        proposal: The change that the balancer proposes now, or None.
        moves_total, map_changes_total: Counts since this coordinator became the leader.
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
        at_ms=message.at_ms,
        reason=message.reason,
        moves=message.moves,
        map_version=message.map_version,
        maximum_before=message.maximum_before,
        maximum_after=message.maximum_after,
        moved_queries=message.moved_queries,
        seconds=message.seconds,
        outcome=message.outcome,
    )
