"""SWARM's split of a leaf, after which two machines have equal costs (SWARM 4.3.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.workload.swarm_statistics import AxisStatistics, LeafStatistics


@dataclass(frozen=True, slots=True)
class Split:
    """A split of a leaf; one part moves to the cheapest machine.

    Attributes:
        axis: 0 splits between columns, 1 between rows.
        at: Number of columns or rows before the split.
        moves_first: Whether the part before the split moves; otherwise the one after it.
        difference: C_diff, the resulting cost of the most expensive machine minus that of the
            cheapest.
    """

    axis: int
    at: int
    moves_first: bool
    difference: float


@dataclass(frozen=True, slots=True)
class CutCosts:
    """Costs of the parts of a leaf, for each split on one axis.

    Attributes:
        cells: Columns or rows of the leaf.
        parts: Split → cost of the part before it and of the part after it. Split i is between cells
            i and i + 1; the first cost never falls and the second never grows with i.
    """

    cells: int
    parts: Callable[[int], tuple[float, float]]


def numerator_costs(statistics: AxisStatistics, scale: float) -> CutCosts:
    """Returns the costs of splits by N Q R (equation 5).

    Args:
        statistics: Statistics of the axis.
        scale: 1 / R(S), or another factor for the numerators.
    """

    def parts(cut: int) -> tuple[float, float]:
        before, behind = statistics.part_numerators_at(cut)
        return scale * before, scale * behind

    return CutCosts(len(statistics.objects), parts)


def costs_of_sums(cumulative: NDArray[np.float64]) -> CutCosts:
    """Returns the costs of splits for additive costs.

    Args:
        cumulative: f8[c], cost of all columns or rows up to and including each.
    """
    total = float(cumulative[-1])

    def parts(cut: int) -> tuple[float, float]:
        before = float(cumulative[cut])
        return before, max(total - before, 0.0)

    return CutCosts(len(cumulative), parts)


def best_split(
    leaf: LeafStatistics, dearest: float, cheapest: float, recent_total: float
) -> Split | None:
    """Returns the split of least |C_diff| by equation 5; None for a leaf of a single cell.

    Args:
        leaf: The leaf; its cost is part of `dearest`.
        dearest: C(m_H), cost of the machine with the leaf.
        cheapest: C(m_L), cost of the machine that receives one part.
        recent_total: R(S), see `LeafStatistics.cost`.
    """
    scale = 1.0 / recent_total if recent_total > 0 else 0.0
    axes = [numerator_costs(axis, scale) for axis in (leaf.columns, leaf.rows)]
    return best_cut(axes, dearest - leaf.cost(recent_total) - cheapest)


def best_cut(axes: Iterable[CutCosts], others: float) -> Split | None:
    """Returns the split of least |C_diff|; None for a leaf of a single cell.

    Four binary searches: two axes, and either part may move. Moving more columns never raises
    C_diff, so the best split is one of the two beside the change of sign, and O(log columns + log
    rows) splits are evaluated, each in O(1).

    Args:
        axes: Costs of the leaf's splits by column and by row.
        others: Difference of the two machines' other leaves.
    """
    best: Split | None = None
    for axis, costs in enumerate(axes):
        for moves_first in (True, False):
            difference = _difference(costs, moves_first, others)
            for cut in _beside_the_sign_change(difference, costs.cells - 1):
                split = Split(axis, cut + 1, moves_first, difference(cut))
                if best is None or abs(split.difference) < abs(best.difference):
                    best = split
    return best


def _difference(costs: CutCosts, moves_first: bool, others: float) -> Callable[[int], float]:
    """Returns C_diff as a function of the split.

    Args:
        costs: Costs of the splits on an axis.
        moves_first: Whether the first part moves.
        others: See `best_cut`.
    """
    sign = -1.0 if moves_first else 1.0

    def difference(cut: int) -> float:
        before, behind = costs.parts(cut)
        return others + sign * (before - behind)

    return difference


def _beside_the_sign_change(difference: Callable[[int], float], cuts: int) -> list[int]:
    """Returns the one or two splits where a monotone function is nearest to zero."""
    if cuts <= 0:
        return []
    falls = difference(0) >= difference(cuts - 1)
    low, high = 0, cuts
    while low < high:
        middle = (low + high) // 2
        value = difference(middle)
        if (value <= 0) if falls else (value >= 0):
            high = middle
        else:
            low = middle + 1
    return [cut for cut in (low - 1, low) if 0 <= cut < cuts]
