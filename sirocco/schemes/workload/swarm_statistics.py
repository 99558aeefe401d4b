"""SWARM's statistics of a leaf: counted locally, updated in rounds (4.2).

A leaf is a rectangle of grid cells. Eight numbers per column and per row are enough for the exact
costs of the leaf and of both parts of every split. Collectors count the arrivals of a round: two
additions per object, and for a query one per column and row that it touches. The end of a round
adds them to the cumulative numbers in one pass (Algorithm 2).

The paper counts columns from the left and rows from the top; here rows count northwards, as
everywhere. Its top left corner is our south-west one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.workload.spatial_grid import FineGrid

# Share of the objects counted so far that a round keeps. SWARM 4.2.2 halves them: the hotspot
# of an hour ago should not hold a leaf that is quiet now.
KEPT_SHARE = 0.5


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AxisStatistics:
    """The numbers of a leaf's c columns or rows.

    Cumulative numbers include all columns up to and including each.

    Attributes:
        objects: f8[c], N, cumulative, faded by rounds.
        queries: f8[c], Q, cumulative: queries that begin there. All queries that touch the columns
            up to i begin in one of them; those that begin outside the leaf count in the first
            column.
        recent: f8[c], R, cumulative: objects and queries that arrived in the last round.
        spans: f8[c], spanQ: queries that extend into the column from the previous one.
        recent_spans: f8[c], preSpanQ': those that arrived in the last round.
        new_objects, new_queries, new_spans: f8[c], N', Q', spanQ': the collectors of this
            round, not cumulative.
    """

    objects: NDArray[np.float64]
    queries: NDArray[np.float64]
    recent: NDArray[np.float64]
    spans: NDArray[np.float64]
    recent_spans: NDArray[np.float64]
    new_objects: NDArray[np.float64]
    new_queries: NDArray[np.float64]
    new_spans: NDArray[np.float64]

    def with_objects(self, cells: NDArray[np.int64]) -> AxisStatistics:
        """Returns the statistics after objects arrived in cells, i8[n], of this axis."""
        return replace(self, new_objects=self.new_objects + self._counts(cells))

    def with_queries(self, first: NDArray[np.int64], last: NDArray[np.int64]) -> AxisStatistics:
        """Returns the statistics after queries arrived.

        Args:
            first, last: i8[n], the first and last cell of the leaf that each touches.
        """
        begun, entered = self._begun_and_entered(first, last)
        return replace(
            self, new_queries=self.new_queries + begun, new_spans=self.new_spans + entered
        )

    def without_queries(self, first: NDArray[np.int64], last: NDArray[np.int64]) -> AxisStatistics:
        """Returns the statistics after queries left: unregistered, expired, or moved away.

        A query that arrived and left in the same round still counts as received.
        """
        begun, entered = self._begun_and_entered(first, last)
        return replace(self, queries=self.queries - np.cumsum(begun), spans=self.spans - entered)

    def after_round(self, kept_share: float = KEPT_SHARE) -> AxisStatistics:
        """Returns the statistics at the end of a round (Algorithm 2): O(c).

        Args:
            kept_share: Share of the older objects that still counts; 1 if each expiry is reported,
                as 4.2.2 requires for systems with windows.
        """
        objects, queries = np.cumsum(self.new_objects), np.cumsum(self.new_queries)
        nothing = np.zeros(len(objects))
        return AxisStatistics(
            objects=self.objects * kept_share + objects,
            queries=self.queries + queries,
            recent=objects + queries,
            spans=self.spans + self.new_spans,
            recent_spans=self.new_spans,
            new_objects=nothing,
            new_queries=nothing,
            new_spans=nothing,
        )

    def part_numerators_at(self, cut: int) -> tuple[float, float]:
        """Returns N Q R of the parts before and after a split (4.3.2), O(1), only from sums.

        Split i is between cells i and i + 1.
        """
        before = self.objects[cut] * self.queries[cut] * self.recent[cut]
        objects = self.objects[-1] - self.objects[cut]
        queries = self.queries[-1] - self.queries[cut] + self.spans[cut + 1]
        recent = self.recent[-1] - self.recent[cut] + self.recent_spans[cut + 1]
        return float(before), float(objects * queries * recent)

    def _counts(self, cells: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.bincount(cells, minlength=len(self.objects)).astype(np.float64)

    def _begun_and_entered(
        self, first: NDArray[np.int64], last: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Returns how many queries begin in each cell, and how many extend from the one before."""
        begun = self._counts(first)
        beyond = np.cumsum(begun - self._counts(last))
        return begun, np.concatenate([[0.0], beyond[:-1]])


