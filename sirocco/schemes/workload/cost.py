"""The workload of a part of the world under a random query (SSTD 4.1.1, equations 1 and 2)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.routing.increment import covered
from sirocco.schemes.map.map import TEXTUAL_KINDS
from sirocco.schemes.workload.statistics import CellStatistics

# An object costs its evaluator something even if no query checks it: it is decoded, stored and
# looked up. In the running system that is about as much as the queries' share. Without it, leaves
# without queries would count as free and half a stream could be in one slot.
HANDLING_SHARE = 1.0


def covered_share(cell: CellStatistics, held_share: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the probability that the held keywords satisfy a query (eq. 1), f8[3].

    Args:
        cell: The statistics of the place.
        held_share: f8[3], H per textual kind, see `held_share_of`.
    """
    kinds = range(TEXTUAL_KINDS)
    return np.array([covered(kind, held_share[kind], cell.lengths[kind]) for kind in kinds])


def held_share_of(cell: CellStatistics, held: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Returns H, the probability that a query keyword is among those held, f8[3].

    Args:
        cell: The statistics of the place.
        held: bool[v], over the vocabulary of the statistics.
    """
    total: NDArray[np.float64] = cell.share[held].sum(0)
    return total


def workload_by_kind(
    cell: CellStatistics, objects: int, held_share: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Returns Pr(kind) W_kind of a part of the world, f8[kinds] in the order of `QueryKind`.

    Snapshot range and kNN queries check its objects if it holds their keywords, snapshot terms
    queries always, and continuous ones check the arrivals in their lifetime, E_(P,O). Ranked
    queries are not in the paper: a snapshot checks the objects if any of its keywords is held; a
    continuous one is like the other continuous kinds.

    Args:
        cell: The statistics of the part's box.
        objects: Number of the sample's objects in it.
        held_share: f8[3], H of the keywords in these objects.
    """
    seen = cell.reach * cell.lifetime
    seen[:TEXTUAL_KINDS] *= covered_share(cell, held_share)
    return seen * objects


def workload(
    cell: CellStatistics, objects: int, held_share: NDArray[np.float64], handling: float
) -> float:
    """Returns W (eq. 2) plus the handling of the objects.

    Args:
        cell, objects, held_share: See `workload_by_kind`.
        handling: Cost of an object that no query checks, in checked objects.
    """
    return float(workload_by_kind(cell, objects, held_share).sum()) + handling * objects


def handling_of(root: CellStatistics, objects: int, held_share: NDArray[np.float64]) -> float:
    """Returns the `handling` for `workload` of a tree with this root."""
    mean = workload_by_kind(root, objects, held_share).sum() / max(objects, 1)
    return HANDLING_SHARE * float(mean) if mean > 0 else 1.0
