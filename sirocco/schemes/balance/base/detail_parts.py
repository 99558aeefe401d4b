"""Estimated details of a part of a leaf, from those of the whole leaf."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.balance.base.view import LeafDetail
from sirocco.schemes.workload.spatial_aggregates import Aggregates
from sirocco.schemes.workload.spatial_grid import FineGrid
from sirocco.schemes.workload.swarm_statistics import AxisStatistics, LeafStatistics


def part_of(detail: LeafDetail, axis: int, at: int, *, is_first: bool) -> LeafDetail:
    """Returns the detail of one side of a split.

    Along the axis it is exact. Across it, the numbers do not show which part is on which side
    (Tornado 4.3 keeps no cells), so each is assumed to contribute the same share.

    Args:
        detail: Detail of the leaf.
        axis: 0: the split is between columns, 1: between rows.
        at: Columns or rows before the split, at least one on either side.
        is_first: Whether to return the part before the split.
    """
    borders = [detail.grid.x_borders, detail.grid.y_borders]
    statistics = [detail.statistics.columns, detail.statistics.rows]
    met: list[NDArray[np.int64]] = [detail.met.columns, detail.met.rows]
    whole, met_total = statistics[axis], met[axis]
    own = _first(whole, at) if is_first else _second(whole, at)
    borders[axis] = borders[axis][: at + 1] if is_first else borders[axis][at:]
    statistics[axis] = own
    met[axis] = met_total[:at] if is_first else met_total[at:]
    other = 1 - axis
    statistics[other] = _thinned(
        statistics[other],
        _share(own.objects[-1], whole.objects[-1]),
        _share(own.queries[-1], whole.queries[-1]),
        _share(own.recent[-1], whole.recent[-1]),
    )
    thinner = met[other] * _share(met[axis].sum(), met_total.sum())
    met[other] = np.rint(thinner).astype(np.int64)
    return LeafDetail(FineGrid(*borders), LeafStatistics(*statistics), Aggregates(*met))


def _share(part: float, whole: float) -> float:
    return float(part) / float(whole) if whole > 0 else 0.0


def _first(axis: AxisStatistics, at: int) -> AxisStatistics:
    return AxisStatistics(**{name: getattr(axis, name)[:at] for name in AxisStatistics.__slots__})


def _second(axis: AxisStatistics, at: int) -> AxisStatistics:
    """Queries that cross the split begin in the first cell after it."""
    after = {name: getattr(axis, name)[at:].copy() for name in AxisStatistics.__slots__}
    reaching = {"objects": 0.0, "queries": axis.spans[at], "recent": axis.recent_spans[at]}
    for name, over in reaching.items():
        after[name] += over - getattr(axis, name)[at - 1]
    for name in ("spans", "recent_spans"):
        after[name][0] = 0.0
    return AxisStatistics(**after)


def _thinned(axis: AxisStatistics, objects: float, queries: float, recent: float) -> AxisStatistics:
    return replace(
        axis,
        objects=axis.objects * objects,
        queries=axis.queries * queries,
        recent=axis.recent * recent,
        spans=axis.spans * queries,
        recent_spans=axis.recent_spans * recent,
        new_objects=axis.new_objects * objects,
        new_queries=axis.new_queries * queries,
        new_spans=axis.new_spans * queries,
    )
