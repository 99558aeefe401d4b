"""SearchService: plans searches, asks evaluators, and gathers the parts of the answers."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import grpc
from sirocco_api.v1 import search_service_pb2 as pb
from sirocco_api.v1.query_pb2 import QUERY_MODE_CONTINUOUS
from sirocco_api.v1.search_service_pb2_grpc import SearchServiceServicer

from sirocco.codec.arrays import check_time
from sirocco.codec.queries import is_light, read_query
from sirocco.codec.search import put_question, write_answer, write_objects
from sirocco.codec.tokens import read_position_token, write_position_token
from sirocco.internal_api.v1 import slot_search_service_pb2 as slot_pb
from sirocco.model.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    PartialResult,
    SiroccoError,
    Unavailable,
)
from sirocco.model.hints.warnings import warnings_of
from sirocco.model.query import Query, RankedQuery, kind_of
from sirocco.protocol.contract.control_view import ControlView
from sirocco.protocol.contract.messages import NEVER_MS, SLOTS
from sirocco.protocol.contract.storeless_limits import WHY
from sirocco.protocol.search.collectors import collector_of
from sirocco.protocol.search.gather import (
    Ask,
    Begin,
    Finish,
    Gather,
    GatherEffect,
    PartArrived,
    RequestMarks,
    SendObjects,
    Stop,
    TakeMore,
    Tick,
)
from sirocco.protocol.search.leftovers import KnownLeftovers
from sirocco.protocol.search.limits import LIMITS, SearchLimits
from sirocco.protocol.search.messages import EVER_MS, Part, Question
from sirocco.protocol.search.plan import SearchPlan, plan_search
from sirocco.runtime.grpc.authentication import caller
from sirocco.runtime.grpc.grpc_errors import streaming
from sirocco.runtime.grpc.peer_channels import PLAIN, Dialer
from sirocco.runtime.grpc.server import GRACE_S
from sirocco.runtime.grpc.unread_streams import in_time
from sirocco.runtime.grpc.work_pool import WorkPool
from sirocco.runtime.process.clock import monotonic_ms, now_ms
from sirocco.runtime.settings import ClusterSettings
from sirocco.schemes.builders.scheme import scheme_named
from sirocco.schemes.map.map_bytes import from_bytes
from sirocco.schemes.map.routing import RoutingArrays
from sirocco.services.merger.evaluators import Evaluators, QuestionKey
from sirocco.services.merger.mark_requests import MarkRequests
from sirocco.services.merger.members import Members
from sirocco.services.merger.shares import Places
from sirocco.telemetry.metrics import MergerMetrics

# Pause for a refused client: some dozens of searches have ended by that time.
RETRY_AFTER_MS = 50

# Time limit of a search that names none.
TIMEOUT_MS = 30_000

# After a search's time limit, a client has this long to read the rest of its answer.
UNREAD_END_S = 5.0

# This share of a call's deadline is reserved for the way back: otherwise a client would only get a
# time-out, without the objects found and the missing slots.
WAY_BACK_SHARE = 0.1
WAY_BACK_MS_MAX = 100

# Between checks whether the last searches have ended.
DRAIN_LOOK_S = 0.01

# Parts of one question in flight: one at the evaluator, one in the stream, two here.
PARTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """One search request.

    Attributes:
        message: the query as received.
        query: the same as a value.
        warnings: about the query.
        now_ms: the moment that the answer describes.
        from_ms, upto_ms: arrivals that count.
        position_token: empty for none.
        begin_ms, end_ms: on the monotonic clock.
    """

    message: pb.SearchRequest
    query: Query
    warnings: tuple[str, ...]
    now_ms: int
    from_ms: int
    upto_ms: int
    begin_ms: int
    end_ms: int

    def question(self, ask: Ask) -> Question:
        """Returns the question for one evaluator."""
        return Question(
            query=self.query,
            slots=ask.slots,
            now_ms=self.now_ms,
            from_ms=self.from_ms,
            upto_ms=self.upto_ms,
            position_token=self.message.position_token,
            timeout_ms=max(1, self.end_ms - monotonic_ms()),
            radius_m=ask.radius_m,
            answers=ask.answers,
            parts=PARTS,
            nearby=ask.nearby,
            takes_numbers=ask.takes_numbers,
        )


class SearchFront(SearchServiceServicer):
    """Answers searches; any merger can answer any search.

    Args:
        settings: settings of the cluster.
        view: what is in force according to `control`.
        members: addresses of evaluators and routers.
        metrics: receives the counts.
        dialer: opens channels to evaluators and routers.
        limits: of searches.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        view: ControlView,
        members: Members,
        metrics: MergerMetrics,
        dialer: Dialer = PLAIN,
        limits: SearchLimits = LIMITS,
    ) -> None:
        self._search_limits = limits
        self._settings = settings
        self._view = view
        self._members = members
        self._metrics = metrics
        self._evaluators = Evaluators(members, dialer)
        self._mark_requests = MarkRequests(view, members, dialer)
        self._leftovers = KnownLeftovers(
            view, settings.intake_partitions, settings.registry_partitions
        )
        self._routing: RoutingArrays | None = None
        self._compiling = asyncio.Lock()
        self._limits = settings.merger
        self._places = Places(
            "searches", settings.merger.searches_max, RETRY_AFTER_MS, self._refused
        )
        self._pool = WorkPool("queries")
        self._under_way = 0
        self._is_ending = False

    @streaming
    async def Search(  # noqa: N802 -- the contract's name
        self, request: pb.SearchRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.SearchResponse]:
        """See `search_service.proto`."""
        if self._is_ending:
            raise Unavailable("this merger is ending; try another one")
        search = await self._read_search(request, context.time_remaining())
        limits, client = self._limits, caller()
        with self._places.one(client.grant.tenant, client.limits.searches, context.peer()):
            left_s = max(0, search.end_ms - monotonic_ms()) / 1_000
            end_s = asyncio.get_running_loop().time() + left_s + UNREAD_END_S
            ended = self._metrics.unread_answers.inc
            responses = self._responses(search)
            async for response in in_time(responses, context, limits.unread_ms, ended, end_s):
                yield response

    async def _responses(self, search: _Search) -> AsyncIterator[pb.SearchResponse]:
        with self._counted(kind_of(search.query)) as counted:
            routing = await self._compiled()
            former = self._leftovers.former(routing, search.from_ms)
            plan = plan_search(routing, search.query, former)
            run = _Run(
                search,
                plan,
                self._evaluators,
                self._mark_requests,
                self._owner,
                self._leftovers,
                self._search_limits,
            )
            try:
                async for response in run.responses():
                    counted.is_partial = bool(response.end.missing_slots)
                    yield response
            finally:
                run.close()

    async def drain(self) -> None:
        """Accepts no more searches, waits a while for running ones, then ends all streams."""
        self._is_ending = True
        end_s = time.monotonic() + GRACE_S
        while self._under_way and time.monotonic() < end_s:
            await asyncio.sleep(DRAIN_LOOK_S)
        await self._evaluators.close()
        await self._mark_requests.close()
        self._pool.close()

    def _refused(self, limit: str) -> None:
        self._metrics.search_refusals.labels(limit=limit).inc()

    def _owner(self, slot: int) -> str | None:
        owner = self._view.owners.get((SLOTS, slot))
        return None if owner is None else owner.member

    async def _read_search(self, request: pb.SearchRequest, left_s: float | None) -> _Search:
        if is_light(request.query):
            return self._read(request, left_s)
        return await self._pool.run(partial(self._read, request, left_s))

    def _read(self, request: pb.SearchRequest, left_s: float | None) -> _Search:
        begin_ms = monotonic_ms()
        if request.query.mode == QUERY_MODE_CONTINUOUS:
            raise InvalidArgument("must be snapshot: standing queries are registered", field="mode")
        query, _ = read_query(request.query)
        if not self._settings.store:
            raise FailedPrecondition(f"{WHY}, no searches")
        # A position that cannot exist is refused early. Each part of a token is work, here and for
        # every slot, so that none is passed on twice.
        positions = read_position_token(request.position_token, self._settings.intake_partitions)
        request.position_token = write_position_token(positions)
        allowed_ms = _allowed_ms(request.timeout_ms, left_s)
        end_ms = begin_ms + min(allowed_ms, self._limits.search_timeout_max_ms)
        # Unless the client names a moment, everything that has arrived counts: clocks differ, and
        # an object acknowledged a moment ago may have a time that is in the future here.
        asked_ms, upto_ms = now_ms(), NEVER_MS
        if request.HasField("now_ms"):
            check_time(request.now_ms, "now_ms")
            asked_ms = upto_ms = request.now_ms
        elif self._settings.event_time and (
            query.window_ms is not None or isinstance(query, RankedQuery)
        ):
            raise InvalidArgument("is missing: arrivals follow the objects' times", field="now_ms")
        from_ms = EVER_MS if query.window_ms is None else asked_ms - query.window_ms
        return _Search(
            message=request,
            query=query,
            warnings=warnings_of(query),
            now_ms=asked_ms,
            from_ms=from_ms,
            upto_ms=upto_ms,
            begin_ms=begin_ms,
            end_ms=end_ms,
        )

    async def _compiled(self) -> RoutingArrays:
        """Returns the routing arrays of the map in force."""
        version = self._view.map_version
        if self._routing is not None and self._routing.version >= version:
            return self._routing
        if version == 0:
            raise Unavailable("the cluster has no map yet")
        async with self._compiling:
            if self._routing is None or self._routing.version < version:
                self._routing = await asyncio.to_thread(_compile, self._view.partition_map)
                await self._members.load()
        return self._routing

    @contextmanager
    def _counted(self, kind: str) -> Iterator[_Counted]:
        begin_s = time.monotonic()
        self._under_way += 1
        self._metrics.searches_under_way.inc()
        outcome, counted = "stopped", _Counted()
        try:
            yield counted
            outcome = "partial" if counted.is_partial else "ok"
        except SiroccoError as error:
            outcome = "partial" if counted.is_partial else error.code.lower()
            raise
        finally:
            self._under_way -= 1
            self._metrics.searches_under_way.dec()
            self._metrics.searches.labels(kind=kind, outcome=outcome).inc()
            self._metrics.search_seconds.labels(kind=kind).observe(time.monotonic() - begin_s)


