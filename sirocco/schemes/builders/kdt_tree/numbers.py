"""Number of parts of each node (PS2Stream IV.B, ComputeNumberPartitions)."""

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
    """A node split into 1, 2, 3, … parts, each time by splitting one part of the previous split.

    So one pass gives C[i, k] for all k.

    Attributes:
        first: The whole node.
        splits: (position of the split part, its first half, its second half), in order; the first
            half replaces the part, the second is appended.
        totals: f8[k], the sum of loads of 1, 2, … parts.
    """

    first: T
    splits: tuple[tuple[int, T, T], ...]
    totals: NDArray[np.float64]

    def parts(self, count: int) -> list[T]:
        """Returns the split into `count` parts."""
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
    """Splits the heaviest part repeatedly.

    Args:
        first: The whole node.
        parts_max: Maximum number of parts.
        floor: Lighter parts are not split.
        weigh: Returns the weight of a part; of equal parts the older is split first.
        split: Splits a part in two; None if it cannot be split.
        measure: Returns additive numbers of a part.
        total: Returns the sum of loads of this many parts, from their sum of measures.
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
    """Distributes a number of parts among nodes so that the sum of loads is least.

    L[i, j] = min over k of L[i - 1, j - k] + C[i, k], the least sum of loads of the first i nodes
    in j parts. O(parts) for each given C[i, k].

    Args:
        costs: C[i, 1], C[i, 2], … of each node, as far as it can be split.
        parts: Parts of all nodes together, not less than the number of nodes; if the nodes cannot
            be split that far, they are split as far as possible.

    Returns:
        The number of parts of each node. Among equally good solutions, the first nodes have fewer.
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
