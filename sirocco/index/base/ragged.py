"""Taking rows of ragged columns (offsets into a flat column)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def take_ragged(
    offsets: NDArray[np.int64], rows: NDArray[np.integer]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the places of some rows' pieces.

    Args:
        offsets: i8[n + 1], start of each row's piece in the flat column.
        rows: int[k], the wanted rows, in any order.

    Returns:
        i8[k + 1], the offsets of the taken rows, and i8[m], the places of their elements in the
        flat column, row by row.
    """
    taken = np.zeros(len(rows) + 1, np.int64)
    if not len(rows):
        return taken, np.empty(0, np.int64)
    begins = offsets[rows]
    # Only for the wanted rows: there may be far more.
    lengths = offsets[rows + 1] - begins
    lengths.cumsum(out=taken[1:])
    places = np.arange(taken[-1]) + (begins - taken[:-1]).repeat(lengths)
    return taken, places
