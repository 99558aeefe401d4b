"""Measures the time of selecting cells to migrate (PS2Stream VI-D, Figure 12a)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from benchmarks.schemes.timing import seconds_of
from sirocco.schemes.balance.ps2stream.migration import Rows, Select


@dataclass(slots=True)
class Timed:
    """A method of cell selection whose calls are timed.

    Attributes:
        select: The method.
        seconds: CPU time of each call.
        cells: Number of cells to choose from.
    """

    select: Select
    seconds: list[float] = field(default_factory=list)
    cells: list[int] = field(default_factory=list)

    def __call__(self, size: NDArray[np.int64], load: NDArray[np.float64], wanted: float) -> Rows:
        """Selects."""
        seconds, rows = seconds_of(lambda: self.select(size, load, wanted))
        self.seconds.append(seconds)
        self.cells.append(len(size))
        return rows

    def forget(self) -> None:
        """Restarts."""
        self.seconds.clear()
        self.cells.clear()
