"""Searches in the simulated cluster: the work of mergers and evaluators beside their loops.

Planning, gathering, the choice of slots that may answer, and the answers from stores are the
services' own code. This module is the shell around it: the streams between mergers and evaluators
(in order each way, sometimes delayed or cut), the pool that makes parts, deadlines and credit. It
neither draws from the world's dice nor wakes a loop: searches do not change a seed's world.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sirocco.codec.queries import write_query
from sirocco.codec.search import put_question, read_part, read_question, write_part
from sirocco.codec.tokens import read_position_token
from sirocco.internal_api.v1 import slot_search_service_pb2 as slot_pb
from sirocco.model.errors import DeadlineExceeded, SiroccoError, Unavailable
from sirocco.model.query import Query
from sirocco.protocol.contract.columns import EventColumns
from sirocco.protocol.contract.control_view import ControlView
from sirocco.protocol.contract.messages import NEVER_MS, SLOTS
from sirocco.protocol.evaluator.search_visibility import TokenCheck, searchable
from sirocco.protocol.evaluator.slot.slot import Slot
from sirocco.protocol.search.collectors import collector_of
from sirocco.protocol.search.gather import Gather, gone
from sirocco.protocol.search.gather_events import (
    Ask,
    Begin,
    CountTerms,
    Finish,
    GatherEvent,
    PartArrived,
    SendObjects,
    Stop,
    TakeMore,
    TimePassed,
)
from sirocco.protocol.search.leftovers import KnownLeftovers
from sirocco.protocol.search.messages import DONE, EVER_MS, AnswerRows, Part, Question
from sirocco.protocol.search.plan import plan_search
from sirocco.schemes.builders.scheme import scheme_named
from sirocco.schemes.map.map_bytes import from_bytes
from sirocco.schemes.map.routing import RoutingArrays
from sirocco.services.evaluator.archive_search import ArchivedSlices
from sirocco.services.evaluator.leftovers import LeftoverBook
from sirocco.services.evaluator.slot_search import SlotSearch, answer
from sirocco.services.evaluator.slot_store import StoredSlot
from sirocco.services.merger.search_run import PARTS
from sirocco.transport.archive import MemoryArchive
from tests.simulation.node import Node
from tests.simulation.scheduler import Scheduler
from tests.simulation.services import EvaluatorNode
from tests.simulation.terms import TERMS

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

EventKey = tuple[int, int]
# Slot → the end of its log when its evaluator loaded it.
Floors: TypeAlias = "dict[int, int]"
Sink: TypeAlias = "Callable[[Part | SiroccoError, Floors], None]"

# Shares of the requests whose stream is delayed, or cut, soon after they were sent.
HELD, CUT = 0.05, 0.05

# Share of the turns for which all threads of an evaluator are busy for a while, and how long;
# smaller after many turns: a search takes one for each slice of each slot, and would never end.
BUSY, BUSY_MS = 0.1, 1_500.0
BUSY_TURNS_MAX, BUSY_LATER_MS = 12, 150.0

# How soon the threads of a process that continues after a pause are visible again; its loop reads
# its logs again at about the same time.
RESUMED_MS = (1.0, 60.0)


@dataclass(frozen=True, slots=True)
class Request:
    """One search as a client requests it.

    Attributes:
        query: of mode snapshot.
        window_ms: of the query; None for all stored objects.
        token: intake partition → offset of the last record that has to be found; may be empty.
        timeout_ms: how long the search may take.
    """

    query: Query
    window_ms: int | None
    token: dict[int, int]
    timeout_ms: int


@dataclass(slots=True, kw_only=True)
class Result:
    """The result of a search.

    Attributes:
        now_ms, from_ms: the time of the search, and the oldest arrival that counts.
        keys: event keys of a range answer, as they were passed on.
        answered: slot → its evaluator, and the end of its log when that one loaded it.
    """

    now_ms: int
    from_ms: int
    keys: list[EventKey] = field(default_factory=list)
    answered: dict[int, tuple[str, int]] = field(default_factory=dict)
    answer: AnswerRows | None = None
    error: SiroccoError | None = None
    missing: tuple[int, ...] = ()


class Threads:
    """Work of a process beside its loop: one action after another; pauses with the process."""

    def __init__(self, node: Node, dice: Random) -> None:
        self.node = node
        self._dice = dice
        self._queue: deque[Callable[[], None]] = deque()
        self._is_waiting = False

    def run(self, action: Callable[[], None]) -> None:
        """Runs an action after the earlier ones."""
        self._queue.append(action)
        self._pump()

    def later(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Runs an action after a while."""
        self.node.scheduler.after(delay_ms, lambda: self.run(action))

    def _pump(self) -> None:
        while self._queue and self.node.is_alive:
            if self.node.is_paused:
                if not self._is_waiting:
                    self._is_waiting = True
                    self.node.scheduler.after(self._dice.uniform(*RESUMED_MS), self._wake)
                return
            self._queue.popleft()()

    def _wake(self) -> None:
        self._is_waiting = False
        self._pump()


