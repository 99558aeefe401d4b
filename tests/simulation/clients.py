"""Publishers, owners of queries, subscribers: what they do when their calls fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from sirocco.model.errors import AlreadyExists, NotFound, Unavailable
from sirocco.model.query import Query, parse_query, query_handle
from sirocco.protocol.contract.effects import ChangeRequest, Outcome
from sirocco.protocol.contract.messages import DELIVERIES, NO_REVISION, REGISTRY, Change, Delivered
from sirocco.protocol.merger.delivery_records import of_subscriber
from tests.simulation.ledger import Ledger
from tests.simulation.list_ledger import sent_lists
from tests.simulation.log import SimLog, Stored
from tests.simulation.scheduler import Scheduler
from tests.simulation.services import PublishRequest, RouterNode
from tests.simulation.services import Stream as FrontStream
from tests.simulation.world import Act, Stream

# Requests under way of one publisher.
IN_FLIGHT_MAX = 5
# How long a client waits for an answer before it tries another router.
PATIENCE_MS = 3_000

# Between two attempts on a query by an id that collides with it.
RIVAL_MS = 1_500

# The greatest difference of two clocks in any profile, plus the time of a call.
CLOCKS_APART_MS = 7_000


class Routers(Protocol):
    """The routers that clients can find."""

    def pick(self) -> RouterNode | None:
        """Returns one of them, alive as far as is known."""

    def routers(self) -> dict[str, RouterNode]:
        """Returns all of them by member id."""


class Publisher:
    """Sends a session's objects; after a break again from the first unacknowledged number.

    Attributes:
        has_given_up: it is gone for good.
        token_offset: of the last acknowledged record, in its intake partition.
    """

    def __init__(
        self, scheduler: Scheduler, log: SimLog, routers: Routers, ledger: Ledger, stream: Stream
    ) -> None:
        self._scheduler = scheduler
        self._log = log
        self._routers = routers
        self._ledger = ledger
        self._stream = stream
        self._acknowledged = 0
        self._next = 1
        self._made = 0
        self._in_flight = 0
        self._serial = 0
        self._node: RouterNode | None = None
        self._front: FrontStream | None = None
        self._sent_ms = 0.0
        self._moved_ms = 0.0
        self.has_given_up = False
        self.token_offset = -1
        for number, time_ms in enumerate(stream.times_ms, 1):
            scheduler.at(time_ms, lambda number=number: self._make(number))
        scheduler.at(stream.times_ms[0], self._watch)
        if stream.gives_up_ms != float("inf"):
            scheduler.at(stream.gives_up_ms, self._give_up)

    @property
    def session(self) -> int:
        """The session of its stream."""
        return self._stream.session

    @property
    def is_done(self) -> bool:
        """Whether everything was acknowledged, or nothing more is sent."""
        return self.has_given_up or self._acknowledged == len(self._stream.members)

    def break_off(self) -> None:
        """Breaks the connection: sent requests may or may not have arrived."""
        self._serial += 1
        self._node = self._front = None
        self._scheduler.after(self._scheduler.between(1, 300), self._pump)

    def _make(self, number: int) -> None:
        self._made = number
        self._scheduler.after(0, self._pump)

    def _give_up(self) -> None:
        self.has_given_up = True
        self._serial += 1

    def _watch(self) -> None:
        if self.is_done:
            return
        is_waiting = self._in_flight and self._scheduler.now_ms - self._moved_ms > PATIENCE_MS
        if self._node is not None and (is_waiting or not self._node.is_alive):
            self.break_off()
        self._scheduler.after(self._scheduler.between(200, 600), self._watch)
        self._pump()

    def _pump(self) -> None:
        if self.has_given_up:
            return
        if self._front is None and not self._open():
            return
        while self._next <= self._made and self._in_flight < IN_FLIGHT_MAX:
            span = min(self._scheduler.dice.randint(1, 10), self._made - self._next + 1)
            self._send(self._next, span)
            self._next += span

    def _open(self) -> bool:
        node = self._routers.pick()
        if node is None:
            return False
        self._serial += 1
        serial = self._serial
        self._node, self._next, self._in_flight = node, self._acknowledged + 1, 0
        self._moved_ms = self._sent_ms = self._scheduler.now_ms

        answered_ms = [0.0]

        def acknowledged(number: int, offset: int) -> None:
            answered_ms[0] = max(answered_ms[0], self._scheduler.now_ms + self._call_ms())
            self._scheduler.at(answered_ms[0], lambda: self._take_answer(serial, number, offset))

        def broken() -> None:
            self._scheduler.after(
                self._call_ms(), lambda: self.break_off() if serial == self._serial else None
            )

        self._front = node.front.stream(acknowledged, broken)
        return True

    def _send(self, first: int, span: int) -> None:
        stream, front, node = self._stream, self._front, self._node
        assert front is not None
        assert node is not None
        good = [n for n in range(first, first + span) if n not in stream.refused]
        objects = stream.columns.slice(first - 1, first - 1 + span)
        deltas = None
        if len(good) < span:
            deltas = tuple(n - first for n in good)
            objects = objects.take(np.array(deltas, np.int64))
        request = PublishRequest(stream.session, first, span, self._acknowledged, objects, deltas)
        for number in good:
            self._ledger.publish_begins(stream.session, number)
        self._in_flight += 1
        self._sent_ms = max(self._sent_ms, self._scheduler.now_ms + self._call_ms())
        serial = self._serial

        def arrive() -> None:
            # If the client is gone meanwhile, a request on its way may be lost.
            if serial == self._serial or self._scheduler.dice.random() < 0.7:
                node.post(lambda: front.take(request))

        self._scheduler.at(self._sent_ms, arrive)

    def _take_answer(self, serial: int, number: int, offset: int) -> None:
        if serial != self._serial:
            return
        self.token_offset = max(offset, self.token_offset)
        self._ledger.publish_ends(self._stream, self._acknowledged + 1, number)
        self._acknowledged = number
        self._in_flight -= 1
        self._moved_ms = self._scheduler.now_ms
        self._pump()

    def _call_ms(self) -> float:
        return self._scheduler.between(*self._log.delays.call)


class QueryOwner:
    """Performs the steps of one query's life, each until it is acknowledged."""

    def __init__(
        self,
        scheduler: Scheduler,
        log: SimLog,
        routers: Routers,
        ledger: Ledger,
        query_id: str,
        life: list[Act],
        registry_partitions: int,
        hurries_ms: float,
    ) -> None:
        self._scheduler = scheduler
        self._log = log
        self._routers = routers
        self._ledger = ledger
        self._id = query_id
        self._life = life
        self._partition = query_handle(query_id) % registry_partitions
        self._hurries_ms = hurries_ms
        self._step = -1
        # The parsed query of the step, which is usually sent several times.
        self._parsed: Query | None = None
        self._attempt = 0
        self._is_uncertain = False
        # The lifetime of the last registered version may be over.
        self._may_be_gone = False
        # Of the last acknowledged change.
        self._revision = NO_REVISION
        # Until then routers may disagree whether a lifetime is over.
        self._gone_by_clock_ms = 0.0
        self._begin_next()

    @property
    def is_done(self) -> bool:
        """Whether all steps are acknowledged."""
        return self._step == len(self._life)

    def _begin_next(self) -> None:
        self._step += 1
        self._is_uncertain = False
        self._parsed = None
        if self._step < len(self._life):
            # Steps delayed by outages follow without further pauses once the world's time is over.
            left_ms = max(0.0, self._hurries_ms - self._scheduler.now_ms)
            self._scheduler.after(min(self._life[self._step].after_ms, left_ms), self._begin)

    def _begin(self) -> None:
        self._ledger.change_begins(self._id, self._life[self._step])
        self._try()

    def _try(self) -> None:
        self._attempt += 1
        attempt = self._attempt
        node = self._routers.pick()
        again_ms = self._scheduler.between(50, 400)
        if node is None:
            self._scheduler.after(again_ms, self._try)
            return
        deadline_ms = self._scheduler.now_ms + PATIENCE_MS

        def answered(outcomes: Sequence[Outcome] | None) -> None:
            self._scheduler.after(self._call_ms(), lambda: self._take_answer(attempt, outcomes))

        def arrive() -> None:
            # A server drops a request whose deadline is over.
            if self._scheduler.now_ms <= deadline_ms:
                request = self._request(node)
                node.apply(
                    self._routers.routers, self._partition, (request,), deadline_ms, answered
                )

        self._scheduler.after(self._call_ms(), lambda: node.post(arrive))
        self._scheduler.at(deadline_ms, lambda: self._time_out(attempt))

    def _request(self, node: RouterNode) -> ChangeRequest:
        act = self._life[self._step]
        if self._parsed is None and act.members is not None:
            self._parsed = parse_query(act.members)
        start_ms = node.now_ms + (act.starts_in_ms or 0)
        is_given = act.starts_in_ms is not None
        return ChangeRequest(
            action=act.action,
            id=self._id,
            query=self._parsed,
            subscriber=act.subscriber,
            start_ms=start_ms,
            past_ms=act.past_ms,
            is_start_given=is_given,
        )

    def _time_out(self, attempt: int) -> None:
        if attempt == self._attempt:
            self._is_uncertain = True
            self._try()

    def _take_answer(self, attempt: int, outcomes: Sequence[Outcome] | None) -> None:
        if attempt != self._attempt:
            return
        self._attempt += 1
        error = None if outcomes is None else outcomes[0].error
        if outcomes is None or isinstance(error, Unavailable):
            self._is_uncertain |= outcomes is not None
            self._scheduler.after(self._scheduler.between(50, 400), self._try)
            return
        act = self._life[self._step]
        action = act.action
        if isinstance(error, NotFound) and action == "update":
            # The change may have been made before, and its own lifetime be over by now.
            is_over = self._is_uncertain and _is_mortal(act)
            if self._may_be_gone or is_over:
                self._ledger.change_refused(self._id, is_over=is_over)
                self._may_be_gone |= is_over
                self._begin_next()
                return
        if isinstance(error, AlreadyExists) and self._scheduler.now_ms < self._gone_by_clock_ms:
            # No client removed it: its lifetime was over by one router's clock, and is not yet over
            # by another's. A removal that was made must never be forgotten.
            self._scheduler.after(self._scheduler.between(50, 400), self._try)
            return
        was_done_before = action == "unregister" and isinstance(error, NotFound)
        was_done_before &= self._is_uncertain or self._may_be_gone
        if error is not None and not was_done_before:
            known = "an acknowledged registration" if isinstance(error, NotFound) else "a removal"
            assert isinstance(error, NotFound | AlreadyExists), error
            self._ledger.fail(f"{action} of {self._id} was refused: {known} is forgotten")
        is_by_clock = was_done_before and self._may_be_gone and not self._was_removed()
        self._ledger.change_ends(self._id, outcomes[0].revision, is_by_clock=is_by_clock)
        self._revision = max(self._revision, outcomes[0].revision)
        if is_by_clock:
            self._gone_by_clock_ms = self._scheduler.now_ms + CLOCKS_APART_MS
        self._may_be_gone = _is_mortal(act)
        self._begin_next()

    def _was_removed(self) -> bool:
        """Returns whether a removal is in the log: a client whose call timed out cannot know.

        Removals before the last acknowledged version do not count.
        """
        records = self._log.partition(REGISTRY, self._partition).records
        return any(
            _is_removal(stored, query_handle(self._id), self._revision) for stored in records
        )

    def _call_ms(self) -> float:
        return self._scheduler.between(*self._log.delays.call)


