"""The distinct places of queries: the slots, and the leaves that their boxes touch.

Queries are many; the sets of slots and leaves that they are in are few. So each is kept once, and a
query has its number. Leaves are what a change of the map is compared by: they cost a query nothing,
and stand for its box and its keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.ragged import take_ragged
from sirocco.schemes.map.map_difference import MapDifference
from sirocco.schemes.map.routing import QueryRoutes

Slots = tuple[int, ...]
Leaves = tuple[int, ...]

# A query that touches more leaves is found by its slots alone. Most touch one or two.
LEAVES_MAX = 16

# Places with leaves of one registry partition, so that what clients register decides no memory:
# some 4 MB. Small queries on 1,000 leaves are in some 5,000 places.
LOCATED_MAX = 16_384

# The leaf in the number of a pair; ids are not negative.
_LOW = 0xFFFF_FFFF


class PlaceSets:
    """Distinct places by number; 0 is nowhere."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Slots, Leaves | None], int] = {}
        self._places: list[tuple[Slots, Leaves | None]] = []
        self._located = 0
        self.number((), None)

    def __len__(self) -> int:
        return len(self._places)

    def slots(self, number: int) -> Slots:
        """Returns the slots of a place."""
        return self._places[number][0]

    def number(self, slots: Slots, leaves: Leaves | None) -> int:
        """Returns the number of a place.

        Args:
            slots: ascending.
            leaves: ids by the later map in force, ascending; None: unknown.
        """
        if leaves is not None and len(leaves) > LEAVES_MAX:
            leaves = None
        found = self._numbers.get((slots, leaves))
        if found is not None:
            return found
        if leaves is not None:
            if self._located == LOCATED_MAX:
                return self.number(slots, None)
            self._located += 1
        self._numbers[slots, leaves] = len(self._places)
        self._places.append((slots, leaves))
        return len(self._places) - 1

    def numbers(self, routes: QueryRoutes) -> NDArray[np.int32]:
        """Returns i4[n], the numbers of the places of routed queries."""
        slots, leaves = routes.slots, routes.leaves
        slot_begins, leaf_begins = routes.slot_offsets, routes.leaf_offsets
        numbers = np.empty(len(slot_begins) - 1, np.int32)
        is_single = (np.diff(slot_begins) == 1) & (np.diff(leaf_begins) == 1)
        slot_of = slots[slot_begins[:-1][is_single]].astype(np.int64)
        pairs = slot_of << 32 | leaves[leaf_begins[:-1][is_single]]
        distinct, rows = np.unique(pairs, return_inverse=True)
        own = [
            self.number((slot,), (leaf,))
            for slot, leaf in zip(
                (distinct >> 32).tolist(), (distinct & _LOW).tolist(), strict=True
            )
        ]
        numbers[is_single] = np.array(own, np.int32)[rows]
        for row in np.flatnonzero(~is_single).tolist():
            held = slots[slot_begins[row] : slot_begins[row + 1]].tolist()
            touched = leaves[leaf_begins[row] : leaf_begins[row + 1]].tolist()
            numbers[row] = self.number(tuple(held), tuple(sorted(touched)))
        return numbers

    def are_located(self) -> NDArray[np.bool_]:
        """Returns bool[p], of which places the leaves are known."""
        return np.array([leaves is not None for _, leaves in self._places])

    def touch(self, leaves: frozenset[int]) -> NDArray[np.bool_]:
        """Returns bool[p], which places have one of these leaves, as far as is known."""
        return np.array(
            [each is not None and not leaves.isdisjoint(each) for _, each in self._places]
        )

    def are_in(self, slots: frozenset[int]) -> NDArray[np.bool_]:
        """Returns bool[p], which places have one of these slots."""
        return np.array([not slots.isdisjoint(each) for each, _ in self._places])

    def are_whole(self, slots_total: int) -> NDArray[np.bool_]:
        """Returns bool[p], which places have all slots."""
        return np.array([len(each) == slots_total for each, _ in self._places])

    def follow(self, change: MapDifference | None, is_used: NDArray[np.bool_]) -> NDArray[np.int32]:
        """Names leaves as the map that follows does, and forgets places without queries.

        Args:
            change: from the map by which leaves are named; None: no leaves are known afterwards.
            is_used: bool[p].

        Returns:
            i4[p], the new number of each place; 0 of those that are forgotten.
        """
        renamed = None if change is None else change.renamed
        return self._kept(is_used, lambda leaves: _renamed(leaves, renamed))

    def keep(self, is_used: NDArray[np.bool_]) -> NDArray[np.int32]:
        """Forgets places without queries; as `follow`, of the same map."""
        return self._kept(is_used, lambda leaves: leaves)

    def _kept(
        self, is_used: NDArray[np.bool_], leaves_now: Callable[[Leaves | None], Leaves | None]
    ) -> NDArray[np.int32]:
        before = self._places
        self._numbers, self._places, self._located = {}, [], 0
        self.number((), None)
        numbers = np.zeros(len(before), np.int32)
        for place in np.flatnonzero(is_used).tolist():
            slots, leaves = before[place]
            numbers[place] = self.number(slots, leaves_now(leaves))
        return numbers

    def slots_of(self, numbers: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Returns the slots of places, one place after the other, and i8[n + 1], their begins."""
        offsets = np.cumsum([0, *(len(slots) for slots, _ in self._places)])
        flat = np.array([slot for slots, _ in self._places for slot in slots], np.int32)
        begins, where = take_ragged(offsets, numbers)
        return flat[where], begins

    def leaves_state(self, numbers: NDArray[np.int32]) -> dict[str, NDArray[Any]]:
        """Returns the leaves of places as columns, for a checkpoint; see `leaves_of_state`."""
        known = [leaves for _, leaves in self._places if leaves is not None]
        located = self.are_located()
        row_of = np.where(located, np.cumsum(located) - 1, -1).astype(np.int32)
        return {
            "leaf_sets": np.array([leaf for leaves in known for leaf in leaves], np.int32),
            "leaf_set_offsets": np.cumsum([0, *map(len, known)]).astype(np.int64),
            "leaf_set_rows": row_of[numbers],
        }


def leaves_of_state(state: Mapping[str, NDArray[Any]]) -> list[Leaves | None] | None:
    """Returns the leaves of all queries of a checkpoint; None: of an older version without them."""
    if "leaf_sets" not in state:
        return None
    flat, ends = state["leaf_sets"].tolist(), state["leaf_set_offsets"].tolist()
    sets: list[Leaves | None] = [tuple(flat[begin:end]) for begin, end in pairwise(ends)]
    sets.append(None)
    return [sets[row] for row in state["leaf_set_rows"].tolist()]


def _renamed(leaves: Leaves | None, renamed: Mapping[int, int] | None) -> Leaves | None:
    if leaves is None or renamed is None or any(leaf not in renamed for leaf in leaves):
        return None
    return tuple(sorted({renamed[leaf] for leaf in leaves}))