@dataclass(slots=True)
class Link:
    """The stream of a merger to an evaluator; when it is cut, messages on their way are lost."""

    generation: int = 0
    held_until_ms: float = 0.0
    to_evaluator_ms: float = 0.0
    to_merger_ms: float = 0.0


class SearchNet:
    """All streams and threads that the searches of a cluster need.

    Attributes:
        dice: for everything concerning searches.
        is_coded: whether requests and parts are sent as bytes.
        is_calm: no more streams are cut.
        limits: of searches.
    """

    def __init__(self, cluster: Cluster, dice: Random) -> None:
        self.scheduler: Scheduler = cluster.scheduler
        self.dice = dice
        self.is_coded = cluster.log.is_coded
        self.is_calm = not cluster.profile.mean_ms
        self.intake_partitions = cluster.world.shape.intake
        self.limits = cluster.world.shape.limits.search
        self._call_ms = cluster.log.delays.call
        self._cluster = cluster
        self._links: dict[tuple[str, str], Link] = {}
        self._threads: dict[str, Threads] = {}
        self._known: dict[str, tuple[ControlView, KnownLeftovers]] = {}
        self._books: dict[str, LeftoverBook] = {}

    def evaluator(self, member: str) -> EvaluatorNode | None:
        """Returns an evaluator that listens."""
        for node in self._cluster.of("evaluator"):
            if node.member == member and isinstance(node, EvaluatorNode):
                return node
        return None

    def threads(self, node: Node) -> Threads:
        """Returns the threads of a process."""
        if node.member not in self._threads:
            self._threads[node.member] = Threads(node, self.dice)
        return self._threads[node.member]

    def leftovers(self, merger: Node) -> KnownLeftovers:
        """Returns what a merger knows of objects that former maps put elsewhere."""
        view = merger.machine.holdings.view  # type: ignore[attr-defined]
        known = self._known.get(merger.member)
        if known is None or known[0] is not view:
            shape = self._cluster.world.shape
            known = view, KnownLeftovers(view, shape.intake, shape.registry)
            self._known[merger.member] = known
        return known[1]

    def book(self, node: EvaluatorNode) -> LeftoverBook:
        """Returns what an evaluator knows of them."""
        if node.member not in self._books:
            threads = self.threads(node)
            self._books[node.member] = LeftoverBook(
                lambda version: _map_of(node, version),
                lambda slot: epoch_of(node, slot),
                lambda action: threads.later(self.between(0, 200), action),
                lambda: int(self.scheduler.now_ms),
            )
        return self._books[node.member]

    def link(self, merger: str, evaluator: str) -> Link:
        """Returns the stream of one to the other."""
        return self._links.setdefault((merger, evaluator), Link())

    def between(self, low_ms: float, high_ms: float) -> float:
        """Returns a random duration."""
        return self.dice.uniform(low_ms, high_ms)

    def call_ms(self) -> float:
        """Returns the time that a message takes."""
        return self.dice.uniform(*self._call_ms)

    def ask(self, merger: Node, member: str, question: Question, sink: Sink) -> Asking:
        """Asks an evaluator."""
        return Asking(self, merger, member, question, sink)


