"""A balancing round as a public report."""

from __future__ import annotations

import numpy as np
from sirocco_api.v1 import balance_service_pb2 as pb

from sirocco.protocol.coordinator.balance_requests import Measured
from sirocco.protocol.coordinator.balance_rounds import Decision, Rounds
from sirocco.schemes.balance.base.placement import added

# The heaviest leaves in a report: 4 kB.
LEAVES_MAX = 64


def report(
    balancer: str, measured: Measured, state: str, rounds: Rounds, proposal: Decision | None
) -> pb.DescribeBalanceResponse:
    """Returns a round as a message of bounded size."""
    seconds = max(measured.round_ms, 1) / 1_000
    total = float(measured.cost.sum()) or 1.0
    response = pb.DescribeBalanceResponse(
        is_on=True,
        balancer=balancer,
        at_ms=measured.at_ms,
        round_ms=measured.round_ms,
        map_version=measured.map.version,
        imbalance=measured.imbalance,
        state=state,
        decisions=[_decision(one) for one in rounds.decisions],
        moves_total=rounds.moves_total,
        map_changes_total=rounds.map_changes_total,
    )
    if proposal is not None:
        response.proposal.CopyFrom(_decision(proposal))
    slot_of_leaf, slots = measured.map.slot_of_leaf.astype(np.int64), measured.map.slots
    loads = measured.loads
    of_leaf = (measured.cost / total, loads.objects / seconds, loads.met / seconds, loads.queries)
    of_slot = [added(column, slot_of_leaf, slots).tolist() for column in of_leaf]
    for slot, (owner, *figures) in enumerate(zip(measured.owners, *of_slot, strict=True)):
        share, objects, matches, queries = figures
        response.slots.add(
            slot=slot,
            owner=owner,
            share=share,
            objects_per_s=objects,
            matches_per_s=matches,
            queries=queries,
        )
    for leaf in np.argsort(-measured.cost, kind="stable")[:LEAVES_MAX].tolist():
        share, objects, matches, queries = (float(column[leaf]) for column in of_leaf)
        response.leaves.add(
            leaf=measured.map.leaves[leaf].id,
            slot=int(slot_of_leaf[leaf]),
            share=share,
            objects_per_s=objects,
            matches_per_s=matches,
            queries=queries,
        )
    return response


def _decision(one: Decision) -> pb.BalanceDecision:
    return pb.BalanceDecision(
        at_ms=one.at_ms,
        reason=one.reason,
        moves=len(one.moves),
        map_version=one.map_version,
        maximum_before=one.maximum_before,
        maximum_after=one.maximum_after,
        moved_queries=one.moved_queries,
        seconds=one.seconds,
        outcome=one.outcome,
    )
