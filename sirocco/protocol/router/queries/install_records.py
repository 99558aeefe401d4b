"""Turns changed queries into the records that slots are sent (rule R3), few of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import orjson
from numpy.typing import NDArray

from sirocco.index.base.compile import compile_queries, take_queries
from sirocco.index.base.kinds import KIND_KNN, KIND_RANGE, KIND_TRACKED, kind_number
from sirocco.index.base.query_rows import FIXED_BYTES, QueryRows
from sirocco.model.limits import DEFAULT_LIMITS
from sirocco.model.query import Query, RangeQuery
from sirocco.protocol.contract.columns import NO_NAMES, QueryNames, names_of_pairs
from sirocco.protocol.contract.effects import Append, Effect
from sirocco.protocol.contract.messages import (
    AT_ONCE_MS,
    NO_PAST,
    NO_REVISION,
    NOT_COPIED,
    SLOTS,
    Change,
    EndedColumns,
    Installed,
)
from sirocco.protocol.contract.query_definitions import (
    highlight_spec,
    spec_of,
)
from sirocco.protocol.router.limits import LIMITS
from sirocco.protocol.router.queries.end_requests import End, reports_end
from sirocco.protocol.router.queries.report_locators import keys_of
from sirocco.schemes.map.routing import RoutingArrays

# Upper bound of the bytes of a character.
UTF8_BYTES_MAX = 4

# Of a query that a record removes from a slot.
REMOVED_BYTES = 16

_NO_ROWS = compile_queries([], [])


@dataclass(frozen=True, slots=True)
class _Questions:
    """Columns of a batch of queries beyond the plain conditions on new objects; see `Installed`."""

    kinds: NDArray[np.uint8]
    starts_ms: NDArray[np.int64]
    past_ms: NDArray[np.int64]
    slot_counts: NDArray[np.uint32]
    homes: NDArray[np.int64]
    specs: tuple[str, ...]

    @classmethod
    def of(cls, changes: list[Change], slots: list[tuple[int, ...]]) -> _Questions | None:
        """Returns those of queries and the slots of each; None if all are plain range queries.

        Of a range query only one whose words are to be shown has a spec.
        """
        kinds = [kind_number(change.query) for change in changes if change.query is not None]
        past_ms = [change.past_ms for change in changes]
        is_plain = [
            kind == KIND_RANGE and past == NO_PAST and not _is_highlighted(change.query)
            for kind, past, change in zip(kinds, past_ms, changes, strict=True)
        ]
        if all(is_plain):
            return None
        is_described = ~np.array(is_plain, np.bool_)
        return cls(
            np.array(kinds, np.uint8),
            np.array([change.start_ms for change in changes], np.int64) * is_described,
            np.array(past_ms, np.int64),
            (np.array([len(each) for each in slots]) * is_described).astype(np.uint32),
            np.where(is_described, [min(each, default=-1) for each in slots], -1),
            tuple(_spec_of(change.query) for change in changes),
        )

    def add_to(self, record: Installed, slot: int, chosen: NDArray[np.int64]) -> Installed:
        """Adds the columns of some queries to the plain record of a slot."""
        specs = tuple(self.specs[row] for row in chosen.tolist())
        return replace(
            record,
            names=replace(record.names, specs=specs if any(specs) else None),
            kinds=self.kinds[chosen],
            starts_ms=self.starts_ms[chosen],
            past_ms=self.past_ms[chosen],
            slot_counts=self.slot_counts[chosen],
            homes=self.homes[chosen] == slot,
        )


def _is_highlighted(query: Query | None) -> bool:
    return isinstance(query, RangeQuery) and query.highlight


def _spec_of(query: Query | None) -> str:
    if query is None:
        return ""
    if isinstance(query, RangeQuery) and query.track is None:
        return highlight_spec(query) if query.highlight else ""
    return spec_of(query)


def removed_record(
    partition: int, floor: int, handles: NDArray[np.uint64], revisions: NDArray[np.int64]
) -> Installed:
    """Returns a record for a slot that only removes queries, u8[r], by changes at i8[r]."""
    return Installed.plain(
        *(partition, floor, NO_NAMES, np.empty(0, np.int64), _NO_ROWS, None, handles, revisions)
    )


class Installs:
    """Collects the records of each slot for a batch of changes: one, or several large ones."""

    def __init__(
        self,
        partition: int,
        floor: int,
        copied_at: int = NOT_COPIED,
        bytes_max: int = LIMITS.installed_bytes_max,
    ) -> None:
        self._bytes_max = bytes_max
        self._removed_max = bytes_max // REMOVED_BYTES
        self._partition = partition
        self._floor = floor
        self._copied_at = copied_at
        self._kept: list[tuple[int, Change]] = []
        self._rows = _NO_ROWS
        self._filters: list[str] = []
        self._questions: _Questions | None = None
        self._rows_of_slot: dict[int, list[int]] = {}
        self._ended_of_slot: dict[int, list[tuple[int, int]]] = {}

    def remove(self, slots: Iterable[int], change: Change, revision: int) -> None:
        """Removes the query from these slots."""
        self.leave(slots, change.handle, revision)

    def leave(self, slots: Iterable[int], handle: int, revision: int) -> None:
        """The same for a query that has not changed."""
        for slot in slots:
            self._ended_of_slot.setdefault(slot, []).append((handle, revision))

    def install(
        self,
        kept: list[tuple[int, Change]],
        rows: QueryRows,
        slots: list[tuple[int, ...]],
        receivers: list[tuple[int, ...]] | None = None,
    ) -> None:
        """Installs queries, (revision, change) with compiled rows, in their slots.

        `receivers`: the slots that each is sent to; None: all of its slots.
        """
        self._kept, self._rows = kept, rows
        self._filters = [_filter_of(change) for _, change in kept]
        self._questions = _Questions.of([change for _, change in kept], slots)
        for row, each in enumerate(slots if receivers is None else receivers):
            for slot in each:
                self._rows_of_slot.setdefault(slot, []).append(row)

    def ends(self, ends: list[End], slots: list[int]) -> list[Effect]:
        """Returns the records of ended queries for slots, the same for each slot."""
        sizes = [len(end.query.encode()) + len(end.subscriber.encode()) + 64 for end in ends]
        pieces = _pieces(np.arange(len(ends)), np.array(sizes, np.int64), self._bytes_max)
        records = [self._ended([ends[row] for row in piece.tolist()]) for piece in pieces]
        return [Append(SLOTS, slot, each) for slot in slots for each in records]

    def _ended(self, ends: list[End]) -> Installed:
        nothing = np.empty(0, np.int64)
        record = removed_record(self._partition, self._floor, np.empty(0, np.uint64), nothing)
        names = names_of_pairs([(end.query, end.subscriber) for end in ends])
        return replace(
            record,
            ended=EndedColumns(
                names,
                np.array([end.revision for end in ends], np.int64),
                np.array([end.by for end in ends], np.int64),
                np.array([end.has_expired for end in ends], np.bool_),
            ),
        )

    def effects(self) -> list[Effect]:
        """Returns the records, by slot."""
        sizes, effects = None if self._are_few() else self._sizes(), list[Effect]()
        for slot in sorted(self._rows_of_slot.keys() | self._ended_of_slot.keys()):
            rows = np.array(self._rows_of_slot.get(slot, []), np.int64)
            ended = self._ended_of_slot.get(slot, [])
            removed_max = self._removed_max
            for piece in [rows] if sizes is None else _pieces(rows, sizes, self._bytes_max):
                effects.append(
                    Append(SLOTS, slot, self._installed(slot, piece, ended[:removed_max]))
                )
                ended = ended[removed_max:]
            for begin in range(0, len(ended), removed_max):
                record = self._installed(slot, rows[:0], ended[begin : begin + removed_max])
                effects.append(Append(SLOTS, slot, record))
        return effects

    def installed(self, slot: int) -> Installed:
        """Returns all changes of one slot as one record."""
        rows = np.array(self._rows_of_slot.get(slot, []), np.int64)
        return self._installed(slot, rows, self._ended_of_slot.get(slot, []))

    def _are_few(self) -> bool:
        """Whether all queries of the batch fit one record, as in nearly every batch."""
        specs = () if self._questions is None else self._questions.specs
        return (
            self._rows.bytes_total
            + (FIXED_BYTES + 2 * DEFAULT_LIMITS.id_bytes) * len(self._kept)
            + UTF8_BYTES_MAX * (sum(map(len, self._filters)) + sum(map(len, specs)))
            + sum([len(change.locator) for _, change in self._kept])
        ) <= self._bytes_max

    def _sizes(self) -> NDArray[np.int64]:
        """Returns i8[q], about how many bytes each query takes in a record."""
        texts = [
            sum(_utf8_bytes(each) for each in (text, change.query.id, change.subscriber))
            + len(change.locator)
            for (_, change), text in zip(self._kept, self._filters, strict=True)
            if change.query is not None
        ]
        sizes = self._rows.sizes + np.array(texts, np.int64)
        if self._questions is not None:
            sizes += np.array([_utf8_bytes(spec) for spec in self._questions.specs], np.int64)
        return sizes

    def _installed(
        self, slot: int, chosen: NDArray[np.int64], ended: list[tuple[int, int]]
    ) -> Installed:
        kept = [self._kept[row] for row in chosen.tolist()]
        filters = [self._filters[row] for row in chosen.tolist()]
        record = Installed.plain(
            self._partition,
            self._floor,
            names_of([change for _, change in kept]),
            np.array([revision for revision, _ in kept], np.int64),
            # A batch is often one query, which is sent to each of its slots.
            self._rows if len(kept) == len(self._kept) else take_queries(self._rows, chosen),
            tuple(filters) if any(filters) else None,
            np.array([handle for handle, _ in ended], np.uint64),
            np.array([revision for _, revision in ended], np.int64),
        )
        locators = tuple(change.locator for _, change in kept)
        if any(locators):
            record = replace(record, locators=locators)
        begins_ms = [change.begins_ms for _, change in kept]
        if any(each != AT_ONCE_MS for each in begins_ms):
            record = replace(record, begins_ms=np.array(begins_ms, np.int64))
        sinces = [change.since for _, change in kept]
        if any(each != NO_REVISION for each in sinces):
            record = replace(record, sinces=np.array(sinces, np.int64))
        asking = [reports_end(change.query) for _, change in kept]
        if any(asking):
            record = replace(record, reports_end=np.array(asking, np.bool_))
        if self._copied_at != NOT_COPIED:
            record = replace(record, copied_at=self._copied_at)
        return self._questions.add_to(record, slot, chosen) if self._questions else record


def installed_bytes(effects: Iterable[Effect]) -> int:
    """Returns about how many bytes the records for slots among some effects have."""
    return sum(
        _bytes_of(each.message)
        for each in effects
        if isinstance(each, Append) and isinstance(each.message, Installed)
    )


def _bytes_of(record: Installed) -> int:
    texts = sum(map(len, record.filters or ())) + sum(map(len, record.specs or ()))
    texts += sum(map(len, record.locators or ()))
    names = record.names.ids.nbytes + REMOVED_BYTES * len(record.removed)
    return record.rows.bytes_total + names + texts


def _pieces(
    rows: NDArray[np.int64], sizes: NDArray[np.int64], bytes_max: int
) -> list[NDArray[np.int64]]:
    """Splits rows so that each piece fits a record; one piece where there are none."""
    ends, pieces, begin = np.cumsum(sizes[rows]), list[NDArray[np.int64]](), 0
    while True:
        before = int(ends[begin - 1]) if begin else 0
        end = int(np.searchsorted(ends, before + bytes_max, side="right"))
        end = max(end, min(begin + 1, len(rows)))
        pieces.append(rows[begin:end])
        if end == len(rows):
            return pieces
        begin = end


def _utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _filter_of(change: Change) -> str:
    """Returns the JSON of a query's `where`, empty without."""
    if change.query is None or change.query.where is None:
        return ""
    return orjson.dumps(change.query.where.canonical()).decode()


