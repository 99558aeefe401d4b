"""The distinct places of queries: the slots, and the leaves that their boxes touch.

Queries are many; the sets of slots and leaves that they are in are few. So each is kept once, and a
query has its number. Leaves are what a change of the map is compared by: they cost a query nothing,
and stand for its box and its keys.

Clients who choose their regions for it have a place for each query. Places are therefore kept as
bytes, a bit for each slot: in maps of 256 slots 32 bytes, where ids would take up to a kilobyte and
tuples more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
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

# A place: a byte with the number of its leaves, `_UNKNOWN` where they are not known; the leaves; a
# bit for each slot up to the last one.
_ID = np.dtype("<i4")
_UNKNOWN = 255

# So many slots are turned to bits, and back, faster one by one than as an array.
_FEW = 8


class PlaceSets:
    """Distinct places by number; 0 is nowhere."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._places: list[bytes] = []
        self._located = 0
        self.number((), None)

    def __len__(self) -> int:
        return len(self._places)

    def slots(self, number: int) -> Slots:
        """Returns the slots of a place."""
        return _slots_in(_bits_of(self._places[number]))

    def number(self, slots: Slots, leaves: Leaves | None) -> int:
        """Returns the number of a place.

        Args:
            slots: ascending.
            leaves: ids by the later map in force, ascending; None: unknown.
        """
        if leaves is not None and len(leaves) > LEAVES_MAX:
            leaves = None
        return self._number(_bits(slots), None if leaves is None else _packed(leaves))

    def _number(self, bits: bytes, leaves: bytes | None) -> int:
        """Returns the number of a place with few enough leaves."""
        if leaves is None:
            place = bytes([_UNKNOWN]) + bits
        else:
            place = bytes([len(leaves) // _ID.itemsize]) + leaves + bits
        found = self._numbers.get(place)
        if found is not None:
            return found
        if leaves is not None:
            if self._located == LOCATED_MAX:
                return self._number(bits, None)
            self._located += 1
        self._numbers[place] = len(self._places)
        self._places.append(place)
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
        rows_of_leaves = np.repeat(np.arange(len(numbers)), np.diff(leaf_begins))
        in_order = leaves[np.lexsort((leaves, rows_of_leaves))]
        touched, ends = in_order.astype(_ID).tobytes(), leaf_begins * _ID.itemsize
        others = np.flatnonzero(~is_single)
        for row, bits in zip(others.tolist(), _bits_of_rows(routes, others), strict=True):
            own_leaves = touched[ends[row] : ends[row + 1]]
            is_located = len(own_leaves) <= LEAVES_MAX * _ID.itemsize
            numbers[row] = self._number(bits, own_leaves if is_located else None)
        return numbers

    def are_located(self) -> NDArray[np.bool_]:
        """Returns bool[p], of which places the leaves are known."""
        return np.array([leaves is not None for _, leaves in self._unpacked()])

    def touch(self, leaves: frozenset[int]) -> NDArray[np.bool_]:
        """Returns bool[p], which places have one of these leaves, as far as is known."""
        return np.array(
            [each is not None and not leaves.isdisjoint(each) for _, each in self._unpacked()]
        )

    def are_in(self, slots: frozenset[int]) -> NDArray[np.bool_]:
        """Returns bool[p], which places have one of these slots."""
        return np.array([not slots.isdisjoint(each) for each, _ in self._unpacked()])

    def are_whole(self, slots_total: int) -> NDArray[np.bool_]:
        """Returns bool[p], which places have all slots."""
        return np.array([len(each) == slots_total for each, _ in self._unpacked()])

    def _unpacked(self) -> Iterator[tuple[Slots, Leaves | None]]:
        return map(_unpacked, self._places)

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
            slots, leaves = _unpacked(before[place])
            numbers[place] = self.number(slots, leaves_now(leaves))
        return numbers

    def slots_of(self, numbers: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Returns the slots of places, one place after the other, and i8[n + 1], their begins."""
        # Of these places alone, however many there are.
        distinct, rows = np.unique(numbers, return_inverse=True)
        held = [_bits_of(self._places[number]) for number in distinct.tolist()]
        width = max(map(len, held), default=0)
        flags = np.frombuffer(b"".join(each.ljust(width, b"\0") for each in held), np.uint8)
        places, flat = np.nonzero(
            np.unpackbits(flags.reshape(len(held), width), axis=1, bitorder="little")
        )
        offsets = np.searchsorted(places, np.arange(len(held) + 1))
        begins, where = take_ragged(offsets, rows)
        return flat.astype(np.int32)[where], begins

    def leaves_state(self, numbers: NDArray[np.int32]) -> dict[str, NDArray[Any]]:
        """Returns the leaves of places as columns, for a checkpoint; see `leaves_of_state`."""
        known = [leaves for _, leaves in self._unpacked() if leaves is not None]
        located = self.are_located()
        row_of = np.where(located, np.cumsum(located) - 1, -1).astype(np.int32)
        return {
            "leaf_sets": np.array([leaf for leaves in known for leaf in leaves], np.int32),
            "leaf_set_offsets": np.cumsum([0, *map(len, known)]).astype(np.int64),
            "leaf_set_rows": row_of[numbers],
        }


def _packed(ids: tuple[int, ...]) -> bytes:
    return np.array(ids, _ID).tobytes()


def _bits(slots: Slots) -> bytes:
    """Returns a bit for each slot up to the last one."""
    if len(slots) > _FEW:
        return _many_bits(slots)
    bits = 0
    for slot in slots:
        bits |= 1 << slot
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


# Queries in many slots are mostly in all of them.
@lru_cache(maxsize=64)
def _many_bits(slots: Slots) -> bytes:
    flags = np.zeros(slots[-1] + 1, np.uint8)
    flags[list(slots)] = 1
    return np.packbits(flags, bitorder="little").tobytes()


def _bits_of_rows(routes: QueryRoutes, rows: NDArray[np.intp]) -> Iterator[bytes]:
    """Yields the same for some routed queries."""
    begins, where = take_ragged(routes.slot_offsets, rows)
    slots = routes.slots[where]
    flags = np.zeros((len(rows), int(slots.max(initial=0)) + 1), np.uint8)
    flags[np.repeat(np.arange(len(rows)), np.diff(begins)), slots] = 1
    packed = np.packbits(flags, axis=1, bitorder="little")
    held, width = packed.tobytes(), packed.shape[1]
    return (held[at : at + width].rstrip(b"\0") for at in range(0, len(held), width))


def _bits_of(place: bytes) -> bytes:
    known = 0 if place[0] == _UNKNOWN else place[0]
    return place[1 + known * _ID.itemsize :]


def _slots_in(bits: bytes) -> Slots:
    left = int.from_bytes(bits, "little")
    if left.bit_count() > _FEW:
        flags = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
        return tuple(flags.nonzero()[0].tolist())
    slots = []
    while left:
        slots.append((left & -left).bit_length() - 1)
        left &= left - 1
    return tuple(slots)


def _unpacked(place: bytes) -> tuple[Slots, Leaves | None]:
    leaves = None
    if place[0] != _UNKNOWN:
        leaves = tuple(np.frombuffer(place, _ID, place[0], offset=1).tolist())
    return _slots_in(_bits_of(place)), leaves


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
