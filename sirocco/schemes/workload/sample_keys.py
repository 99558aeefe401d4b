"""The term of a conjunction that leads to its query: the least frequent one (PS2Stream IV.C)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.workload.sample import Sample

# Terms of a map with known frequency. A conjunction of only rarer terms is rare whatever its key;
# at ten bytes per term the list stays a fifth of the megabyte that brokers allow by default for the
# record of the map.
FREQUENT_TERMS_MAX = 16_384


def frequent_terms(
    sample: Sample, terms_max: int = FREQUENT_TERMS_MAX
) -> tuple[NDArray[np.uint64], NDArray[np.float32]]:
    """Returns the most frequent terms among objects, ascending, and their object counts."""
    terms, counts = np.unique(sample.terms, return_counts=True)
    if len(terms) > terms_max:
        kept = np.sort(np.argsort(-counts, kind="stable")[:terms_max])
        terms, counts = terms[kept], counts[kept]
    return terms, counts.astype(np.float32)