class Asking:
    """One request of a merger to an evaluator: both ends, and the stream between them."""

    def __init__(
        self, net: SearchNet, merger: Node, member: str, question: Question, sink: Sink
    ) -> None:
        self._net = net
        self._merger = net.threads(merger)
        self._member = member
        self._sink = sink
        self._link = net.link(merger.member, member)
        self._generation = self._link.generation
        self._answering: Answering | None = None
        self._is_over = False
        node = net.evaluator(member)
        if node is None:
            self._breaks()
            return
        self._evaluator = net.threads(node)
        self._to_evaluator(lambda: self._arrives(_carried(question, is_coded=net.is_coded)))
        if not net.is_calm and net.dice.random() < HELD:
            self._link.held_until_ms = net.scheduler.now_ms + net.between(100, 4_000)
        elif not net.is_calm and net.dice.random() < CUT:
            net.scheduler.after(net.between(0, 300), self._cut)
        self._watch()

    def take_more(self, terms: NDArray[np.uint64] | None = None) -> None:
        """Allows one more part to be sent: behind a list, the counts of some terms, or of all."""
        self._to_answering(lambda answering: answering.more(terms))

    def stop(self) -> None:
        """Ends the request; parts on their way may still arrive."""
        self._to_answering(Answering.stop)

    def _to_answering(self, action: Callable[[Answering], None]) -> None:
        self._to_evaluator(lambda: None if self._answering is None else action(self._answering))

    def _to_evaluator(self, action: Callable[[], object]) -> None:
        if self._is_over:
            return
        link = self._link
        link.to_evaluator_ms = self._at(link.to_evaluator_ms)
        self._send(link.to_evaluator_ms, self._evaluator, action)

    def _to_merger(self, part: Part | SiroccoError, floors: Floors) -> None:
        if not isinstance(part, SiroccoError) and self._net.is_coded:
            read = read_part(slot_pb.SearchSlotsResponse.FromString(_bytes_of(part)))
            assert isinstance(read, Part)
            part = read
        is_last = isinstance(part, SiroccoError) or part.is_last

        def arrived() -> None:
            self._is_over |= is_last
            self._sink(part, floors)

        link = self._link
        link.to_merger_ms = self._at(link.to_merger_ms)
        self._send(link.to_merger_ms, self._merger, arrived)

    def _at(self, before_ms: float) -> float:
        at_ms = max(self._net.scheduler.now_ms, self._link.held_until_ms) + self._net.call_ms()
        return max(before_ms, at_ms)

    def _send(self, at_ms: float, to: Threads, action: Callable[[], object]) -> None:
        def arrive() -> None:
            if self._link.generation == self._generation:
                to.run(lambda: (action(), None)[1])

        self._net.scheduler.at(at_ms, arrive)

    def _arrives(self, question: Question) -> None:
        node = self._evaluator.node
        assert isinstance(node, EvaluatorNode)
        self._answering = Answering(self._net, node, question, self._to_merger)

    def _cut(self) -> None:
        # All requests of the stream notice by themselves.
        self._link.generation += self._link.generation == self._generation

    def _watch(self) -> None:
        """Informs the merger some time after the stream, or its evaluator, is gone."""
        if self._is_over or not self._merger.node.is_alive:
            return
        is_cut = self._link.generation != self._generation
        if is_cut and self._answering is not None:
            self._answering.stop()
        if is_cut or not self._evaluator.node.is_alive:
            self._breaks()
        else:
            self._net.scheduler.after(self._net.between(5, 100), self._watch)

    def _breaks(self) -> None:
        self._is_over = True
        self._merger.later(self._net.call_ms(), lambda: self._sink(gone(self._member), {}))