@dataclass(frozen=True, slots=True)
class RoutedQueries:
    """The places of some queries by one map.

    Attributes:
        rows: their conditions.
        slots: those that each one meets.
        leaves: ids of the leaves that each one touches, ascending.
    """

    rows: QueryRows
    slots: list[tuple[int, ...]]
    leaves: list[tuple[int, ...]]


def routed_queries(
    changes: list[Change], routing: RoutingArrays
) -> tuple[QueryRows, list[tuple[int, ...]]]:
    """Compiles changed queries, none of which is removed; returns the slots that each one meets."""
    routed = query_places(changes, routing)
    return routed.rows, routed.slots


def query_places(
    changes: list[Change], routing: RoutingArrays, rows: QueryRows | None = None
) -> RoutedQueries:
    """Finds the places of changed queries, none of which is removed.

    The nearest objects may be anywhere, and objects that are followed are distributed by their
    common value, wherever they are: queries of these two kinds are in every slot.

    Args:
        changes: the queries.
        routing: of the map.
        rows: their conditions; None: they are compiled here.
    """
    queries = [change.query for change in changes if change.query is not None]
    if rows is None:
        rows = compile_queries(queries, [change.start_ms for change in changes])
    key_offsets = keys = None
    if routing.is_by_keyword:
        each = [keys_of(change) for change in changes]
        key_offsets = np.cumsum([0, *map(len, each)]).astype(np.int64)
        keys = np.array([key for some in each for key in some], np.uint64)
    routes = routing.route_boxes(rows.boxes, rows.box_offsets, key_offsets, keys)
    slots = _tuples(routes.slots, routes.slot_offsets)
    leaves = [tuple(sorted(each)) for each in _tuples(routes.leaves, routes.leaf_offsets)]
    everywhere = tuple(range(routing.slots))
    for row, query in enumerate(queries):
        if kind_number(query) in {KIND_KNN, KIND_TRACKED}:
            slots[row] = everywhere
    return RoutedQueries(rows, slots, leaves)


def _tuples(column: NDArray[np.int32], offsets: NDArray[np.int64]) -> list[tuple[int, ...]]:
    flat = column.tolist()
    return [tuple(flat[begin:end]) for begin, end in pairwise(offsets.tolist())]


def names_of(changes: list[Change]) -> QueryNames:
    """Returns the names of changed queries, as columns."""
    pairs = [(c.query.id, c.subscriber) for c in changes if c.query is not None]
    handles = np.array([change.handle for change in changes], np.uint64)
    return names_of_pairs(pairs, handles)
