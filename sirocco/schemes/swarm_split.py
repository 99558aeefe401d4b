"""Where SWARM cuts a leaf so that two machines come to cost the same (SWARM 4.3.2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sirocco.schemes.swarm_statistics import AxisStatistics, LeafStatistics


@dataclass(frozen=True, slots=True)
class Split:
    """A cut of a leaf, one part of which moves to the cheapest machine.

    Attributes:
        axis: 0 cuts between columns, 1 between rows.
        at: Number of columns or rows before the cut.
        moves_first: Whether the part before the cut moves; else the one behind it.
        difference: C_diff, what the dearest machine will cost more than the cheapest.
    """

    axis: int
    at: int
    moves_first: bool
    difference: float


def best_split(
    leaf: LeafStatistics, dearest: float, cheapest: float, recent_total: float
) -> Split | None:
    """Returns the split of least |C_diff|; None for a leaf of a single cell.

    Four binary searches: two axes, and either part may move. Moving more columns never raises
    C_diff, since N, Q and R of a part only grow with it; so the best cut is one of the two
    beside the change of sign, and O(log columns + log rows) cuts are priced, each in O(1).

    Args:
        leaf: The leaf; its cost is part of `dearest`.
        dearest: C(m_H), cost of the machine that holds the leaf.
        cheapest: C(m_L), cost of the machine that takes one part.
        recent_total: R(S), see `LeafStatistics.cost`.
    """
    rest = dearest - leaf.cost(recent_total)
    scale = 1.0 / recent_total if recent_total > 0 else 0.0
    best: Split | None = None
    for axis, statistics in enumerate((leaf.columns, leaf.rows)):
        for moves_first in (True, False):
            difference = _difference(statistics, moves_first, rest - cheapest, scale)
            for cut in _beside_the_sign_change(difference, len(statistics.objects) - 1):
                split = Split(axis, cut + 1, moves_first, difference(cut))
                if best is None or abs(split.difference) < abs(best.difference):
                    best = split
    return best


def _difference(
    statistics: AxisStatistics, moves_first: bool, others: float, scale: float
) -> Callable[[int], float]:
    """Returns C_diff as a function of the cut.

    Args:
        statistics: The axis that is cut.
        moves_first: Which part moves.
        others: What the two machines' other leaves differ by.
        scale: 1 / R(S).
    """
    sign = -scale if moves_first else scale

    def difference(cut: int) -> float:
        before, behind = statistics.part_numerators_at(cut)
        return others + sign * (before - behind)

    return difference


def _beside_the_sign_change(difference: Callable[[int], float], cuts: int) -> list[int]:
    """Returns the one or two cuts where a monotone function comes nearest to zero."""
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