class Answering:
    """One request at an evaluator, answered as by `sirocco.services.evaluator.search`."""

    def __init__(
        self,
        net: SearchNet,
        node: EvaluatorNode,
        question: Question,
        send: Callable[[Part | SiroccoError, Floors], None],
    ) -> None:
        self._net = net
        self._node = node
        self._send = send
        self._threads = net.threads(node)
        self._question = question
        self._end_ms = net.scheduler.now_ms + question.timeout_ms
        self._credit = question.parts
        self._is_stopped = False
        self._is_resting = False
        self._turns = 0
        self._terms_wanted: NDArray[np.uint64] | None = None
        self._floors: Floors = {}
        self._parts: Iterator[Part | None] | None = None
        token = read_position_token(question.position_token, net.intake_partitions)
        self._arrived = TokenCheck(self._here, question.slots, token)
        if not token or self._arrived.check():
            self._slots = self._arrived.slot if token else self._here
            self._go_on()
            return
        self._slots = self._arrived.slot
        send(Part(is_waiting=True), {})
        node.watchers.append(self._look)
        self._threads.later(question.timeout_ms, self._give_up)

    def more(self, terms: NDArray[np.uint64] | None = None) -> None:
        """Allows one more part to be sent."""
        self._terms_wanted = terms
        self._credit += 1
        if self._is_resting:
            self._is_resting = False
            self._go_on()

    def stop(self) -> None:
        """Ends the request."""
        self._is_stopped = True
        if self._look in self._node.watchers:
            self._node.watchers.remove(self._look)

    def _here(self, number: int) -> Slot | None:
        return searchable(self._node.machine.slots, number)

    def _look(self) -> None:
        """Called when a step of the machine is over."""
        if self._arrived.check():
            self._node.watchers.remove(self._look)
            self._go_on()

    def _give_up(self) -> None:
        if self._look in self._node.watchers:
            self._node.watchers.remove(self._look)
            self._send(DeadlineExceeded("the slots have not reached the position token yet"), {})

    def _go_on(self) -> None:
        # Usually at once; sometimes all threads of the pool are busy.
        self._turns += 1
        busy_ms = BUSY_MS if self._turns <= BUSY_TURNS_MAX else BUSY_LATER_MS
        is_busy = self._net.dice.random() < BUSY
        self._threads.later(self._net.between(0, busy_ms if is_busy else 5), self._next)

    def _is_over(self) -> bool:
        return self._is_stopped or self._net.scheduler.now_ms > self._end_ms

    def _next(self) -> None:
        if self._is_stopped:
            return
        if self._credit <= 0:
            self._is_resting = True
            return
        if self._parts is None:
            known = self._net.book(self._node).of
            self._parts = answer(
                self._question,
                self._search,
                self._is_over,
                TERMS,
                known,
                self._net.limits,
                lambda: self._terms_wanted,
            )
        try:
            part = next(self._parts)
        except SiroccoError as error:
            self._send(error, {})
            return
        if part is not None:
            self._credit -= 1
            self._send(part, dict(self._floors))
            if part.is_last:
                return
        self._go_on()

    def _search(self, number: int) -> SlotSearch | None:
        slot = self._slots(number)
        if slot is None:
            return None
        self._floors[number] = self._node.log_ends[number]
        epoch = epoch_of(self._node, number)
        return StoredSlot(slot, _NO_ARCHIVE, TERMS, epoch or 0).search()


