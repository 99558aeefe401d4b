"""Knowledge of SSTD's coordinator for splits: the queries, and a sample of objects.

SSTD keeps the quadtree J of query statistics and fetches no objects (5.3). We compute J's cells
from the queries of the sample, and the children's loads from its objects.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.kernels.routing.text_split import split_by_text
from sirocco.schemes.balance.base.view import View
from sirocco.schemes.builders.qt_tree import SIDE_DEGREES_MIN, STRAY_SHARE, TEXT_NODE_TERMS_MAX
from sirocco.schemes.map.map import CHILDREN, TEXTUAL_KINDS, Box, Place, TextNode
from sirocco.schemes.map.routing import compile_map
from sirocco.schemes.workload.columns import keep_values, places_among, take_rows
from sirocco.schemes.workload.cost import handling_of, held_share_of, workload
from sirocco.schemes.workload.sample import Sample, empty_sample
from sirocco.schemes.workload.statistics import CellStatistics, QueryStatistics

Rows: TypeAlias = NDArray[np.int64]
Quarters: TypeAlias = tuple[Box, Box, Box, Box]


class QueryMix:
    """The sample of a view, by leaf of a draft of its map."""

    def __init__(self, view: View) -> None:
        """Routes the sample by the map in force."""
        sample = self._sample = view.sample if view.sample is not None else empty_sample()
        self._statistics = QueryStatistics(sample.queries)
        self._root = self._statistics.root()
        self._offsets, self._terms = places_among(
            sample.term_offsets, sample.terms, self._statistics.vocabulary
        )
        self._cells: dict[Box, CellStatistics] = {}
        # A draft never reuses the number of a leaf.
        self._growth: dict[tuple[int, ...], float] = {}
        everything = np.arange(len(sample))
        held = self._held_share(self._root, everything)
        self._handling = handling_of(self._root, len(sample), held)
        self._rows = _rows_by_leaf(view, sample)

    def rows(self, number: int) -> Rows:
        """Returns the sample's objects in a leaf of the draft, i8[n] ascending."""
        return self._rows.get(number, np.empty(0, np.int64))

    def remember(self, number: int, rows: Rows) -> None:
        """Records the objects of a new leaf of the draft."""
        self._rows[number] = rows

    def reach(self, box: Box) -> float:
        """Returns the sum over kinds of the share of queries that overlap a box."""
        return float(self._cell(box).reach.sum())

    def discrepancy(self, box: Box, quarters: tuple[Box, ...]) -> float:
        """Returns ĥ: the mean reach of the quarters over that of the whole (5.3).

        Small if each query overlaps few of the quarters, that is, if space separates them; 0
        without queries.
        """
        whole = self.reach(box)
        return sum(self.reach(one) for one in quarters) / (len(quarters) * whole) if whole else 0.0

    def quarters(self, box: Box, number: int) -> Quarters | None:
        """Returns the quarters of a leaf's box, as in `QtTree`; None if it is too small."""
        west, south, east, north = box
        rows = self.rows(number)
        x = _middle(self._sample.lon[rows], west, east)
        y = _middle(self._sample.lat[rows], south, north)
        if x is None or y is None:
            return None
        return (
            (west, south, x, y),
            (x, south, east, y),
            (west, y, x, north),
            (x, y, east, north),
        )

    def in_quarters(self, boxes: Quarters, number: int) -> list[Rows]:
        """Returns the leaf's objects in each quarter."""
        rows = self.rows(number)
        x, y = boxes[0][2:]
        quarter = (self._sample.lon[rows] >= x) + 2 * (self._sample.lat[rows] >= y)
        return [rows[quarter == one] for one in range(len(boxes))]

    def load_shares(self, number: int, box: Box, parts: list[tuple[Box, Rows]]) -> list[float]:
        """Returns the expected share of a leaf's load in each part (equation 2).

        The sum is less than one if the split saves work. Equal shares if there are no objects.
        """
        whole = self._weight(box, self.rows(number))
        if whole <= 0:
            return [1 / len(parts)] * len(parts)
        return [self._weight(one, rows) / whole for one, rows in parts]

    def growth(self, leaves: list[tuple[int, Box]], box: Box) -> float:
        """Returns the load of leaves (number, box) as one leaf over their sum, at least 1."""
        numbers = tuple(number for number, _ in leaves)
        if numbers not in self._growth:
            self._growth[numbers] = self._grown(leaves, box)
        return self._growth[numbers]

    def _grown(self, leaves: list[tuple[int, Box]], box: Box) -> float:
        rows = np.sort(np.concatenate([self.rows(number) for number, _ in leaves]))
        apart = sum(self._weight(own, self.rows(number)) for number, own in leaves)
        return max(self._weight(box, rows) / apart, 1.0) if apart > 0 else 1.0

    def text_split(
        self, box: Box, within: Place | None, number: int, node: int
    ) -> tuple[TextNode, list[Rows]] | None:
        """Splits a leaf's objects by text, as in `QtTree`.

        Returns:
            The text node, and the objects of each child; None if all belong to one child.
        """
        rows, cell = self.rows(number), self._cell(box)
        if len(rows) < 2:
            return None
        weights = cell.reach[:TEXTUAL_KINDS].copy()
        keywords = _weightiest((cell.share * weights).sum(1))
        local = np.full(len(cell.share), -1, np.int32)
        local[keywords] = np.arange(len(keywords))
        offsets, terms = take_rows(self._offsets, self._terms, rows)
        offsets, terms = keep_values(offsets, local[terms], local[terms] >= 0)
        share = np.ascontiguousarray(cell.share[keywords])
        held, objects = np.zeros(len(keywords), np.uint8), np.zeros(CHILDREN)
        held_share = np.zeros((CHILDREN, TEXTUAL_KINDS))
        child_of = np.empty(len(rows), np.uint8)
        keys = self._sample.event_keys[rows]
        split_by_text(
            *(offsets, terms, keys, share, weights, cell.lengths, node),
            *(held, held_share, objects, child_of),
        )
        if (child_of == child_of[0]).all():
            return None
        terms_of_node = self._statistics.vocabulary[keywords]
        children = [rows[child_of == child] for child in range(CHILDREN)]
        split = TextNode(
            id=node,
            box=box,
            within=within,
            terms=terms_of_node,
            share=share,
            held=held,
            weights=weights,
            lengths=cell.lengths,
            held_share=held_share,
            objects=objects,
        )
        return split, children

    def _weight(self, box: Box, rows: Rows) -> float:
        cell = self._cell(box)
        return workload(cell, len(rows), self._held_share(cell, rows), self._handling)

    def _cell(self, box: Box) -> CellStatistics:
        if box not in self._cells:
            self._cells[box] = self._statistics.within(self._root, box)
        return self._cells[box]

    def _held_share(self, cell: CellStatistics, rows: Rows) -> NDArray[np.float64]:
        held = np.zeros(len(self._statistics.vocabulary), np.bool_)
        held[take_rows(self._offsets, self._terms, rows)[1]] = True
        return held_share_of(cell, held)


