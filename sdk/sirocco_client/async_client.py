"""The client for asyncio: the twin of `client`, with the same names and arguments."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar
from weakref import WeakSet

import grpc
import grpc.aio
from sirocco_api.v1.receive_service_pb2_grpc import ReceiveServiceStub

from sirocco_client.base.durations import read_past_ms
from sirocco_client.base.numbers import Moment
from sirocco_client.calls import router_calls
from sirocco_client.calls.async_bulk_stream import change_many
from sirocco_client.calls.async_calling import call_routers, merger_order
from sirocco_client.calls.async_searches import AsyncSearches
from sirocco_client.calls.balance import Balance
from sirocco_client.calls.bulk import (
    BATCH_ROWS,
    BulkRegistration,
    BulkRemoval,
    BulkUpdate,
)
from sirocco_client.calls.cluster import ClusterDescription
from sirocco_client.calls.many_searches import IN_FLIGHT, ManySearches, SearchResult
from sirocco_client.calls.map_change import MapChange
from sirocco_client.calls.router_calls import PAGE_SIZE, RouterCall
from sirocco_client.calls.searching import Searching
from sirocco_client.connection.channels import MESSAGE_BYTES_MAX, Tls
from sirocco_client.connection.connection import AsyncConnection
from sirocco_client.connection.contact import ConnectionChange
from sirocco_client.connection.retry import Retry
from sirocco_client.connection.tokens import Token
from sirocco_client.errors import (
    Rejected,
    Unavailable,
)
from sirocco_client.notifications.async_subscription import AsyncSubscription
from sirocco_client.notifications.receiving import CREDIT, Receiving
from sirocco_client.notifications.shared_calls import SharedCalls
from sirocco_client.objects.answer import SearchAnswer, SearchPart
from sirocco_client.publishing.async_numbered_publisher import AsyncNumberedPublisher
from sirocco_client.publishing.async_publisher import AsyncPublisher
from sirocco_client.publishing.numbered_outbox import NumberedOutbox
from sirocco_client.publishing.outbox import PublishFlow
from sirocco_client.queries.query import (
    Duration,
    Query,
    QueryPage,
    RegisteredQuery,
    Registration,
    RegistrationResult,
)

T = TypeVar("T")

# What a broken stream raises. InvalidStateError: written to a call that has already ended.
_BROKEN = (grpc.RpcError, grpc.aio.UsageError, asyncio.InvalidStateError, Unavailable)


class AsyncClient:
    """Connects to a cluster as `Client` does. All of its methods belong to one event loop."""

    def __init__(
        self,
        router: str,
        *,
        mergers: Sequence[str] | None = None,
        tls: Tls | None = None,
        token: Token = None,
        retry: Retry | None = None,
        timeout_s: float = 30.0,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        window_bytes: int | None = None,
        on_connection: Callable[[ConnectionChange], None] | None = None,
    ) -> None:
        """Creates a client; the arguments are those of `Client`."""
        self._connection = AsyncConnection(
            router=router,
            mergers=mergers,
            tls=tls,
            token=token,
            retry=retry,
            timeout_s=timeout_s,
            message_bytes_max=message_bytes_max,
            window_bytes=window_bytes,
            on_connection=on_connection,
        )
        self._searches = AsyncSearches(self._connection)
        self._shared_calls = SharedCalls(self._connection)
        self._subscriptions: WeakSet[AsyncSubscription] = WeakSet()

    def __repr__(self) -> str:
        """Shows the addresses, never the token."""
        return f"<AsyncClient of {self._connection}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """As `Client.close`."""
        self._connection.end()
        for subscription in list(self._subscriptions):
            await subscription.close()
        self._searches.close()
        await self._connection.close()

    # --- queries -----------------------------------------------------------------------------

    async def register(
        self, query: Query, *, start_ms: Moment | None = None, past: Duration | None = None
    ) -> Registration:
        """As `Client.register`."""
        return await self._call(router_calls.register(query, start_ms, past))

    async def update(
        self, query: Query, *, start_ms: Moment | None = None, past: Duration | None = None
    ) -> Registration:
        """As `Client.update`."""
        return await self._call(router_calls.update(query, start_ms, past))

    async def unregister(self, query_id: str) -> None:
        """As `Client.unregister`."""
        await self._call(router_calls.unregister(query_id))

    async def get(self, query_id: str) -> RegisteredQuery:
        """As `Client.get`."""
        return await self._call(router_calls.get(query_id))

    async def list(self, subscriber: str | None = None) -> AsyncIterator[RegisteredQuery]:
        """As `Client.list`."""
        token = ""
        while True:
            page = await self.list_page(subscriber, page_token=token)
            for each in page.queries:
                yield each
            token = page.next_page_token
            if not token:
                return

    async def list_page(
        self,
        subscriber: str | None = None,
        *,
        page_size: int = PAGE_SIZE,
        page_token: str = "",
    ) -> QueryPage:
        """As `Client.list_page`."""
        return await self._call(router_calls.list_page(subscriber, page_size, page_token))

    async def register_many(
        self,
        queries: Iterable[Query] | AsyncIterable[Query],
        *,
        batch: int = BATCH_ROWS,
        start_ms: Moment | None = None,
        past: Duration | None = None,
    ) -> AsyncIterator[RegistrationResult]:
        """As `Client.register_many`; also takes an asynchronous iterable."""
        async for result in change_many(
            self._connection, BulkRegistration(start_ms, read_past_ms(past)), queries, batch
        ):
            yield result

    async def update_many(
        self,
        queries: Iterable[Query] | AsyncIterable[Query],
        *,
        batch: int = BATCH_ROWS,
        start_ms: Moment | None = None,
        past: Duration | None = None,
    ) -> AsyncIterator[RegistrationResult]:
        """As `Client.update_many`; also takes an asynchronous iterable."""
        async for result in change_many(
            self._connection, BulkUpdate(start_ms, read_past_ms(past)), queries, batch
        ):
            yield result

    async def unregister_many(
        self, query_ids: Iterable[str] | AsyncIterable[str], *, batch: int = BATCH_ROWS
    ) -> AsyncIterator[RegistrationResult]:
        """As `Client.unregister_many`; also takes an asynchronous iterable."""
        async for result in change_many(self._connection, BulkRemoval(), query_ids, batch):
            yield result

    # --- objects and notifications -----------------------------------------------------------

    def publisher(
        self,
        flow: PublishFlow | None = None,
        *,
        on_rejected: Callable[[Rejected], None] | None = None,
    ) -> AsyncPublisher:
        """As `Client.publisher`; `on_rejected` is a plain function."""
        return AsyncPublisher(flow or PublishFlow(), self._connection, on_rejected)

    def numbered_publisher(
        self,
        session: int,
        acknowledged: int,
        *,
        on_rejected: Callable[[Rejected], None],
        on_acknowledged: Callable[[], None] | None = None,
        flow: PublishFlow | None = None,
    ) -> AsyncNumberedPublisher:
        """Returns a publisher of objects that have numbers, such as offsets in another log.

        Args:
            session: Its name, unsigned 64-bit; the same for the same log.
            acknowledged: Every object up to this number was acknowledged before, or is not wanted.
            on_rejected: Called with each object that the cluster refuses.
            on_acknowledged: Called after each answer, and when the publisher gives up.
            flow: Only its limits of what is outstanding count.
        """
        return AsyncNumberedPublisher(
            NumberedOutbox(flow or PublishFlow(), session, acknowledged),
            self._connection,
            on_rejected,
            on_acknowledged,
        )

    def subscribe(
        self,
        subscriber: str,
        cursor: str | None = None,
        *,
        from_earliest: bool = False,
        credit: int = CREDIT,
        joined: bool = False,
        shared: bool = False,
    ) -> AsyncSubscription:
        """As `Client.subscribe`.

        Args:
            shared: Subscriptions of this client share one call to each merger: for hundreds of
                subscribers in one process. What has arrived for one of them is not held back by
                the connection but by its `credit` alone, so give it little.
        """
        return AsyncSubscription(
            Receiving(subscriber, cursor, from_earliest, credit, joined),
            self._connection,
            partial(merger_order, self._connection),
            self._shared_calls.open if shared else self._receive_call,
            self._began,
        )

    # --- searches ----------------------------------------------------------------------------

    async def search(
        self,
        query: Query | Mapping[str, Any],
        *,
        now_ms: Moment | None = None,
        position_token: str | None = None,
        allow_partial: bool = False,
        timeout_s: float | None = None,
    ) -> SearchAnswer:
        """As `Client.search`."""
        state = Searching(query, now_ms, position_token, allow_partial)
        return await self.answer_of(state, timeout_s)

    async def answer_of(self, state: Searching, timeout_s: float | None = None) -> SearchAnswer:
        """Answers a search whose state is the caller's, which may refuse what grows too large."""
        async for _ in self._searches.parts(state, timeout_s, repeats=True):
            pass
        return state.answer()

    def search_many(
        self,
        queries: Iterable[Query | Mapping[str, Any]],
        *,
        now_ms: Moment | None = None,
        position_token: str | None = None,
        allow_partial: bool = False,
        timeout_s: float | None = None,
        in_flight: int = IN_FLIGHT,
    ) -> AsyncIterator[SearchResult]:
        """As `Client.search_many`."""
        limit_s = self._connection.seconds(timeout_s)
        arguments = now_ms, position_token, allow_partial
        retry = self._connection.retry
        state = ManySearches(queries, arguments, limit_s, in_flight, retry, random.random)
        return self._searches.many(state, limit_s)

    def answers_of(
        self, states: Iterable[Searching], timeout_s: float | None = None
    ) -> AsyncIterator[SearchResult]:
        """Answers many searches whose state is the caller's; see `answer_of`."""
        limit_s = self._connection.seconds(timeout_s)
        nothing = None, None, False
        retry = self._connection.retry
        state = ManySearches(states, nothing, limit_s, IN_FLIGHT, retry, random.random)
        return self._searches.many(state, limit_s)

    def search_parts(
        self,
        query: Query | Mapping[str, Any],
        *,
        now_ms: Moment | None = None,
        position_token: str | None = None,
        allow_partial: bool = False,
        timeout_s: float | None = None,
    ) -> AsyncIterator[SearchPart]:
        """As `Client.search_parts`."""
        state = Searching(query, now_ms, position_token, allow_partial, keeps=False)
        return self._searches.parts(state, timeout_s, repeats=False)

    # --- cluster -----------------------------------------------------------------------------

    async def describe(
        self, leaves: bool = False, timeout_s: float | None = None
    ) -> ClusterDescription:
        """As `Client.describe`."""
        return await self._call(router_calls.describe(leaves), timeout_s=timeout_s)

    async def propose_map(self, partition_map: bytes, timeout_s: float | None = None) -> int:
        """As `Client.propose_map`."""
        return await self._call(router_calls.propose_map(partition_map), timeout_s=timeout_s)

    async def balance(self, timeout_s: float | None = None) -> Balance:
        """As `Client.balance`."""
        return await self._call(router_calls.balance(), timeout_s=timeout_s)

    async def map_change(self, with_map: bool = False, timeout_s: float | None = None) -> MapChange:
        """As `Client.map_change`."""
        return await self._call(router_calls.map_change(with_map), timeout_s=timeout_s)

    async def await_processed(
        self, position_token: str, timeout_s: float | None = None
    ) -> tuple[str, ...]:
        """As `Client.await_processed`."""
        return await self._call(router_calls.await_processed(position_token), timeout_s=timeout_s)

    async def advance_time(self, time_ms: int) -> str:
        """As `Client.advance_time`."""
        return await self._call(router_calls.advance_time(time_ms))

    # --- parts -------------------------------------------------------------------------------

    def _began(self, subscription: AsyncSubscription) -> None:
        self._connection.check_open()
        self._subscriptions.add(subscription)

    def _receive_call(self, address: str) -> Any:
        metadata = self._connection.metadata
        return self._connection.kept_call(
            address, lambda channel: ReceiveServiceStub(channel).Receive(metadata=metadata)
        )

    async def _call(self, call: RouterCall[T], timeout_s: float | None = None) -> T:
        return await call_routers(self._connection, call, timeout_s)
