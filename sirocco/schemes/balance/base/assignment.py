"""Assignment of subsets to machines with the least transfer (SSTD 5.2)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def hungarian(cost: NDArray[np.float64]) -> NDArray[np.int64]:
    """Assigns rows to columns, one to one, so that the sum of costs is least.

    The Hungarian method by shortest augmenting paths with potentials, O(n³), as SSTD uses it.

    Args:
        cost: f8[n, n], finite.

    Returns:
        i8[n], the column of each row.
    """
    count = len(cost)
    row_price, column_price = np.zeros(count), np.zeros(count)
    row_of = np.full(count, -1, np.int64)
    for start in range(count):
        # Dijkstra over columns with reduced costs, from the unassigned row.
        least, before = np.full(count, np.inf), np.full(count, -1, np.int64)
        is_done = np.zeros(count, np.bool_)
        row, column = start, -1
        while True:
            reduced = cost[row] - row_price[row] - column_price
            is_better = ~is_done & (reduced < least)
            least[is_better] = reduced[is_better]
            before[is_better] = column
            nearest = int(np.where(is_done, np.inf, least).argmin())
            step = least[nearest]
            rows = np.append(row_of[is_done], start)
            row_price[rows] += step
            column_price[is_done] -= step
            least[~is_done] -= step
            is_done[nearest] = True
            column, row = nearest, int(row_of[nearest])
            if row < 0:
                break
        while column >= 0:
            previous = int(before[column])
            row_of[column] = start if previous < 0 else row_of[previous]
            column = previous
    column_of = np.empty(count, np.int64)
    column_of[row_of] = np.arange(count)
    return column_of


def assign_subsets(
    subset_of: NDArray[np.int64], transfer: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Assigns each subset of units to a separate machine, with the least transfer.

    Args:
        subset_of: i8[n], the subset of each unit, at most as many as machines.
        transfer: f8[n, machines], cost of having each unit on each machine.

    Returns:
        i8[n], the machine of each unit.
    """
    machines = transfer.shape[1]
    cost = np.zeros((machines, machines))
    np.add.at(cost, subset_of, transfer)
    return hungarian(cost)[subset_of]
