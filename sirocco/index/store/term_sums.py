"""Sums of counts by term, of several slices or slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["add_counts"]

Count = TypeVar("Count", np.int64, np.uint64)


def add_counts(
    parts: Sequence[tuple[NDArray[np.uint64], NDArray[Count]]],
) -> tuple[NDArray[np.uint64], NDArray[Count]]:
    """Adds up counts of terms.

    Args:
        parts: at least one; hashes and counts, a term at most once in each. Fastest if the hashes
            of a part ascend: the sort merges runs.

    Returns:
        The distinct hashes, ascending unless there was only one part, and their sums.
    """
    if len(parts) == 1:
        return parts[0]
    hashes = np.concatenate([part[0] for part in parts])
    order = np.argsort(hashes, kind="stable")
    hashes, counts = hashes[order], np.concatenate([part[1] for part in parts])[order]
    if not len(hashes):
        return hashes, counts
    firsts = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]]))
    return hashes[firsts], np.add.reduceat(counts, firsts)
