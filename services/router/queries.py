"""QueryService: registers, changes and shows standing queries (the front of a router)."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Container,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, TypeVar

import grpc
import numpy as np
from sirocco_api.v1 import query_service_pb2 as pb
from sirocco_api.v1.query_pb2 import Query
from sirocco_api.v1.query_service_pb2_grpc import QueryServiceServicer

from sirocco.codec.arrays import check_time
from sirocco.codec.errors import write_error
from sirocco.codec.queries import is_light, read_query
from sirocco.codec.registration_results import write_results
from sirocco.codec.tokens import OFFSET_MAX
from sirocco.codec.wire import QUERIES_MAX, PartlyRefused
from sirocco.internal_api.v1 import owner_service_pb2 as owner_pb
from sirocco.model.access import Grant
from sirocco.model.durations import format_duration
from sirocco.model.errors import (
    InvalidArgument,
    OutOfRange,
    SiroccoError,
)
from sirocco.model.hints.warnings import warnings_of
from sirocco.model.query import (
    RangeQuery,
    RankedQuery,
    TermsQuery,
    query_handle,
)
from sirocco.protocol.contract.effects import (
    ChangeRequest,
    Outcome,
    Outcomes,
    PlainRequests,
    RemovalRequests,
    errors_of,
)
from sirocco.protocol.contract.messages import NEVER_MS, NO_PAST, NO_REVISION
from sirocco.protocol.contract.plain_queries import PlainQueries
from sirocco.protocol.contract.record_sizes import check_change
from sirocco.protocol.contract.storeless_limits import check_standing
from sirocco.runtime.grpc.authentication import caller
from sirocco.runtime.grpc.edge import connection, from_start
from sirocco.runtime.grpc.grpc_errors import streaming, unary
from sirocco.runtime.grpc.shares import Shares
from sirocco.runtime.grpc.work_pool import WorkPool
from sirocco.runtime.process.clock import now_ms
from sirocco.services.router.column_rows import ColumnRows, Queries, plain_rows, removal_rows
from sirocco.services.router.limits import TIMES, FrontTimes
from sirocco.services.router.owners import Owners
from sirocco.services.router.quotas import TenantFigures
from sirocco.services.router.row_warnings import row_warnings
from sirocco.services.router.stored import PAGE_BYTES_MAX, PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX
from sirocco.services.router.tenant_room import TenantRoom
from sirocco.telemetry.metrics import RouterMetrics

# Bulk requests of one stream in progress; the stream is not read further meanwhile.
IN_FLIGHT_MAX = 4

# Streams of bulk calls, in this router and of one tenant (of one connection, without tenants); the
# SDK has one for each call, and each takes some 40 KB though nothing is sent.
STREAMS_MAX = 1_024
STREAMS_EACH_MAX = 128
STREAMS_RETRY_MS = 1_000

# List pages read at a time, in this router and for one tenant (for one connection, without
# tenants). Each reads the registry's log in a thread, possibly all of it.
LISTS_MAX = 64
LISTS_EACH_MAX = 16
LISTS_RETRY_MS = 200

# Partition and offset: `int` would accept more forms.
_PAGE_TOKEN = re.compile("([0-9]{1,10})[.]([0-9]{1,19})")

# Each step of a query is a search in every slot and a list for its subscriber, and notifications
# arrive 50 to 200 ms after their events: at 1 ms a hundred queries would take a core.
STEP_MS_MIN = 100


Request = TypeVar("Request")
Response = TypeVar(
    "Response",
    pb.RegisterQueriesResponse,
    pb.UpdateQueriesResponse,
    pb.UnregisterQueriesResponse,
)


@dataclass(frozen=True, slots=True)
class _Answer:
    """The answer to one request of a bulk call.

    Attributes:
        outcomes: of each row.
        warnings: of the rows that have any.
    """

    outcomes: Sequence[Outcome]
    warnings: Mapping[int, Sequence[str]]


_Decision: TypeAlias = asyncio.Future[_Answer]

# A change, and warnings about its query.
_Checked: TypeAlias = tuple[ChangeRequest, tuple[str, ...]]

# Registry partition → rows of a bulk request and their changes.
_Changes: TypeAlias = dict[int, list[tuple[int, ChangeRequest]]]


class QueryFront(QueryServiceServicer):
    """Checks queries, has their owners apply the changes, answers."""

    def __init__(
        self,
        owners: Owners,
        partitions: int,
        metrics: RouterMetrics,
        retention_ms: int | None = None,
        *,
        store: bool = True,
        figures: TenantFigures | None = None,
        pool: WorkPool | None = None,
        times: FrontTimes = TIMES,
    ) -> None:
        self._times = times
        self._owners = owners
        self._pool = pool or WorkPool("queries")
        figures = figures or TenantFigures(metrics)
        self._tenants = TenantRoom(owners, partitions, figures, times)
        self._streams = Shares("bulk calls", STREAMS_MAX, STREAMS_EACH_MAX, STREAMS_RETRY_MS)
        self._lists = Shares("lists", LISTS_MAX, LISTS_EACH_MAX, LISTS_RETRY_MS)
        self._partitions = partitions
        self._metrics = metrics
        self._retention_ms = retention_ms
        self._store = store

    @unary
    async def RegisterQuery(  # noqa: N802 -- the contract's name
        self, request: pb.RegisterQueryRequest, context: grpc.aio.ServicerContext
    ) -> pb.RegisterQueryResponse:
        """See `query_service.proto`."""
        change, warnings = await self._read("register", request.query, _lifetime(request))
        return pb.RegisterQueryResponse(revision=await self._one(change), warnings=warnings)

    @unary
    async def UpdateQuery(  # noqa: N802 -- the contract's name
        self, request: pb.UpdateQueryRequest, context: grpc.aio.ServicerContext
    ) -> pb.UpdateQueryResponse:
        """See `query_service.proto`."""
        change, warnings = await self._read("update", request.query, _lifetime(request))
        return pb.UpdateQueryResponse(revision=await self._one(change), warnings=warnings)

    @unary
    async def UnregisterQuery(  # noqa: N802 -- the contract's name
        self, request: pb.UnregisterQueryRequest, context: grpc.aio.ServicerContext
    ) -> pb.UnregisterQueryResponse:
        """See `query_service.proto`."""
        if not request.id:
            raise InvalidArgument("is missing", field="id")
        change = ChangeRequest(
            action="unregister",
            id=caller().grant.inward(request.id),
            query=None,
            subscriber="",
            start_ms=now_ms(),
        )
        return pb.UnregisterQueryResponse(revision=await self._one(change))

    @unary
    async def GetQuery(  # noqa: N802 -- the contract's name
        self, request: pb.GetQueryRequest, context: grpc.aio.ServicerContext
    ) -> pb.GetQueryResponse:
        """See `query_service.proto`."""
        if not request.id:
            raise InvalidArgument("is missing", field="id")
        name = caller().grant.inward(request.id)
        partition = query_handle(name) % self._partitions
        wanted = owner_pb.ReadQueriesRequest(partition=partition, id=name)
        response = await self._owners.read(wanted)
        return pb.GetQueryResponse(registered_query=_registered(response.queries[0]))

    @unary
    async def ListQueries(  # noqa: N802 -- the contract's name
        self, request: pb.ListQueriesRequest, context: grpc.aio.ServicerContext
    ) -> pb.ListQueriesResponse:
        """See `query_service.proto`."""
        if request.page_size < 0:
            raise InvalidArgument("must not be negative", field="page_size")
        size = min(request.page_size or PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX)
        partition, offset = _page_token(request.page_token, self._partitions)
        with self._lists.place(caller().grant.tenant, peer=connection()):
            return await self._page(request, size, partition, offset)

    async def _page(
        self, request: pb.ListQueriesRequest, size: int, partition: int, offset: int
    ) -> pb.ListQueriesResponse:
        response = pb.ListQueriesResponse()
        grant = caller().grant
        while partition < self._partitions:
            wanted = owner_pb.ReadQueriesRequest(
                partition=partition,
                from_offset=offset,
                page_size=size - len(response.registered_queries),
                subscriber=grant.inward(request.subscriber),
                id_prefix=grant.prefix,
            )
            page = await self._owners.read(wanted)
            response.registered_queries.extend(
                _registered(stored)
                for stored in page.queries
                # An owner of an earlier version ignores prefixes.
                if stored.query.id.startswith(grant.prefix)
            )
            if page.next_offset >= 0:
                offset = page.next_offset
            else:
                partition, offset = partition + 1, 0
            # The answers of several owners are combined into one message.
            if len(response.registered_queries) == size or response.ByteSize() >= PAGE_BYTES_MAX:
                break
        if partition < self._partitions:
            response.next_page_token = f"{partition}.{offset}"
        return response

    @streaming
    async def RegisterQueries(  # noqa: N802 -- the contract's name
        self,
        requests: AsyncIterator[pb.RegisterQueriesRequest | PartlyRefused],
        context: grpc.aio.ServicerContext,
    ) -> AsyncIterator[pb.RegisterQueriesResponse]:
        """See `query_service.proto`."""
        async with aclosing(self._answered(requests, partial(self._bulk, "register"))) as answers:
            async for answer in answers:
                response = _written(pb.RegisterQueriesResponse, answer.outcomes)
                response.warnings.extend(row_warnings(answer.warnings))
                yield response

    @streaming
    async def UpdateQueries(  # noqa: N802 -- the contract's name
        self,
        requests: AsyncIterator[pb.UpdateQueriesRequest | PartlyRefused],
        context: grpc.aio.ServicerContext,
    ) -> AsyncIterator[pb.UpdateQueriesResponse]:
        """See `query_service.proto`."""
        async with aclosing(self._answered(requests, partial(self._bulk, "update"))) as answers:
            async for answer in answers:
                response = _written(pb.UpdateQueriesResponse, answer.outcomes)
                response.warnings.extend(row_warnings(answer.warnings))
                yield response

    @streaming
    async def UnregisterQueries(  # noqa: N802 -- the contract's name
        self,
        requests: AsyncIterator[pb.UnregisterQueriesRequest],
        context: grpc.aio.ServicerContext,
    ) -> AsyncIterator[pb.UnregisterQueriesResponse]:
        """See `query_service.proto`."""
        async with aclosing(self._answered(requests, self._bulk_removal)) as answers:
            async for answer in answers:
                yield _written(pb.UnregisterQueriesResponse, answer.outcomes)

    async def _answered(
        self,
        requests: AsyncIterator[Request],
        decide: Callable[[Request], Awaitable[_Answer]],
    ) -> AsyncGenerator[_Answer]:
        """Yields the answers to the requests of a bulk call, which has a place until it ends."""
        with self._streams.place(caller().grant.tenant, peer=connection()):
            async with aclosing(_answered(requests, decide, self._times.begin_s)) as answers:
                async for answer in answers:
                    yield answer

    async def _bulk(
        self,
        action: str,
        received: pb.RegisterQueriesRequest | pb.UpdateQueriesRequest | PartlyRefused,
    ) -> _Answer:
        """Registers or updates the queries of a request; each is refused separately."""
        request, refused = (
            (received.message, received.refused)
            if isinstance(received, PartlyRefused)
            else (received, {})
        )
        _check_count(len(request.queries), "queries")
        lifetime, grant = _lifetime(request), caller().grant
        warnings: dict[int, Sequence[str]] = {}

        def read(row: int) -> ChangeRequest | SiroccoError:
            try:
                if row in refused:
                    raise refused[row]
                change, found = self._checked(action, request.queries[row], lifetime, grant)
            except SiroccoError as error:
                return error
            if found:
                warnings[row] = found
            return change

        plain = None
        # Limits of tenants are per query.
        if not grant.tenant and lifetime[1] == NO_PAST:
            plain = await self._pool.run(lambda: plain_rows(request))
        if plain is None:
            rows = await self._pool.map(read, range(len(request.queries)))
            return _Answer(await self._decided(action, rows), warnings)
        warnings |= plain.warnings
        start_ms, _, is_start_given = lifetime

        def requests_of(queries: PlainQueries) -> PlainRequests:
            return PlainRequests(
                is_update=action == "update",
                queries=queries,
                start_ms=start_ms,
                is_start_given=is_start_given,
            )

        outcomes = await self._decided_in_columns(
            action, len(request.queries), plain, requests_of, read
        )
        return _Answer(outcomes, warnings)

    async def _bulk_removal(self, request: pb.UnregisterQueriesRequest) -> _Answer:
        """Removes the queries of a request."""
        _check_count(len(request.ids), "ids")
        grant, at_ms = caller().grant, now_ms()

        def read(row: int) -> ChangeRequest | SiroccoError:
            name = request.ids[row]
            if not name:
                return InvalidArgument("is empty", field="id")
            return ChangeRequest(
                action="unregister",
                id=grant.inward(name),
                query=None,
                subscriber="",
                start_ms=at_ms,
            )

        count = len(request.ids)
        columns = await self._pool.run(lambda: removal_rows(request, grant))
        if columns is None:
            return _Answer(await self._decided("unregister", list(map(read, range(count)))), {})
        outcomes = await self._decided_in_columns(
            "unregister",
            count,
            columns,
            lambda queries: RemovalRequests(queries=queries, start_ms=at_ms),
            read,
        )
        return _Answer(outcomes, {})

    async def _decided_in_columns(
        self,
        action: str,
        count: int,
        columns: ColumnRows[Queries],
        requests_of: Callable[[Queries], PlainRequests | RemovalRequests],
        read: Callable[[int], ChangeRequest | SiroccoError],
    ) -> Outcomes:
        """Applies the changes of a bulk request with so many rows: columns, and those beside them.

        Args:
            action, count: of the request.
            columns: some of its rows.
            requests_of: makes change requests of them.
            read: reads one of the other rows.
        """
        outcomes = Outcomes(np.full(count, NO_REVISION, np.int64), {})

        async def decide(partition: int, some: ColumnRows[Queries]) -> None:
            decided = await self._owners.apply(partition, requests_of(some.queries))
            outcomes.put(some.rows, decided)
            self._count(action, decided)

        async def decide_others() -> None:
            if others := columns.others(count):
                decided = await self._decided(action, await self._pool.map(read, others))
                outcomes.put(np.array(others), decided)

        of_partitions = columns.of_partitions(self._partitions)
        await asyncio.gather(*(decide(*each) for each in of_partitions.items()), decide_others())
        return outcomes

    async def _decided(
        self, action: str, rows: Sequence[ChangeRequest | SiroccoError]
    ) -> list[Outcome]:
        """Applies the changes of a bulk request, grouped by owner."""
        outcomes: list[Outcome | None] = [None] * len(rows)
        changes: _Changes = {}
        for row, change in enumerate(rows):
            if isinstance(change, SiroccoError):
                outcomes[row] = Outcome(NO_REVISION, change)
                continue
            changes.setdefault(self._partition_of(change), []).append((row, change))
        if action == "unregister":
            await self._apply(changes, outcomes)
        else:
            async with self._tenants.room(
                caller(), [each for some in changes.values() for each in some]
            ) as refused:
                await self._apply(_without(changes, refused), outcomes)
            for row, error in refused.items():
                outcomes[row] = Outcome(NO_REVISION, error)
        every = [outcome for outcome in outcomes if outcome is not None]
        assert len(every) == len(rows)
        self._count(action, every)
        return every

    async def _apply(self, changes: _Changes, outcomes: list[Outcome | None]) -> None:
        """Has the owners apply changes, and sets the outcomes of their rows."""

        async def decide(partition: int, some: Sequence[tuple[int, ChangeRequest]]) -> None:
            decided = await self._owners.apply(partition, [change for _, change in some])
            for (row, _), outcome in zip(some, decided, strict=True):
                outcomes[row] = outcome

        await asyncio.gather(*(decide(partition, some) for partition, some in changes.items()))

    async def _read(self, action: str, query: Query, lifetime: _Lifetime) -> _Checked:
        grant = caller().grant
        if is_light(query):
            return self._checked(action, query, lifetime, grant)
        return await self._pool.run(lambda: self._checked(action, query, lifetime, grant))

    def _checked(self, action: str, query: Query, lifetime: _Lifetime, grant: Grant) -> _Checked:
        """Returns the change that is asked for, and warnings about its query."""
        start_ms, past_ms, is_start_given = lifetime
        if grant.tenant:
            # Before the checks: limits on names apply to the names in the registry.
            query.id = grant.inward(query.id)
            query.subscriber = grant.inward(query.subscriber)
        parsed, subscriber = read_query(query)
        if parsed.mode != "continuous":
            raise InvalidArgument("a snapshot is asked by search, not registered", field="mode")
        check_change(parsed, subscriber)
        if not self._store:
            check_standing(parsed, past_ms)
        if past_ms != NO_PAST and isinstance(parsed, RangeQuery) and parsed.track is not None:
            raise InvalidArgument(
                "values are followed from the registration on: `track` has no past", field="past_ms"
            )
        if isinstance(parsed, TermsQuery | RankedQuery):
            self._check_kept(parsed)
            self._check_step(parsed)
        change = ChangeRequest(
            action=action,
            id=parsed.id,
            query=parsed,
            subscriber=subscriber,
            start_ms=start_ms,
            past_ms=past_ms,
            is_start_given=is_start_given,
        )
        return change, warnings_of(parsed)

    def _check_kept(self, query: TermsQuery | RankedQuery) -> None:
        """Refuses steps that would count objects no longer in memory."""
        retention_ms = self._retention_ms
        if retention_ms is None or (query.window_ms or NEVER_MS) <= retention_ms:
            return
        raise OutOfRange(
            f"steps count objects in memory, which are kept for {format_duration(retention_ms)}; "
            "ask for a window of at most that",
            field="window",
            earliest_ms=now_ms() - retention_ms,
        )

    def _check_step(self, query: TermsQuery | RankedQuery) -> None:
        """Refuses steps too frequent for a live cluster; a replay of files evaluates any."""
        assert query.step_ms is not None
        if self._retention_ms is not None and query.step_ms < STEP_MS_MIN:
            raise InvalidArgument(
                f"{format_duration(query.step_ms)} is less than {format_duration(STEP_MS_MIN)}",
                field="step",
            )

    async def _one(self, change: ChangeRequest) -> int:
        if change.action == "unregister":
            (outcome,) = await self._owners.apply(self._partition_of(change), [change])
        else:
            async with self._tenants.room(caller(), [(0, change)]) as refused:
                for error in refused.values():
                    raise error
                (outcome,) = await self._owners.apply(self._partition_of(change), [change])
        self._count(change.action, [outcome])
        if outcome.error is not None:
            raise outcome.error
        return outcome.revision

    def _partition_of(self, change: ChangeRequest) -> int:
        """Returns the registry partition of a change's query."""
        return query_handle(change.id) % self._partitions

    def _count(self, action: str, outcomes: Sequence[Outcome]) -> None:
        errors = errors_of(outcomes)
        names = Counter(each.code for each in errors)
        names["ok"] = len(outcomes) - len(errors)
        for name, count in names.items():
            self._metrics.query_changes.labels(action=action, outcome=name).inc(count)


