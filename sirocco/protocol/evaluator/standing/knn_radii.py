"""Radii of standing knn queries that the slots of one process share (ADR 65).

Where the log of one slot holds k objects within a radius that satisfy a version of a query, no slot
needs to report what is farther away. This stays true for as long as there is the version: nothing
leaves its list but for something nearer. An update is another version, and begins without a radius.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class KnnRadii:
    """Radii of n versions of queries.

    Attributes:
        handles: u8[n], revisions: i8[n], which versions: the change of the registry that made each.
        bounds_mm: i8[n], the slot has reported k objects within this distance.
    """

    handles: NDArray[np.uint64]
    revisions: NDArray[np.int64]
    bounds_mm: NDArray[np.int64]

    @classmethod
    def joined(cls, parts: Sequence[KnnRadii]) -> KnnRadii:
        """Returns the radii of all parts."""
        return cls(
            np.concatenate([part.handles for part in parts]),
            np.concatenate([part.revisions for part in parts]),
            np.concatenate([part.bounds_mm for part in parts]),
        )