def _is_removal(stored: Stored, handle: int, since: int) -> bool:
    change = stored.message
    if not isinstance(change, Change) or change.handle != handle or change.query is not None:
        return False
    return change.expected_revision >= since


class Rival:
    """Asks for changes of an id whose handle is that of another's query: all must be refused.

    Args:
        query_id: the id of the other query.
        own_id: an id with the same handle.
        is_for_good: the other query is never removed while this client runs.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        log: SimLog,
        routers: Routers,
        ledger: Ledger,
        query_id: str,
        own_id: str,
        registry_partitions: int,
        *,
        is_for_good: bool,
    ) -> None:
        assert query_handle(own_id) == query_handle(query_id)
        self._scheduler = scheduler
        self._log = log
        self._routers = routers
        self._ledger = ledger
        self._query_id = query_id
        self._id = own_id
        self._partition = query_handle(own_id) % registry_partitions
        self._is_for_good = is_for_good
        self._serial = 0
        scheduler.after(scheduler.between(0, RIVAL_MS), self._try)

    def _try(self) -> None:
        self._scheduler.after(self._scheduler.between(0, 2 * RIVAL_MS), self._try)
        node = self._routers.pick()
        if node is None:
            return
        actions = ["update", "unregister"]
        if self._is_for_good and self._ledger.is_acknowledged(self._query_id):
            actions.append("register")
        self._serial += 1
        action, serial = self._scheduler.dice.choice(actions), self._serial
        form = {"id": self._id, "kind": "range", "mode": "continuous", "text": f"evil{serial}"}
        query = None if action == "unregister" else parse_query(form)
        deadline_ms = self._scheduler.now_ms + PATIENCE_MS

        def arrive() -> None:
            # With a begin this far away all lifetimes would be over.
            start_ms = node.now_ms + (1 << 40)
            request = ChangeRequest(
                action=action,
                id=self._id,
                query=query,
                subscriber="s-evil",
                start_ms=start_ms,
                is_start_given=True,
            )
            node.apply(
                self._routers.routers,
                self._partition,
                (request,),
                deadline_ms,
                lambda outcomes: self._take_answer(action, outcomes),
            )

        call_ms = self._scheduler.between(*self._log.delays.call)
        self._scheduler.after(call_ms, lambda: node.post(arrive))

    def _take_answer(self, action: str, outcomes: Sequence[Outcome] | None) -> None:
        error = None if outcomes is None else outcomes[0].error
        if outcomes is None or isinstance(error, Unavailable):
            return
        if not isinstance(error, AlreadyExists if action == "register" else NotFound):
            self._ledger.fail(f"{action} of {self._id} met {self._query_id}: {outcomes}")
        self._ledger.rivals_refused += 1


def _is_mortal(act: Act) -> bool:
    return act.members is not None and "ttl" in act.members


class Subscriber:
    """Reads its deliveries with a cursor, loses its place at times, and resumes."""

    def __init__(self, scheduler: Scheduler, log: SimLog, name: str, partition: int) -> None:
        self.name = name
        self.partition = partition
        self.received: list[Any] = []
        self._scheduler = scheduler
        self._log = log
        self.cursor = 0
        self._read()

    def _read(self) -> None:
        found, position = self._log.read(DELIVERIES, self.partition, self.cursor, 16)
        if found and self._scheduler.dice.random() < 0.1:
            # The stream breaks before all is received: the cursor stays before the rest.
            found = found[: self._scheduler.dice.randrange(len(found))]
            position = found[-1].offset + 1 if found else self.cursor
        for stored in found:
            if isinstance(stored.message, Delivered):
                mine = of_subscriber(stored.message, self.name)
                if mine is not None:
                    self.received += notifications_in(mine)
        self.cursor = position
        self._scheduler.after(self._scheduler.between(50, 400), self._read)


def notifications_in(delivered: Delivered) -> list[Any]:
    """Returns all notifications of a part's only subscriber, in order."""
    queries, events, matches = delivered.queries, delivered.events, delivered.matches
    assert len(queries.subscribers) == 1
    changes = np.zeros(len(matches), np.uint8) if matches.changes is None else matches.changes
    reported: list[Any] = list(
        zip(
            queries.handles[matches.queries].tolist(),
            events.sessions[matches.objects].tolist(),
            events.numbers[matches.objects].tolist(),
            changes.tolist(),
            strict=True,
        )
    )
    return reported + [(handle, one) for _, handle, one in sent_lists(delivered)]