async def _answered(
    requests: AsyncIterator[Request],
    decide: Callable[[Request], Awaitable[_Answer]],
    begin_s: float,
) -> AsyncGenerator[_Answer]:
    """Yields the answers to the requests of a bulk call; a few are in progress at once."""
    under_way: asyncio.Queue[_Decision | None] = asyncio.Queue(IN_FLIGHT_MAX)
    begun: set[_Decision] = set()

    async def read() -> None:
        try:
            async for request in from_start(requests, begin_s):
                task = asyncio.ensure_future(decide(request))
                # An idle stream keeps nothing of its last request.
                del request
                begun.add(task)
                task.add_done_callback(begun.discard)
                await under_way.put(task)
                del task
        finally:
            await under_way.put(None)

    reading = asyncio.create_task(read())
    try:
        while (task := await under_way.get()) is not None:
            yield await task
        await reading
    finally:
        # Requests of a disconnected client are not applied any more.
        reading.cancel()
        for task in begun:
            task.cancel()
        while not under_way.empty():
            under_way.get_nowait()  # `read` ends by adding an item


def _without(changes: _Changes, refused: Container[int]) -> _Changes:
    """Returns the changes whose rows are not refused."""
    kept = {
        partition: [each for each in some if each[0] not in refused]
        for partition, some in changes.items()
    }
    return {partition: some for partition, some in kept.items() if some}


