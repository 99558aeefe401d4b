"""Query distribution statistics for the cost model (SSTD 4.1.1).

SSTD keeps them in a quadtree J whose cells are those of the QT-tree. Here a cell is computed on
demand, from the queries that overlap its parent, so J is exactly as deep as the built tree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.schemes.map.map import TEXTUAL_KINDS, WORLD, Box
from sirocco.schemes.workload.columns import take_rows
from sirocco.schemes.workload.sample import FIRST_CONTINUOUS, QueryKind, SampleQueries

# Queries with more keywords are counted as having this many. Real ones have one to three; the bound
# keeps a query of a thousand terms from widening every text node's row.
KEYWORDS_MAX = 8


@dataclass(frozen=True, slots=True, eq=False)
class CellStatistics:
    """One cell of J.

    Attributes:
        queries: i8[q], rows of the queries that overlap the cell.
        reach: f8[kinds], probability that a random query is of the kind and overlaps the cell:
            Pr(srq) p_srq and so on.
        lifetime: f8[kinds], their mean lifetime over the time in which the sample's objects
            arrived; 1 for snapshot kinds.
        lengths: f8[3, KEYWORDS_MAX + 1], Pr(|q.phi| = l) per textual kind.
        share: f8[v, 3], M: probability that a query keyword is this one, per textual kind.
    """

    queries: NDArray[np.int64]
    reach: NDArray[np.float64]
    lifetime: NDArray[np.float64]
    lengths: NDArray[np.float64]
    share: NDArray[np.float64]


class QueryStatistics:
    """The statistics of one set of queries.

    Attributes:
        vocabulary: u8[v], ascending hashes of the keywords of textual kinds; the index of a keyword
            is its row in `CellStatistics.share`.
    """

    def __init__(self, queries: SampleQueries) -> None:
        self._queries = queries
        textual = np.repeat(queries.kinds < TEXTUAL_KINDS, np.diff(queries.term_offsets))
        self.vocabulary: NDArray[np.uint64] = sorted_distinct(queries.terms[textual])
        place = np.searchsorted(self.vocabulary, queries.terms)
        self._term_rows = np.minimum(place, max(len(self.vocabulary) - 1, 0)).astype(np.int64)

    def root(self) -> CellStatistics:
        """Returns the cell of the whole world."""
        return self._cell(np.arange(len(self._queries)))

    def within(self, parent: CellStatistics, box: Box) -> CellStatistics:
        """Returns the cell of a box inside the parent's."""
        west, south, east, north = box
        rows = parent.queries
        boxes = self._queries.boxes[rows]
        # Tiles are half open in the east and north, as in the router, except at the border of the
        # world.
        before_east = (boxes[:, 0] < east) | (east == WORLD[2])
        before_north = (boxes[:, 1] < north) | (north == WORLD[3])
        after_west = boxes[:, 2] >= west
        crosses = boxes[:, 0] > boxes[:, 2]
        overlaps = np.where(crosses, before_east | after_west, before_east & after_west)
        return self._cell(rows[overlaps & before_north & (boxes[:, 3] >= south)])

    def _cell(self, rows: NDArray[np.int64]) -> CellStatistics:
        queries = self._queries
        kinds = queries.kinds[rows]
        count = np.bincount(kinds, minlength=len(QueryKind))
        lived = np.bincount(kinds, queries.lifetimes[rows], len(QueryKind))
        lifetime: NDArray[np.float64] = lived / np.maximum(count, 1)
        lifetime[:FIRST_CONTINUOUS] = 1.0
        lengths = np.zeros((TEXTUAL_KINDS, KEYWORDS_MAX + 1))
        share = np.zeros((len(self.vocabulary), TEXTUAL_KINDS))
        for kind in range(TEXTUAL_KINDS):
            own = rows[kinds == kind]
            if len(own) == 0:
                continue
            offsets, terms = take_rows(queries.term_offsets, self._term_rows, own)
            held = np.minimum(np.diff(offsets), KEYWORDS_MAX)
            lengths[kind] = np.bincount(held, minlength=KEYWORDS_MAX + 1) / len(own)
            if len(terms) > 0:
                share[:, kind] = np.bincount(terms, minlength=len(share)) / len(terms)
        reach: NDArray[np.float64] = count / max(len(queries), 1)
        return CellStatistics(rows, reach, lifetime, lengths, share)
