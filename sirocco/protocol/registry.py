"""The registry: the half of a router's back that owns queries (rule R3).

The compacted topic `registry` is the source of truth: the newest record of a query id is the query.
A change is one append, conditional on the revision (the offset of the record before it), so that
what a zombie appends is void wherever it lands. The owner of a registry partition decides in offset
order, forwards to the slots that the region meets, and answers when every slot has it.

A change that the owner sees to be pointless (unequal registration, unknown id) is answered without
an append. One that waits for an append of the same query waits its turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import xxhash
from numpy.typing import NDArray

from sirocco.index.compile import compile_queries, take_queries
from sirocco.index.handle_table import HandleTable
from sirocco.index.query_rows import QueryRows
from sirocco.model.errors import AlreadyExists, NotFound, SiroccoError, Unavailable
from sirocco.model.query import RangeQuery, identity_of, query_handle
from sirocco.protocol.effects import Answer, Append, Effect, Outcome, State, Wish
from sirocco.protocol.messages import (
    NEVER_MS,
    NO_REVISION,
    REGISTRY,
    SLOTS,
    Change,
    Installed,
    QueryNames,
)
from sirocco.schemes.routing import RoutingArrays

# Changes that may wait for an append of the same query; one client that floods a single query is
# refused beyond, long before memory is at stake.
WAITING_MAX = 1_000


def digest_of(wish: Wish) -> int:
    """64 bits over all that makes two registrations equal; 0 for a removal."""
    if wish.query is None:
        return 0
    # The first part is one JSON value, so nothing can be mistaken for a piece of the second.
    return xxhash.xxh3_64_intdigest(identity_of(wish.query) + wish.subscriber.encode())


@dataclass(slots=True)
class Request:
    """One `Wished` on its way: outcomes so far, and how many are open."""

    token: int
    outcomes: list[Outcome | None]
    open: int


@dataclass(slots=True)
class Pending:
    """An append of one query that the log has not shown yet, and the wishes behind it."""

    request: Request
    row: int
    wish: Wish
    digest: int
    waiting: deque[tuple[Request, int, Wish]] = field(default_factory=deque)


class LiveQueries:
    """The live queries of one registry partition, in arrays: about 50 bytes each.

    Slot sets are interned: queries are many, the sets of slots that regions meet are few.
    """

    def __init__(self) -> None:
        self.rows = HandleTable()
        self.handles = np.zeros(64, np.uint64)
        self.revisions = np.full(64, NO_REVISION, np.int64)
        self.digests = np.zeros(64, np.uint64)
        self.expires_ms = np.full(64, NEVER_MS, np.int64)
        self.slot_sets = np.zeros(64, np.int32)
        self._sets: list[tuple[int, ...]] = [()]
        self._set_ids: dict[tuple[int, ...], int] = {(): 0}
        self._free: list[int] = []
        self._end = 0

    def __len__(self) -> int:
        return len(self.rows)

    def known(self, handles: list[int]) -> list[tuple[int, int]]:
        """Revision and digest of each query; (`NO_REVISION`, 0) when there is none."""
        rows = self.rows.get(np.array(handles, np.uint64))
        is_here = rows >= 0
        revisions = np.where(is_here, self.revisions[rows], NO_REVISION)
        digests = np.where(is_here, self.digests[rows], np.uint64(0))
        return list(zip(revisions.tolist(), digests.tolist(), strict=True))

    def revision(self, handle: int) -> int:
        """The revision of a query, `NO_REVISION` when there is none."""
        return self.known([handle])[0][0]

    def slots(self, row: int) -> tuple[int, ...]:
        """The slots that hold a query."""
        return self._sets[int(self.slot_sets[row])]

    def put(
        self,
        handles: NDArray[np.uint64],
        revisions: list[int],
        digests: list[int],
        expires_ms: NDArray[np.int64],
        slots: list[tuple[int, ...]],
    ) -> None:
        """Enters queries or their new versions; no handle twice."""
        rows = self.rows.get(handles)
        fresh = np.flatnonzero(rows < 0)
        rows[fresh] = [self._free.pop() if self._free else self._extend() for _ in fresh]
        self.rows.put(handles[fresh], rows[fresh])
        self.handles[rows], self.revisions[rows] = handles, revisions
        self.digests[rows] = np.array(digests, np.uint64)
        self.expires_ms[rows] = expires_ms
        self.slot_sets[rows] = [self._set_id(each) for each in slots]

    def drop(self, handles: NDArray[np.uint64]) -> None:
        """Removes queries that are here."""
        rows = self.rows.get(handles)
        self.rows.drop(handles)
        self.revisions[rows] = NO_REVISION
        self.expires_ms[rows] = NEVER_MS
        self._free.extend(rows.tolist())

    def expired(self, now_ms: int) -> list[int]:
        """Handles of the queries whose lifetime ended."""
        rows = np.flatnonzero(self.expires_ms[: self._end] <= now_ms)
        return [int(handle) for handle in self.handles[rows]]

    def state(self) -> dict[str, NDArray[Any]]:
        """All queries as columns, for a checkpoint."""
        rows = np.flatnonzero(self.revisions[: self._end] != NO_REVISION)
        sets = [self.slots(int(row)) for row in rows]
        offsets = np.zeros(len(sets) + 1, np.int64)
        np.cumsum([len(slots) for slots in sets], out=offsets[1:])
        flat = np.array([slot for slots in sets for slot in slots], np.int32)
        return {
            "handles": self.handles[rows],
            "revisions": self.revisions[rows],
            "digests": self.digests[rows],
            "expires_ms": self.expires_ms[rows],
            "slot_offsets": offsets,
            "slots": flat,
        }

    def restore(self, state: State) -> None:
        """Takes all queries of a checkpoint; for an empty table."""
        flat, offsets = state["slots"].tolist(), state["slot_offsets"].tolist()
        self.put(
            np.asarray(state["handles"], np.uint64),
            state["revisions"].tolist(),
            state["digests"].tolist(),
            np.asarray(state["expires_ms"], np.int64),
            [tuple(flat[begin:end]) for begin, end in pairwise(offsets)],
        )

    def _set_id(self, slots: tuple[int, ...]) -> int:
        set_id = self._set_ids.setdefault(slots, len(self._sets))
        if set_id == len(self._sets):
            self._sets.append(slots)
        return set_id

    def _extend(self) -> int:
        if self._end == len(self.handles):
            room = 2 * self._end
            for name in ("handles", "revisions", "digests", "expires_ms", "slot_sets"):
                setattr(self, name, np.resize(getattr(self, name), room))
        self._end += 1
        return self._end - 1


@dataclass(slots=True)
class Registry:
    """One owned registry partition: decides, forwards, answers.

    Attributes:
        partition: the Kafka partition.
        offset: next offset to read.
        floor: offset of the last checkpoint: changes below it are in their slots.
        live: the queries.
        voids: changes that were void.
    """

    partition: int
    offset: int
    floor: int
    live: LiveQueries = field(default_factory=LiveQueries)
    voids: int = 0
    _pending: dict[int, Pending] = field(default_factory=dict)

    def wish(self, token: int, wishes: tuple[Wish, ...]) -> list[Effect]:
        """Takes the wishes of a client; each is decided at once or appended."""
        request = Request(token, [None] * len(wishes), len(wishes))
        return self._consider([(request, row, wish) for row, wish in enumerate(wishes)])

    def read(self, changes: list[tuple[int, Change]], routing: RoutingArrays) -> list[Effect]:
        """Takes the next records of the partition: (offset, change) in order."""
        self.offset = changes[-1][0] + 1
        valid = self._valid(changes)
        effects = self._forward(valid, routing)
        valid_offsets = {offset for offset, _ in valid}
        for offset, change in changes:
            effects += self._resolve(offset, change, offset in valid_offsets)
        return effects

    def expire(self, now_ms: int) -> list[Effect]:
        """Appends the removal of the queries whose lifetime has ended."""
        effects: list[Effect] = []
        for handle in self.live.expired(now_ms):
            if handle in self._pending:
                continue
            revision = self.live.revision(handle)
            change = Change(handle, None, "", now_ms, revision, 0)
            effects.append(Append(REGISTRY, self.partition, change))
        return effects

    def abandon(self) -> list[Effect]:
        """Answers whoever waits that another owner decides now; they may try again there."""
        error = Unavailable("the owner of this part of the registry has changed; try again")
        effects: list[Effect] = []
        for pending in self._pending.values():
            waiters = [(pending.request, pending.row)]
            waiters += [(request, row) for request, row, _ in pending.waiting]
            for request, row in waiters:
                effects += _settle(request, row, Outcome(NO_REVISION, error))
        self._pending.clear()
        return effects

    def _consider(self, asked: list[tuple[Request, int, Wish]]) -> list[Effect]:
        handles = [query_handle(wish.id) for _, _, wish in asked]
        effects: list[Effect] = []
        for (request, row, wish), handle, (revision, digest) in zip(
            asked, handles, self.live.known(handles), strict=True
        ):
            pending = self._pending.get(handle)
            if pending is not None:
                effects += _queue(pending, request, row, wish)
                continue
            wanted = digest_of(wish)
            if wish.query is not None and revision != NO_REVISION and digest == wanted:
                effects += _settle(request, row, Outcome(revision))
            elif (error := _objection(wish, exists=revision != NO_REVISION)) is not None:
                effects += _settle(request, row, Outcome(NO_REVISION, error))
            else:
                self._pending[handle] = Pending(request, row, wish, wanted)
                change = Change(
                    handle, wish.query, wish.subscriber, wish.start_ms, revision, wanted
                )
                effects.append(Append(REGISTRY, self.partition, change))
        return effects

    def _valid(self, changes: list[tuple[int, Change]]) -> list[tuple[int, Change]]:
        # Several changes of one query in one batch: each is judged by the revision that the one
        # before it left behind.
        handles = np.array([change.handle for _, change in changes], np.uint64)
        places = self.live.rows.get(handles)
        known = np.where(places >= 0, self.live.revisions[places], NO_REVISION)
        revisions: dict[int, int] = dict(zip(handles.tolist(), known.tolist(), strict=True))
        valid: list[tuple[int, Change]] = []
        for offset, change in changes:
            current = revisions[change.handle]
            if change.expected_revision != current:
                self.voids += 1
                continue
            revisions[change.handle] = offset if change.query is not None else NO_REVISION
            valid.append((offset, change))
        return valid

    def _forward(self, valid: list[tuple[int, Change]], routing: RoutingArrays) -> list[Effect]:
        # Of several changes of one query only the last one needs to be told.
        newest = {change.handle: (offset, change) for offset, change in valid}
        kept = [(o, c) for o, c in newest.values() if c.query is not None]
        gone = [(o, c) for o, c in newest.values() if c.query is None]
        former = self._former_slots(valid, newest, routing)
        installs = _Installs(self.partition, self.floor)
        if kept:
            self._place(kept, routing, installs, former)
        if gone:
            handles = np.array([change.handle for _, change in gone], np.uint64)
            for offset, change in gone:
                installs.remove(former[change.handle], change, offset)
            self.live.drop(handles[self.live.rows.get(handles) >= 0])
        return installs.effects()

    def _former_slots(
        self,
        valid: list[tuple[int, Change]],
        newest: dict[int, tuple[int, Change]],
        routing: RoutingArrays,
    ) -> dict[int, set[int]]:
        """The slots that may hold an earlier version of each changed query.

        Versions that are passed over here count too: a predecessor that read in smaller batches
        may have told slots of them before it ended.
        """
        handles = np.array(list(newest), np.uint64)
        former = {
            handle: set(self.live.slots(place)) if place >= 0 else set()
            for handle, place in zip(newest, self.live.rows.get(handles).tolist(), strict=True)
        }
        passed = [
            change
            for offset, change in valid
            if change.query is not None and newest[change.handle][0] != offset
        ]
        if passed:
            queries = [change.query for change in passed if change.query is not None]
            _, slots = routed_queries(queries, [change.start_ms for change in passed], routing)
            for change, each in zip(passed, slots, strict=True):
                former[change.handle].update(each)
        return former

    def _place(
        self,
        kept: list[tuple[int, Change]],
        routing: RoutingArrays,
        installs: _Installs,
        former: dict[int, set[int]],
    ) -> None:
        queries = [change.query for _, change in kept if change.query is not None]
        rows, slots = routed_queries(queries, [change.start_ms for _, change in kept], routing)
        handles = np.array([change.handle for _, change in kept], np.uint64)
        for (offset, change), new in zip(kept, slots, strict=True):
            # Slots that the new version does not reach: the old one ends there.
            installs.remove(former[change.handle].difference(new), change, offset)
        installs.install(kept, rows, slots)
        self.live.put(
            handles,
            [offset for offset, _ in kept],
            [change.digest for _, change in kept],
            rows.expires_ms,
            slots,
        )

    def _resolve(self, offset: int, change: Change, is_valid: bool) -> list[Effect]:
        pending = self._pending.get(change.handle)
        if pending is None or change.digest != pending.digest:
            return []
        del self._pending[change.handle]
        asked = list(pending.waiting)
        effects: list[Effect] = []
        if is_valid:
            effects += _settle(pending.request, pending.row, Outcome(offset))
        else:
            # Void: somebody else's change came first. The wish is looked at anew.
            asked.insert(0, (pending.request, pending.row, pending.wish))
        return effects + self._consider(asked) if asked else effects


class _Installs:
    """Collects what each slot is told of a batch of changes: one record a slot."""

    def __init__(self, partition: int, floor: int) -> None:
        self._partition = partition
        self._floor = floor
        self._kept: list[tuple[int, Change]] = []
        self._rows: QueryRows | None = None
        self._rows_of_slot: dict[int, list[int]] = {}
        self._gone_of_slot: dict[int, list[tuple[int, int]]] = {}

    def remove(self, slots: Iterable[int], change: Change, revision: int) -> None:
        for slot in slots:
            self._gone_of_slot.setdefault(slot, []).append((change.handle, revision))

    def install(
        self, kept: list[tuple[int, Change]], rows: QueryRows, slots: list[tuple[int, ...]]
    ) -> None:
        self._kept, self._rows = kept, rows
        for row, each in enumerate(slots):
            for slot in each:
                self._rows_of_slot.setdefault(slot, []).append(row)

    def effects(self) -> list[Effect]:
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


def _queue(pending: Pending, request: Request, row: int, wish: Wish) -> list[Effect]:
    if len(pending.waiting) < WAITING_MAX:
        pending.waiting.append((request, row, wish))
        return []
    crowded = Unavailable("too many changes of this query are under way", field="id")
    return _settle(request, row, Outcome(NO_REVISION, crowded))


def _objection(wish: Wish, *, exists: bool) -> SiroccoError | None:
    if wish.action == "register":
        if exists:
            return AlreadyExists("another query is registered under this id", field="id")
    elif not exists:
        return NotFound("no query is registered under this id", field="id")
    return None


def _settle(request: Request, row: int, outcome: Outcome) -> list[Effect]:
    request.outcomes[row] = outcome
    request.open -= 1
    if request.open:
        return []
    return [Answer(request.token, tuple(o for o in request.outcomes if o is not None))]
