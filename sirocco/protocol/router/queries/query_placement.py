"""Where queries stand, by the maps that hold at a place of the registry (docs/adr/0014).

Between `Prepare` and `Retire` two maps hold: a query stands wherever one of them wants it. Queries
that count what lies in the store stay where they stand, since objects do, too; and who asks for
what came before the last change is asked of every slot.
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
from sirocco.protocol.router.queries.install_records import routed_queries
from sirocco.schemes.map.routing import RoutingArrays

Routings = Mapping[int, RoutingArrays]
Slots = tuple[int, ...]


@dataclass(slots=True)
class Stage:
    """The maps of one registry partition, as of its position.

    Attributes:
        base: version of the map by which all queries stand; 0 while nothing was read.
        following: version of the map that is to follow, from `Prepare` to `Retire`; else 0.
        anywhere_ms: objects that arrived up to here may lie where no map that holds puts them.
    """

    base: int = 0
    following: int = 0
    anywhere_ms: int = NO_TIME_MS

    def state(self) -> State:
        """For a checkpoint."""
        return {"maps": np.array([self.base, self.following, self.anywhere_ms], np.int64)}

    def restore(self, state: State) -> None:
        """Takes the state of a checkpoint; one from before maps changed has none."""
        if "maps" in state:
            self.base, self.following, self.anywhere_ms = state["maps"].tolist()

    def prepare(self, version: int) -> bool:
        """Reads `Prepare`; whether it is the first of this change."""
        if self.following or version != self.base + 1:
            return False
        self.following = version
        return True

    def retire(self, version: int, at_ms: int) -> bool:
        """Reads `Retire`; whether it is the first of this change."""
        if self.following != version:
            return False
        self.base, self.following = version, 0
        self.anywhere_ms = max(self.anywhere_ms, at_ms)
        return True

    def is_known(self, routings: Routings) -> bool:
        """Whether the maps that hold have been read from `control`."""
        return self.base in routings and (not self.following or self.following in routings)

    def newest(self, routings: Routings) -> RoutingArrays:
        """The later one of the maps that hold."""
        return routings[self.following or self.base]

    def is_by_keyword(self, routings: Routings) -> bool:
        """Whether a map that holds parts the vocabulary: objects are routed by either one."""
        is_newest = self.newest(routings).is_by_keyword
        return is_newest or routings[self.base].is_by_keyword


@dataclass(frozen=True, slots=True)
class Placed:
    """Where some queries stand.

    Attributes:
        rows: their conditions.
        slots: of each, where it stands while both maps hold.
        wanted: of each, where it stands afterwards.
        told: of each, where it has to stand while both maps hold; others of `slots` it leaves.
    """

    rows: QueryRows
    slots: list[Slots]
    wanted: list[Slots]
    told: list[Slots]


def place_new(changes: list[Change], stage: Stage, routings: Routings) -> Placed:
    """Places queries that are new, or have changed; none of them is removed."""
    placed = _placed(changes, stage, routings)
    everywhere = tuple(range(stage.newest(routings).slots))
    for row, change in enumerate(changes):
        if _asks_before(change, stage.anywhere_ms):
            placed.slots[row] = placed.wanted[row] = placed.told[row] = everywhere
    return placed


def place_known(
    changes: list[Change], present: list[Slots], stage: Stage, routings: Routings
) -> Placed:
    """Places queries that stand in slots already; what they ask of the past is answered.

    Args:
        changes: their definitions.
        present: where each stands.
        stage: the maps that hold.
        routings: the maps.
    """
    placed = _placed(changes, stage, routings)
    for row, (change, slots) in enumerate(zip(changes, present, strict=True)):
        joined = _joined(slots, placed.slots[row])
        placed.slots[row] = joined
        if stays_put(change):
            placed.wanted[row] = placed.told[row] = joined
    return placed


def stays_put(change: Change) -> bool:
    """Whether a query counts what is stored, so that it stays where its objects lie."""
    assert change.query is not None
    return kind_number(change.query) not in {KIND_RANGE, KIND_KNN, KIND_TRACKED}


def _placed(changes: list[Change], stage: Stage, routings: Routings) -> Placed:
    rows, slots = routed_queries(changes, routings[stage.base])
    if not stage.following:
        return Placed(rows, slots, list(slots), list(slots))
    _, wanted = routed_queries(changes, routings[stage.following])
    both = [_joined(*each) for each in zip(slots, wanted, strict=True)]
    for row, change in enumerate(changes):
        if stays_put(change):
            wanted[row] = both[row]
    return Placed(rows, both, wanted, list(both))


def _joined(first: Slots, second: Slots) -> Slots:
    return first if first == second else tuple(sorted({*first, *second}))


def _asks_before(change: Change, anywhere_ms: int) -> bool:
    """Whether a query counts objects that may lie where no map that holds puts them."""
    if change.past_ms == NO_PAST and not stays_put(change):
        return False
    return change.start_ms - max(change.past_ms, 0) <= anywhere_ms
