"""The search region of a kNN query: the box in which its k-th result is expected."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.map.map import WORLD

# Cells of the finest grid along each side: 20 km at the equator. The boxes only have to show which
# leaves a search reaches, and leaves of cities are rarely smaller than a tenth of that.
FINEST = 1 << 11


def knn_search_boxes(
    lon: NDArray[np.float64],
    lat: NDArray[np.float64],
    needed: NDArray[np.float64],
    objects_lon: NDArray[np.float64],
    objects_lat: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Estimates the search regions of kNN queries (SSTD's Pr(d(q, P) < d(q, q.R_k))).

    Counts the objects in ever coarser grids and takes, for each query, the finest grid in which the
    cell of its point and its eight neighbours hold enough. O(queries + cells).

    Args:
        lon, lat: f8[q], points of the queries, degrees.
        needed: f8[q], number of given objects that a search must reach: k, times the given share of
            all objects, over the share of them that satisfies the text.
        objects_lon, objects_lat: f8[n], degrees.

    Returns:
        f8[q, 4], rows (west, south, east, north); the world if there are too few objects.
    """
    side = FINEST
    x, y = _cells(lon, 0, side), _cells(lat, 1, side)
    grid = np.bincount(
        _cells(objects_lat, 1, side) * side + _cells(objects_lon, 0, side), minlength=side * side
    ).reshape(side, side)
    boxes = np.tile(np.array(WORLD), (len(lon), 1))
    waiting = np.arange(len(lon))
    while side > 1 and len(waiting) > 0:
        column, row = x[waiting], y[waiting]
        enough = _around(grid, column, row) >= needed[waiting]
        found = waiting[enough]
        boxes[found] = _box_around(column[enough], row[enough], side)
        waiting = waiting[~enough]
        grid = grid.reshape(side // 2, 2, side // 2, 2).sum((1, 3))
        side //= 2
        x, y = x >> 1, y >> 1
    return boxes


def _cells(values: NDArray[np.float64], axis: int, side: int) -> NDArray[np.int64]:
    low, high = WORLD[axis], WORLD[axis + 2]
    return np.clip(((values - low) * (side / (high - low))).astype(np.int64), 0, side - 1)


def _around(
    grid: NDArray[np.int64], column: NDArray[np.int64], row: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Returns the objects in each cell and its eight neighbours."""
    side = len(grid)
    total = np.zeros((side + 1, side + 1), np.int64)
    total[1:, 1:] = grid.cumsum(0).cumsum(1)
    x0, x1 = np.maximum(column - 1, 0), np.minimum(column + 2, side)
    y0, y1 = np.maximum(row - 1, 0), np.minimum(row + 2, side)
    counts: NDArray[np.int64] = total[y1, x1] - total[y0, x1] - total[y1, x0] + total[y0, x0]
    return counts


def _box_around(
    column: NDArray[np.int64], row: NDArray[np.int64], side: int
) -> NDArray[np.float64]:
    west, south, east, north = WORLD
    width, height = (east - west) / side, (north - south) / side
    boxes = np.stack([column - 1.0, row - 1.0, column + 2.0, row + 2.0], 1)
    boxes = np.clip(boxes, 0, side)
    return boxes * (width, height, width, height) + (west, south, west, south)
