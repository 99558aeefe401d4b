"""SearchService: plans searches, asks evaluators, and gathers the parts of the answers."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import grpc
from sirocco_api.v1 import search_service_pb2 as pb
from sirocco_api.v1.query_pb2 import QUERY_MODE_CONTINUOUS
from sirocco_api.v1.search_service_pb2_grpc import SearchServiceServicer

from sirocco.codec.arrays import check_time
from sirocco.codec.queries import is_light, read_query
from sirocco.codec.tokens import read_position_token, write_position_token
from sirocco.model.errors import (
    FailedPrecondition,
    InvalidArgument,
    SiroccoError,
    Unavailable,
)
from sirocco.model.hints.warnings import warnings_of
from sirocco.model.query import RankedQuery, kind_of
from sirocco.protocol.contract.control_view import ControlView
from sirocco.protocol.contract.messages import NEVER_MS, SLOTS
from sirocco.protocol.contract.storeless_limits import WHY
from sirocco.protocol.search.gather_events import Begin, Finish, PartArrived, TimePassed
from sirocco.protocol.search.leftovers import KnownLeftovers
from sirocco.protocol.search.limits import LIMITS, SearchLimits
from sirocco.protocol.search.messages import EVER_MS
from sirocco.protocol.search.plan import plan_search
from sirocco.runtime.grpc.authentication import Caller, caller
from sirocco.runtime.grpc.edge import from_start
from sirocco.runtime.grpc.grpc_errors import streaming
from sirocco.runtime.grpc.peer_channels import PLAIN, Dialer
from sirocco.runtime.grpc.server import GRACE_S
from sirocco.runtime.grpc.unread_streams import ReadingWatch, in_time
from sirocco.runtime.grpc.work_pool import WorkPool
from sirocco.runtime.process.clock import monotonic_ms, now_ms
from sirocco.runtime.settings import ClusterSettings
from sirocco.schemes.builders.scheme import scheme_named
from sirocco.schemes.map.map_bytes import from_bytes
from sirocco.schemes.map.routing import RoutingArrays
from sirocco.services.merger.evaluators import Evaluators
from sirocco.services.merger.mark_requests import MarkRequests
from sirocco.services.merger.members import Members
from sirocco.services.merger.search_run import Asking, OneSearch, SearchRun, Took
from sirocco.services.merger.search_stream import Begun, SearchStream
from sirocco.services.merger.search_traces import SearchTraces
from sirocco.services.merger.shares import Places
from sirocco.telemetry.metrics.merger import MergerMetrics

if TYPE_CHECKING:
    from sirocco.telemetry.spans import Span

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


class SearchFront(SearchServiceServicer):
    """Answers searches; any merger can answer any search.

    Args:
        settings: settings of the cluster.
        view: what is in force according to `control`.
        members: addresses of evaluators and routers.
        metrics: receives the counts.
        dialer: opens channels to evaluators and routers.
        limits: of searches.
        traces: which searches are traced; None: none.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        view: ControlView,
        members: Members,
        metrics: MergerMetrics,
        dialer: Dialer = PLAIN,
        limits: SearchLimits = LIMITS,
        traces: SearchTraces | None = None,
    ) -> None:
        self._traces = traces
        self._settings = settings
        self._view = view
        self._members = members
        self._metrics = metrics
        self._evaluators = Evaluators(members, dialer)
        self._mark_requests = MarkRequests(view, members, dialer)
        self._leftovers = KnownLeftovers(
            view, settings.intake_partitions, settings.registry_partitions
        )
        self._asking = Asking(
            self._evaluators, self._mark_requests, self._owner, self._leftovers, limits
        )
        self._routing: RoutingArrays | None = None
        self._compiling = asyncio.Lock()
        self._limits = settings.merger
        self._places = Places(
            "searches", settings.merger.searches_max, RETRY_AFTER_MS, self._refused
        )
        self._streams = Places(
            "streams of searches", settings.merger.searches_max, RETRY_AFTER_MS, self._refused
        )
        # Not counted as refusals of searches: the client sends the search in a call of its own.
        self._kept_streams = Places(
            "kept streams", settings.merger.searches_max, RETRY_AFTER_MS, lambda _: None
        )
        self._open_streams: set[SearchStream] = set()
        self._pool = WorkPool("queries")
        self._under_way = 0
        self._is_ending = False

    @streaming
    async def Search(  # noqa: N802 -- the contract's name
        self, request: pb.SearchRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.SearchResponse]:
        """See `search_service.proto`."""
        self.check_open()
        search = await self._read_search(request, context.time_remaining())
        unread_ms, ended = self._limits.unread_ms, self._metrics.unread_answers.inc
        left_s = max(0, search.end_ms - monotonic_ms()) / 1_000
        end_s = asyncio.get_running_loop().time() + left_s + UNREAD_END_S
        kind = kind_of(search.query)
        # One generator for all: each one around another takes as long as a check of the query.
        with (
            self.place(caller(), context.peer()),
            ReadingWatch(context, unread_ms, ended, end_s) as watch,
            # Begun once the search has its place: one that is refused is not traced.
            self._counted(kind, span := self._span(request, kind, context)) as counted,
        ):
            await self._compiled()
            pulled = _Pulled(partial(self.run, search, span))
            try:
                async for response in pulled.responses():
                    counted.is_partial = bool(response.end.missing_slots)
                    watch.waits()
                    yield response
                    watch.is_read()
            finally:
                pulled.close()

    @streaming
    async def SearchMany(  # noqa: N802 -- the contract's name
        self, requests: AsyncIterator[pb.SearchManyRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.SearchManyResponse]:
        """See `search_service.proto`."""
        found, peer = caller(), context.peer()
        each = from_start(requests)
        if (first := await anext(each, None)) is None:
            return
        # A stream without searches holds little; one for each place is enough for everybody.
        places = self._kept_streams if first.kept else self._streams
        with places.one(found.grant.tenant, found.limits.searches, peer):
            stream = SearchStream(
                _CallersFront(self, found, peer), context.time_remaining, self._asking.limits
            )
            responses = stream.responses(first, each)
            del first
            self._open_streams.add(stream)
            unread_ms, ended = self._limits.unread_ms, self._metrics.unread_answers.inc
            try:
                async for response in in_time(responses, context, unread_ms, ended):
                    yield response
            finally:
                self._open_streams.discard(stream)

    def run(self, search: OneSearch, span: Span | None, took: Took) -> SearchRun:
        """Returns the run of a search; the map is compiled."""
        routing = self._routing
        assert routing is not None
        former = self._leftovers.former(routing, search.from_ms)
        plan = plan_search(routing, search.query, former)
        return SearchRun(search, plan, self._asking, took, None if span is None else span.context)

    async def drain(self) -> None:
        """Accepts no more searches, waits a while for running ones, then ends all streams."""
        self._is_ending = True
        end_s = time.monotonic() + GRACE_S
        while self._under_way and time.monotonic() < end_s:
            await asyncio.sleep(DRAIN_LOOK_S)
        for stream in self._open_streams:
            stream.end()
        await self._evaluators.close()
        await self._mark_requests.close()
        self._pool.close()

    def _refused(self, limit: str) -> None:
        self._metrics.search_refusals.labels(limit=limit).inc()

    def _owner(self, slot: int) -> str | None:
        owner = self._view.owners.get((SLOTS, slot))
        return None if owner is None else owner.member

    async def _read_search(self, request: pb.SearchRequest, left_s: float | None) -> OneSearch:
        if is_light(request.query):
            return self._read(request, left_s)
        return await self._pool.run(partial(self._read, request, left_s))

    def _read(self, request: pb.SearchRequest, left_s: float | None) -> OneSearch:
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
        return OneSearch(
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

    def place(self, found: Caller, peer: str) -> AbstractContextManager[None]:
        """Holds a place for one search of a caller."""
        return self._places.one(found.grant.tenant, found.limits.searches, peer)

    def check_open(self) -> None:
        """Refuses what begins now if this merger is ending.

        Raises:
            Unavailable: It is.
        """
        if self._is_ending:
            raise Unavailable("this merger is ending; try another one")

    def is_ready_for(self, request: pb.SearchRequest) -> bool:
        """Whether a search need not wait: its query is read in no time, and the map is compiled."""
        known = self._routing
        is_compiled = known is not None and known.version >= self._view.map_version
        return is_compiled and is_light(request.query)

    def begun_now(self, request: pb.SearchRequest, left_s: float | None, took: Took) -> Begun:
        """Begins a search of a stream that `is_ready_for` holds of."""
        return self._begun(self._read(request, left_s), took)

    async def begun(self, request: pb.SearchRequest, left_s: float | None, took: Took) -> Begun:
        """Begins any search of a stream."""
        search = await self._read_search(request, left_s)
        await self._compiled()
        return self._begun(search, took)

    def _begun(self, search: OneSearch, took: Took) -> Begun:
        kind = kind_of(search.query)
        span = self._span(search.message, kind)
        return Begun(self.run(search, span, took), self.count(kind, span))

    def _span(
        self, request: pb.SearchRequest, kind: str, context: grpc.aio.ServicerContext | None = None
    ) -> Span | None:
        return None if self._traces is None else self._traces.begin(request, kind, context)

    def count(self, kind: str, span: Span | None) -> Callable[[str, bool], None]:
        """Counts a search; returns what counts its end: its outcome, and whether slots miss."""
        begin_s = time.monotonic()
        self._under_way += 1
        self._metrics.searches_under_way.inc()

        def ended(outcome: str, is_partial: bool) -> None:
            if is_partial and outcome != "stopped":
                outcome = "partial"
            self._under_way -= 1
            self._metrics.searches_under_way.dec()
            # By place: names are sorted at each call.
            self._metrics.searches.labels(kind, outcome).inc()
            self._metrics.search_seconds.labels(kind).observe(time.monotonic() - begin_s)
            if span is not None:
                span.note("sirocco.outcome", outcome)
                span.end()

        return ended

    @contextmanager
    def _counted(self, kind: str, span: Span | None) -> Iterator[_Counted]:
        ended, outcome, counted = self.count(kind, span), "stopped", _Counted()
        try:
            yield counted
            outcome = "ok"
        except SiroccoError as error:
            outcome = error.code.lower()
            raise
        finally:
            ended(outcome, counted.is_partial)


@dataclass(slots=True)
class _Counted:
    """Counts of a search beside its duration.

    Attributes:
        is_partial: slots are missing from the answer, whether or not its client allows that.
    """

    is_partial: bool = False


class _CallersFront:
    """Begins the searches of one caller's stream; see `search_stream.Front`."""

    def __init__(self, front: SearchFront, found: Caller, peer: str) -> None:
        self._front, self._found, self._peer = front, found, peer

    def is_ready_for(self, request: pb.SearchRequest) -> bool:
        return self._front.is_ready_for(request)

    def begun_now(self, request: pb.SearchRequest, left_s: float | None, took: Took) -> Begun:
        return self._front.begun_now(request, left_s, took)

    async def begun(self, request: pb.SearchRequest, left_s: float | None, took: Took) -> Begun:
        return await self._front.begun(request, left_s, took)

    def place(self) -> AbstractContextManager[None]:
        return self._front.place(self._found, self._peer)

    def check(self) -> None:
        self._found.check()
        self._front.check_open()


class _Pulled:
    """One search whose client takes its answer as it takes messages."""

    def __init__(self, run: Callable[[Callable[[PartArrived], None]], SearchRun]) -> None:
        self._inbox: deque[PartArrived | TimePassed] = deque()
        self._waiting: asyncio.Future[None] | None = None
        self._run = run(self._took)
        self._loop = asyncio.get_running_loop()

    async def responses(self) -> AsyncIterator[pb.SearchResponse]:
        """Yields the answer; raises the error that makes it incomplete."""
        run = self._run
        event: Begin | PartArrived | TimePassed = Begin()
        # The last response of a step waits for its immediate successor: the end can be sent with
        # it.
        held: pb.SearchResponse | None = None
        while True:
            large = run.is_large(event)
            effects = await asyncio.to_thread(run.step, event) if large else run.step(event)
            for effect in effects:
                if isinstance(effect, Finish):
                    for response in run.last(effect, held):
                        yield response
                    if (error := run.error_of(effect)) is not None:
                        raise error
                    return
                for response in run.carried_out(effect):
                    if held is not None:
                        yield held
                    held = response
            if held is not None:
                yield held
                held = None
            event = await self._next()

    def close(self) -> None:
        """Stops everything in progress: the client may have gone."""
        self._run.close()

    def _took(self, event: PartArrived | TimePassed) -> None:
        self._inbox.append(event)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def _next(self) -> PartArrived | TimePassed:
        if not self._inbox:
            wait_s = max(0, self._run.deadline_ms() - monotonic_ms()) / 1_000
            self._waiting = self._loop.create_future()
            timer = self._loop.call_later(wait_s, self._took, TimePassed())
            try:
                await self._waiting
            finally:
                timer.cancel()
        return self._inbox.popleft()


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
