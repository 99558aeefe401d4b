"""Choosing what migrates, with a clock (PS2Stream VI-D, Figure 12a)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from benchmarks.schemes.timing import seconds_of
from sirocco.schemes.balance.ps2stream.migration import Rows, Select


@dataclass(slots=True)
class Timed:
    """A way of choosing cells whose calls are clocked.

    Attributes:
        select: The way.
        seconds: CPU time of each call.
        cells: How many there were to choose from.
    """

    select: Select
    seconds: list[float] = field(default_factory=list)
    cells: list[int] = field(default_factory=list)

    def __call__(self, size: NDArray[np.int64], load: NDArray[np.float64], wanted: float) -> Rows:
        """Chooses."""
        seconds, rows = seconds_of(lambda: self.select(size, load, wanted))
        self.seconds.append(seconds)
        self.cells.append(len(size))
        return rows

    def forget(self) -> None:
        """Begins anew."""
        self.seconds.clear()
        self.cells.clear()
