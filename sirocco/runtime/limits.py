"""The limits and intervals of the parts of a process, together."""

from __future__ import annotations

from dataclasses import dataclass

from sirocco.protocol.evaluator.limits import LIMITS as EVALUATOR_LIMITS
from sirocco.protocol.evaluator.limits import EvaluatorLimits
from sirocco.protocol.merger.limits import LIMITS as MERGER_LIMITS
from sirocco.protocol.merger.limits import MergerLimits
from sirocco.protocol.router.limits import LIMITS as ROUTER_LIMITS
from sirocco.protocol.router.limits import RouterLimits
from sirocco.protocol.search.limits import LIMITS as SEARCH_LIMITS
from sirocco.protocol.search.limits import SearchLimits
from sirocco.runtime.loop.limits import LOOP, LoopLimits
from sirocco.runtime.process.membership import LEASE_TIMES, LeaseTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLimits:
    """What is no setting of an operator, but what a test or an embedding program may change.

    Attributes:
        router, evaluator, merger: of the machines.
        search: of searches, at mergers and evaluators.
        loop: of the loop that runs the machine.
        leases: how long the process counts as alive.
    """

    router: RouterLimits = ROUTER_LIMITS
    evaluator: EvaluatorLimits = EVALUATOR_LIMITS
    merger: MergerLimits = MERGER_LIMITS
    search: SearchLimits = SEARCH_LIMITS
    loop: LoopLimits = LOOP
    leases: LeaseTimes = LEASE_TIMES


LIMITS = ProcessLimits()
