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

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from sirocco.model.errors import InvalidArgument, ResourceExhausted, SiroccoError
from sirocco.model.query import fingerprint_of, query_handle
from sirocco.protocol.contract.effects import Append, Effect, Outcome, Wish
from sirocco.protocol.contract.messages import NO_REVISION, PROBE_HANDLE, REGISTRY, Change
from sirocco.protocol.contract.record_sizes import check_change
from sirocco.protocol.router.queries.change_validation import Judging
from sirocco.protocol.router.queries.life_starts import Lives
from sirocco.protocol.router.queries.live_queries import UNKNOWN, LiveQueries, is_over
from sirocco.protocol.router.queries.member_declarations import Tracking, check_member, member_of
from sirocco.protocol.router.queries.pending_changes import (
    Asked,
    Pending,
    Request,
    collision,
    digest_of,
    is_same,
    objection,
    queue,
    settle,
)
from sirocco.protocol.router.queries.report_locators import Locators
from sirocco.schemes.map.routing import RoutingArrays

# Probes of one ownership are numbered in this many bits below its epoch.
PROBE_BITS = 24


@dataclass(slots=True)
class Deciding:
    """The pending change requests of one owned registry partition.

    Attributes:
        partition: of the registry.
        epoch: of the ownership.
        live: the queries.
        locators: where the objects of queries are reported, chosen with their changes.
        judging: knows whether the log has shown a record of this ownership.
        lives: the revisions at which queries began.
        tracking: the members that the queries track.
        routing: of the map in force, which chooses keys; None while there is none.
        coming: of the newest prepared map: a change may be read after the switch to it.
        now_ms: the time for lifetimes; None: the time of each request.
    """

    partition: int
    epoch: int
    live: LiveQueries
    locators: Locators
    judging: Judging
    lives: Lives
    tracking: Tracking
    routing: RoutingArrays | None = None
    coming: RoutingArrays | None = None
    now_ms: int | None = None
    # Handle → id → its pending append; requests for another id do not wait for it.
    _pending: dict[int, dict[str, Pending]] = field(default_factory=dict)
    # Probe → the handles and ids whose requests it decides.
    _probed: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    _probes: int = 0
    # Members that pending changes track.
    _coming: Counter[str] = field(default_factory=Counter)

    def __contains__(self, handle: int) -> bool:
        """Whether change requests for the live query of a handle wait for an append.

        A probe for another id, which only checks whether that is free, blocks nothing.
        """
        return any(
            not pending.change.is_probe or self.live.has(handle, query_id)
            for query_id, pending in self._pending.get(handle, {}).items()
        )

    def wish(self, token: int, wishes: tuple[Wish, ...]) -> list[Effect]:
        """Takes the change requests of a client; each is decided at once or appended."""
        request = Request(token, [None] * len(wishes), len(wishes))
        return self._consider([(request, row, wish) for row, wish in enumerate(wishes)])

    def probe(self, now_ms: int) -> Change:
        """Returns a probe to be appended: a record that changes nothing."""
        self._probes += 1
        number = self.epoch << PROBE_BITS | self._probes
        self._probed[number] = []
        # No such query exists, so a change of its revision 0 is void.
        return Change(PROBE_HANDLE, None, "", now_ms, 0, number, self.epoch)

    def show(self, offset: int, change: Change, *, is_valid: bool) -> list[Effect]:
        """Takes a change of any owner from the log; decides the requests that wait for it."""
        if change.is_probe:
            probed = [self._take(*each) for each in self._probed.pop(change.digest, [])]
            return self._go_on(probed, is_settled=False)
        for pending in self._pending.get(change.handle, {}).values():
            if is_same(change, pending.change):
                break
        else:
            return []
        self._take(change.handle, pending.wish.id)
        effects: list[Effect] = []
        if is_valid:
            effects = settle(pending.request, pending.row, Outcome(offset))
            if not pending.waiting:
                return effects
        # Void: another owner's change came first. The request is decided again.
        return effects + self._go_on([pending], is_settled=is_valid)

    def is_located_anew(self) -> bool:
        """Whether every pending change has the locator that the state of now would choose.

        One decided before the version in force was copied has not. It must be in its slots before
        objects are routed by the next map: of an object that matches both versions, each would
        leave the report to other slots.
        """
        return all(
            self.locators.choose(one.change, self.routing, self.coming) == one.change.locator
            for one in self._all()
        )

    def refuse(self, error: SiroccoError) -> list[Effect]:
        """Answers all waiting requests with an error: this process decides no more."""
        effects: list[Effect] = []
        for pending in self._all():
            waiters = [(pending.request, pending.row)]
            waiters += [(request, row) for request, row, _ in pending.waiting]
            for request, row in waiters:
                effects += settle(request, row, Outcome(NO_REVISION, error))
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
            self._coming[member] -= 1
            if not self._coming[member]:
                del self._coming[member]
        return pending

    def _consider(self, asked: list[Asked], *, is_current: bool = False) -> list[Effect]:
        """Decides change requests or appends for them.

        Args:
            asked: the requests.
            is_current: the log has shown everything that was in it when they arrived.
        """
        probe: Change | None = None
        begun: list[Pending] = []
        handles = [query_handle(wish.id) for _, _, wish in asked]
        effects: list[Effect] = []
        for (request, row, wish), handle, known in zip(
            asked, handles, self.live.known(handles), strict=True
        ):
            pending = self._pending.get(handle, {}).get(wish.id)
            if pending is not None:
                effects += queue(pending, request, row, wish)
                continue
            wanted = digest_of(wish)
            outcome = _pointless(
                wish, wanted, known, wish.start_ms if self.now_ms is None else self.now_ms
            )
            if outcome is not None and is_current:
                effects += settle(request, row, outcome)
                continue
            if outcome is None and (is_current or self.judging.is_announced):
                try:
                    change = self._change(handle, wish, known[0], wanted)
                except (InvalidArgument, ResourceExhausted) as error:
                    effects += settle(request, row, Outcome(NO_REVISION, error))
                    continue
                effects.append(Append(REGISTRY, self.partition, change))
            else:
                change = probe = probe or self.probe(wish.start_ms)
                self._probed[probe.digest].append((handle, wish.id))
            pending = Pending(request, row, wish, change)
            self._pending.setdefault(handle, {})[wish.id] = pending
            if (member := member_of(change.query)) is not None:
                self._coming[member] += 1
            begun.append(pending)
        for pending in begun:
            pending.covered = len(pending.waiting)
        return [*effects, Append(REGISTRY, self.partition, probe)] if probe else effects

    def _change(self, handle: int, wish: Wish, revision: int, digest: int) -> Change:
        """Returns the change to append for a request.

        Raises:
            InvalidArgument: With its locator it does not fit the records of slots.
            ResourceExhausted: It would track one member too many.
        """
        check_member(wish.query, self.tracking, self._coming)
        change = Change(
            handle, wish.query, wish.subscriber, wish.start_ms, revision, digest,
            self.epoch, wish.past_ms, is_start_given=wish.is_start_given,
            since=self.lives.since(handle, revision) if wish.action == "update" else NO_REVISION,
        )  # fmt: skip
        locator = self.locators.choose(change, self.routing, self.coming)
        if wish.query is not None:
            check_change(wish.query, wish.subscriber, locator)
        return replace(change, locator=locator) if locator else change

    def _go_on(self, shown: list[Pending], *, is_settled: bool) -> list[Effect]:
        """Decides the requests of appends that the log has shown, and those waiting for them."""
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


def _pointless(
    wish: Wish, wanted: int, known: tuple[int, int, int, int], now_ms: int
) -> Outcome | None:
    """Returns the outcome of a request that needs no change; None if it needs one.

    Args:
        wish: the request of a client.
        wanted: its digest.
        known: revision, digest, expiry (epoch ms) and fingerprint of the query of its handle.
        now_ms: the time for lifetimes.
    """
    revision, digest, expires_ms, fingerprint = known
    if revision != NO_REVISION and fingerprint not in (UNKNOWN, fingerprint_of(wish.id)):
        # Also if its lifetime has ended: until the log says so, the append would replace it.
        return Outcome(NO_REVISION, collision(wish))
    # A query whose lifetime has ended does not exist, even if not removed yet.
    exists = revision != NO_REVISION and not is_over(expires_ms, now_ms)
    if wish.query is not None and exists and digest == wanted:
        return Outcome(revision)
    error = objection(wish, exists=exists)
    return None if error is None else Outcome(NO_REVISION, error)
