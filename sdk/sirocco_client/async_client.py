"""The client for asyncio: the twin of `client`, with the same names and arguments."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar
from weakref import WeakSet

import grpc
import grpc.aio
from sirocco_api.v1.query_service_pb2_grpc import QueryServiceStub
from sirocco_api.v1.receive_service_pb2_grpc import ReceiveServiceStub
from sirocco_api.v1.search_service_pb2_grpc import SearchServiceStub

from sirocco_client.base.durations import read_past_ms
from sirocco_client.base.numbers import Moment, read_whole
from sirocco_client.calls import router_calls
from sirocco_client.calls.async_kept_streams import AsyncKeptStreams
from sirocco_client.calls.attempts import Attempts
from sirocco_client.calls.balance import Balance
from sirocco_client.calls.bulk import (
    BATCH_ROWS,
    QUERIES_MAX,
    Bulk,
    BulkRegistration,
    BulkRemoval,
    BulkUpdate,
)
from sirocco_client.calls.cluster import ClusterDescription
from sirocco_client.calls.kept_searches import FailedSearch
from sirocco_client.calls.many_searches import IN_FLIGHT, ManySearches, SearchResult
from sirocco_client.calls.map_change import MapChange
from sirocco_client.calls.router_calls import PAGE_SIZE, RouterCall
from sirocco_client.calls.searching import GRACE_S, Searching
from sirocco_client.client_base import CREDIT, ClientBase, new_session
from sirocco_client.connection.async_waiting import was_call_cancelled
from sirocco_client.connection.channels import MESSAGE_BYTES_MAX, Tls
from sirocco_client.connection.contact import MERGER, ROUTER, ConnectionChange
from sirocco_client.connection.endpoints import Endpoints, preferred_order
from sirocco_client.connection.retry import LAST_TRY_S, Backoff, Retry
from sirocco_client.errors import (
    FailedPrecondition,
    Rejected,
    SiroccoError,
    Unavailable,
    Unimplemented,
)
from sirocco_client.notifications.async_subscription import AsyncSubscription
from sirocco_client.notifications.receiving import Receiving
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


class AsyncClient(ClientBase):
    """Connects to a cluster as `Client` does. All of its methods belong to one event loop."""

    def __init__(
        self,
        router: str,
        *,
        mergers: Sequence[str] | None = None,
        tls: Tls | None = None,
        token: str | None = None,
        retry: Retry | None = None,
        timeout_s: float = 30.0,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        window_bytes: int | None = None,
        on_connection: Callable[[ConnectionChange], None] | None = None,
    ) -> None:
        """Creates a client; the arguments are those of `Client`."""
        super().__init__(
            router,
            mergers=mergers,
            tls=tls,
            token=token,
            retry=retry,
            timeout_s=timeout_s,
            message_bytes_max=message_bytes_max,
            window_bytes=window_bytes,
            on_connection=on_connection,
        )
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._is_closed = False
        self._subscriptions: WeakSet[AsyncSubscription] = WeakSet()
        self._shared_calls = SharedCalls(self._channel, self._settings.metadata, self._contact)
        self._kept = AsyncKeptStreams(self._search_stream, self._settings.metadata)

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
        self._is_closed = True
        for subscription in list(self._subscriptions):
            await subscription.close()
        self._kept.close()
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

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
        async for result in self._in_bulk(
            BulkRegistration(start_ms, read_past_ms(past)), queries, batch
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
        async for result in self._in_bulk(BulkUpdate(start_ms, read_past_ms(past)), queries, batch):
            yield result

    async def unregister_many(
        self, query_ids: Iterable[str] | AsyncIterable[str], *, batch: int = BATCH_ROWS
    ) -> AsyncIterator[RegistrationResult]:
        """As `Client.unregister_many`; also takes an asynchronous iterable."""
        async for result in self._in_bulk(BulkRemoval(), query_ids, batch):
            yield result

    async def _in_bulk(
        self, state: Bulk[T], rows: Iterable[T] | AsyncIterable[T], batch: int
    ) -> AsyncIterator[RegistrationResult]:
        """Sends changes on one stream; continues on a new stream after a break."""
        batch = read_whole(batch, "batch", 1, QUERIES_MAX)
        backoff = Backoff(self._retry, random.random, reach_s=self._timeout_s)
        parts = _parts(rows, batch)
        is_more = True
        while True:
            address = self._routers.current
            call: Any = None
            error: SiroccoError
            try:
                stub = QueryServiceStub(self._channel(address))
                call = getattr(stub, state.method)(metadata=self._settings.metadata)
                while True:
                    while is_more and state.has_room:
                        part = await anext(parts, None)
                        is_more = part is not None
                        if part is not None:
                            state.add(part)
                    while (request := state.next_request()) is not None:
                        await call.write(request)
                    if not state.is_waiting:
                        return
                    response = await call.read()
                    if response is grpc.aio.EOF:
                        raise Unavailable("the server ended the stream")
                    backoff.progressed()
                    self._contact.reached(address, ROUTER)
                    for result in state.answered(response):
                        yield result
            except _BROKEN as failure:
                error = self._contact.failed(address, ROUTER, "RegisterQueries", failure)
            except asyncio.CancelledError:
                if not was_call_cancelled():
                    raise
                error = Unavailable("the call was cancelled")
            finally:
                if call is not None:
                    call.cancel()
            state.rewind()
            self._routers.failed(address)
            await asyncio.sleep(backoff.pause_s(error))

    # --- objects and notifications -----------------------------------------------------------

    def publisher(
        self,
        flow: PublishFlow | None = None,
        *,
        on_rejected: Callable[[Rejected], None] | None = None,
    ) -> AsyncPublisher:
        """As `Client.publisher`; `on_rejected` is a plain function."""
        return AsyncPublisher(
            flow or PublishFlow(),
            self._retry,
            self._routers,
            self._channel,
            self._settings.metadata,
            new_session,
            on_rejected,
            self._contact,
            self._timeout_s,
        )

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
            self._retry,
            self._routers,
            self._channel,
            self._settings.metadata,
            on_rejected,
            on_acknowledged,
            self._contact,
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
            self._retry,
            self._merger_order,
            self._shared_calls.open if shared else self._receive_call,
            self._contact,
            self._timeout_s,
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
        async for _ in self._search(state, timeout_s, repeats=True):
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
        limit_s = self._seconds(timeout_s)
        arguments = now_ms, position_token, allow_partial
        state = ManySearches(queries, arguments, limit_s, in_flight, self._retry, random.random)
        return self._search_many(state, limit_s)

    def answers_of(
        self, states: Iterable[Searching], timeout_s: float | None = None
    ) -> AsyncIterator[SearchResult]:
        """Answers many searches whose state is the caller's; see `answer_of`."""
        limit_s = self._seconds(timeout_s)
        nothing = None, None, False
        state = ManySearches(states, nothing, limit_s, IN_FLIGHT, self._retry, random.random)
        return self._search_many(state, limit_s)

    async def _search_many(
        self, state: ManySearches, limit_s: float
    ) -> AsyncIterator[SearchResult]:
        while not state.is_done:
            mergers = self._search_mergers
            if mergers is None:
                mergers = self._search_mergers = await self._merger_order(
                    self._key, max(limit_s, LAST_TRY_S)
                )
            address = ""
            call: Any = None
            error: SiroccoError
            # A server that hangs is noticed by the end of the call, so that no call lasts long.
            until_s = time.monotonic() + limit_s
            try:
                address = mergers.current
                call = SearchServiceStub(self._channel(address)).SearchMany(
                    timeout=2 * limit_s + GRACE_S, metadata=self._settings.metadata
                )
                while True:
                    now_s = time.monotonic()
                    while now_s < until_s and (request := state.next_request(now_s)) is not None:
                        await call.write(request)
                    for result in state.results():
                        yield result
                    if state.is_done or (now_s >= until_s and not state.is_waiting):
                        break
                    if not state.is_waiting:
                        await asyncio.sleep(state.pause_s(now_s))
                        continue
                    response = await call.read()
                    if response is grpc.aio.EOF:
                        raise Unavailable("the server ended the stream")
                    self._contact.reached(address, MERGER)
                    state.received(response, time.monotonic())
                continue
            except _BROKEN as failure:
                error = self._contact.failed(address, MERGER, "SearchMany", failure)
            except asyncio.CancelledError:
                if not was_call_cancelled():
                    raise
                error = Unavailable("the call was cancelled")
            finally:
                if call is not None:
                    call.cancel()
            if isinstance(error, Unimplemented):
                raise error
            state.broken(error, time.monotonic())
            if error.retryable and mergers.failed(address):
                self._search_mergers = None

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
        return self._search(state, timeout_s, repeats=False)

    async def _search(
        self, state: Searching, timeout_s: float | None, *, repeats: bool
    ) -> AsyncIterator[SearchPart]:
        backoff = Backoff(self._retry, random.random)
        deadline_s = time.monotonic() + self._seconds(timeout_s)
        while True:
            mergers = self._search_mergers
            if mergers is None:
                left_s = deadline_s - time.monotonic()
                mergers = self._search_mergers = await self._merger_order(
                    self._key, max(left_s, LAST_TRY_S)
                )
            address = ""
            left_s = deadline_s - time.monotonic()
            call: Any = None
            error: SiroccoError
            try:
                address = mergers.current
                if repeats and await self._kept.answers(address, state, left_s):
                    self._contact.reached(address, MERGER)
                    return
                left_s = deadline_s - time.monotonic()
                call = SearchServiceStub(self._channel(address)).Search(
                    state.request(left_s),
                    timeout=left_s + GRACE_S,
                    metadata=self._settings.metadata,
                )
                async for response in call:
                    if (part := state.received(response)) is not None:
                        yield part
                state.ended()
                self._contact.reached(address, MERGER)
                return
            except (grpc.RpcError, grpc.aio.UsageError, Unavailable) as failure:
                error = self._contact.failed(address, MERGER, "Search", failure)
            except FailedSearch as failed:
                error = self._contact.failed(address, MERGER, "Search", failed.error)
            except asyncio.CancelledError:
                if not was_call_cancelled():
                    raise
                error = Unavailable("the call was cancelled")
            finally:
                if call is not None:
                    call.cancel()
            left_s = deadline_s - time.monotonic()
            # Also when no time is left for another try: the next search should not wait for the
            # same merger, which may hang. Once all were tried, others may have started.
            if error.retryable and mergers.failed(address):
                self._search_mergers = None
            pause_s = state.pause_s(error, backoff, left_s, repeats=repeats)
            await asyncio.sleep(pause_s)

    def _search_stream(self, address: str) -> Any:
        return SearchServiceStub(self._channel(address)).SearchMany

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

    async def _merger_order(self, key: str, timeout_s: float | None = None) -> Endpoints:
        mergers = self._mergers
        if mergers is None:
            mergers = (await self.describe(timeout_s=timeout_s)).addresses("merger")
        return Endpoints(preferred_order(mergers, key))

    def _has_ended(self) -> bool:
        return self._is_closed

    # --- calls -------------------------------------------------------------------------------

    def _began(self, subscription: AsyncSubscription) -> None:
        if self._is_closed:
            raise FailedPrecondition("the client is closed")
        self._subscriptions.add(subscription)

    def _receive_call(self, address: str) -> Any:
        stub = ReceiveServiceStub(self._channel(address))
        return stub.Receive(metadata=self._settings.metadata)

    def _channel(self, address: str) -> grpc.aio.Channel:
        if self._is_closed:
            raise FailedPrecondition("the client is closed")
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._settings.open_async(address)
        return channel

    async def _call(self, call: RouterCall[T], timeout_s: float | None = None) -> T:
        """Calls a method on one router after another."""
        deadline_s = time.monotonic() + self._seconds(timeout_s)
        attempts = Attempts(self._retry, random.random, deadline_s)
        while True:
            address = self._routers.current
            left_s = attempts.left_s(time.monotonic())
            error: SiroccoError
            try:
                stub = call.stub(self._channel(address))
                found = await getattr(stub, call.method)(
                    call.request, timeout=left_s, metadata=self._settings.metadata
                )
            except (grpc.RpcError, grpc.aio.UsageError) as failure:
                error = self._contact.failed(address, ROUTER, call.method, failure)
            except asyncio.CancelledError:
                if not was_call_cancelled():
                    raise
                error = Unavailable("the call was cancelled")
            else:
                self._contact.reached(address, ROUTER)
                return call.read(found)
            if attempts.is_unknown_call(call, error):
                # An older router, or no router at all? A call that every router knows tells.
                left_s = attempts.left_s(time.monotonic())
                await self.describe(timeout_s=max(left_s, LAST_TRY_S))
            # Also when no time is left for another try: the next call should not wait for the same
            # router, which may hang.
            if error.retryable:
                self._routers.failed(address)
            if attempts.has_removed(call, error):
                return call.read(None)
            await asyncio.sleep(attempts.pause_s(error, time.monotonic()))


async def _parts(rows: Iterable[T] | AsyncIterable[T], batch: int) -> AsyncIterator[list[T]]:
    part: list[T] = []
    if isinstance(rows, AsyncIterable):
        async for row in rows:
            part.append(row)
            if len(part) == batch:
                yield part
                part = []
    else:
        for row in rows:
            part.append(row)
            if len(part) == batch:
                yield part
                part = []
    if part:
        yield part
