"""Which term of a conjunction leads to its query: the least frequent one (PS2Stream IV.C)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.sample import Sample

# Terms of a map whose frequency is known. A conjunction of rarer terms only is rare however its
# key is chosen; with ten bytes a term the list stays a fifth of the megabyte that brokers allow
# by default for the record that holds the map.
FREQUENT_TERMS_MAX = 16_384


def frequent_terms(sample: Sample) -> tuple[NDArray[np.uint64], NDArray[np.float32]]:
    """Returns the terms that most objects hold, ascending, and how many hold each."""
    terms, counts = np.unique(sample.terms, return_counts=True)
    if len(terms) > FREQUENT_TERMS_MAX:
        kept = np.sort(np.argsort(-counts, kind="stable")[:FREQUENT_TERMS_MAX])
        terms, counts = terms[kept], counts[kept]
    return terms, counts.astype(np.float32)


def least_frequent(
    offsets: NDArray[np.int64],
    terms: NDArray[np.uint64],
    frequent: NDArray[np.uint64],
    frequencies: NDArray[np.float32],
) -> NDArray[np.uint64]:
    """Returns the least frequent term of each conjunction; of equal ones that of least hash.

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
