"""Allocation of leaves to slots: multi-way number partitioning by differencing."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class _Division:
    """A division of some leaves among the slots.

    Attributes:
        sums: f8[r], of r subsets, descending; minus the least sum if no slot is empty, so that
            slots without a subset also have the least sum, zero.
        members: The leaves of each of these subsets.
    """

    sums: NDArray[np.float64]
    members: list[tuple[int, ...]]


def karmarkar_karp(loads: NDArray[np.float64], slots: int) -> NDArray[np.int32]:
    """Divides numbers into subsets of nearly equal sums.

    The differencing method of Karmarkar and Karp (1982) for many subsets, as SSTD 4.1.2 allocates
    leaves: the two divisions whose greatest and least sums differ most are merged, the greatest of
    one with the least of the other, until one division is left. O(n k log k) for n numbers and k
    subsets. Equal input gives equal output: of equal spreads the older division is first, and
    subsets are numbered by their first number.

    Args:
        loads: f8[n], not negative.
        slots: Number of subsets.

    Returns:
        i4[n], the subset of each number.
    """
    # Heap entries: (- spread, serial number, division).
    heap: list[tuple[float, int, _Division]] = []
    for number, load in enumerate(loads):
        division = _Division(np.array([load]), [(number,)])
        heap.append((-_spread(division, slots), number, division))
    heapq.heapify(heap)
    serial = len(heap)
    while len(heap) > 1:
        first = heapq.heappop(heap)[2]
        second = heapq.heappop(heap)[2]
        merged = _merge(first, second, slots)
        heapq.heappush(heap, (-_spread(merged, slots), serial, merged))
        serial += 1
    slot_of = np.zeros(len(loads), np.int32)
    if heap:
        for slot, members in enumerate(_canonical(heap[0][2].members)):
            slot_of[list(members)] = slot
    return slot_of


def _merge(first: _Division, second: _Division, slots: int) -> _Division:
    """Combines the greatest sums of one with the least sums of the other, empty slots first."""
    width = min(slots, len(first.sums) + len(second.sums))
    sums = np.zeros(width)
    sums[: len(first.sums)] += first.sums
    sums[width - len(second.sums) :] += second.sums[::-1]
    members: list[tuple[int, ...]] = [()] * width
    members[: len(first.members)] = first.members
    for place, own in enumerate(reversed(second.members), width - len(second.members)):
        members[place] += own
    order = np.argsort(-sums, kind="stable")
    sums = sums[order]
    if width == slots:
        sums = sums - sums[-1]
    return _Division(sums, [members[i] for i in order])


def _spread(division: _Division, slots: int) -> float:
    least = division.sums[-1] if len(division.sums) == slots else 0.0
    return float(division.sums[0] - least)


def _canonical(members: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Orders non-empty subsets by their least number."""
    return sorted(members, key=min)
