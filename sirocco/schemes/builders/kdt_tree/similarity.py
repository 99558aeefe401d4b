"""Similarity of the words of objects and queries (PS2Stream IV.B, sim_t)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.builders.kdt_tree.areas import Area
from sirocco.schemes.workload.columns import take_rows
from sirocco.schemes.workload.keyword_workload import KeywordWorkload


class Similarity:
    """Cosine of the term counts of an area's objects and of the keys of its queries.

    Only the key of a query counts: it alone decides where the query and its objects are sent. Its
    other keywords are more frequent by definition, and with them all queries would resemble the
    objects.
    """

    def __init__(self, workload: KeywordWorkload) -> None:
        sample = workload.sample
        together = np.concatenate([workload.keys, sample.terms])
        vocabulary, rows = np.unique(together, return_inverse=True)
        self._size = len(vocabulary)
        self._object_offsets = sample.term_offsets
        self._object_terms = rows[len(workload.keys) :].astype(np.int32)
        self._term_of_key = rows[: len(workload.keys)].astype(np.int32)
        self._key_of_query = workload.key_of_query

    def of(self, area: Area) -> float:
        """Returns the similarity, from 0 to 1.

        1 if one side has no words: a split by text would separate nothing.
        """
        rows = area.objects.astype(np.int64)
        terms = take_rows(self._object_offsets, self._object_terms, rows)[1]
        held, asked = self._counts(terms), self._counts(self._keys(area))
        norms = float(np.linalg.norm(asked) * np.linalg.norm(held))
        return float(asked @ held) / norms if norms > 0 else 1.0

    def _keys(self, area: Area) -> NDArray[np.int32]:
        keys = self._key_of_query[area.queries]
        return self._term_of_key[keys[keys >= 0]]

    def _counts(self, terms: NDArray[np.int32]) -> NDArray[np.float64]:
        return np.bincount(terms, minlength=self._size).astype(np.float64)
