"""How alike the words of objects and queries are (PS2Stream IV.B, sim_t)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.columns import take_rows
from sirocco.schemes.kdt_tree_areas import Area
from sirocco.schemes.keyword_workload import KeywordWorkload


class Similarity:
    """Cosine of the term counts of an area's objects and of its keyed queries."""

    def __init__(self, workload: KeywordWorkload) -> None:
        sample, queries = workload.sample, workload.sample.queries
        together = np.concatenate([sample.terms, queries.terms])
        vocabulary, rows = np.unique(together, return_inverse=True)
        self._size = len(vocabulary)
        self._object_offsets = sample.term_offsets
        self._object_terms = rows[: len(sample.terms)].astype(np.int32)
        self._query_offsets = queries.term_offsets
        self._query_terms = rows[len(sample.terms) :].astype(np.int32)
        self._is_keyed = workload.key_of_query >= 0

    def of(self, area: Area) -> float:
        """Returns the similarity, from 0 to 1.

        1 where there are no keywords on one side: nothing is there that a cut by text would keep
        away from a leaf.
        """
        asked = self._counts(self._query_offsets, self._query_terms, self._keyed(area))
        held = self._counts(self._object_offsets, self._object_terms, area.objects)
        norms = float(np.linalg.norm(asked) * np.linalg.norm(held))
        return float(asked @ held) / norms if norms > 0 else 1.0

    def keywords(self, area: Area) -> int:
        """Returns how many keywords the area's keyed queries have."""
        rows = self._keyed(area)
        return int((self._query_offsets[rows + 1] - self._query_offsets[rows]).sum())

    def _keyed(self, area: Area) -> NDArray[np.int32]:
        return area.queries[self._is_keyed[area.queries]]

    def _counts(
        self, offsets: NDArray[np.int64], terms: NDArray[np.int32], rows: NDArray[np.int32]
    ) -> NDArray[np.float64]:
        own = take_rows(offsets, terms, rows.astype(np.int64))[1]
        return np.bincount(own, minlength=self._size).astype(np.float64)
