"""Cost measures for SWARM's rounds: work, or the paper's objects times queries (SWARM 4.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.balance.base.view import LeafDetail, LeafLoads
from sirocco.schemes.balance.base.work import Cost, work, work_profile
from sirocco.schemes.builders.swarm_split import CutCosts, costs_of_sums, numerator_costs

# From a leaf's detail, its cost, and the queries met in it, to the costs of its splits by column
# and by row; None if the detail gives no costs.
Cuts: TypeAlias = Callable[[LeafDetail, float, float], tuple[CutCosts, CutCosts] | None]


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure for comparing machines.

    Attributes:
        leaves: The cost of each leaf.
        cuts: The costs of parts of a leaf, in the same unit.
    """

    leaves: Cost
    cuts: Cuts


def costs(loads: LeafLoads) -> NDArray[np.float64]:
    """Returns C(p) of each leaf (equation 5), f8[leaves]."""
    recent_total = float(loads.arrivals.sum())
    numerator = loads.faded * loads.queries * loads.arrivals
    return numerator / recent_total if recent_total > 0 else np.zeros(len(numerator))


def _cuts_by_work(detail: LeafDetail, cost: float, met: float) -> tuple[CutCosts, CutCosts]:
    columns, rows = (np.cumsum(work_profile(detail, axis, cost, met)) for axis in (0, 1))
    return costs_of_sums(columns), costs_of_sums(rows)


def _cuts_by_numerators(
    detail: LeafDetail, cost: float, met: float
) -> tuple[CutCosts, CutCosts] | None:
    statistics = detail.statistics
    if statistics.numerator <= 0:
        return None
    # Counts that are slightly newer than the report are scaled to the report.
    scale = cost / statistics.numerator
    return numerator_costs(statistics.columns, scale), numerator_costs(statistics.rows, scale)


WORK = Measure(work, _cuts_by_work)

# The paper's measure. Parts of a leaf together cost less than the leaf.
EQUATION_5 = Measure(costs, _cuts_by_numerators)
