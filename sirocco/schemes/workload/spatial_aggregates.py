"""Row and column aggregates of a leaf, and the best split by them (Tornado 4.3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Cut:
    """A split of a leaf into two.

    Attributes:
        axis: 0 splits between columns, 1 between rows.
        at: Number of columns or rows before the split, at least one on either side.
        maximum: Workload of the heavier half.
    """

    axis: int
    at: int
    maximum: int


@dataclass(frozen=True, slots=True, eq=False)
class Aggregates:
    """The workload of a leaf's fine grid cells, added up by column and by row.

    An evaluator only keeps these, not the cells (4.3): an object adds to one column and one row,
    and they suffice to evaluate a split between columns or rows.

    Attributes:
        columns: i8[w], workload of each column of the leaf, from the west.
        rows: i8[h], workload of each row of the leaf, from the south.
    """

    columns: NDArray[np.int64]
    rows: NDArray[np.int64]

    def adding(
        self, column: NDArray[np.int64], row: NDArray[np.int64], cost: NDArray[np.int64]
    ) -> Aggregates:
        """Returns the aggregates after more objects.

        Args:
            column, row: i8[n], cell of each object, counted from the leaf's south-west cell.
            cost: i8[n], workload of each object.
        """
        columns, rows = self.columns.copy(), self.rows.copy()
        np.add.at(columns, column, cost)
        np.add.at(rows, row, cost)
        return Aggregates(columns, rows)

    def best_cut(self) -> Cut | None:
        """Returns the split with the lightest heavier half; None for a single cell. O(w + h).

        The least maximum of 4.1 is the least difference of 4.3: the heavier half is half of the
        whole plus half of the difference. Ties prefer the longer side, then the middle.
        """
        cuts = [
            Cut(axis, *best)
            for axis, aggregate in enumerate((self.columns, self.rows))
            if (best := _least_maximum(aggregate)) is not None
        ]
        sides = (len(self.columns), len(self.rows))
        return min(cuts, key=lambda cut: (cut.maximum, -sides[cut.axis]), default=None)


def no_aggregates(columns: int, rows: int) -> Aggregates:
    """Returns the aggregates of an empty leaf of this many cells."""
    return Aggregates(np.zeros(columns, np.int64), np.zeros(rows, np.int64))


def _least_maximum(aggregate: NDArray[np.int64]) -> tuple[int, int] | None:
    if len(aggregate) < 2:
        return None
    before = np.cumsum(aggregate)
    maxima = np.maximum(before[:-1], before[-1] - before[:-1])
    least = int(maxima.min())
    places = np.flatnonzero(maxima == least) + 1
    return int(places[np.abs(2 * places - len(aggregate)).argmin()]), least
