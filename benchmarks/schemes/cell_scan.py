"""The plain way to route a region on a grid: examine every cell that it touches (Tornado 3.1).

It finds the same leaves as the routers' search; its time grows with the cells, O(m x n). Tornado's
neighbour-based search is compared with it (6.2, Figure 9b: the Grid).
"""

from __future__ import annotations

from typing import Any

import numba


@numba.njit(cache=True, nogil=True)
def scan(spans: Any, leaf_of_cell: Any, columns: int, seen: Any, out: Any) -> None:
    """Counts the distinct leaves under each region.

    Args:
        spans: i8[q, 4], first column, first row, last column, last row.
        leaf_of_cell: i4[rows * columns].
        columns: Cells in a row.
        seen: i8[leaves], any numbers below the first stamp; overwritten.
        out: i8[q], overwritten.
    """
    for q in range(spans.shape[0]):
        found = 0
        for y in range(spans[q, 1], spans[q, 3] + 1):
            for x in range(spans[q, 0], spans[q, 2] + 1):
                leaf = leaf_of_cell[y * columns + x]
                if seen[leaf] != q + 1:
                    seen[leaf] = q + 1
                    found += 1
        out[q] = found
