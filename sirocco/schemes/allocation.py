"""Leaves to slots: multi-way number partitioning by differencing."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(slots=True)
class _Division:
    """Some leaves divided over all slots; sums descending, less the least of them."""

    sums: NDArray[np.float64]
    members: list[tuple[int, ...]]


def karmarkar_karp(loads: NDArray[np.float64], slots: int) -> NDArray[np.int32]:
    """Divides numbers into subsets of nearly equal sums.

    The differencing method of Karmarkar and Karp (1982) for many subsets, as SSTD 4.1.2
    allocates leaves: the two divisions whose greatest and least sums differ most are merged,
    the greatest of one with the least of the other, until one division is left. O(n k log k)
    for n numbers and k subsets. Equal input gives equal output: of equal spreads the older
    division comes first, and subsets are numbered by the first number in each.

    Args:
        loads: f8[n], not negative.
        slots: Number of subsets.

    Returns:
        i4[n], the subset of each number.
    """
    # Heap entries: (- spread, serial number, division). Only a division's first few sums are
    # above zero at the start, so arrays of all slots would mostly add zeros; n and k are a few
    # thousand at most, and NumPy adds them faster than lists would be walked.
    heap: list[tuple[float, int, _Division]] = []
    for number, load in enumerate(loads):
        sums = np.zeros(slots)
        sums[0] = load
        division = _Division(sums, [(number,)] + [()] * (slots - 1))
        heap.append((-_spread(sums), number, division))
    heapq.heapify(heap)
    serial = len(heap)
    while len(heap) > 1:
        first = heapq.heappop(heap)[2]
        second = heapq.heappop(heap)[2]
        merged = _merge(first, second)
        heapq.heappush(heap, (-_spread(merged.sums), serial, merged))
        serial += 1
    slot_of = np.zeros(len(loads), np.int32)
    if heap:
        for slot, members in enumerate(_canonical(heap[0][2].members)):
            slot_of[list(members)] = slot
    return slot_of


def _merge(first: _Division, second: _Division) -> _Division:
    sums = first.sums + second.sums[::-1]
    members = [
        one + other for one, other in zip(first.members, reversed(second.members), strict=True)
    ]
    order = np.argsort(-sums, kind="stable")
    sums = sums[order]
    return _Division(sums - sums[-1], [members[i] for i in order])


def _spread(sums: NDArray[np.float64]) -> float:
    # With one subset nothing is left to balance and the spread is zero.
    return float(sums[0] - sums[-1])


def _canonical(members: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Orders subsets by their least number, empty ones last."""
    return sorted(members, key=lambda subset: min(subset, default=len(members) + 1 << 40))
