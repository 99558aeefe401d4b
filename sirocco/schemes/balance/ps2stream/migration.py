"""Selection of cells to migrate: the Minimum Cost Migration problem (PS2Stream V.A, Definition 4).

Of all sets of cells with a total load of at least τ, the one of least size; NP-hard (Theorem 2).
Each function takes i8[n] sizes, not negative, and f8[n] loads, and returns the selected rows; if
all cells together do not reach τ, all with any load.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]
Select = Callable[[NDArray[np.int64], NDArray[np.float64], float], Rows]

# Cells of the decision table, one byte each. Beyond that the exact method would take more time than
# it saves in the migration; sizes are then rounded up to coarser units.
TABLE_BYTES_MAX = 1 << 24

# A load of τ minus this share counts as τ: sums of the same loads in another order differ by
# rounding.
ROUNDING = 1e-12


def dynamic_programming(
    size: NDArray[np.int64],
    load: NDArray[np.float64],
    wanted: float,
    table_bytes_max: int = TABLE_BYTES_MAX,
) -> Rows:
    """DP: the exact solution (V.A.1), O(nP) with P the total size found by GR.

    A(i, j), the greatest load of some of the first i cells with sizes of at most j together. The
    paper's condition j ≤ S for leaving a cell out must be j < S, otherwise no cell would ever fit
    exactly. Sizes beyond the bound of the table are rounded up to a common unit, so that the result
    still reaches τ but may exceed the least size by one unit per cell.
    """
    greedy_rows = greedy(size, load, wanted)
    rows = np.flatnonzero(load > 0)
    if load[greedy_rows].sum() < wanted * (1 - ROUNDING):
        return rows
    bound = int(size[greedy_rows].sum())
    unit = max(1, -(-(bound + 1) * len(rows) // table_bytes_max))
    units = -(-size[rows] // unit)
    # Rounding up may need one more unit for each cell of the greedy solution.
    columns = bound // unit + 1 + (len(greedy_rows) if unit > 1 else 0)
    best = np.zeros(columns)
    takes = np.zeros((len(rows), columns), np.bool_)
    for i, row in enumerate(rows):
        own = int(units[i])
        if own >= columns:
            continue
        with_it = best[: columns - own] + load[row]
        takes[i, own:] = with_it > best[own:]
        best[own:] = np.maximum(with_it, best[own:])
    enough = np.flatnonzero(best >= wanted * (1 - ROUNDING))
    if len(enough) == 0:
        return greedy_rows
    left = int(enough[0])
    chosen = []
    for i in reversed(range(len(rows))):
        if takes[i, left]:
            chosen.append(int(rows[i]))
            left -= int(units[i])
    return np.array(chosen[::-1], np.int64)


def greedy(size: NDArray[np.int64], load: NDArray[np.float64], wanted: float) -> Rows:
    """GR: scans cells by size over load (V.A.2, Figure 5), O(n log n).

    Cells are collected while τ is not reached (GS). A cell that would reach it (GL) is a candidate
    for the last cell, and is not collected; the candidate of least total size is chosen.
    """
    rows = np.flatnonzero(load > 0)
    rows = rows[np.argsort(size[rows] / load[rows], kind="stable")]
    gathered: list[int] = []
    gathered_load, gathered_size = 0.0, 0
    best: tuple[int, int, int] | None = None
    for row in rows.tolist():
        if gathered_load + load[row] < wanted * (1 - ROUNDING):
            gathered.append(row)
            gathered_load += float(load[row])
            gathered_size += int(size[row])
        elif best is None or gathered_size + size[row] < best[0]:
            best = (gathered_size + int(size[row]), len(gathered), row)
    if best is None:
        return np.sort(np.array(gathered, np.int64))
    return np.sort(np.array([*gathered[: best[1]], best[2]], np.int64))


def by_size(size: NDArray[np.int64], load: NDArray[np.float64], wanted: float) -> Rows:
    """SI, a baseline of VI.D: the largest cells first until τ is reached."""
    return _until(np.argsort(-size, kind="stable"), load, wanted)


def at_random(
    size: NDArray[np.int64], load: NDArray[np.float64], wanted: float, seed: int = 0
) -> Rows:
    """RA, a baseline of VI.D: cells in random order until τ is reached."""
    return _until(np.argsort(_scrambled(len(size), seed), kind="stable"), load, wanted)


def _until(order: Rows, load: NDArray[np.float64], wanted: float) -> Rows:
    order = order[load[order] > 0]
    reached = np.cumsum(load[order])
    count = int(np.searchsorted(reached, wanted * (1 - ROUNDING))) + 1
    return np.sort(order[:count])


def _scrambled(count: int, seed: int) -> NDArray[np.uint64]:
    """Returns splitmix64 of consecutive numbers: reproducible randomness."""
    with np.errstate(over="ignore"):
        mixed = (np.arange(1, count + 1, dtype=np.uint64) + np.uint64(seed << 20)) * np.uint64(
            0x9E3779B97F4A7C15
        )
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
