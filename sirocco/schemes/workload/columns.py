"""Rows of variable length in two flat arrays (offsets, values)."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T", bound=np.generic)


def take_rows(
    offsets: NDArray[np.int64], values: NDArray[T], rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[T]]:
    """Returns some rows as (offsets i8[m + 1], values), in the requested order.

    Args:
        offsets: i8[n + 1], into `values`.
        values: All rows, one after another.
        rows: i8[m].
    """
    lengths = offsets[rows + 1] - offsets[rows]
    taken = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    at = np.arange(taken[-1]) + np.repeat(offsets[rows] - taken[:-1], lengths)
    return taken, values[at]


def keep_values(
    offsets: NDArray[np.int64], values: NDArray[T], keep: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[T]]:
    """Returns all rows with only the values to keep, bool[values]."""
    before = np.concatenate([[0], np.cumsum(keep)]).astype(np.int64)
    return before[offsets], values[keep]


def places_among(
    offsets: NDArray[np.int64], terms: NDArray[np.uint64], vocabulary: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Returns those terms of each row that are in a vocabulary, as indices into it.

    Args:
        offsets: i8[n + 1], into `terms`.
        terms: u8, terms of all rows.
        vocabulary: u8, ascending.
    """
    if len(vocabulary) == 0:
        return np.zeros(len(offsets), np.int64), np.empty(0, np.int32)
    place = np.minimum(np.searchsorted(vocabulary, terms), len(vocabulary) - 1)
    known = vocabulary[place] == terms
    return keep_values(offsets, place.astype(np.int32), known)
