"""Finds distinct values by sorting: the cost does not depend on the values."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T", bound=np.generic)


def sorted_distinct(values: NDArray[T]) -> NDArray[T]:
    """Returns the distinct values of an array of any shape, ascending.

    `numpy.unique` uses a hash table with a published hash, no secret and a known number of
    buckets: 60,000 sessions that are chosen for it would take seconds.
    """
    ordered: NDArray[T] = np.sort(values, axis=None)
    if len(ordered) < 2:
        return ordered
    is_first = np.empty(len(ordered), np.bool_)
    is_first[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first]