def _written(response: type[Response], outcomes: Sequence[Outcome]) -> Response:
    """Returns a response with the results of a bulk change."""
    if isinstance(outcomes, Outcomes) and not outcomes.errors:
        revisions = outcomes.revisions
        # A removal that a former owner has done has no revision.
        if (revisions != NO_REVISION).all():
            return response.FromString(write_results(revisions))
    results = [
        pb.RegistrationResult(revision=each.revision)
        if each.error is None
        else pb.RegistrationResult(revision=each.revision, error=write_error(each.error))
        for each in outcomes
    ]
    return response(results=results)


def _check_count(count: int, field: str) -> None:
    if count > QUERIES_MAX:
        raise InvalidArgument(f"{count} queries in a request, at most {QUERIES_MAX}", field=field)


_Registering: TypeAlias = (
    pb.RegisterQueryRequest
    | pb.UpdateQueryRequest
    | pb.RegisterQueriesRequest
    | pb.UpdateQueriesRequest
)


# Start, length of the past, whether the client named the start.
_Lifetime: TypeAlias = tuple[int, int, bool]


def _lifetime(request: _Registering) -> _Lifetime:
    """Returns the start, the length of the past, and whether the client named the start.

    If it did not, this router's clock does not relate to objects: the clock that stamps them may be
    behind, or use their own times.
    """
    past_ms = request.past_ms if request.HasField("past_ms") else NO_PAST
    if past_ms < 0 and request.HasField("past_ms"):
        raise InvalidArgument("must not be negative", field="past_ms")
    if not request.HasField("start_ms"):
        return now_ms(), past_ms, False
    check_time(request.start_ms, "start_ms")
    return request.start_ms, past_ms, True


def _registered(stored: owner_pb.StoredQuery) -> pb.RegisteredQuery:
    grant = caller().grant
    stored.query.id = grant.outward(stored.query.id)
    stored.query.subscriber = grant.outward(stored.query.subscriber)
    return pb.RegisteredQuery(
        query=stored.query,
        revision=stored.revision,
        start_ms=stored.start_ms,
        start_given=stored.start_given,
    )


def _page_token(token: str, partitions: int) -> tuple[int, int]:
    if not token:
        return 0, 0
    found = _PAGE_TOKEN.fullmatch(token)
    if found is not None:
        partition, offset = int(found[1]), int(found[2])
        if partition < partitions and offset <= OFFSET_MAX:
            return partition, offset
    raise InvalidArgument("is not one that a list call gave", field="page_token")
