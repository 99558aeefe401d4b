"""Leftovers: objects that a former map put where the map in force would not.

Objects stay where the map put them that was in force on their arrival. So after a change a search
has to ask more slots than the map in force names, but only those that still hold such objects
nearby. Each slot says in which leaves of the new map its leftovers are, once no older map can bring
it any more; from then on they only become fewer. A search asks a slot beside those of the map if
one of the search's leaves is among them, or if nothing is known of the slot yet.

Why that is complete: let p be the place of an object in a slot. The leaves of a box that holds p
include all leaves of p alone. If one of these belongs to the slot, the map names the slot. If none
does, all of them are among its leftovers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sirocco.protocol.contract.control_view import ControlView
from sirocco.protocol.contract.map_change import ChangePhase, progress
from sirocco.protocol.contract.messages import SLOTS
from sirocco.protocol.search.messages import EVER_MS, Leftovers
from sirocco.schemes.map.routing import RoutingArrays

# Points whose leaves are found in one call: some megabytes of them.
POINTS = 1 << 16

# How long a slot's report is taken for its newest: leftovers become fewer as objects age.
AGE_MS_MAX = 60_000

Points = tuple[NDArray[np.float64], NDArray[np.float64]]


def leaves_elsewhere(
    points: Iterable[Points], routing: RoutingArrays, slot: int
) -> NDArray[np.int32]:
    """Returns the leaves of other slots in which objects of a slot are, i4[l], ascending.

    Args:
        points: lon and lat of its objects, f8[n] each, degrees.
        routing: the map that the leaves are of.
        slot: number of the slot.
    """
    found = np.zeros(int(routing.leaf_ids.max()) + 1, np.bool_)
    for lon, lat in points:
        for begin in range(0, len(lon), POINTS):
            places = np.stack([lon[begin : begin + POINTS], lat[begin : begin + POINTS]], axis=1)
            routes = routing.route_boxes(
                np.concatenate([places, places], axis=1), np.arange(len(places) + 1)
            )
            is_own = routes.slot_of_leaf == slot
            begins = routes.leaf_offsets[:-1]
            at_home = np.repeat(
                np.logical_or.reduceat(is_own, begins), np.diff(routes.leaf_offsets)
            )
            found[routes.leaves[~at_home]] = True
    return np.flatnonzero(found).astype(np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class LeftoverTable:
    """What is known of the leftovers of one map version; never changes.

    Attributes:
        version: of the map.
        of_slot: slot → its leftovers.
    """

    version: int = 0
    of_slot: Mapping[int, Leftovers] = field(default_factory=dict)
    _slots_of_leaf: Mapping[int, frozenset[int]] = field(default_factory=dict)
    _archives: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, version: int, known: Mapping[int, Leftovers]) -> LeftoverTable:
        """Returns the table of all that is known."""
        slots: dict[int, set[int]] = {}
        for slot, each in known.items():
            for leaf in each.leaves.tolist():
                slots.setdefault(leaf, set()).add(slot)
        archives = tuple(
            (each.archived_upto_ms, slot)
            for slot, each in known.items()
            if each.archived_upto_ms is not None
        )
        return cls(
            version, known, {leaf: frozenset(some) for leaf, some in slots.items()}, archives
        )

    def learn(self, news: Iterable[Leftovers]) -> LeftoverTable:
        """Returns the table with reports of slots; those for another map do not count."""
        current = {each.slot: each for each in news if each.version == self.version}
        return LeftoverTable.of(self.version, {**self.of_slot, **current})

    def owned(self, epochs: Callable[[int], int | None]) -> LeftoverTable:
        """Returns what remains known while slots have these owners, by epoch.

        A new owner starts from a checkpoint, and may hold what the former one had dropped.
        """
        kept = {slot: each for slot, each in self.of_slot.items() if each.epoch == epochs(slot)}
        return self if len(kept) == len(self.of_slot) else LeftoverTable.of(self.version, kept)

    def slots_beside(self, leaves: NDArray[np.int32], from_ms: int, slots: int) -> set[int]:
        """Returns the slots that may hold leftovers for a search.

        Args:
            leaves: i4[l], those of the search.
            from_ms: the earliest arrival that counts.
            slots: how many there are.
        """
        found: set[int] = set()
        if len(self.of_slot) < slots:
            found.update(slot for slot in range(slots) if slot not in self.of_slot)
        found.update(slot for upto_ms, slot in self._archives if upto_ms >= from_ms)
        if self._slots_of_leaf:
            found.update(*(self._slots_of_leaf.get(leaf, ()) for leaf in leaves.tolist()))
        return found


@dataclass(frozen=True, slots=True)
class Former:
    """What is known of objects that former maps put elsewhere.

    Attributes:
        is_everywhere: they may be in any slot: a change is under way, or its map is not known here.
        leftovers: what slots have reported of them.
        from_ms: the earliest arrival that counts.
    """

    is_everywhere: bool = False
    leftovers: LeftoverTable = field(default_factory=LeftoverTable)
    from_ms: int = EVER_MS


class KnownLeftovers:
    """What a merger knows of leftovers, for the map in force.

    Args:
        view: what is in force according to `control`.
        intake_partitions, registry_partitions: of the cluster.
    """

    def __init__(self, view: ControlView, intake_partitions: int, registry_partitions: int) -> None:
        self._view = view
        self._partitions = intake_partitions, registry_partitions
        self._seen_offset = -1
        self._is_changing = True
        self._table = LeftoverTable()
        self._learned_ms: dict[int, int] = {}

    def former(self, routing: RoutingArrays, from_ms: int) -> Former | None:
        """Returns what a search has to know of former maps.

        Args:
            routing: the map by which it is planned.
            from_ms: the earliest arrival that counts.
        """
        if not self._view.has_changed:
            return None
        self._follow()
        if self._is_changing or routing.version != self._table.version:
            return Former(is_everywhere=True)
        return Former(leftovers=self._table, from_ms=from_ms)

    def wanted(self, slots: Iterable[int], now_ms: int) -> int:
        """Returns the map version whose leftovers these slots are to say; 0 if none are wanted."""
        if not self._view.has_changed:
            return 0
        self._follow()
        is_due = not self._is_changing and any(self._is_due(slot, now_ms) for slot in slots)
        return self._table.version if is_due else 0

    def learn(self, news: Iterable[Leftovers], now_ms: int) -> None:
        """Takes reports of slots."""
        current = [each for each in news if each.epoch == self._epoch(each.slot)]
        if current:
            self._table = self._table.learn(current)
            self._learned_ms |= {each.slot: now_ms for each in current}

    def _is_due(self, slot: int, now_ms: int) -> bool:
        known = self._table.of_slot.get(slot)
        if known is None:
            return True
        return not known.is_empty and now_ms - self._learned_ms[slot] > AGE_MS_MAX

    def _follow(self) -> None:
        """Takes what was declared in `control` since."""
        if self._seen_offset == self._view.next_offset:
            return
        self._seen_offset = self._view.next_offset
        version = self._view.map_version
        self._is_changing = progress(self._view, *self._partitions).phase is not ChangePhase.NONE
        if version != self._table.version:
            self._table = LeftoverTable.of(version, {})
        self._table = self._table.owned(self._epoch)

    def _epoch(self, slot: int) -> int | None:
        owner = self._view.owners.get((SLOTS, slot))
        return None if owner is None else owner.epoch
