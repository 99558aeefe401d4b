"""The extent and depth of a range index's pyramid."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sirocco.kernels.standing.pyramid import LEVELS_MAX

__all__ = ["Grid"]


@dataclass(frozen=True, slots=True)
class Grid:
    """The extent that the pyramid divides, and its depth.

    Objects and regions outside count to the border cells: results stay exact, only speed
    depends on the extent.

    Attributes:
        west, south, east, north: degrees, the bounding box of the slot's leaves.
        finest_level: 2^finest_level cells a side at the bottom, at most 13.
        list_length: expected postings of a list above which queries are stored two levels deeper.
            More: fewer postings and less memory; less: shorter lists.
    """

    west: float = -180.0
    south: float = -90.0
    east: float = 180.0
    north: float = 90.0
    finest_level: int = 12
    list_length: float = 16.0

    def __post_init__(self) -> None:
        if not (self.west < self.east and self.south < self.north):
            raise ValueError("grid: the extent is empty")
        if not 0 <= self.finest_level <= LEVELS_MAX:
            raise ValueError(f"grid: finest_level must lie in 0..{LEVELS_MAX}")
        if not self.list_length > 0:
            raise ValueError("grid: list_length must be positive")

    @property
    def transform(self) -> npt.NDArray[np.float64]:
        """f8[4]: west, south, cells of the finest level per degree in x and in y."""
        cells = float(1 << self.finest_level)
        return np.array(
            [
                self.west,
                self.south,
                cells / (self.east - self.west),
                cells / (self.north - self.south),
            ]
        )