def _rows_by_leaf(view: View, sample: Sample) -> dict[int, Rows]:
    if len(sample) == 0:
        return {}
    columns = (sample.lon, sample.lat, sample.term_offsets, sample.terms, sample.event_keys)
    routes = compile_map(view.map).route_objects(*columns)
    position = {leaf.id: number for number, leaf in enumerate(view.map.leaves)}
    number = np.array([position[one] for one in routes.leaf.tolist()])
    rows = routes.row.astype(np.int64)
    return {one: rows[number == one] for one in sorted_distinct(number).tolist()}


def _weightiest(weight: NDArray[np.float64]) -> NDArray[np.int64]:
    order = np.argsort(-weight, kind="stable")[:TEXT_NODE_TERMS_MAX]
    return np.sort(order[weight[order] > 0])


def _middle(values: NDArray[np.float64], low: float, high: float) -> float | None:
    """Returns the middle of the extent of values, or of the side if that is not a valid split."""
    if high - low < 2 * SIDE_DEGREES_MIN:
        return None
    if len(values):
        first, last = np.quantile(values, (STRAY_SHARE, 1 - STRAY_SHARE), method="nearest")
        middle = float(first + last) / 2
        if low + SIDE_DEGREES_MIN <= middle <= high - SIDE_DEGREES_MIN and last > first:
            return middle
    return (low + high) / 2
