"""Where to cut the side of a box between the objects in it."""

from __future__ import annotations

import heapq
import itertools

import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.base.sorting import sorted_distinct

# About a metre. Objects closer than that are one place, and a border between them would part
# nothing but the noise of their coordinates.
SIDE_DEGREES_MIN = 1e-5


def weighted_cut(
    values: NDArray[np.float64],
    weights: NDArray[np.int64],
    share: float,
    low: float,
    high: float,
) -> float | None:
    """Returns the cut that comes nearest to having a share of the weight before it.

    Args:
        values: f8[n], coordinates, degrees.
        weights: i8[n], positive.
        share: Wanted share of the weight before the cut; 0.5 is the weighted median.
        low, high: The side that is cut, degrees.

    Returns:
        The coordinate midway between two values, what lies at it belongs behind it; None where
        no cut parts the values and leaves both pieces wide enough.
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    middle = ordered[:-1] + (ordered[1:] - ordered[:-1]) / 2
    fits = (middle > ordered[:-1]) & _leaves_room(middle, low, high)
    places = np.flatnonzero(fits)
    if len(places) == 0:
        return None
    before = np.cumsum(weights[order])
    off = np.abs(before[places] - share * float(before[-1]))
    return float(middle[places[off.argmin()]])


def quantile_cuts(
    values: NDArray[np.float64], shares: NDArray[np.float64], low: float, high: float
) -> list[float]:
    """Returns one cut for each share of the values, ascending, each piece wide enough.

    Where equal values leave fewer cuts than asked for, the widest pieces are halved; fewer
    cuts come only where the side is too short for them.

    Args:
        values: f8[n], coordinates, degrees.
        shares: f8[c], ascending, between 0 and 1.
        low, high: The side that is cut, degrees.
    """
    kept = [low]
    for cut in _quantiles(values, shares, low, high).tolist():
        if cut - kept[-1] >= SIDE_DEGREES_MIN and high - cut >= SIDE_DEGREES_MIN:
            kept.append(cut)
    return _halved([*kept, high], len(shares))


def _quantiles(
    values: NDArray[np.float64], shares: NDArray[np.float64], low: float, high: float
) -> NDArray[np.float64]:
    """Returns the cuts nearest to the shares, ascending; even ones where nothing lies."""
    if len(values) == 0:
        return low + shares * (high - low)
    ordered = np.sort(values)
    middle = ordered[:-1] + (ordered[1:] - ordered[:-1]) / 2
    places = np.flatnonzero((middle > ordered[:-1]) & _leaves_room(middle, low, high))
    if len(places) == 0:
        return np.empty(0)
    wanted = shares * len(values) - 1
    after = np.clip(np.searchsorted(places, wanted), 0, len(places) - 1)
    before = np.maximum(after - 1, 0)
    nearer = np.abs(places[before] - wanted) < np.abs(places[after] - wanted)
    return sorted_distinct(middle[places[np.where(nearer, before, after)]])


def _leaves_room(cuts: NDArray[np.float64], low: float, high: float) -> NDArray[np.bool_]:
    fits: NDArray[np.bool_] = (cuts - low >= SIDE_DEGREES_MIN) & (high - cuts >= SIDE_DEGREES_MIN)
    return fits


def _halved(borders: list[float], cuts: int) -> list[float]:
    """Halves the widest piece until there are enough cuts; returns the inner borders."""
    heap = [(first - last, first, last) for first, last in itertools.pairwise(borders)]
    heapq.heapify(heap)
    while len(heap) <= cuts and -heap[0][0] >= 2 * SIDE_DEGREES_MIN:
        _, first, last = heapq.heappop(heap)
        middle = (first + last) / 2
        heapq.heappush(heap, (first - middle, first, middle))
        heapq.heappush(heap, (middle - last, middle, last))
    return sorted(first for _, first, _ in heap)[1:]
