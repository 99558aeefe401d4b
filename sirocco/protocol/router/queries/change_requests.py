"""Decides change requests of clients at once, or when the log shows what was appended for them.

A change that the owner knows to be pointless (equal or unequal registration, unknown id) is not
appended. But an owner that has just begun, or that was suspended and replaced, has an old state. So
it appends a probe, a record that changes nothing, and decides when the log shows it. Until the log
has shown a record of its ownership it appends nothing else: records that it has not read could make
its append void, and that would be the newest record of the query. A request for a query with an
append under way waits for it.

The log and everything downstream identify a query by its handle. Of two ids with one handle the
second is refused while the first is live (docs/adr/0029). Only this module checks that: an appended
change names the revision that it replaces, and so the query whose id was compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.model.access import tenant_of
from sirocco.model.errors import InvalidArgument, ResourceExhausted, SiroccoError
from sirocco.model.query import fingerprint_of, query_handle
from sirocco.protocol.contract.effects import (
    Append,
    AppendChanges,
    ChangeRequest,
    Effect,
    Outcome,
    PlainRequests,
    RemovalRequests,
)
from sirocco.protocol.contract.messages import NO_REVISION, PROBE_HANDLE, REGISTRY, Change
from sirocco.protocol.contract.plain_queries import ChangeColumns, PlainChanges, Removals
from sirocco.protocol.contract.record_sizes import check_change
from sirocco.protocol.router.limits import LIMITS, RouterLimits
from sirocco.protocol.router.queries.change_validation import ChangeValidation
from sirocco.protocol.router.queries.life_starts import LifeStarts
from sirocco.protocol.router.queries.live_queries import UNKNOWN, Known, LiveQueries, has_expired
from sirocco.protocol.router.queries.member_declarations import (
    MemberCounts,
    MemberDeclarations,
    check_member,
    member_of,
)
from sirocco.protocol.router.queries.pending_changes import (
    ColumnBatch,
    Pending,
    QueuedRequest,
    RequestBatch,
    are_same,
    collision,
    digest_of,
    is_same,
    objection,
    queue,
    settle,
)
from sirocco.protocol.router.queries.pending_columns import PendingColumns
from sirocco.protocol.router.queries.report_locators import Locators
from sirocco.schemes.map.routing import RoutingArrays

# Probes of one ownership are numbered in this many bits below its epoch.
PROBE_BITS = 24


@dataclass(slots=True, kw_only=True)
class PendingRequests:
    """The pending change requests of one owned registry partition.

    Attributes:
        partition: of the registry.
        epoch: of the ownership.
        live: the queries.
        locators: where the objects of queries are reported, chosen with their changes.
        validation: knows whether the log has shown a record of this ownership.
        life_starts: the revisions at which queries began.
        member_declarations: the members that the queries track.
        routing: of the map in force, which chooses keys; None while there is none.
        next_routing: of the newest prepared map: a change may be read after the switch to it.
        now_ms: the time for lifetimes; None: the time of each request.
        limits: of the router.
    """

    partition: int
    epoch: int
    live: LiveQueries
    locators: Locators
    validation: ChangeValidation
    life_starts: LifeStarts
    member_declarations: MemberDeclarations
    routing: RoutingArrays | None = None
    next_routing: RoutingArrays | None = None
    now_ms: int | None = None
    limits: RouterLimits = LIMITS
    # Handle → id → its pending append; requests for another id do not wait for it.
    _pending: dict[int, dict[str, Pending]] = field(default_factory=dict)
    # The pending changes that are columns. No other request is for their queries; at the first one
    # for a query its change moves to `_pending`.
    _columns: PendingColumns = field(default_factory=PendingColumns)
    # Probe → the handles and ids whose requests it decides.
    _probed: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    _probes: int = 0
    # Members that pending changes track.
    _pending_members: MemberCounts = field(default_factory=MemberCounts)

    def __contains__(self, handle: int) -> bool:
        """Whether change requests for the live query of a handle wait for an append.

        A probe for another id, which only checks whether that is free, blocks nothing.
        """
        return bool(self._columns.find(np.array([handle], np.uint64))[0] >= 0) or any(
            not pending.change.is_probe or self.live.has(handle, query_id)
            for query_id, pending in self._pending.get(handle, {}).items()
        )

    def are_held(self, handles: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Returns bool[n], for which live queries change requests wait for an append."""
        held: NDArray[np.bool_] = self._columns.find(handles) >= 0
        for row in np.flatnonzero(self._are_single(handles)).tolist():
            held[row] |= int(handles[row]) in self
        return held

    def take_requests(self, token: int, requests: tuple[ChangeRequest, ...]) -> list[Effect]:
        """Takes the change requests of a client; each is decided at once or appended."""
        batch = RequestBatch(token, [None] * len(requests), len(requests))
        return self._consider([(batch, row, request) for row, request in enumerate(requests)])

    def take_columns(self, token: int, requests: PlainRequests | RemovalRequests) -> list[Effect]:
        """Takes change requests that are columns; those that need an append are one effect."""
        handles, count = requests.queries.handles, len(requests)
        known = self.live.known_columns(handles)
        changes = self._changes(requests, known.revisions)
        batch = ColumnBatch(token, requests, changes)
        is_usual = np.zeros(count, np.bool_)
        if (
            self.validation.is_announced
            # The record of a removal has none.
            and (isinstance(requests, RemovalRequests) or self._needs_no_locator)
            and len(sorted_distinct(handles)) == count
            and self._columns.has_room(count)
        ):
            now_ms = requests.start_ms if self.now_ms is None else self.now_ms
            is_usual = usual_rows(requests, known, now_ms)
            is_usual &= ~self._are_pending(handles)
        appended = np.flatnonzero(is_usual)
        others = np.flatnonzero(~is_usual).tolist()
        effects: list[Effect] = []
        if len(appended):
            self._columns.put(batch, handles[appended], appended)
            some = changes if len(appended) == count else changes.take(appended)
            effects.append(AppendChanges(self.partition, some))
        return effects + self._consider([(batch, row, requests.request(row)) for row in others])

    def _changes(
        self, requests: PlainRequests | RemovalRequests, revisions: NDArray[np.int64]
    ) -> ChangeColumns:
        """Returns what requests are appended as, given the revisions that are replaced."""
        count = len(requests)
        starts_ms = np.full(count, requests.start_ms, np.int64)
        epochs = np.full(count, self.epoch, np.int64)
        if isinstance(requests, RemovalRequests):
            return Removals(requests.queries.handles, starts_ms, revisions, epochs)
        sinces = np.full(count, NO_REVISION, np.int64)
        if requests.is_update:
            sinces = self.life_starts.sinces(requests.queries.handles, revisions)
        return PlainChanges(
            queries=requests.queries,
            starts_ms=starts_ms,
            expected_revisions=revisions,
            epochs=epochs,
            sinces=sinces,
            are_starts_given=np.full(count, requests.is_start_given, np.bool_),
        )

    @property
    def _needs_no_locator(self) -> bool:
        """Whether `Locators.choose` returns nothing for any query, as without keyword maps."""
        return self.routing is None or not (
            self.routing.is_by_keyword
            or (self.next_routing is not None and self.next_routing.is_by_keyword)
            or self.locators.live
            or self.locators.removed
        )

    def _are_pending(self, handles: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Returns bool[n], for which queries an append is under way, or for another of a handle."""
        pending: NDArray[np.bool_] = self._columns.find(handles) >= 0
        return pending | self._are_single(handles)

    def _are_single(self, handles: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Returns bool[n], for which of them `_pending` has an append."""
        if not self._pending:
            return np.zeros(len(handles), np.bool_)
        return np.isin(handles, np.fromiter(self._pending, np.uint64, len(self._pending)))

    def take_column_records(
        self, offsets: NDArray[np.int64], changes: ChangeColumns
    ) -> list[Effect]:
        """Takes valid changes from the log, as columns; as `take_record`.

        Args:
            offsets: i8[n]
            changes: of distinct queries.
        """
        handles = changes.handles
        numbers = self._columns.find(handles)
        others = np.flatnonzero((numbers < 0) & self._are_single(handles)).tolist()
        effects: list[Effect] = []
        for batch, shown, asked in self._columns.by_batch(numbers):
            is_own = are_same(changes, shown, batch.changes, asked)
            others += shown[~is_own].tolist()
            own = shown[is_own]
            if len(own):
                self._columns.drop(handles[own], numbers[own])
                effects += batch.settle_valid(asked[is_own], offsets[own])
        for row in others:
            effects += self.take_record(int(offsets[row]), changes.change(row), is_valid=True)
        return effects

    def _single(self, handle: int) -> None:
        """Makes a pending change that is in a column one like any other."""
        found = self._columns.take(handle)
        if found is not None:
            batch, row = found
            request, change = batch.requests.request(row), batch.changes.change(row)
            pending = Pending(batch, row, request, change)
            self._pending.setdefault(handle, {})[request.id] = pending

    def _single_all(self) -> None:
        for handle in self._columns.handles():
            self._single(handle)

    def probe(self, now_ms: int) -> Change:
        """Returns a probe to be appended: a record that changes nothing."""
        self._probes += 1
        number = self.epoch << PROBE_BITS | self._probes
        self._probed[number] = []
        # No such query exists, so a change of its revision 0 is void.
        return Change(
            handle=PROBE_HANDLE,
            query=None,
            subscriber="",
            start_ms=now_ms,
            expected_revision=0,
            digest=number,
            epoch=self.epoch,
        )

    def take_record(self, offset: int, change: Change, *, is_valid: bool) -> list[Effect]:
        """Takes a change of any owner from the log; decides the requests that wait for it."""
        if change.is_probe:
            probed = [self._take(*each) for each in self._probed.pop(change.digest, [])]
            return self._continue(probed, is_settled=False)
        self._single(change.handle)
        for pending in self._pending.get(change.handle, {}).values():
            if is_same(change, pending.change):
                break
        else:
            return []
        self._take(change.handle, pending.request.id)
        effects: list[Effect] = []
        if is_valid:
            effects = settle(pending.batch, pending.row, Outcome(offset))
            if not pending.waiting:
                return effects
        # Void: another owner's change came first. The request is decided again.
        return effects + self._continue([pending], is_settled=is_valid)

    def are_locators_current(self) -> bool:
        """Whether every pending change has the locator that the state of now would choose.

        One decided before the version in force was copied has not. It must be in its slots before
        objects are routed by the next map: of an object that matches both versions, each would
        leave the report to other slots.
        """
        if not self._needs_no_locator:
            self._single_all()
        return all(
            self.locators.choose(one.change, self.routing, self.next_routing) == one.change.locator
            for one in self._all()
        )

    def refuse(self, error: SiroccoError) -> list[Effect]:
        """Answers all waiting requests with an error: this process decides no more."""
        self._single_all()
        effects: list[Effect] = []
        for pending in self._all():
            waiters = [(pending.batch, pending.row)]
            waiters += [(batch, row) for batch, row, _ in pending.waiting]
            for batch, row in waiters:
                effects += settle(batch, row, Outcome(NO_REVISION, error))
        self._pending.clear()
        self._probed.clear()
        return effects

    def _all(self) -> Iterator[Pending]:
        return (pending for by_id in self._pending.values() for pending in by_id.values())

    def _take(self, handle: int, query_id: str) -> Pending:
        by_id = self._pending[handle]
        pending = by_id.pop(query_id)
        if not by_id:
            del self._pending[handle]
        if (member := member_of(pending.change.query)) is not None:
            self._pending_members.remove(tenant_of(query_id), member)
        return pending

    def _consider(self, queued: list[QueuedRequest], *, is_current: bool = False) -> list[Effect]:
        """Decides change requests or appends for them.

        Args:
            queued: the requests.
            is_current: the log has shown everything that was in it when they arrived.
        """
        probe: Change | None = None
        begun: list[Pending] = []
        handles = [query_handle(request.id) for _, _, request in queued]
        effects: list[Effect] = []
        for (batch, row, request), handle, known in zip(
            queued, handles, self.live.known(handles), strict=True
        ):
            self._single(handle)
            pending = self._pending.get(handle, {}).get(request.id)
            if pending is not None:
                effects += queue(pending, batch, row, request, self.limits.waiting_changes_max)
                continue
            wanted = digest_of(request)
            outcome = _immediate_outcome(
                request, wanted, known, request.start_ms if self.now_ms is None else self.now_ms
            )
            if outcome is not None and is_current:
                effects += settle(batch, row, outcome)
                continue
            if outcome is None and (is_current or self.validation.is_announced):
                try:
                    change = self._change(handle, request, known[0], wanted)
                except (InvalidArgument, ResourceExhausted) as error:
                    effects += settle(batch, row, Outcome(NO_REVISION, error))
                    continue
                effects.append(Append(REGISTRY, self.partition, change))
            else:
                change = probe = probe or self.probe(request.start_ms)
                self._probed[probe.digest].append((handle, request.id))
            pending = Pending(batch, row, request, change)
            self._pending.setdefault(handle, {})[request.id] = pending
            if (member := member_of(change.query)) is not None:
                self._pending_members.add(tenant_of(request.id), member)
            begun.append(pending)
        for pending in begun:
            pending.covered = len(pending.waiting)
        return [*effects, Append(REGISTRY, self.partition, probe)] if probe else effects

    def _change(self, handle: int, request: ChangeRequest, revision: int, digest: int) -> Change:
        """Returns the change to append for a request.

        Raises:
            InvalidArgument: With its locator it does not fit the records of slots.
            ResourceExhausted: It would track one member too many.
        """
        check_member(
            request.query,
            self.member_declarations.counts,
            self._pending_members,
            self.limits.members_max,
        )
        change = Change(
            handle=handle,
            query=request.query,
            subscriber=request.subscriber,
            start_ms=request.start_ms,
            expected_revision=revision,
            digest=digest,
            epoch=self.epoch,
            past_ms=request.past_ms,
            is_start_given=request.is_start_given,
            since=self.life_starts.since(handle, revision)
            if request.action == "update"
            else NO_REVISION,
        )
        locator = self.locators.choose(change, self.routing, self.next_routing)
        if request.query is not None:
            check_change(request.query, request.subscriber, locator)
        return replace(change, locator=locator) if locator else change

    def _continue(self, shown: list[Pending], *, is_settled: bool) -> list[Effect]:
        """Decides the requests of appends that the log has shown, and those waiting for them."""
        current: list[QueuedRequest] = []
        later: list[QueuedRequest] = []
        for pending in shown:
            if not is_settled:
                current.append((pending.batch, pending.row, pending.request))
            waiting = list(pending.waiting)
            current += waiting[: pending.covered]
            later += waiting[pending.covered :]
        effects = self._consider(current, is_current=True) if current else []
        return effects + self._consider(later) if later else effects


def _immediate_outcome(
    request: ChangeRequest, wanted: int, known: tuple[int, int, int, int], now_ms: int
) -> Outcome | None:
    """Returns the outcome of a request that needs no change; None if it needs one.

    Args:
        request: the request of a client.
        wanted: its digest.
        known: revision, digest, expiry (epoch ms) and fingerprint of the query of its handle.
        now_ms: the time for lifetimes.
    """
    revision, digest, expires_ms, fingerprint = known
    if revision != NO_REVISION and fingerprint not in (UNKNOWN, fingerprint_of(request.id)):
        # Also if its lifetime has ended: until the log says so, the append would replace it.
        return Outcome(NO_REVISION, collision(request))
    # A query whose lifetime has ended does not exist, even if not removed yet.
    exists = revision != NO_REVISION and not has_expired(expires_ms, now_ms)
    if request.query is not None and exists and digest == wanted:
        return Outcome(revision)
    error = objection(request, exists=exists)
    return None if error is None else Outcome(NO_REVISION, error)


def usual_rows(
    requests: PlainRequests | RemovalRequests, known: Known, now_ms: int
) -> NDArray[np.bool_]:
    """Returns bool[n]: the requests for which `_immediate_outcome` would return None.

    Those that it answers at once are left to it.
    """
    if isinstance(requests, PlainRequests) and not requests.is_update:
        return np.asarray(known.revisions == NO_REVISION)
    queries = requests.queries
    is_its_own = (known.fingerprints == queries.fingerprints) | (known.fingerprints == UNKNOWN)
    exists = (known.revisions != NO_REVISION) & ~has_expired(known.expires_ms, now_ms)
    usual: NDArray[np.bool_] = exists & is_its_own
    if isinstance(requests, PlainRequests):
        usual &= known.digests != requests.queries.digests
    return usual
