"""The measure for comparing evaluators: the work caused by the objects of a round.

All balancers that compare evaluators use it, and so do displays of loads. The papers have their own
costs, some of which differ from the effort of an evaluator with an index: SWARM's N Q R (equation
5) grows with the square of a leaf's objects, SSTD's equation 2 with the queries in a leaf whether
or not objects meet them. A balance by these costs is not a balance of CPU time
(docs/results/adaptivity.md, ADR 25).

Work is additive: parts of a leaf together cost as much as the leaf, so that a split gains only by
what it moves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.balance.base.view import LeafDetail, LeafLoads
from sirocco.schemes.workload.cost import HANDLING_SHARE

# From the measurements of a round to the cost of each leaf, f8[leaves], in its own unit.
Cost: TypeAlias = Callable[[LeafLoads], NDArray[np.float64]]


def work(loads: LeafLoads) -> NDArray[np.float64]:
    """Returns the cost of each leaf in checks of a query, f8[leaves].

    Tornado's equations 1 and 2 (queries met by objects) plus the handling of objects, see
    `spatial_load.object_loads`: an object that meets no query has a cost too.
    """
    objects = float(loads.objects.sum())
    mean = float(loads.met.sum()) / objects if objects else 0.0
    return loads.met + max(1.0, HANDLING_SHARE * mean) * loads.objects


def work_profile(detail: LeafDetail, axis: int, cost: float, met: float) -> NDArray[np.float64]:
    """Returns the work of each column (axis 0) or row of a leaf, f8[c]; it sums to the leaf's.

    Queries met are known by column and row from the last round; the rest, the handling of objects,
    is distributed like the objects in SWARM's statistics.

    Args:
        detail: Details of the leaf.
        axis: See above.
        cost: Work of the leaf.
        met: The part of it for queries met.
    """
    met_by_cell = (detail.met.columns, detail.met.rows)[axis].astype(np.float64)
    statistics = (detail.statistics.columns, detail.statistics.rows)[axis]
    shares = _shares(np.diff(statistics.objects, prepend=0.0))
    match_shares = _shares(met_by_cell) if met_by_cell.any() else shares
    return met * match_shares + (cost - met) * shares


def _shares(values: NDArray[np.float64]) -> NDArray[np.float64]:
    total = float(values.sum())
    return values / total if total > 0 else np.full(len(values), 1 / len(values))
