"""Split positions on the side of a box, between its objects."""

from __future__ import annotations

import heapq
import itertools

import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.base.sorting import sorted_distinct

# About a metre. Objects closer than that are one place, and a border between them would only split
# the noise of their coordinates.
SIDE_DEGREES_MIN = 1e-5


def weighted_cut(
    values: NDArray[np.float64],
    weights: NDArray[np.int64],
    share: float,
    low: float,
    high: float,
) -> float | None:
    """Returns the split position that comes nearest to a share of the weight before it.

    Args:
        values: f8[n], coordinates, degrees.
        weights: i8[n], positive.
        share: Wanted share of the weight before the split; 0.5 is the weighted median.
        low, high: The side to split, degrees.

    Returns:
        The coordinate midway between two values; a value equal to it belongs after it. None if no
        split separates the values and leaves both parts wide enough.
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
    """Returns one split position per share of the values, ascending, with all parts wide enough.

    If equal values leave fewer positions than requested, the widest parts are halved; fewer
    positions result only if the side is too short.

    Args:
        values: f8[n], coordinates, degrees.
        shares: f8[c], ascending, between 0 and 1.
        low, high: The side to split, degrees.
    """
    kept = [low]
    for cut in _quantiles(values, shares, low, high).tolist():
        if cut - kept[-1] >= SIDE_DEGREES_MIN and high - cut >= SIDE_DEGREES_MIN:
            kept.append(cut)
    return _halved([*kept, high], len(shares))


def _quantiles(
    values: NDArray[np.float64], shares: NDArray[np.float64], low: float, high: float
) -> NDArray[np.float64]:
    """Returns the positions nearest to the shares, ascending; even ones if there are no values."""
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
    """Halves the widest part until there are enough positions; returns the inner borders."""
    heap = [(first - last, first, last) for first, last in itertools.pairwise(borders)]
    heapq.heapify(heap)
    while len(heap) <= cuts and -heap[0][0] >= 2 * SIDE_DEGREES_MIN:
        _, first, last = heapq.heappop(heap)
        middle = (first + last) / 2
        heapq.heappush(heap, (first - middle, first, middle))
        heapq.heappush(heap, (middle - last, middle, last))
    return sorted(first for _, first, _ in heap)[1:]
