"""The fine grid on which spatial schemes count workload and place the borders of leaves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.map.map import WORLD, Box
from sirocco.schemes.workload.sample import Sample

# Cells along each side of a grid on which queries are counted. Tornado 6 uses 1000 x 1000; with
# fewer, a city in a sample of the whole world is one cell, and all its objects count the queries of
# all its quarters. Above the bound, counting (4 bytes per cell) would take more than milliseconds.
SIDE_MIN = 1 << 10
SIDE_MAX = 1 << 11

# With cells of a metre, 1e-5 degrees, along a side of 2^16: finer cells would only split the noise
# of coordinates.
EXTENT_DEGREES_MIN = 0.65536

# Objects ignored at each end of the objects' extent: one stray point would stretch the grid over
# half the world, and a city would be one cell.
STRAY_SHARE = 0.005


@dataclass(frozen=True, slots=True, eq=False)
class FineGrid:
    """A grid of cells, each half open in the north and east, like leaves.

    Attributes:
        x_borders: f8[columns + 1], ascending, degrees.
        y_borders: f8[rows + 1], ascending, degrees.
    """

    x_borders: NDArray[np.float64]
    y_borders: NDArray[np.float64]

    @property
    def columns(self) -> int:
        """Number of columns."""
        return len(self.x_borders) - 1

    @property
    def rows(self) -> int:
        """Number of rows, counted northwards."""
        return len(self.y_borders) - 1

    def columns_of(self, lon: NDArray[np.float64]) -> NDArray[np.int64]:
        """Returns the column of each longitude, i8[n]; the nearest one for those outside."""
        return np.clip(_place(self.x_borders, lon, 0), 0, self.columns - 1)

    def rows_of(self, lat: NDArray[np.float64]) -> NDArray[np.int64]:
        """Returns the row of each latitude, i8[n]; the nearest one for those outside."""
        return np.clip(_place(self.y_borders, lat, 1), 0, self.rows - 1)

    def spans_of(self, boxes: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the cells that closed boxes touch, clipped to the grid.

        Args:
            boxes: f8[b, 4], rows (west, south, east, north), degrees; west > east crosses the
                antimeridian, and such a box may have two spans.

        Returns:
            (i8[s] row of the box, i8[s, 4] first column, first row, last column, last row).
        """
        west, south, east, north = boxes.T
        crosses = west > east
        # A span that ends in its first column goes around the world: two spans would count the
        # cells of that column twice.
        column = _place(self.x_borders, west, 0)
        around = crosses & (column == _place(self.x_borders, east, 0))
        around &= (column >= 0) & (column < self.columns)
        first = np.where(around, WORLD[0], west)
        last = np.where(crosses, WORLD[2], east)
        owner = np.concatenate([np.arange(len(boxes)), np.flatnonzero(crosses & ~around)])
        second = owner[len(boxes) :]
        x0 = _place(self.x_borders, np.concatenate([first, np.full(len(second), WORLD[0])]), 0)
        x1 = _place(self.x_borders, np.concatenate([last, east[second]]), 0)
        y0 = _place(self.y_borders, south[owner], 1)
        y1 = _place(self.y_borders, north[owner], 1)
        touches = (x1 >= 0) & (x0 < self.columns) & (y1 >= 0) & (y0 < self.rows)
        spans = np.stack([x0, y0, x1, y1], 1)
        limits = (self.columns - 1, self.rows - 1, self.columns - 1, self.rows - 1)
        return owner[touches], np.clip(spans, 0, limits)[touches]

    def box(self, x0: int, y0: int, x1: int, y1: int) -> Box:
        """Returns the box of columns x0 to x1 - 1 and rows y0 to y1 - 1."""
        x, y = self.x_borders, self.y_borders
        return float(x[x0]), float(y[y0]), float(x[x1]), float(y[y1])

    def within(self, box: Box) -> FineGrid:
        """Returns the part of the grid that lies in a box of whole cells."""
        west, south, east, north = box
        x, y = self.x_borders, self.y_borders
        return FineGrid(x[(x >= west) & (x <= east)], y[(y >= south) & (y <= north)])


def even_grid(columns: int, rows: int, extent: Box = WORLD) -> FineGrid:
    """Returns equal cells over an extent; the outer ones extend to the world's border."""
    west, south, east, north = extent
    x, y = np.linspace(west, east, columns + 1), np.linspace(south, north, rows + 1)
    x[[0, -1]], y[[0, -1]] = WORLD[0::2], WORLD[1::2]
    return FineGrid(x, y)


def fine_grid(sample: Sample) -> FineGrid:
    """Returns the grid for counting a sample's queries, with cells as wide as the queries.

    Tornado 5: the cell side that needs the fewest evaluators is the mean side of a query; we take
    the nearest power of two, within bounds. Tornado's space is that of its data; ours is the world,
    so the even part of the grid covers the objects without strays, and its outer cells extend to
    the border of the world.
    """
    extent = extent_of(sample)
    boxes = sample.queries.boxes
    width = boxes[:, 2] - boxes[:, 0]
    width = np.where(width < 0, width + (WORLD[2] - WORLD[0]), width)
    height = boxes[:, 3] - boxes[:, 1]
    shares = np.concatenate([width / (extent[2] - extent[0]), height / (extent[3] - extent[1])])
    mean = float(np.minimum(shares, 1.0).mean()) if len(shares) else 1.0
    side = 1 << round(-np.log2(max(mean, 1 / SIDE_MAX)))
    side = min(max(side, SIDE_MIN), SIDE_MAX)
    return even_grid(side, side, extent)


def extent_of(sample: Sample) -> Box:
    """Returns the box of a sample's objects without strays; the world if there are no objects."""
    (west, east), (south, north) = _extent(sample.lon, 0), _extent(sample.lat, 1)
    return west, south, east, north


def _extent(values: NDArray[np.float64], axis: int) -> tuple[float, float]:
    """Returns the range of most values, wide enough for the smallest cells."""
    low, high = WORLD[axis], WORLD[axis + 2]
    if len(values) == 0:
        return low, high
    inside = np.clip(values, low, high)
    first, last = np.quantile(inside, (STRAY_SHARE, 1 - STRAY_SHARE), method="nearest")
    if last - first < EXTENT_DEGREES_MIN:
        half = EXTENT_DEGREES_MIN / 2
        middle = np.clip((first + last) / 2, low + half, high - half)
        first, last = middle - half, middle + half
    return float(max(first, low)), float(min(last, high))


def _place(
    borders: NDArray[np.float64], values: NDArray[np.float64], axis: int
) -> NDArray[np.int64]:
    """Returns the cell of each value; -1 before the first, the number of cells after the last.

    The border of the world belongs to the last cell.
    """
    place = np.searchsorted(borders, values, "right") - 1
    if borders[-1] == WORLD[axis + 2]:
        place = np.minimum(place, len(borders) - 2)
    return place
