"""Into how many parts each node is cut (PS2Stream IV.B, ComputeNumberPartitions)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Refinement(Generic[T]):
    """A node cut into 1, 2, 3, … parts, each time by cutting one part of the cut before.

    So one pass gives C[i, k] for all k.

    Attributes:
        first: The uncut node.
        splits: (position of the part that is cut, its first half, its second), in order; the
            first half takes the position, the second comes last.
        totals: f8[k], the sum of loads of 1, 2, … parts.
    """

    first: T
    splits: tuple[tuple[int, T, T], ...]
    totals: NDArray[np.float64]

    def parts(self, count: int) -> list[T]:
        """Returns the cut into `count` parts."""
        parts = [self.first]
        for at, first, second in self.splits[: count - 1]:
            parts[at] = first
            parts.append(second)
        return parts


def refine(
    first: T,
    parts_max: int,
    floor: float,
    weigh: Callable[[T], float],
    split: Callable[[T], tuple[T, T] | None],
    measure: Callable[[T], NDArray[np.float64]],
    total: Callable[[NDArray[np.float64], int], float],
) -> Refinement[T]:
    """Cuts the heaviest part again and again.

    Args:
        first: The uncut node.
        parts_max: When to end.
        floor: Lighter parts are not cut.
        weigh: How heavy a part is; of equal parts the older is cut first.
        split: Cuts a part in two; None where it cannot be cut.
        measure: Numbers of a part that add up over the parts.
        total: The sum of loads of so many parts, from their sum of measures.
    """
    parts, splits = [first], []
    sums = measure(first)
    totals = [total(sums, 1)]
    heap = [(-weigh(first), 0, 0)]
    serial = 1
    while heap and len(parts) < parts_max and -heap[0][0] >= floor:
        at = heapq.heappop(heap)[2]
        pair = split(parts[at])
        if pair is None:
            continue
        sums = sums - measure(parts[at]) + measure(pair[0]) + measure(pair[1])
        splits.append((at, *pair))
        parts[at] = pair[0]
        parts.append(pair[1])
        totals.append(total(sums, len(parts)))
        for part, position in ((pair[0], at), (pair[1], len(parts) - 1)):
            heapq.heappush(heap, (-weigh(part), serial, position))
            serial += 1
    return Refinement(first, tuple(splits), np.array(totals))


def numbers_of_parts(costs: Sequence[NDArray[np.float64]], parts: int) -> list[int]:
    """Deals a number of parts to nodes so that the sum of loads is least.

    L[i, j] = min over k of L[i - 1, j - k] + C[i, k], the least sum of loads of the first i
    nodes in j parts. O(parts) for each C[i, k] that is given.

    Args:
        costs: C[i, 1], C[i, 2], … of each node, as far as it can be cut.
        parts: Parts of all nodes together, not less than the number of nodes; where the nodes
            cannot be cut so far, they are cut as far as they can be.

    Returns:
        The number of parts of each node. Of equally good ones the first nodes have fewer.
    """
    parts = min(parts, sum(len(cost) for cost in costs))
    least = np.full(parts + 1, np.inf)
    least[0] = 0.0
    chosen = np.zeros((len(costs), parts + 1), np.int64)
    for node, cost in enumerate(costs):
        before, least = least, np.full(parts + 1, np.inf)
        for k in range(1, min(len(cost), parts) + 1):
            candidate = before[: parts + 1 - k] + cost[k - 1]
            is_better = candidate <= least[k:]
            least[k:][is_better] = candidate[is_better]
            chosen[node, k:][is_better] = k
    numbers = []
    left = parts
    for node in reversed(range(len(costs))):
        numbers.append(int(chosen[node, left]))
        left -= numbers[-1]
    return numbers[::-1]
