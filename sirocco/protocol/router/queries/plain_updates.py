"""Forwards changes that are columns to slots, as `slot_updates` does single ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.compile import take_queries
from sirocco.protocol.contract.columns import take_names
from sirocco.protocol.contract.effects import Append, Effect
from sirocco.protocol.contract.messages import AT_ONCE_MS, NO_REVISION, SLOTS, Installed
from sirocco.protocol.contract.plain_queries import PlainChanges, PlainQueries
from sirocco.protocol.router.queries.install_records import REMOVED_BYTES, removed_record
from sirocco.protocol.router.queries.live_queries import LiveQueries
from sirocco.schemes.map.routing import QueryRoutes, RoutingArrays

# Changes that are forwarded at once: each record for a slot costs as much as a hundred queries.
PLAIN_MAX = 4_096

# Bytes of a query in a record of a slot, besides its id and text: columns, box, and a subscriber.
_ROW_BYTES = 320

# For each byte of a text: the shortest term has two, and takes a hash and a word.
_TEXT_BYTES = 12


def parts(queries: PlainQueries, bytes_max: int) -> Iterator[tuple[int, int]]:
    """Yields begin and end of parts of some queries that are forwarded one after the other.

    With all queries of a part, the record of a slot has `bytes_max` bytes at most, or one query.
    """
    sizes = np.diff(queries.names.id_offsets) + _TEXT_BYTES * np.diff(queries.text_offsets)
    ends = np.cumsum(sizes + _ROW_BYTES)
    begin, done = 0, 0
    while begin < len(ends):
        fitting = int(np.searchsorted(ends, done + bytes_max, "right"))
        end = min(max(fitting, begin + 1), begin + PLAIN_MAX)
        yield begin, end
        begin, done = end, int(ends[end - 1])


@dataclass(frozen=True, slots=True)
class PlainUpdates:
    """What the changes of one batch are forwarded with.

    Attributes:
        partition: of the registry.
        floor: offset of its last checkpoint.
        live: the queries; updated with all that is forwarded.
        routing: the only map in force, which does not split the vocabulary.
    """

    partition: int
    floor: int
    live: LiveQueries
    routing: RoutingArrays

    def forward(self, offsets: NDArray[np.int64], changes: PlainChanges) -> list[Effect]:
        """Returns the records for slots.

        Args:
            offsets: i8[n], of the changes.
            changes: in force, of distinct queries, few enough for one record; those that replace
                a version replace a placed one.
        """
        rows = changes.queries.rows
        routes = self.routing.route_boxes(rows.boxes, rows.box_offsets)
        places = self.live.places_of(routes)
        left = self._left(offsets, changes, places)
        effects = self._records(offsets, changes, routes, left)
        self.live.put_plain(changes.queries, offsets, places)
        return effects

    def _left(
        self, offsets: NDArray[np.int64], changes: PlainChanges, places: NDArray[np.int32]
    ) -> dict[int, list[tuple[int, int]]]:
        """Returns slot → handle and revision of what is no longer there."""
        live, handles = self.live, changes.queries.handles
        known = live.rows_of(handles)
        former = np.where(known >= 0, live.slot_sets[known], places)
        left: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for row in np.flatnonzero(former != places).tolist():
            here = live.slot_set(int(places[row]))
            for slot in set(live.slot_set(int(former[row]))).difference(here):
                left[slot].append((int(handles[row]), int(offsets[row])))
        return left

    def _records(
        self,
        offsets: NDArray[np.int64],
        changes: PlainChanges,
        routes: QueryRoutes,
        left: dict[int, list[tuple[int, int]]],
    ) -> list[Effect]:
        owners = np.repeat(np.arange(len(changes)), np.diff(routes.slot_offsets))
        order = np.argsort(routes.slots, kind="stable")
        slots, begins = np.unique(routes.slots[order], return_index=True)
        pieces = np.split(owners[order], begins[1:]) if len(slots) else []
        chosen_of = dict(zip(slots.tolist(), pieces, strict=True))
        nothing = np.empty(0, np.intp)
        return [
            Append(
                SLOTS,
                slot,
                self._installed(offsets, changes, chosen_of.get(slot, nothing), left.get(slot, [])),
            )
            for slot in sorted(chosen_of.keys() | left.keys())
        ]

    def _installed(
        self,
        offsets: NDArray[np.int64],
        changes: PlainChanges,
        chosen: NDArray[np.intp],
        ended: list[tuple[int, int]],
    ) -> Installed:
        queries = changes.queries
        is_all = len(chosen) == len(changes)
        record = Installed.plain(
            self.partition,
            self.floor,
            queries.names if is_all else take_names(queries.names, chosen),
            offsets[chosen],
            queries.rows if is_all else take_queries(queries.rows, chosen),
            None,
            np.array([handle for handle, _ in ended], np.uint64),
            np.array([revision for _, revision in ended], np.int64),
        )
        begins_ms, sinces = changes.begins_ms[chosen], changes.sinces[chosen]
        if (begins_ms != AT_ONCE_MS).any():
            record = replace(record, begins_ms=begins_ms)
        if (sinces != NO_REVISION).any():
            record = replace(record, sinces=sinces)
        return record


def removal_parts(count: int, bytes_max: int) -> Iterator[tuple[int, int]]:
    """Yields begin and end of parts of removals, each of which fits one record of a slot."""
    each = max(1, bytes_max // REMOVED_BYTES)
    return ((begin, min(begin + each, count)) for begin in range(0, count, each))


@dataclass(frozen=True, slots=True)
class RemovalUpdates:
    """What the removals of one batch are forwarded with.

    Attributes:
        partition: of the registry.
        floor: offset of its last checkpoint.
        live: the queries; those that are removed leave it.
    """

    partition: int
    floor: int
    live: LiveQueries

    def forward(self, offsets: NDArray[np.int64], handles: NDArray[np.uint64]) -> list[Effect]:
        """Returns the records for slots.

        Args:
            offsets: i8[n], of the removals.
            handles: u8[n], of distinct live queries that are placed, few enough for one record.
        """
        slots, begins = self._slots(handles)
        removals = np.repeat(np.arange(len(handles)), np.diff(begins))
        order = np.argsort(slots, kind="stable")
        effects: list[Effect] = []
        own_slots, own_begins = np.unique(slots[order], return_index=True)
        for slot, own in zip(
            own_slots.tolist(), np.split(removals[order], own_begins[1:]), strict=False
        ):
            record = removed_record(self.partition, self.floor, handles[own], offsets[own])
            effects.append(Append(SLOTS, slot, record))
        self.live.drop(handles)
        return effects

    def _slots(self, handles: NDArray[np.uint64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Returns the slots that may hold each query, one query after the other, and i8[n + 1]."""
        return self.live.slots_of(self.live.rows_of(handles))