@dataclass(slots=True)
class _Counted:
    """Counts of a search beside its duration.

    Attributes:
        is_partial: slots are missing from the answer, whether or not its client allows that.
    """

    is_partial: bool = False


class _Run:
    """Carries out the decisions of one search's gathering."""

    def __init__(
        self,
        search: _Search,
        plan: SearchPlan,
        evaluators: Evaluators,
        mark_requests: MarkRequests,
        owner: Callable[[int], str | None],
        leftovers: KnownLeftovers,
        limits: SearchLimits,
    ) -> None:
        self._loop_rows_max = limits.loop_rows_max
        self._search = search
        self._leftovers = leftovers
        self._evaluators = evaluators
        self._mark_requests = mark_requests
        self._owner = owner
        self._gather = Gather(
            plan,
            collector_of(search.query, search.now_ms, limits.kept_bytes_max),
            search.begin_ms,
            search.end_ms,
            random.getrandbits(64),
            limits,
        )
        self._questions: dict[int, QuestionKey] = {}
        self._inbox: asyncio.Queue[PartArrived | Tick] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._mark_request: asyncio.Task[None] | None = None
        self._rows = 0

    async def responses(self) -> AsyncIterator[pb.SearchResponse]:
        """Yields the answer; raises the error that makes it incomplete."""
        event: Begin | PartArrived | Tick = Begin()
        # The last response of a step waits for its immediate successor: the end can be sent with
        # it.
        held: pb.SearchResponse | None = None
        while True:
            for effect in await self._stepped(event):
                if isinstance(effect, Finish):
                    for response in self._last(effect, held):
                        yield response
                    self._raise_error(effect)
                    return
                for response in self._carried_out(effect):
                    if held is not None:
                        yield held
                    held = response
            if held is not None:
                yield held
                held = None
            event = await self._next()

    def close(self) -> None:
        """Stops everything in progress: the client may have gone."""
        for key in self._questions.values():
            self._evaluators.stop(key)
        if self._mark_request is not None:
            self._mark_request.cancel()

    async def _stepped(self, event: Begin | PartArrived | Tick) -> list[GatherEffect]:
        """Steps the gathering; large sums are computed outside the loop."""
        step = partial(self._gather.step, event, self._owner, monotonic_ms())
        if isinstance(event, PartArrived) and isinstance(event.part, Part):
            self._rows += len(event.part.objects) + len(event.part.terms)
            if event.part.is_last and self._rows > self._loop_rows_max:
                return await asyncio.to_thread(step)
        return step()

    def _carried_out(self, effect: GatherEffect) -> Iterator[pb.SearchResponse]:
        match effect:
            case Ask():
                self._ask(effect)
            case Stop(number):
                self._evaluators.stop(self._questions.pop(number))
            case TakeMore(number):
                self._evaluators.take_more(self._questions[number])
            case SendObjects(objects, events, origin):
                yield from write_objects(objects, events, origin)
            case RequestMarks() if self._mark_request is None:
                token = self._search.message.position_token
                self._mark_request = self._loop.create_task(self._mark_requests.request(token))

    def _ask(self, ask: Ask) -> None:
        message = slot_pb.SlotQuestion()
        question = self._search.question(ask)
        wanted = self._leftovers.wanted(ask.slots, monotonic_ms())
        put_question(message, replace(question, leftovers_of=wanted), self._search.message.query)

        def sink(part: Part | SiroccoError) -> None:
            if isinstance(part, Part) and part.leftovers:
                self._leftovers.learn(part.leftovers, monotonic_ms())
            self._inbox.put_nowait(PartArrived(ask.number, part))

        self._questions[ask.number] = self._evaluators.ask(ask.member, message, sink)

    async def _next(self) -> PartArrived | Tick:
        if not self._inbox.empty():
            return self._inbox.get_nowait()
        wait_s = max(0, self._gather.deadline_ms() - monotonic_ms()) / 1_000
        timer = self._loop.call_later(wait_s, self._inbox.put_nowait, Tick())
        try:
            return await self._inbox.get()
        finally:
            timer.cancel()

    def _last(self, finish: Finish, held: pb.SearchResponse | None) -> Iterator[pb.SearchResponse]:
        responses = [] if held is None else [held]
        if finish.error is not None and not _is_partial(finish.error):
            yield from responses
            return
        responses = [*responses, *write_answer(finish.answer)] or [pb.SearchResponse()]
        end = responses[-1].end
        end.now_ms = self._search.now_ms
        end.slots = self._gather.slots_total
        end.missing_slots.extend(finish.missing)
        end.warnings.extend(self._search.warnings)
        yield from responses

    def _raise_error(self, finish: Finish) -> None:
        if finish.error is None:
            return
        if not (_is_partial(finish.error) and self._search.message.allow_partial):
            raise finish.error


def _is_partial(error: SiroccoError) -> bool:
    return isinstance(error, PartialResult | DeadlineExceeded)


def _allowed_ms(timeout_ms: int, left_s: float | None) -> int:
    """Returns the time limit of a search."""
    if timeout_ms < 0:
        raise InvalidArgument("is negative", field="timeout_ms")
    allowed_ms = float(timeout_ms or TIMEOUT_MS)
    if left_s is not None:
        left_ms = 1_000 * left_s
        allowed_ms = min(allowed_ms, left_ms - min(WAY_BACK_SHARE * left_ms, WAY_BACK_MS_MAX))
    return int(allowed_ms)


def _compile(partition_map: bytes) -> RoutingArrays:
    found = from_bytes(partition_map)
    return scheme_named(found.scheme).compile(found)
