"""SWARM's rounds by what our evaluators spend, instead of by objects times queries.

Not part of the product: it tells how much of what SWARM's balancer misses is due to its cost. C(p)
= N Q R / R(S) (equation 5) grows with the square of a leaf's objects and with its queries. An
evaluator with an index spends what its objects and their matches cost, so that many small leaves
that seem cheap together may be dearer than a large one that seems dear.
"""

from __future__ import annotations

from sirocco.schemes.balance.placement import placed
from sirocco.schemes.balance.planning import no_change
from sirocco.schemes.balance.swarm import Swarm
from sirocco.schemes.balance.swarm_ladder import REPEATS_MAX, climbed
from sirocco.schemes.balance.tornado import workloads
from sirocco.schemes.balance.view import Plan, View


class ByWork(Swarm):
    """The same ladder, subsets and splits; nothing is merged."""

    def adjust(self, view: View, now_ms: int) -> Plan:
        """See `Balancer.adjust`."""
        recent_total = float(view.loads.arrivals.sum())
        placement = placed(view, workloads(view.loads))
        memory = climbed(view.memory, recent_total, REPEATS_MAX)
        plan = self._rebalance(placement, memory, recent_total) if memory.rebalances else None
        return plan or no_change(placement, memory)
