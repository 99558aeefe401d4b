"""From changed queries to what slots are told of them (rule R3): one record for each slot."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import orjson

from sirocco.index.compile import compile_queries, take_queries
from sirocco.index.query_rows import QueryRows
from sirocco.model.query import RangeQuery
from sirocco.protocol.effects import Append, Effect
from sirocco.protocol.messages import SLOTS, Change, Installed, QueryNames
from sirocco.schemes.routing import RoutingArrays


class Installs:
    """Collects what each slot is told of a batch of changes: one record a slot."""

    def __init__(self, partition: int, floor: int) -> None:
        self._partition = partition
        self._floor = floor
        self._kept: list[tuple[int, Change]] = []
        self._rows: QueryRows | None = None
        self._rows_of_slot: dict[int, list[int]] = {}
        self._gone_of_slot: dict[int, list[tuple[int, int]]] = {}

    def remove(self, slots: Iterable[int], change: Change, revision: int) -> None:
        """The query is not, or no longer, in these slots."""
        for slot in slots:
            self._gone_of_slot.setdefault(slot, []).append((change.handle, revision))

    def install(
        self, kept: list[tuple[int, Change]], rows: QueryRows, slots: list[tuple[int, ...]]
    ) -> None:
        """The queries, (revision, change) with compiled rows, are in their slots from here on."""
        self._kept, self._rows = kept, rows
        for row, each in enumerate(slots):
            for slot in each:
                self._rows_of_slot.setdefault(slot, []).append(row)

    def effects(self) -> list[Effect]:
        """The records, by slot."""
        if self._rows is None:
            self._rows = compile_queries([], [])
        return [
            Append(SLOTS, slot, self._installed(slot))
            for slot in sorted(self._rows_of_slot.keys() | self._gone_of_slot.keys())
        ]

    def _installed(self, slot: int) -> Installed:
        assert self._rows is not None
        chosen = self._rows_of_slot.get(slot, [])
        gone = self._gone_of_slot.get(slot, [])
        kept = [self._kept[row] for row in chosen]
        filters = [
            orjson.dumps(c.query.where.canonical()).decode() if c.query and c.query.where else ""
            for _, c in kept
        ]
        return Installed(
            self._partition,
            self._floor,
            names_of([change for _, change in kept]),
            np.array([revision for revision, _ in kept], np.int64),
            take_queries(self._rows, np.array(chosen, np.int64)),
            tuple(filters) if any(filters) else None,
            np.array([handle for handle, _ in gone], np.uint64),
            np.array([revision for _, revision in gone], np.int64),
        )


def routed_queries(
    queries: list[RangeQuery], starts_ms: list[int], routing: RoutingArrays
) -> tuple[QueryRows, list[tuple[int, ...]]]:
    """Compiles queries; returns them with the slots that each one meets."""
    rows = compile_queries(queries, starts_ms)
    routes = routing.route_boxes(rows.boxes, rows.box_offsets)
    flat, offsets = routes.slots.tolist(), routes.slot_offsets.tolist()
    return rows, [tuple(flat[begin:end]) for begin, end in pairwise(offsets)]


def names_of(changes: list[Change]) -> QueryNames:
    """The names of changed queries, as columns."""
    ids = [change.query.id.encode() for change in changes if change.query is not None]
    offsets = np.zeros(len(ids) + 1, np.int64)
    np.cumsum([len(text) for text in ids], out=offsets[1:])
    names: dict[str, int] = {}
    subscriber_rows = [names.setdefault(change.subscriber, len(names)) for change in changes]
    return QueryNames(
        np.array([change.handle for change in changes], np.uint64),
        np.frombuffer(b"".join(ids), np.uint8),
        offsets,
        np.array(subscriber_rows, np.uint32),
        tuple(names),
    )
