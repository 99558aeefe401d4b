"""SWARM after some rounds of balancing, simulated on a sample (SWARM 4.2, 4.3).

The scheme's map is SWARM's first one, of equal areas; the rounds then balance it. Here the sample's
objects arrive in as many parts as there are rounds. At the end of each the most loaded slot gives
leaves to the least loaded, or a part of a leaf if no subset is suitable.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.builders.swarm import COLUMNS, ROWS, Region, equal_areas, global_grid
from sirocco.schemes.builders.swarm_split import best_split
from sirocco.schemes.map.map import WORLD, Leaf, PartitionMap
from sirocco.schemes.workload.sample import Sample
from sirocco.schemes.workload.spatial_grid import FineGrid
from sirocco.schemes.workload.swarm_statistics import LeafStatistics, no_statistics

ROUNDS = 64

# The paper's greedy subset (Algorithm 3) has at least half of the load to move if any subset of
# that size exists (4.3.2); if it has less, moving it would change nothing.
SUBSET_SHARE_MIN = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """A leaf with its statistics."""

    region: Region
    slot: int
    statistics: LeafStatistics


def balanced_map(sample: Sample, slots: int, rounds: int = ROUNDS) -> PartitionMap:
    """Returns the map after these rounds, one change of two slots in each."""
    world = _World(sample, rounds)
    parts = [
        _Part(region, slot, no_statistics(region[2] - region[0], region[3] - region[1]))
        for slot, region in enumerate(equal_areas(COLUMNS, ROWS, slots))
    ]
    for number in range(rounds):
        parts = [replace(one, statistics=world.fed(one, number)) for one in parts]
        parts = _balance(parts, world, number, slots)
    return PartitionMap(
        version=1,
        scheme="swarm",
        world=WORLD,
        leaves=tuple(Leaf(i, world.grid.box(*part.region)) for i, part in enumerate(parts)),
        text_nodes=(),
        slot_of_leaf=np.array([part.slot for part in parts], np.int32),
        load_of_leaf=np.array([part.statistics.numerator for part in parts]),
        slots=slots,
    )


class _World:
    """The sample on the grid, in as many parts as there are rounds."""

    def __init__(self, sample: Sample, rounds: int) -> None:
        self.grid = global_grid()
        self._sample = sample
        self._column = self.grid.columns_of(sample.lon)
        self._row = self.grid.rows_of(sample.lat)
        self._ends = np.linspace(0, len(sample), rounds + 1).astype(np.int64)

    def fed(self, part: _Part, number: int) -> LeafStatistics:
        """Returns the statistics of a leaf after a round; all queries arrive in the first."""
        grid = self._grid_of(part.region)
        rows = self._rows(part.region, number)
        found = part.statistics.with_objects(grid, self._sample.lon[rows], self._sample.lat[rows])
        if number == 0:
            found = found.with_queries(grid, self._sample.queries.boxes)
        return found.after_round()

    def counted(self, region: Region, slot: int, number: int) -> _Part:
        """Returns a new leaf with the counts that it would have had since the first round."""
        x0, y0, x1, y1 = region
        part = _Part(region, slot, no_statistics(x1 - x0, y1 - y0))
        for past in range(number + 1):
            part = replace(part, statistics=self.fed(part, past))
        return part

    def _grid_of(self, region: Region) -> FineGrid:
        return self.grid.within(self.grid.box(*region))

    def _rows(self, region: Region, number: int) -> NDArray[np.int64]:
        x0, y0, x1, y1 = region
        rows = np.arange(self._ends[number], self._ends[number + 1])
        column, row = self._column[rows], self._row[rows]
        return rows[(column >= x0) & (column < x1) & (row >= y0) & (row < y1)]


def _balance(parts: list[_Part], world: _World, number: int, slots: int) -> list[_Part]:
    recent = sum(part.statistics.recent for part in parts)
    cost = np.zeros(slots)
    for part in parts:
        cost[part.slot] += part.statistics.cost(recent)
    dearest, cheapest = int(cost.argmax()), int(cost.argmin())
    room = (cost[dearest] - cost[cheapest]) / 2
    own = [part for part in parts if part.slot == dearest]
    own.sort(key=lambda part: -part.statistics.numerator)
    moved, total = [], 0.0
    for part in own:
        price = part.statistics.cost(recent)
        if total + price <= room:
            moved.append(part)
            total += price
    if total >= SUBSET_SHARE_MIN * room > 0:
        return [replace(p, slot=cheapest) if p in moved else p for p in parts]
    for part in own:
        split = best_split(part.statistics, cost[dearest], cost[cheapest], recent)
        if split is None:
            continue
        if abs(split.difference) >= cost[dearest] - cost[cheapest]:
            break
        first, second = list(part.region), list(part.region)
        first[split.axis + 2] = second[split.axis] = part.region[split.axis] + split.at
        halves = [
            world.counted((r[0], r[1], r[2], r[3]), cheapest if moves else dearest, number)
            for r, moves in ((first, split.moves_first), (second, not split.moves_first))
        ]
        return [p for p in parts if p is not part] + halves
    return parts
