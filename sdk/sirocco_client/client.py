"""The client for threads."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeVar
from weakref import WeakSet

import grpc
from sirocco_api.v1.query_service_pb2_grpc import QueryServiceStub
from sirocco_api.v1.search_service_pb2 import SearchManyRequest
from sirocco_api.v1.search_service_pb2_grpc import SearchServiceStub

from sirocco_client.base.durations import read_past_ms
from sirocco_client.base.numbers import Moment, read_whole
from sirocco_client.calls import router_calls
from sirocco_client.calls.attempts import Attempts
from sirocco_client.calls.balance import Balance
from sirocco_client.calls.bulk import (
    BATCH_ROWS,
    QUERIES_MAX,
    Bulk,
    BulkRegistration,
    BulkRemoval,
    BulkRequest,
    BulkUpdate,
)
from sirocco_client.calls.cluster import ClusterDescription
from sirocco_client.calls.kept_searches import FailedSearch
from sirocco_client.calls.kept_streams import KeptStreams
from sirocco_client.calls.many_searches import IN_FLIGHT, ManySearches, SearchResult
from sirocco_client.calls.map_change import MapChange
from sirocco_client.calls.router_calls import PAGE_SIZE, RouterCall
from sirocco_client.calls.searching import GRACE_S, Searching
from sirocco_client.client_base import CREDIT, ClientBase, new_session
from sirocco_client.connection.channels import MESSAGE_BYTES_MAX, Tls
from sirocco_client.connection.contact import MERGER, ROUTER, ConnectionChange
from sirocco_client.connection.endpoints import Endpoints, preferred_order
from sirocco_client.connection.retry import LAST_TRY_S, Backoff, Retry
from sirocco_client.errors import (
    FailedPrecondition,
    Rejected,
    Unavailable,
    Unimplemented,
)
from sirocco_client.notifications.receiving import Receiving
from sirocco_client.notifications.subscription import Subscription
from sirocco_client.objects.answer import SearchAnswer, SearchPart
from sirocco_client.publishing.outbox import PublishFlow
from sirocco_client.publishing.publisher import Publisher
from sirocco_client.queries.query import (
    Duration,
    Query,
    QueryPage,
    RegisteredQuery,
    Registration,
    RegistrationResult,
)

T = TypeVar("T")


class Client(ClientBase):
    """Connects to a cluster. Safe to share between threads; connects at the first call.

    A call that fails for a reason that may pass is repeated on another router. All calls of this
    client are safe to repeat.
    """

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
        """Creates a client.

        Args:
            router: host:port of a router, or several separated by commas: any router serves any
                client. When one fails, the next is tried.
            mergers: host:port of mergers; None: the cluster is asked.
            tls: None: plain text.
            token: Bearer token sent with every call.
            retry: How failed calls and broken streams are retried.
            timeout_s: Time limit of one call with all its retries, seconds. A stream has no time
                limit, but its first answer must arrive within this time.
            message_bytes_max: Largest message in either direction, bytes.
            window_bytes: How much of a stream may arrive before it is read; None: as much as gRPC
                finds the connection to hold, which may be megabytes for each stream.
            on_connection: Called when a server cannot be reached or its connection is lost, and
                when a server of that kind is connected again. Runs on the thread that notices the
                change.
        """
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
        self._lock = threading.Lock()
        self._channels: dict[str, grpc.Channel] = {}
        self._closed = threading.Event()
        self._subscriptions: WeakSet[Subscription] = WeakSet()
        self._searchers: dict[str, Any] = {}
        self._kept = KeptStreams(self._search_stream, self._settings.metadata)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections and ends open subscriptions; close publishers first.

        Iterating an open subscription ends as after its own `close`. Other calls raise
        `FailedPrecondition` from now on.
        """
        self._closed.set()
        with self._lock:
            channels, self._channels = self._channels, {}
            self._searchers.clear()
            subscriptions = list(self._subscriptions)
        for subscription in subscriptions:
            subscription.close()
        self._kept.close()
        for channel in channels.values():
            channel.close()

    # --- queries -----------------------------------------------------------------------------

    def register(
        self, query: Query, *, start_ms: Moment | None = None, past: Duration | None = None
    ) -> Registration:
        """Registers a standing query; returns its revision, with warnings.

        Objects published after this call returns are matched against it. Registering an equal query
        again under the same id is not an error.

        Args:
            query: The query.
            start_ms: When its lifetime begins, epoch ms or a datetime: objects that arrive earlier
                do not match. None: now; everything published after the acknowledgement is matched.
            past: Also answer from stored objects of this age, such as "2h"; "all" is everything
                stored. A query that is already registered is not answered again.

        Raises:
            AlreadyExists: A different query has this id.
            InvalidArgument: `field` names the wrong member.
        """
        return self._call(router_calls.register(query, start_ms, past))

    def update(
        self, query: Query, *, start_ms: Moment | None = None, past: Duration | None = None
    ) -> Registration:
        """Replaces a query in one step; returns the new revision, with warnings.

        Args:
            query: The new version.
            start_ms, past: As in `register`.

        Raises:
            NotFound: No query has this id.
            InvalidArgument: `field` names the wrong member.
        """
        return self._call(router_calls.update(query, start_ms, past))

    def unregister(self, query_id: str) -> None:
        """Removes a query; objects published after this call returns are not matched against it.

        Raises:
            NotFound: No query has this id.
        """
        self._call(router_calls.unregister(query_id))

    def get(self, query_id: str) -> RegisteredQuery:
        """Returns a query.

        Raises:
            NotFound: No query has this id.
        """
        return self._call(router_calls.get(query_id))

    def list(self, subscriber: str | None = None) -> Iterator[RegisteredQuery]:
        """Yields all queries, or those of one subscriber, page by page."""
        token = ""
        while True:
            page = self.list_page(subscriber, page_token=token)
            yield from page.queries
            token = page.next_page_token
            if not token:
                return

    def list_page(
        self,
        subscriber: str | None = None,
        *,
        page_size: int = PAGE_SIZE,
        page_token: str = "",
    ) -> QueryPage:
        """Returns one page of all queries, or of those of one subscriber.

        Args:
            subscriber: Whose queries; None: everybody's.
            page_size: Queries of the page; the server may return fewer.
            page_token: The `next_page_token` of the page before; empty: the first page.
        """
        return self._call(router_calls.list_page(subscriber, page_size, page_token))

    def register_many(
        self,
        queries: Iterable[Query],
        *,
        batch: int = BATCH_ROWS,
        start_ms: Moment | None = None,
        past: Duration | None = None,
    ) -> Iterator[RegistrationResult]:
        """Registers many queries on one stream; yields one result per query, in order.

        Sending starts when the first result is read. At most a few batches are sent ahead of the
        results read.

        Args:
            queries: Any number.
            batch: Queries per request; fewer if they are large.
            start_ms, past: As in `register`.
        """
        return self._in_bulk(BulkRegistration(start_ms, read_past_ms(past)), queries, batch)

    def update_many(
        self,
        queries: Iterable[Query],
        *,
        batch: int = BATCH_ROWS,
        start_ms: Moment | None = None,
        past: Duration | None = None,
    ) -> Iterator[RegistrationResult]:
        """Replaces many queries, each in one step; yields one result per query, in order.

        The result of a query that is not registered holds `NotFound`; the others continue. They are
        decided side by side: of two updates of one query either may be the later.

        Args:
            queries, batch: As in `register_many`.
            start_ms, past: As in `register`.
        """
        return self._in_bulk(BulkUpdate(start_ms, read_past_ms(past)), queries, batch)

    def unregister_many(
        self, query_ids: Iterable[str], *, batch: int = BATCH_ROWS
    ) -> Iterator[RegistrationResult]:
        """Removes many queries; yields one result per id, in order, like `register_many`.

        The result of an id that is not registered holds `NotFound`; the others continue.

        Args:
            query_ids: Any number.
            batch: Ids per request.
        """
        return self._in_bulk(BulkRemoval(), query_ids, batch)

    def _in_bulk(
        self, state: Bulk[T], rows: Iterable[T], batch: int
    ) -> Iterator[RegistrationResult]:
        """Sends changes on one stream; continues on a new stream after a break."""
        batch = read_whole(batch, "batch", 1, QUERIES_MAX)
        # The time starts at the first failure, because producing the rows may take long.
        backoff = Backoff(self._retry, random.random, reach_s=self._timeout_s)
        source = iter(rows)
        is_more = True
        while True:
            outgoing: SimpleQueue[BulkRequest | None] = SimpleQueue()
            address = self._routers.current
            call: Any = None
            try:
                stub = QueryServiceStub(self._channel(address))
                call = getattr(stub, state.method)(
                    iter(outgoing.get, None), metadata=self._settings.metadata
                )
                while True:
                    while is_more and state.has_room:
                        part = list(islice(source, batch))
                        is_more = bool(part)
                        if part:
                            state.add(part)
                    while (request := state.next_request()) is not None:
                        outgoing.put(request)
                    if not state.is_waiting:
                        return
                    response = next(call, None)
                    if response is None:
                        raise Unavailable("the server ended the stream")
                    backoff.progressed()
                    self._contact.reached(address, ROUTER)
                    yield from state.answered(response)
            except (grpc.RpcError, Unavailable) as failure:
                state.rewind()
                self._routers.failed(address)
                error = self._contact.failed(address, ROUTER, "RegisterQueries", failure)
                self._pause(backoff.pause_s(error))
            finally:
                outgoing.put(None)
                if call is not None:
                    call.cancel()

    # --- objects and notifications -----------------------------------------------------------

    def publisher(
        self,
        flow: PublishFlow | None = None,
        *,
        on_rejected: Callable[[Rejected], None] | None = None,
    ) -> Publisher:
        """Returns a publisher, which has its own session. Close it, or use it in a `with` block.

        Args:
            flow: Batch sizes, and when publishing pauses.
            on_rejected: Called for every refused object, on the publisher's thread. If given,
                `flush` does not raise `ObjectsRejected`.
        """
        return Publisher(
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

    def subscribe(
        self,
        subscriber: str,
        cursor: str | None = None,
        *,
        from_earliest: bool = False,
        credit: int = CREDIT,
        joined: bool = False,
    ) -> Subscription:
        """Returns the notifications of a subscriber from now on, or from a cursor.

        The stream starts at `Subscription.open`, `with` or the first item. "From now on" means from
        that moment.

        Args:
            subscriber: Its queries' notifications are received.
            cursor: Cursor of an earlier notification or batch; everything after it is received.
            from_earliest: Without a cursor, start with the earliest notification still stored.
            credit: Matches that the server may send ahead of the consumer.
            joined: A stream that is behind gets fewer, larger batches. Where one ends then depends
                on when it was sent, so that a resumed stream has other batches of the same matches.
        """
        return Subscription(
            Receiving(subscriber, cursor, from_earliest, credit, joined),
            self._retry,
            self._merger_order,
            self._channel,
            self._settings.metadata,
            self._contact,
            self._timeout_s,
            self._began,
        )

    # --- searches ----------------------------------------------------------------------------

    def search(
        self,
        query: Query | Mapping[str, Any],
        *,
        now_ms: Moment | None = None,
        position_token: str | None = None,
        allow_partial: bool = False,
        timeout_s: float | None = None,
    ) -> SearchAnswer:
        """Answers a query of mode "snapshot" from what has arrived so far.

        Searches that follow one another travel on a few streams that are kept open meanwhile.

        Args:
            query: The query, or its public JSON form. It is answered once, as one of mode
                "snapshot"; `id`, `mode` and the subscriber may be missing.
            now_ms: The moment the answer describes, epoch ms or a datetime. Windows and ages count
                from it; later arrivals are ignored. None: the time of the call.
            position_token: From `PublishResult` or `Publisher.position_token`: the answer includes
                everything acknowledged up to it.
            allow_partial: Also return an answer that lacks parts of the cluster; it names the
                missing slots.
            timeout_s: Time limit with all retries, seconds. None: the client's.

        Raises:
            PartialResult: Parts of the cluster gave no answer; `answer` holds the rest.
            DeadlineExceeded: No answer arrived in time.
            WindowTooLong: Part of the window is no longer stored.
            InvalidArgument: `field` names the wrong member.
        """
        state = Searching(query, now_ms, position_token, allow_partial)
        for _ in self._search(state, timeout_s, repeats=True):
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
    ) -> Iterator[SearchResult]:
        """Yields the answers to many queries, in the order of the queries.

        They share one stream, which costs a small part of a call for each. Each is answered,
        refused and repeated by itself, and limits on searches count each of them. Results that are
        not taken for long (the server's limit is 30 s by default) are searched again.

        Args:
            queries: As of `search`; taken as they are needed.
            now_ms: As of `search`, for all of them.
            position_token: As of `search`, for all of them.
            allow_partial: As of `search`.
            timeout_s: Time limit of each, seconds. None: the client's.
            in_flight: How many may be under way at a time, at most 1,024.

        Raises:
            Unimplemented: The mergers are older than this client.
        """
        limit_s = self._seconds(timeout_s)
        arguments = now_ms, position_token, allow_partial
        state = ManySearches(queries, arguments, limit_s, in_flight, self._retry, random.random)
        return self._search_many(state, limit_s)

    def _search_many(self, state: ManySearches, limit_s: float) -> Iterator[SearchResult]:
        while not state.is_done:
            mergers = self._search_mergers
            if mergers is None:
                mergers = self._search_mergers = self._merger_order(
                    self._key, max(limit_s, LAST_TRY_S)
                )
            outgoing: SimpleQueue[SearchManyRequest | None] = SimpleQueue()
            address = ""
            call: Any = None
            # A server that hangs is noticed by the end of the call, so that no call lasts long.
            until_s = time.monotonic() + limit_s
            try:
                address = mergers.current
                call = SearchServiceStub(self._channel(address)).SearchMany(
                    iter(outgoing.get, None),
                    timeout=2 * limit_s + GRACE_S,
                    metadata=self._settings.metadata,
                )
                while True:
                    now_s = time.monotonic()
                    while now_s < until_s and (request := state.next_request(now_s)) is not None:
                        outgoing.put(request)
                    yield from state.results()
                    if state.is_done or (now_s >= until_s and not state.is_waiting):
                        break
                    if not state.is_waiting:
                        self._pause(state.pause_s(now_s))
                        continue
                    response = next(call, None)
                    if response is None:
                        raise Unavailable("the server ended the stream")
                    self._contact.reached(address, MERGER)
                    state.received(response, time.monotonic())
            except (grpc.RpcError, ValueError, Unavailable) as failure:
                error = self._contact.failed(address, MERGER, "SearchMany", failure)
                if isinstance(error, Unimplemented):
                    raise error from None
                state.broken(error, time.monotonic())
                if error.retryable and mergers.failed(address):
                    self._search_mergers = None
            finally:
                outgoing.put(None)
                if call is not None:
                    call.cancel()

    def search_parts(
        self,
        query: Query | Mapping[str, Any],
        *,
        now_ms: Moment | None = None,
        position_token: str | None = None,
        allow_partial: bool = False,
        timeout_s: float | None = None,
    ) -> Iterator[SearchPart]:
        """Yields the objects of an answer as they arrive.

        Objects of a range query arrive in no order. Arguments and errors are those of `search`.
        After the first part, a broken connection is an error too.
        """
        state = Searching(query, now_ms, position_token, allow_partial, keeps=False)
        return self._search(state, timeout_s, repeats=False)

    def _search(
        self, state: Searching, timeout_s: float | None, *, repeats: bool
    ) -> Iterator[SearchPart]:
        backoff = Backoff(self._retry, random.random)
        deadline_s = time.monotonic() + self._seconds(timeout_s)
        while True:
            mergers = self._search_mergers
            if mergers is None:
                left_s = deadline_s - time.monotonic()
                mergers = self._search_mergers = self._merger_order(
                    self._key, max(left_s, LAST_TRY_S)
                )
            address = ""
            left_s = deadline_s - time.monotonic()
            call: Any = None
            try:
                address = mergers.current
                if repeats and self._kept.answers(address, state, left_s):
                    self._contact.reached(address, MERGER)
                    return
                left_s = deadline_s - time.monotonic()
                call = self._searcher(address)(
                    state.request(left_s),
                    timeout=left_s + GRACE_S,
                    metadata=self._settings.metadata,
                )
                for response in call:
                    if (part := state.received(response)) is not None:
                        yield part
                state.ended()
                self._contact.reached(address, MERGER)
                return
            except (grpc.RpcError, ValueError, Unavailable) as failure:
                error = self._contact.failed(address, MERGER, "Search", failure)
            except FailedSearch as failed:
                error = self._contact.failed(address, MERGER, "Search", failed.error)
            finally:
                if call is not None:
                    call.cancel()
            left_s = deadline_s - time.monotonic()
            # Also when no time is left for another try: the next search should not wait for the
            # same merger, which may hang. Once all were tried, others may have started.
            if error.retryable and mergers.failed(address):
                self._search_mergers = None
            pause_s = state.pause_s(error, backoff, left_s, repeats=repeats)
            self._pause(pause_s)

    def _searcher(self, address: str) -> Any:
        """Returns the method to call. Making a stub takes as long as some searches do."""
        search = self._searchers.get(address)
        if search is None:
            search = self._searchers[address] = SearchServiceStub(self._channel(address)).Search
        return search

    def _search_stream(self, address: str) -> Any:
        return SearchServiceStub(self._channel(address)).SearchMany

    # --- cluster -----------------------------------------------------------------------------

    def describe(self, leaves: bool = False, timeout_s: float | None = None) -> ClusterDescription:
        """Returns the present state of the cluster, on request with the leaves of its map."""
        return self._call(router_calls.describe(leaves), timeout_s=timeout_s)

    def propose_map(self, partition_map: bytes, timeout_s: float | None = None) -> int:
        """Proposes the next partition map; returns its version.

        Returns when the map is accepted; `map_change` reports the progress.

        Raises:
            InvalidArgument: The map is damaged, has gaps or overlaps, or is for other slots.
            FailedPrecondition: It does not follow the map in force, or a change is under way.
        """
        return self._call(router_calls.propose_map(partition_map), timeout_s=timeout_s)

    def balance(self, timeout_s: float | None = None) -> Balance:
        """Returns the last loads that the coordinator measured, and its decisions."""
        return self._call(router_calls.balance(), timeout_s=timeout_s)

    def map_change(self, with_map: bool = False, timeout_s: float | None = None) -> MapChange:
        """Returns the progress of a map change, on request with the map in force."""
        return self._call(router_calls.map_change(with_map), timeout_s=timeout_s)

    def await_processed(
        self, position_token: str, timeout_s: float | None = None
    ) -> tuple[str, ...]:
        """Waits until everything up to a position is matched and can be received.

        Args:
            position_token: From `PublishResult` or `Publisher.position_token`.
            timeout_s: How long to wait, seconds. None: the client's time limit.

        Returns:
            The end of each Kafka partition of deliveries, as cursors. A subscriber that has reached
            its cursor has received every notification of the objects up to the position.

        Raises:
            DeadlineExceeded: It was not processed in time.
        """
        return self._call(router_calls.await_processed(position_token), timeout_s=timeout_s)

    def advance_time(self, time_ms: int) -> str:
        """Reports the objects' own time to a cluster whose arrivals follow it.

        Objects published later do not count as older. Steps and lifetimes due at that time proceed.
        Without this call the time is that of the newest object. Where arrivals follow the clock,
        due steps proceed at once, not at the next second.

        Args:
            time_ms: Epoch ms.

        Returns:
            A position token.

        Raises:
            FailedPrecondition: The cluster's arrivals follow the clock, which has not reached that
                time.
        """
        return self._call(router_calls.advance_time(time_ms))

    def _merger_order(self, key: str, timeout_s: float | None = None) -> Endpoints:
        mergers = self._mergers
        if mergers is None:
            mergers = self.describe(timeout_s=timeout_s).addresses("merger")
        return Endpoints(preferred_order(mergers, key))

    def _has_ended(self) -> bool:
        return self._closed.is_set()

    # --- calls -------------------------------------------------------------------------------

    def _began(self, subscription: Subscription) -> None:
        with self._lock:
            if self._closed.is_set():
                raise FailedPrecondition("the client is closed")
            self._subscriptions.add(subscription)

    def _channel(self, address: str) -> grpc.Channel:
        with self._lock:
            if self._closed.is_set():
                raise FailedPrecondition("the client is closed")
            channel = self._channels.get(address)
            if channel is None:
                channel = self._channels[address] = self._settings.open(address)
            return channel

    def _call(self, call: RouterCall[T], timeout_s: float | None = None) -> T:
        """Calls a method on one router after another."""
        deadline_s = time.monotonic() + self._seconds(timeout_s)
        attempts = Attempts(self._retry, random.random, deadline_s)
        while True:
            address = self._routers.current
            left_s = attempts.left_s(time.monotonic())
            try:
                stub = call.stub(self._channel(address))
                found = getattr(stub, call.method)(
                    call.request, timeout=left_s, metadata=self._settings.metadata
                )
            except (grpc.RpcError, ValueError) as failure:
                # ValueError: the channel was closed meanwhile.
                error = self._contact.failed(address, ROUTER, call.method, failure)
            else:
                self._contact.reached(address, ROUTER)
                return call.read(found)
            if attempts.is_unknown_call(call, error):
                # An older router, or no router at all? A call that every router knows tells.
                left_s = attempts.left_s(time.monotonic())
                self.describe(timeout_s=max(left_s, LAST_TRY_S))
            # Also when no time is left for another try: the next call should not wait for the same
            # router, which may hang.
            if error.retryable:
                self._routers.failed(address)
            if attempts.has_removed(call, error):
                return call.read(None)
            self._pause(attempts.pause_s(error, time.monotonic()))

    def _pause(self, seconds: float) -> None:
        if self._closed.wait(seconds):
            raise FailedPrecondition("the client is closed")
