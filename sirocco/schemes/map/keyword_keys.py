"""The keyword by which a query is placed: the least frequent of its required ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def least_frequent(
    offsets: NDArray[np.int64],
    terms: NDArray[np.uint64],
    frequent: NDArray[np.uint64],
    frequencies: NDArray[np.float32],
) -> NDArray[np.uint64]:
    """Returns the least frequent term of each conjunction; ties go to the least hash.

    Args:
        offsets: i8[c + 1], into `terms`; no conjunction is empty.
        terms: u8, the positive terms of each conjunction.
        frequent: u8[f], ascending; every other term has frequency 0.
        frequencies: f4[f].

    Returns:
        u8[c].
    """
    frequency = np.zeros(len(terms), np.float32)
    if len(frequent):
        place = np.minimum(np.searchsorted(frequent, terms), len(frequent) - 1)
        known = frequent[place] == terms
        frequency[known] = frequencies[place[known]]
    conjunction = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    order = np.lexsort((terms, frequency, conjunction))
    return terms[order][offsets[:-1]]