class Search:
    """One search at a merger, run as by `sirocco.services.merger.search`."""

    def __init__(
        self, net: SearchNet, merger: Node, request: Request, finished: Callable[[Result], None]
    ) -> None:
        self._net = net
        self._threads = net.threads(merger)
        self._merger = merger
        self._request = request
        self._finished = finished
        self._view = merger.machine.holdings.view  # type: ignore[attr-defined]
        now_ms = merger.now_ms
        from_ms = EVER_MS if request.window_ms is None else now_ms - request.window_ms
        self._result = Result(now_ms=now_ms, from_ms=from_ms)
        self._begin_ms = int(net.scheduler.now_ms)
        self._end_ms = self._begin_ms + request.timeout_ms
        self._asked: dict[int, Asking] = {}
        self._turns = 0
        if self._view.map_version == 0:
            self._result.error = Unavailable("the cluster has no map yet")
            finished(self._result)
            return
        self._leftovers = net.leftovers(merger)
        routing = _compiled(self._view.partition_map)
        plan = plan_search(routing, request.query, self._leftovers.former(routing, from_ms))
        self._gather = Gather(
            plan,
            collector_of(request.query, now_ms, net.limits.kept_bytes_max),
            self._begin_ms,
            self._end_ms,
            net.dice.getrandbits(64),
            net.limits,
        )
        self._step(Begin())

    def _owner(self, slot: int) -> str | None:
        owner = self._view.owners.get((SLOTS, slot))
        return None if owner is None else owner.member

    def _step(self, event: GatherEvent) -> None:
        now_ms = int(self._net.scheduler.now_ms)
        for effect in self._gather.step(event, self._owner, now_ms):
            match effect:
                case Ask(number=number):
                    self._ask(effect)
                case Stop(number):
                    self._asked.pop(number).stop()
                case TakeMore(number):
                    self._asked[number].take_more()
                case CountTerms(number, terms):
                    self._asked[number].take_more(terms)
                case SendObjects(_, events):
                    self._result.keys += keys_of(events)
                case Finish():
                    self._finish(effect)
                    return
        self._turns += 1
        turn = self._turns
        wait_ms = max(0, self._gather.deadline_ms() - now_ms)
        self._threads.later(wait_ms, lambda: self._tick(turn))

    def _tick(self, turn: int) -> None:
        if turn == self._turns:
            self._step(TimePassed())

    def _ask(self, ask: Ask) -> None:
        request = self._request
        question = Question(
            query=request.query,
            slots=ask.slots,
            now_ms=self._result.now_ms,
            from_ms=self._result.from_ms,
            upto_ms=NEVER_MS,
            position_token=",".join(
                f"{source}.{offset}" for source, offset in request.token.items()
            ),
            timeout_ms=max(1, self._end_ms - int(self._net.scheduler.now_ms)),
            radius_m=ask.radius_m,
            answers=ask.answers,
            parts=1 if ask.listed else PARTS,
            listed=ask.listed,
            takes_numbers=ask.takes_numbers,
            nearby=ask.nearby,
            leftovers_of=self._leftovers.wanted(ask.slots, int(self._net.scheduler.now_ms)),
        )

        def came(part: Part | SiroccoError, floors: Floors) -> None:
            if isinstance(part, Part) and part.leftovers:
                self._leftovers.learn(part.leftovers, int(self._net.scheduler.now_ms))
            if isinstance(part, Part) and ask.number in self._asked:
                done = part.slots[part.states == DONE].tolist()
                if part.rest is not None:
                    # A list is about all slots that are there.
                    done = sorted(set(ask.slots).difference(part.slots.tolist()))
                for slot in done:
                    self._result.answered[slot] = ask.member, floors[slot]
            if not self._gather.is_finished:
                self._step(PartArrived(ask.number, part))

        self._asked[ask.number] = self._net.ask(self._merger, ask.member, question, came)

    def _finish(self, finish: Finish) -> None:
        self._turns += 1
        result = self._result
        result.answer, result.error, result.missing = finish.answer, finish.error, finish.missing
        self._finished(result)


def keys_of(events: EventColumns) -> list[EventKey]:
    """Returns event keys, row by row."""
    return list(zip(events.sessions.tolist(), events.numbers.tolist(), strict=True))


def epoch_of(node: EvaluatorNode, slot: int) -> int | None:
    """Returns the epoch of a slot's grant; None where it is not here."""
    held = node.machine.holdings.held.get((SLOTS, slot))
    return None if held is None else held.epoch


def _map_of(node: EvaluatorNode, version: int) -> RoutingArrays | None:
    view = node.machine.holdings.view
    return _compiled(view.partition_map) if view.map_version == version else None


@lru_cache(64)
def _compiled(partition_map: bytes) -> RoutingArrays:
    found = from_bytes(partition_map)
    return scheme_named(found.scheme).compile(found)


def _carried(question: Question, *, is_coded: bool) -> Question:
    if not is_coded:
        return question
    message = slot_pb.SlotQuestion()
    put_question(message, question, write_query(question.query, ""))
    return read_question(slot_pb.SlotQuestion.FromString(message.SerializeToString()))


def _bytes_of(part: Part) -> bytes:
    return bytes(write_part(1, part).SerializeToString())


# Nothing is evicted from memory within the minutes of a world.
_NO_ARCHIVE = ArchivedSlices(MemoryArchive())