@dataclass(frozen=True, slots=True, eq=False)
class LeafStatistics:
    """The statistics of one leaf.

    Attributes:
        columns, rows: By column and by row; both have the same totals.
    """

    columns: AxisStatistics
    rows: AxisStatistics

    @property
    def objects(self) -> float:
        """N(p): the objects of the leaf, faded."""
        return float(self.columns.objects[-1])

    @property
    def queries(self) -> float:
        """Q(p): the queries that overlap the leaf."""
        return float(self.columns.queries[-1])

    @property
    def recent(self) -> float:
        """R(p): the objects and queries that arrived in the last round."""
        return float(self.columns.recent[-1])

    @property
    def numerator(self) -> float:
        """N(p) Q(p) R(p), equation 7: can be computed without asking other machines."""
        return self.objects * self.queries * self.recent

    def cost(self, recent_total: float) -> float:
        """Returns C(p) (equation 5).

        Args:
            recent_total: R(S), all arrivals of the last round; 0 makes all costs 0.
        """
        return self.numerator / recent_total if recent_total > 0 else 0.0

    def with_objects(
        self, grid: FineGrid, lon: NDArray[np.float64], lat: NDArray[np.float64]
    ) -> LeafStatistics:
        """Returns the statistics after objects arrived.

        Args:
            grid: The leaf's part of the global grid.
            lon, lat: f8[n], points within the leaf, degrees.
        """
        return LeafStatistics(
            self.columns.with_objects(grid.columns_of(lon)),
            self.rows.with_objects(grid.rows_of(lat)),
        )

    def with_queries(self, grid: FineGrid, boxes: NDArray[np.float64]) -> LeafStatistics:
        """Returns the statistics after queries arrived.

        Args:
            grid: The leaf's part of the global grid.
            boxes: f8[n, 4], their bounding boxes, degrees; those that do not touch the leaf are
                ignored. One that crosses the antimeridian and touches a leaf from both sides,
                possible only for a leaf around the whole world, counts as two.
        """
        x0, y0, x1, y1 = grid.spans_of(boxes)[1].T
        return LeafStatistics(self.columns.with_queries(x0, x1), self.rows.with_queries(y0, y1))

    def without_queries(self, grid: FineGrid, boxes: NDArray[np.float64]) -> LeafStatistics:
        """Returns the statistics after queries left, see `with_queries`."""
        x0, y0, x1, y1 = grid.spans_of(boxes)[1].T
        return LeafStatistics(
            self.columns.without_queries(x0, x1), self.rows.without_queries(y0, y1)
        )

    def after_round(self, kept_share: float = KEPT_SHARE) -> LeafStatistics:
        """Returns the statistics at the end of a round; O(columns + rows)."""
        return LeafStatistics(
            self.columns.after_round(kept_share), self.rows.after_round(kept_share)
        )


def no_statistics(columns: int, rows: int) -> LeafStatistics:
    """Returns the statistics of an empty leaf of this many cells."""
    return LeafStatistics(*(_no_statistics(cells) for cells in (columns, rows)))


def _no_statistics(cells: int) -> AxisStatistics:
    return AxisStatistics(**{name: np.zeros(cells) for name in AxisStatistics.__slots__})
