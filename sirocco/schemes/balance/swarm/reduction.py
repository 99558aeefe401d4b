"""How SWARM's dearest machine gives load to the cheapest: a subset, else a split (4.3.2)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def find_subset(cost: NDArray[np.float64], capacity: float) -> NDArray[np.int64]:
    """Returns a subset of greatest cost that does not pass a capacity (Algorithm 3).

    Greedy, the dearest first: at least half of the best that a subset of these costs can reach,
    in O(k log k), and few are taken. What costs nothing is not moved, as nothing is gained.

    Args:
        cost: f8[k].
        capacity: Cmax.

    Returns:
        Rows of `cost`, the dearest first.
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
