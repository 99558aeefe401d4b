"""Changes of a batch to the lists of standing kNN queries, and the contents of such a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["KnnHits", "KnnIndexStatistics", "NearList", "joined"]


@dataclass(frozen=True, slots=True)
class KnnHits:
    """Pairs of a batch in which the object entered the query's list.

    Attributes:
        object_rows: i4[m], numbers of objects within the batch, ascending.
        query_rows: i4[m], rows returned by `KnnIndex.insert`, unordered within one object.
        distances_m: f8[m], rounded to 1 mm.
    """

    object_rows: npt.NDArray[np.int32]
    query_rows: npt.NDArray[np.int32]
    distances_m: npt.NDArray[np.float64]

    def __len__(self) -> int:
        """Returns the number of pairs."""
        return len(self.object_rows)


@dataclass(frozen=True, slots=True)
class NearList:
    """The list of one query, in order: by distance, object id, session, number.

    Attributes:
        distances_m: f8[n], rounded to 1 mm.
        ids, sessions, numbers: u8[n].
    """

    distances_m: npt.NDArray[np.float64]
    ids: npt.NDArray[np.uint64]
    sessions: npt.NDArray[np.uint64]
    numbers: npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnnIndexStatistics:
    """Sizes of an index, for metrics.

    Attributes:
        live_queries: inserted and not removed.
        dead_queries: removed and not yet reclaimed.
        full_lists: lists of k objects, of live and dead queries.
        postings: in all cells, with free ones in their blocks.
        keys: (cell, term) pairs with postings.
        postings_tested: by all objects so far.
        list_bytes_total: memory of the lists.
        bytes_total: memory taken, lists included.
    """

    live_queries: int
    dead_queries: int
    full_lists: int
    postings: int
    keys: int
    postings_tested: int
    list_bytes_total: int
    bytes_total: int


def joined(parts: Sequence[KnnHits]) -> KnnHits:
    """Joins the parts of a batch in their order."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return KnnHits(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float64))
    return KnnHits(
        np.concatenate([part.object_rows for part in parts]),
        np.concatenate([part.query_rows for part in parts]),
        np.concatenate([part.distances_m for part in parts]),
    )
