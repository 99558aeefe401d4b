"""The registry: the half of a router's back that owns queries (rule R3).

The compacted topic `registry` is the source of truth: the newest record of a query id is the query.
A change is one append, conditional on the revision (the offset of the record before it), so that
what a zombie appends is void wherever it lands. The owner of a registry partition decides in offset
order, forwards to the slots that the region meets, and answers when every slot has it.

A change that the owner sees to be pointless (equal or unequal registration, unknown id) is not
appended. But an owner that has just begun, or that stood still and has been replaced, sees an old
state: so it appends a probe, a record that changes nothing, and judges when the log shows it. One
that waits for an append of the same query waits its turn.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import xxhash
from numpy.typing import NDArray

from sirocco.index.handle_table import HandleTable
from sirocco.model.errors import AlreadyExists, NotFound, SiroccoError, Unavailable
from sirocco.model.query import identity_of, query_handle
from sirocco.protocol.effects import Answer, Append, Effect, Outcome, State, Wish
from sirocco.protocol.installs import Installs, routed_queries
from sirocco.protocol.messages import (
    NEVER_MS,
    NO_REVISION,
    REGISTRY,
    Change,
)
from sirocco.schemes.routing import RoutingArrays

# Changes that may wait for an append of the same query; one client that floods a single query is
# refused beyond, long before memory is at stake.
WAITING_MAX = 1_000

# The handle of probes: that of no query, so that compaction keeps one probe at most.
PROBE_HANDLE = 0
DEPOSED = "the owner of this part of the registry has changed; try again"

# Probes of one ownership are numbered in so many bits below its epoch.
PROBE_BITS = 24


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


Asked: TypeAlias = tuple[Request, int, Wish]


@dataclass(slots=True)
class Pending:
    """An append for one query that the log has not shown yet, and the wishes behind it.

    Attributes:
        change: what was appended, a change of the query or a probe.
        waiting: wishes that came later, in order.
        covered: how many of them came before the append.
    """

    request: Request
    row: int
    wish: Wish
    change: Change
    waiting: deque[Asked] = field(default_factory=deque)
    covered: int = 0


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

    def known(self, handles: list[int]) -> list[tuple[int, int, int]]:
        """Revision, digest, expiry (epoch ms) of each query; `NO_REVISION` when there is none."""
        rows = self.rows.get(np.array(handles, np.uint64))
        is_here = rows >= 0
        revisions = np.where(is_here, self.revisions[rows], NO_REVISION)
        digests = np.where(is_here, self.digests[rows], np.uint64(0))
        expires_ms = self.expires_ms[rows]
        return list(zip(revisions.tolist(), digests.tolist(), expires_ms.tolist(), strict=True))

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
        epoch: of the ownership.
        epoch_seen: the greatest of any record; greater than `epoch`: another owns this now.
        live: the queries.
        voids: changes that were void.
    """

    partition: int
    offset: int
    floor: int
    epoch: int
    epoch_seen: int = 0
    live: LiveQueries = field(default_factory=LiveQueries)
    voids: int = 0
    _pending: dict[int, Pending] = field(default_factory=dict)
    # Probe → the queries whose wishes it decides.
    _probed: dict[int, list[int]] = field(default_factory=dict)
    _probes: int = 0

    def state(self) -> dict[str, NDArray[Any]]:
        """For a checkpoint."""
        return {"epoch": np.array([self.epoch_seen], np.int64), **self.live.state()}

    def restore(self, state: State) -> None:
        """Takes the state of a checkpoint."""
        self.epoch_seen = int(state["epoch"][0])
        self.live.restore(state)

    def wish(self, token: int, wishes: tuple[Wish, ...]) -> list[Effect]:
        """Takes the wishes of a client; each is decided at once or appended."""
        if self.epoch_seen > self.epoch:
            return [Answer(token, (Outcome(NO_REVISION, Unavailable(DEPOSED)),) * len(wishes))]
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
        # Deposed without knowing: what is still appended here would be void.
        return effects + self.abandon() if self.epoch_seen > self.epoch else effects

    def expire(self, now_ms: int) -> list[Effect]:
        """Appends the removal of the queries whose lifetime has ended."""
        effects: list[Effect] = []
        for handle in self.live.expired(now_ms):
            if handle in self._pending:
                continue
            revision = self.live.revision(handle)
            change = Change(handle, None, "", now_ms, revision, 0, self.epoch)
            effects.append(Append(REGISTRY, self.partition, change))
        return effects

    def abandon(self) -> list[Effect]:
        """Answers whoever waits that another owner decides now; they may try again there."""
        error = Unavailable(DEPOSED)
        effects: list[Effect] = []
        for pending in self._pending.values():
            waiters = [(pending.request, pending.row)]
            waiters += [(request, row) for request, row, _ in pending.waiting]
            for request, row in waiters:
                effects += _settle(request, row, Outcome(NO_REVISION, error))
        self._pending.clear()
        self._probed.clear()
        return effects

    def _consider(self, asked: list[Asked], *, is_current: bool = False) -> list[Effect]:
        """Decides wishes or appends them.

        Args:
            asked: the wishes.
            is_current: the log has shown everything that was in it when they came.
        """
        probe: Change | None = None
        begun: list[Pending] = []
        handles = [query_handle(wish.id) for _, _, wish in asked]
        effects: list[Effect] = []
        for (request, row, wish), handle, (revision, digest, expires_ms) in zip(
            asked, handles, self.live.known(handles), strict=True
        ):
            pending = self._pending.get(handle)
            if pending is not None:
                effects += _queue(pending, request, row, wish)
                continue
            wanted = digest_of(wish)
            # One whose lifetime has ended and that is only still to be tidied away is gone.
            exists = revision != NO_REVISION and expires_ms > wish.start_ms
            is_equal = wish.query is not None and exists and digest == wanted
            error = None if is_equal else _objection(wish, exists=exists)
            is_pointless = is_equal or error is not None
            if is_pointless and is_current:
                outcome = Outcome(revision) if error is None else Outcome(NO_REVISION, error)
                effects += _settle(request, row, outcome)
                continue
            if not is_pointless:
                change = Change(
                    handle,
                    wish.query,
                    wish.subscriber,
                    wish.start_ms,
                    revision,
                    wanted,
                    self.epoch,
                    wish.past_ms,
                )
                effects.append(Append(REGISTRY, self.partition, change))
            else:
                change = probe = probe or self._probe(wish.start_ms)
                self._probed[probe.digest].append(handle)
            self._pending[handle] = Pending(request, row, wish, change)
            begun.append(self._pending[handle])
        for pending in begun:
            pending.covered = len(pending.waiting)
        return [*effects, Append(REGISTRY, self.partition, probe)] if probe else effects

    def _probe(self, now_ms: int) -> Change:
        self._probes += 1
        number = self.epoch << PROBE_BITS | self._probes
        self._probed[number] = []
        # No such query exists, so a change of its revision 0 is void.
        return Change(PROBE_HANDLE, None, "", now_ms, 0, number, self.epoch)

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
            # A router that stood still may append what its client has long had done, and undone,
            # by its successor: the revision alone would not tell.
            is_late = change.epoch < self.epoch_seen
            self.epoch_seen = max(self.epoch_seen, change.epoch)
            if is_late or change.expected_revision != current:
                self.voids += change.handle != PROBE_HANDLE
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
        installs = Installs(self.partition, self.floor)
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
        installs: Installs,
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
        if change.handle == PROBE_HANDLE:
            probed = [self._pending.pop(h) for h in self._probed.pop(change.digest, [])]
            return self._go_on(probed, is_settled=False)
        pending = self._pending.get(change.handle)
        if pending is None or not _is_same(change, pending.change):
            return []
        del self._pending[change.handle]
        effects = []
        if is_valid:
            effects = _settle(pending.request, pending.row, Outcome(offset))
        # Void: somebody else's change came first. The wish is looked at anew.
        return effects + self._go_on([pending], is_settled=is_valid)

    def _go_on(self, shown: list[Pending], *, is_settled: bool) -> list[Effect]:
        """Decides the wishes of appends that the log has shown, and those behind them."""
        current: list[Asked] = []
        later: list[Asked] = []
        for pending in shown:
            if not is_settled:
                current.append((pending.request, pending.row, pending.wish))
            waiting = list(pending.waiting)
            current += waiting[: pending.covered]
            later += waiting[pending.covered :]
        effects = self._consider(current, is_current=True) if current else []
        return effects + self._consider(later) if later else effects


def _is_same(change: Change, own: Change) -> bool:
    # An equal change by another owner may have been made and undone before the wish came: the
    # revision that it replaces and the time of asking tell them apart.
    return (
        change.digest == own.digest
        and change.expected_revision == own.expected_revision
        and change.start_ms == own.start_ms
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
