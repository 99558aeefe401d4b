"""QueryService: registers, changes and shows standing queries (the front of a router)."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial

import grpc
from sirocco_api.v1 import query_service_pb2 as pb
from sirocco_api.v1.query_service_pb2_grpc import QueryServiceServicer

from sirocco.codec.tokens import OFFSET_MAX
from sirocco.codec.wire import PartlyRefused
from sirocco.internal_api.v1 import owner_service_pb2 as owner_pb
from sirocco.model.errors import InvalidArgument, SiroccoError
from sirocco.model.query import query_handle
from sirocco.protocol.contract.effects import (
    ChangeRequest,
    PlainRequests,
    RemovalRequests,
)
from sirocco.protocol.contract.messages import NO_PAST
from sirocco.protocol.contract.plain_queries import PlainQueries
from sirocco.runtime.grpc.authentication import caller
from sirocco.runtime.grpc.call_audit import audited
from sirocco.runtime.grpc.edge import connection
from sirocco.runtime.grpc.grpc_errors import streaming, unary
from sirocco.runtime.grpc.shares import Shares
from sirocco.runtime.grpc.work_pool import WorkPool
from sirocco.runtime.process.clock import now_ms
from sirocco.schemes.map.routing import RoutingArrays
from sirocco.services.router.changes.bulk_calls import (
    BulkAnswer,
    Request,
    answered,
    check_count,
    written_results,
)
from sirocco.services.router.changes.change_rates import ChangeRates
from sirocco.services.router.changes.column_rows import plain_rows, removal_rows
from sirocco.services.router.changes.query_changes import QueryChanges
from sirocco.services.router.changes.query_checks import QueryChecks, lifetime_of
from sirocco.services.router.changes.row_warnings import row_warnings
from sirocco.services.router.changes.tenant_room import TenantRoom
from sirocco.services.router.limits import TIMES, FrontTimes
from sirocco.services.router.owners import Owners
from sirocco.services.router.quotas import TenantFigures
from sirocco.services.router.registry_definitions import (
    PAGE_BYTES_MAX,
    PAGE_SIZE_DEFAULT,
    PAGE_SIZE_MAX,
)
from sirocco.telemetry.audit import AUDIT
from sirocco.telemetry.metrics.router import RouterMetrics

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
        tenant_steps: float | None = None,
        tenant_change_bytes: float | None = None,
        routing: Callable[[], RoutingArrays | None] = lambda: None,
    ) -> None:
        self._times = times
        self._owners = owners
        self._pool = pool or WorkPool("queries")
        figures = figures or TenantFigures(metrics)
        tenants = TenantRoom(owners, partitions, figures, times, self._pool, tenant_steps)
        self._checks = QueryChecks(self._pool, retention_ms, store=store)
        rates = ChangeRates(routing, figures, times, tenant_change_bytes)
        self._changes = QueryChanges(owners, partitions, tenants, rates, self._pool, metrics)
        self._streams = Shares("bulk calls", STREAMS_MAX, STREAMS_EACH_MAX, STREAMS_RETRY_MS)
        self._lists = Shares("lists", LISTS_MAX, LISTS_EACH_MAX, LISTS_RETRY_MS)
        self._partitions = partitions

    @unary
    async def RegisterQuery(  # noqa: N802 -- the contract's name
        self, request: pb.RegisterQueryRequest, context: grpc.aio.ServicerContext
    ) -> pb.RegisterQueryResponse:
        """See `query_service.proto`."""
        client = caller()
        with audited("register_query", [request.query.id]):
            change, warnings = await self._checks.read(
                "register", request.query, lifetime_of(request), client.grant
            )
            revision = await self._changes.apply(change, client)
        return pb.RegisterQueryResponse(revision=revision, warnings=warnings)

    @unary
    async def UpdateQuery(  # noqa: N802 -- the contract's name
        self, request: pb.UpdateQueryRequest, context: grpc.aio.ServicerContext
    ) -> pb.UpdateQueryResponse:
        """See `query_service.proto`."""
        client = caller()
        with audited("update_query", [request.query.id]):
            change, warnings = await self._checks.read(
                "update", request.query, lifetime_of(request), client.grant
            )
            revision = await self._changes.apply(change, client)
        return pb.UpdateQueryResponse(revision=revision, warnings=warnings)

    @unary
    async def UnregisterQuery(  # noqa: N802 -- the contract's name
        self, request: pb.UnregisterQueryRequest, context: grpc.aio.ServicerContext
    ) -> pb.UnregisterQueryResponse:
        """See `query_service.proto`."""
        if not request.id:
            raise InvalidArgument("is missing", field="id")
        client = caller()
        with audited("unregister_query", [request.id]):
            change = _removal(client.grant.inward(request.id), now_ms())
            revision = await self._changes.apply(change, client)
        return pb.UnregisterQueryResponse(revision=revision)

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
                # It is full, or its owner has looked at as many as it does for one page.
                offset = page.next_offset
                break
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
                response = written_results(pb.RegisterQueriesResponse, answer.outcomes)
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
                response = written_results(pb.UpdateQueriesResponse, answer.outcomes)
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
                yield written_results(pb.UnregisterQueriesResponse, answer.outcomes)

    async def _answered(
        self,
        requests: AsyncIterator[Request],
        decide: Callable[[Request], Awaitable[BulkAnswer]],
    ) -> AsyncGenerator[BulkAnswer]:
        """Yields the answers to the requests of a bulk call, which has a place until it ends."""
        with self._streams.place(caller().grant.tenant, peer=connection()):
            async with aclosing(answered(requests, decide, self._times.begin_s)) as answers:
                async for answer in answers:
                    yield answer

    async def _bulk(
        self,
        action: str,
        received: pb.RegisterQueriesRequest | pb.UpdateQueriesRequest | PartlyRefused,
    ) -> BulkAnswer:
        """Registers or updates the queries of a request, which is audited."""
        message = received.message if isinstance(received, PartlyRefused) else received
        names = [each.id for each in message.queries] if AUDIT.writes_changes else []
        with audited(f"{action}_query", names) as errors:
            answer = await self._decided(action, received)
            if names:
                errors.update(answer.errors())
        return answer

    async def _decided(
        self,
        action: str,
        received: pb.RegisterQueriesRequest | pb.UpdateQueriesRequest | PartlyRefused,
    ) -> BulkAnswer:
        """Registers or updates the queries of a request; each is refused separately."""
        request, refused = (
            (received.message, received.refused)
            if isinstance(received, PartlyRefused)
            else (received, {})
        )
        check_count(len(request.queries), "queries")
        lifetime, client = lifetime_of(request), caller()
        warnings: dict[int, Sequence[str]] = {}

        def read(row: int) -> ChangeRequest | SiroccoError:
            try:
                if row in refused:
                    raise refused[row]
                change, found = self._checks.checked(
                    action, request.queries[row], lifetime, client.grant
                )
            except SiroccoError as error:
                return error
            if found:
                warnings[row] = found
            return change

        plain = None
        # Limits of tenants are per query.
        if not client.grant.tenant and lifetime.past_ms == NO_PAST:
            plain = await self._pool.run(lambda: plain_rows(request))
        if plain is None:
            rows = await self._pool.map(read, range(len(request.queries)))
            return BulkAnswer(await self._changes.apply_rows(action, rows, client), warnings)
        warnings |= plain.warnings

        def requests_of(queries: PlainQueries) -> PlainRequests:
            return PlainRequests(
                is_update=action == "update",
                queries=queries,
                start_ms=lifetime.start_ms,
                is_start_given=lifetime.is_start_given,
            )

        outcomes = await self._changes.apply_columns(
            action, len(request.queries), plain, requests_of, read, client
        )
        return BulkAnswer(outcomes, warnings)

    async def _bulk_removal(self, request: pb.UnregisterQueriesRequest) -> BulkAnswer:
        """Removes the queries of a request, which is audited."""
        with audited("unregister_query", request.ids) as errors:
            answer = await self._removed(request)
            if AUDIT.writes_changes:
                errors.update(answer.errors())
        return answer

    async def _removed(self, request: pb.UnregisterQueriesRequest) -> BulkAnswer:
        check_count(len(request.ids), "ids")
        client, at_ms = caller(), now_ms()

        def read(row: int) -> ChangeRequest | SiroccoError:
            name = request.ids[row]
            if not name:
                return InvalidArgument("is empty", field="id")
            return _removal(client.grant.inward(name), at_ms)

        count = len(request.ids)
        columns = await self._pool.run(lambda: removal_rows(request, client.grant))
        if columns is None:
            rows = list(map(read, range(count)))
            return BulkAnswer(await self._changes.apply_rows("unregister", rows, client), {})
        outcomes = await self._changes.apply_columns(
            "unregister",
            count,
            columns,
            lambda queries: RemovalRequests(queries=queries, start_ms=at_ms),
            read,
            client,
        )
        return BulkAnswer(outcomes, {})


def _removal(name: str, at_ms: int) -> ChangeRequest:
    """Returns the removal of a query by its name in the registry."""
    return ChangeRequest(action="unregister", id=name, query=None, subscriber="", start_ms=at_ms)


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
