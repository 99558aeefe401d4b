"""SWARM's relief of the most expensive machine: a subset, otherwise a split (4.3.2)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def find_subset(cost: NDArray[np.float64], capacity: float) -> NDArray[np.int64]:
    """Returns a subset of greatest cost within a capacity (Algorithm 3).

    Greedy, the most expensive first: at least half of the best cost of a subset, in O(k log k), and
    with few items. Items without cost are not moved, because that gains nothing.

    Args:
        cost: f8[k].
        capacity: Cmax.

    Returns:
        Rows of `cost`, the most expensive first.
    """
    chosen: list[int] = []
    total = 0.0
    for row in np.argsort(-cost, kind="stable").tolist():
        if cost[row] <= 0 or total >= capacity:
            break
        if total + cost[row] <= capacity:
            total += float(cost[row])
            chosen.append(row)
    return np.array(chosen, np.int64)
