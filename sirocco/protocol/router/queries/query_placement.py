"""The slots of queries, by the maps in force at a position of the registry (docs/adr/0014).

Between `Prepare` and `Retire` two maps are in force: a query is in every slot that either wants.
Queries over stored objects stay in their slots, because the objects do. A query that asks for
objects from before the last change is sent to every slot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sirocco.index.base.kinds import KIND_KNN, KIND_RANGE, KIND_TRACKED, kind_number
from sirocco.index.base.query_rows import QueryRows
from sirocco.protocol.contract.effects import State
from sirocco.protocol.contract.messages import NO_PAST, Change
from sirocco.protocol.contract.positions import NO_TIME_MS
from sirocco.protocol.router.queries.install_records import query_places
from sirocco.schemes.map.routing import RoutingArrays

Routings = Mapping[int, RoutingArrays]
Slots = tuple[int, ...]
Leaves = tuple[int, ...]


@dataclass(slots=True)
class Stage:
    """The maps of one registry partition, as of its position.

    Attributes:
        base: version of the map by which all queries are placed; 0 while nothing was read.
        following: version of the map that is to follow, from `Prepare` to `Retire`; else 0.
        anywhere_ms: objects that arrived up to here may be where no map in force puts them.
    """

    base: int = 0
    following: int = 0
    anywhere_ms: int = NO_TIME_MS

    def state(self) -> State:
        """Returns the state for a checkpoint."""
        return {"maps": np.array([self.base, self.following, self.anywhere_ms], np.int64)}

    def restore(self, state: State) -> None:
        """Takes the state of a checkpoint; one of an older version may have none."""
        if "maps" in state:
            self.base, self.following, self.anywhere_ms = state["maps"].tolist()

    def prepare(self, version: int) -> bool:
        """Reads `Prepare`; returns whether it is the first of this change."""
        if self.following or version != self.base + 1:
            return False
        self.following = version
        return True

    def retire(self, version: int, at_ms: int) -> bool:
        """Reads `Retire`; returns whether it is the first of this change."""
        if self.following != version:
            return False
        self.base, self.following = version, 0
        self.anywhere_ms = max(self.anywhere_ms, at_ms)
        return True

    def is_known(self, routings: Routings) -> bool:
        """Whether the maps in force have been read from `control`."""
        return self.base in routings and (not self.following or self.following in routings)

    def newest(self, routings: Routings) -> RoutingArrays:
        """Returns the later one of the maps in force."""
        return routings[self.following or self.base]

    def is_by_keyword(self, routings: Routings) -> bool:
        """Whether a map in force splits the vocabulary: objects are routed by either one."""
        is_newest = self.newest(routings).is_by_keyword
        return is_newest or routings[self.base].is_by_keyword


@dataclass(frozen=True, slots=True)
class Placed:
    """The slots of some queries.

    Attributes:
        rows: their conditions.
        slots: of each, the slots that may hold it while both maps are in force.
        wanted: of each, its slots afterwards.
        receivers: of each, the slots that must hold it while both maps are in force; it leaves
            the others.
        leaves: of each, the leaves of the later map that it touches.
    """

    rows: QueryRows
    slots: list[Slots]
    wanted: list[Slots]
    receivers: list[Slots]
    leaves: list[Leaves]


def place_new(changes: list[Change], stage: Stage, routings: Routings) -> Placed:
    """Places queries that are new or changed; none of them is a removal."""
    placed = _placed(changes, stage, routings)
    everywhere = tuple(range(stage.newest(routings).slots))
    for row, change in enumerate(changes):
        if _needs_arrivals_before(change, stage.anywhere_ms):
            placed.slots[row] = placed.wanted[row] = placed.receivers[row] = everywhere
    return placed


def place_known(
    changes: list[Change], present: list[Slots], stage: Stage, routings: Routings
) -> Placed:
    """Places queries that are in slots already; their questions about the past are answered.

    Args:
        changes: their definitions.
        present: the slots of each.
        stage: the maps in force.
        routings: the maps.
    """
    placed = _placed(changes, stage, routings)
    for row, (change, slots) in enumerate(zip(changes, present, strict=True)):
        joined = _joined(slots, placed.slots[row])
        placed.slots[row] = joined
        if stays_put(change):
            placed.wanted[row] = placed.receivers[row] = joined
    return placed


def stays_put(change: Change) -> bool:
    """Whether a query counts stored objects, so that it stays in the slots where they are."""
    assert change.query is not None
    return kind_number(change.query) not in {KIND_RANGE, KIND_KNN, KIND_TRACKED}


def _placed(changes: list[Change], stage: Stage, routings: Routings) -> Placed:
    base = query_places(changes, routings[stage.base])
    if not stage.following:
        return Placed(base.rows, base.slots, list(base.slots), list(base.slots), base.leaves)
    following = query_places(changes, routings[stage.following], base.rows)
    wanted = following.slots
    both = [_joined(*each) for each in zip(base.slots, wanted, strict=True)]
    for row, change in enumerate(changes):
        if stays_put(change):
            wanted[row] = both[row]
    return Placed(base.rows, both, wanted, list(both), following.leaves)


def _joined(first: Slots, second: Slots) -> Slots:
    return first if first == second else tuple(sorted({*first, *second}))


def _needs_arrivals_before(change: Change, anywhere_ms: int) -> bool:
    """Whether a query counts objects that may be where no map in force puts them."""
    if change.past_ms == NO_PAST and not stays_put(change):
        return False
    return change.start_ms - max(change.past_ms, 0) <= anywhere_ms
