"""Boxes that tile a frame, and the uneven grid formed by their borders."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.model.errors import InvalidArgument

# 64 MB of cells. A map of some thousand leaves with shared borders needs a few hundred thousand; a
# proposal above this bound is either broken or made to exhaust the router.
CELLS_MAX = 1 << 24

# Cells are i4 and every router reads every map record; Lmax / Lmin gains nothing beyond a few
# leaves per slot, so this bound is far above actual use.
TILES_MAX = 1 << 16

# A tenth of a millimetre. Far narrower tiles would make the buckets per degree overflow.
SIDE_DEGREES_MIN = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Tiling:
    """The uneven grid of one frame.

    Attributes:
        x_borders: f8[columns + 1], ascending, degrees.
        y_borders: f8[rows + 1], ascending, degrees.
        cells: i4[rows, columns], the tile of each cell.
        spans: i4[tiles, 4], first column, first row, last column + 1, last row + 1.
    """

    x_borders: NDArray[np.float64]
    y_borders: NDArray[np.float64]
    cells: NDArray[np.int32]
    spans: NDArray[np.int32]


def tile(
    boxes: NDArray[np.float64],
    extent: NDArray[np.float64],
    field: str,
    cells_max: int | None = None,
) -> Tiling:
    """Lays boxes on a grid and checks that they tile the extent.

    Args:
        boxes: f8[n, 4], rows (west, south, east, north), degrees.
        extent: f8[4], the frame's box.
        field: Name of the boxes in an error.
        cells_max: Maximum number of cells; `CELLS_MAX` if missing.

    Raises:
        InvalidArgument: A box is empty or leaves the extent, two overlap, or a gap remains.
    """
    _check_boxes(boxes, extent, field)
    x_borders = sorted_distinct(boxes[:, [0, 2]])
    y_borders = sorted_distinct(boxes[:, [1, 3]])
    columns, rows = len(x_borders) - 1, len(y_borders) - 1
    most = CELLS_MAX if cells_max is None else cells_max
    if columns * rows > most:
        raise InvalidArgument(f"borders span {columns} x {rows} cells, over {most}", field=field)
    x0, x1 = (np.searchsorted(x_borders, boxes[:, side]) for side in (0, 2))
    y0, y1 = (np.searchsorted(y_borders, boxes[:, side]) for side in (1, 3))
    cover = np.zeros((rows + 1, columns + 1), np.int32)
    np.add.at(cover, (y0, x0), 1)
    np.add.at(cover, (y0, x1), -1)
    np.add.at(cover, (y1, x0), -1)
    np.add.at(cover, (y1, x1), 1)
    # In place: the sums are small numbers, and NumPy would use twice the width.
    np.cumsum(cover, 0, out=cover)
    np.cumsum(cover, 1, out=cover)
    cover = cover[:-1, :-1]
    if cover.min() != 1 or cover.max() != 1:
        row, column = (int(i) for i in np.argwhere(cover != 1)[0])
        what = "gap" if cover[row, column] == 0 else "overlap"
        at = (x_borders[column], y_borders[row], x_borders[column + 1], y_borders[row + 1])
        raise InvalidArgument(f"{what} at {tuple(float(v) for v in at)}", field=field)
    if x_borders[0] != extent[0] or x_borders[-1] != extent[2]:
        raise InvalidArgument(
            "gap: the boxes do not reach the east or west of the frame", field=field
        )
    if y_borders[0] != extent[1] or y_borders[-1] != extent[3]:
        raise InvalidArgument(
            "gap: the boxes do not reach the north or south of the frame", field=field
        )
    cells = np.empty((rows, columns), np.int32)
    for number in range(len(boxes)):
        cells[y0[number] : y1[number], x0[number] : x1[number]] = number
    spans = np.stack([x0, y0, x1, y1], 1).astype(np.int32)
    return Tiling(x_borders, y_borders, cells, spans)


def _check_boxes(boxes: NDArray[np.float64], extent: NDArray[np.float64], field: str) -> None:
    if not 0 < len(boxes) <= TILES_MAX:
        raise InvalidArgument(f"{len(boxes)} boxes, not 1 to {TILES_MAX}", field=field)
    if not np.isfinite(boxes).all():
        raise InvalidArgument("a border is not finite", field=field)
    if (boxes[:, 2:] - boxes[:, :2] < SIDE_DEGREES_MIN).any():
        raise InvalidArgument(f"a box is narrower than {SIDE_DEGREES_MIN} degrees", field=field)
    if (boxes[:, :2] < extent[:2]).any() or (boxes[:, 2:] > extent[2:]).any():
        raise InvalidArgument("a box leaves its frame", field=field)
