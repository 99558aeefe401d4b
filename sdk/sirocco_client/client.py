"""The client for threads."""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

import grpc
from sirocco_api.v1 import query_service_pb2 as pb
from sirocco_api.v1.balance_service_pb2 import DescribeBalanceRequest
from sirocco_api.v1.balance_service_pb2_grpc import BalanceServiceStub
from sirocco_api.v1.cluster_service_pb2 import AwaitProcessedRequest, DescribeClusterRequest
from sirocco_api.v1.cluster_service_pb2_grpc import ClusterServiceStub
from sirocco_api.v1.map_service_pb2 import DescribeMapChangeRequest, ProposeMapRequest
from sirocco_api.v1.map_service_pb2_grpc import MapServiceStub
from sirocco_api.v1.publish_service_pb2 import AdvanceTimeRequest
from sirocco_api.v1.publish_service_pb2_grpc import PublishServiceStub
from sirocco_api.v1.query_service_pb2_grpc import QueryServiceStub
from sirocco_api.v1.search_service_pb2_grpc import SearchServiceStub

from sirocco_client.balance import Balance, read_balance
from sirocco_client.bulk import (
    QUERIES_MAX,
    Bulk,
    BulkRegistration,
    BulkRemoval,
    BulkRequest,
    BulkUpdate,
)
from sirocco_client.channels import MESSAGE_BYTES_MAX, ChannelSettings, Tls
from sirocco_client.cluster import ClusterDescription, read_cluster
from sirocco_client.contact import MERGER, NEWER_CALLS, ROUTER, ConnectionChange, Contact
from sirocco_client.durations import read_past_ms
from sirocco_client.endpoints import Endpoints, parse_addresses, preferred_order
from sirocco_client.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    NotFound,
    Rejected,
    SiroccoError,
    Unavailable,
    Unimplemented,
)
from sirocco_client.map_change import MapChange, read_map_change
from sirocco_client.numbers import read_seconds, read_time_ms, read_whole
from sirocco_client.outbox import PublishFlow
from sirocco_client.publisher import Publisher
from sirocco_client.queries import (
    Duration,
    Query,
    RegisteredQuery,
    RegistrationResult,
    read_registered,
    write_query,
)
from sirocco_client.receiving import Receiving
from sirocco_client.retry import LAST_TRY_S, Backoff, Retry, within
from sirocco_client.searching import GRACE_S, SearchAnswer, Searching, SearchPart
from sirocco_client.subscription import Subscription

# Named here since `Client.list` hides the type inside the class.
Failures: TypeAlias = list[SiroccoError]

# Queries of one page of `list`.
PAGE_SIZE = 1_000

# Matches that a subscription lets the server send ahead.
CREDIT = 10_000


T = TypeVar("T")


class Client:
    """Speaks to a cluster. Safe to share between threads; connects at the first call.

    Calls that are safe to repeat are repeated on another router while they fail for reasons that
    may pass; all of this client's are.
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
        on_connection: Callable[[ConnectionChange], None] | None = None,
    ) -> None:
        """Makes a client.

        Args:
            router: host:port of a router, or several separated by commas: any router serves any
                client, and another one is tried when one fails.
            mergers: host:port of mergers; None asks the cluster.
            tls: None is plain text.
            token: Bearer token that goes with every call.
            retry: How broken calls and streams are tried again.
            timeout_s: How long one call may take, with all its tries. Streams have no end, but
                their first answer has to come while servers are tried for so long.
            message_bytes_max: The greatest message either way.
            on_connection: Called when a server cannot be reached or is lost, and when one of its
                kind is there again, on the thread that meets it.
        """
        routers = parse_addresses(router, "router")
        self._routers = Endpoints(routers)
        self._mergers = None if mergers is None else tuple(mergers)
        named = (*routers, *(self._mergers or ()))
        self._settings = ChannelSettings(tls, token, message_bytes_max, named)
        self._retry = retry or Retry()
        self._contact = Contact(on_connection)
        self._timeout_s = read_seconds(timeout_s, "timeout_s")
        self._lock = threading.Lock()
        self._channels: dict[str, grpc.Channel] = {}
        self._closed = threading.Event()
        # Each client has an order of its own, so that searches spread over the mergers.
        self._key = secrets.token_hex(8)
        self._search_mergers: Endpoints | None = None
        self._searchers: dict[str, Any] = {}

    def __repr__(self) -> str:
        """Shows where it speaks to; never the token."""
        state = ", closed" if self._closed.is_set() else ""
        return f"<Client of {', '.join(self._routers.all)}, timeout {self._timeout_s:g} s{state}>"

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
        """Ends everything that is open; publishers should have been closed before."""
        self._closed.set()
        with self._lock:
            channels, self._channels = self._channels, {}
            self._searchers.clear()
        for channel in channels.values():
            channel.close()

    # --- queries -----------------------------------------------------------------------------

    def register(
        self, query: Query, *, start_ms: int | None = None, past: Duration | None = None
    ) -> int:
        """Registers a standing query; returns its revision.

        Objects that are published after this returned are matched against it. An equal query
        under the same id is no error.

        Args:
            query: The query.
            start_ms: When its lifetime begins, epoch ms: objects that arrive before do not match.
                None is now: it is matched with all that is published behind its acknowledgement.
            past: Also answer from the objects that arrived in so long before, such as "2h"; "all"
                is all that is kept. A query that is registered already is not answered again.

        Raises:
            AlreadyExists: An unequal query has this id.
            InvalidArgument: `field` names what is wrong.
        """
        request = pb.RegisterQueryRequest(
            query=write_query(query),
            start_ms=read_time_ms(start_ms, "start_ms"),
            past_ms=read_past_ms(past),
        )
        response = self._call(QueryServiceStub, "RegisterQuery", request)
        return int(response.revision)

    def update(
        self, query: Query, *, start_ms: int | None = None, past: Duration | None = None
    ) -> int:
        """Replaces a query in one step; returns the new revision.

        Args:
            query: The new version.
            start_ms, past: As in `register`.

        Raises:
            NotFound: No query has this id.
            InvalidArgument: `field` names what is wrong.
        """
        request = pb.UpdateQueryRequest(
            query=write_query(query),
            start_ms=read_time_ms(start_ms, "start_ms"),
            past_ms=read_past_ms(past),
        )
        response = self._call(QueryServiceStub, "UpdateQuery", request)
        return int(response.revision)

    def unregister(self, query_id: str) -> None:
        """Removes a query; objects published after this returned are not matched against it.

        Raises:
            NotFound: No query has this id.
        """
        request = pb.UnregisterQueryRequest(id=query_id)
        failures: Failures = []
        try:
            self._call(QueryServiceStub, "UnregisterQuery", request, failures)
        except NotFound:
            # A try whose answer was lost may have removed it.
            if not failures:
                raise

    def get(self, query_id: str) -> RegisteredQuery:
        """Returns a query.

        Raises:
            NotFound: No query has this id.
        """
        request = pb.GetQueryRequest(id=query_id)
        response = self._call(QueryServiceStub, "GetQuery", request)
        return read_registered(response.registered_query)

    def list(self, subscriber: str | None = None) -> Iterator[RegisteredQuery]:
        """Yields all queries, or those of a subscriber, page by page."""
        token = ""
        while True:
            request = pb.ListQueriesRequest(
                page_size=PAGE_SIZE, page_token=token, subscriber=subscriber or ""
            )
            response = self._call(QueryServiceStub, "ListQueries", request)
            yield from map(read_registered, response.registered_queries)
            token = response.next_page_token
            if not token:
                return

    def register_many(
        self,
        queries: Iterable[Query],
        *,
        batch: int = 1_000,
        start_ms: int | None = None,
        past: Duration | None = None,
    ) -> Iterator[RegistrationResult]:
        """Registers many queries on one stream; yields a result for each, in order.

        Nothing is sent before the first result is asked for, and only a few batches ahead of what
        was taken.

        Args:
            queries: Any number.
            batch: Queries of one request; fewer where they are large.
            start_ms, past: As in `register`.
        """
        return self._in_bulk(BulkRegistration(start_ms, read_past_ms(past)), queries, batch)

    def update_many(
        self,
        queries: Iterable[Query],
        *,
        batch: int = 1_000,
        start_ms: int | None = None,
        past: Duration | None = None,
    ) -> Iterator[RegistrationResult]:
        """Replaces many queries, each in one step; yields a result for each, as `register_many`.

        A query that is not registered has a `NotFound` in its result; the others go on.

        Args:
            queries, batch: As in `register_many`.
            start_ms, past: As in `register`.
        """
        return self._in_bulk(BulkUpdate(start_ms, read_past_ms(past)), queries, batch)

    def unregister_many(
        self, query_ids: Iterable[str], *, batch: int = 1_000
    ) -> Iterator[RegistrationResult]:
        """Removes many queries; yields a result for each id, in order, as `register_many`.

        An id that is not registered has a `NotFound` in its result; the others go on.

        Args:
            query_ids: Any number.
            batch: Ids of one request.
        """
        return self._in_bulk(BulkRemoval(), query_ids, batch)

    def _in_bulk(
        self, state: Bulk[T], rows: Iterable[T], batch: int
    ) -> Iterator[RegistrationResult]:
        """Makes changes on one stream, and on another one after a break."""
        batch = read_whole(batch, "batch", 1, QUERIES_MAX)
        # The time begins with the first failure: the rows may take long to be made.
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
        """Returns a publisher, which is a session of its own. Close it, or use it with `with`.

        Args:
            flow: How it batches and when it pauses.
            on_rejected: Called for every refused object, on the publisher's thread; then `flush`
                does not raise `ObjectsRejected`.
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
    ) -> Subscription:
        """Returns the notifications of a subscriber from now on, or from a cursor.

        Nothing is sent before `Subscription.open`, `with` or the first item; only what matches
        after that is in "from now on".

        Args:
            subscriber: Whose queries.
            cursor: Of a former notification or batch: everything behind it follows.
            from_earliest: Without a cursor, begin with the earliest that is kept.
            credit: How many matches the server may send ahead of the consumer.
        """
        return Subscription(
            Receiving(subscriber, cursor, from_earliest, credit),
            self._retry,
            self._merger_order,
            self._channel,
            self._settings.metadata,
            self._contact,
            self._timeout_s,
        )

    # --- searches ----------------------------------------------------------------------------

    def search(
        self,
        query: Query,
        *,
        now_ms: int | None = None,
        position_token: str | None = None,
        allow_partial: bool = False,
        timeout_s: float | None = None,
    ) -> SearchAnswer:
        """Answers a query of mode "snapshot" from what has arrived so far.

        Args:
            query: The query; nobody is told of it later, its subscriber may be empty.
            now_ms: The moment that is asked about, epoch ms: windows and ages count from it, later
                arrivals do not count. None is the time at which it is asked.
            position_token: From `PublishResult` or `Publisher.position_token`: the answer knows at
                least everything that was acknowledged up to it.
            allow_partial: Also return an answer that misses parts of the cluster; it names them.
            timeout_s: How long it may take, with all tries; None takes the client's.

        Raises:
            PartialResult: Parts of the cluster gave no answer; `answer` has what the others said.
            DeadlineExceeded: There is no answer yet.
            WindowTooLong: Part of the window is no longer kept.
            InvalidArgument: `field` names what is wrong.
        """
        state = Searching(query, now_ms, position_token, allow_partial)
        for _ in self._search(state, timeout_s, repeats=True):
            pass
        return state.answer()

    def search_parts(
        self,
        query: Query,
        *,
        now_ms: int | None = None,
        position_token: str | None = None,
        allow_partial: bool = False,
        timeout_s: float | None = None,
    ) -> Iterator[SearchPart]:
        """Yields the objects of an answer while it is being put together.

        Those of a range query come as they are found, in no order. The arguments and errors are
        those of `search`; behind the first part a broken connection is an error, too.
        """
        state = Searching(query, now_ms, position_token, allow_partial)
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
                mergers = self._search_mergers = self._merger_order(self._key, left_s)
            address = ""
            left_s = deadline_s - time.monotonic()
            call: Any = None
            try:
                address = mergers.current
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
            finally:
                if call is not None:
                    call.cancel()
            left_s = deadline_s - time.monotonic()
            # Also where there is no time for another try: the next search should not wait for the
            # same merger, which may stand still. Once all had their turn others may have come.
            if error.retryable and mergers.failed(address):
                self._search_mergers = None
            pause_s = state.pause_s(error, backoff, left_s, repeats=repeats)
            self._pause(pause_s)

    def _searcher(self, address: str) -> Any:
        """The method to call; making a stub takes as long as some searches do."""
        search = self._searchers.get(address)
        if search is None:
            search = self._searchers[address] = SearchServiceStub(self._channel(address)).Search
        return search

    # --- cluster -----------------------------------------------------------------------------

    def describe(self, leaves: bool = False, timeout_s: float | None = None) -> ClusterDescription:
        """Returns what the cluster looks like now, on request with the leaves of its map."""
        request = DescribeClusterRequest(leaves=leaves)
        found = self._call(ClusterServiceStub, "DescribeCluster", request, timeout_s=timeout_s)
        return read_cluster(found)

    def propose_map(self, partition_map: bytes, timeout_s: float | None = None) -> int:
        """Has another partition map follow the one in force; returns its version.

        It returns when the map is accepted; `map_change` tells how far the change has come.

        Raises:
            InvalidArgument: The map is damaged, has gaps or overlaps, or is for other slots.
            FailedPrecondition: It follows another map than the one in force, or a change is under
                way.
        """
        request = ProposeMapRequest(partition_map=partition_map)
        found = self._call(MapServiceStub, "ProposeMap", request, timeout_s=timeout_s)
        return int(found.map_version)

    def balance(self, timeout_s: float | None = None) -> Balance:
        """Returns loads as the coordinator measured them last, and what it made of them."""
        request = DescribeBalanceRequest()
        found = self._call(BalanceServiceStub, "DescribeBalance", request, timeout_s=timeout_s)
        return read_balance(found)

    def map_change(self, with_map: bool = False, timeout_s: float | None = None) -> MapChange:
        """Returns how far a change of the map has come, on request with the map in force."""
        request = DescribeMapChangeRequest(partition_map=with_map)
        found = self._call(MapServiceStub, "DescribeMapChange", request, timeout_s=timeout_s)
        return read_map_change(found)

    def await_processed(
        self, position_token: str, timeout_s: float | None = None
    ) -> tuple[str, ...]:
        """Waits until everything up to a position is matched and can be received.

        Args:
            position_token: From `PublishResult` or `Publisher.position_token`.
            timeout_s: How long to wait; None takes the client's.

        Returns:
            The end of each Kafka partition of deliveries, as cursors: a subscriber whose cursor
            has come so far has got every notification of what was published up to the position.

        Raises:
            DeadlineExceeded: It is not yet processed.
        """
        request = AwaitProcessedRequest(position_token=position_token)
        response = self._call(ClusterServiceStub, "AwaitProcessed", request, timeout_s=timeout_s)
        return tuple(response.cursors)

    def advance_time(self, time_ms: int) -> str:
        """Tells a cluster whose arrivals follow the objects' own times that these have come so far.

        Nothing of what is published later counts as older; steps and lifetimes that wait for the
        time go on. Without it the time is that of the newest object. Where arrivals follow the
        clock, what waits for a time that has come goes on at once, not at the next second.

        Args:
            time_ms: Epoch ms.

        Returns:
            A position token.

        Raises:
            FailedPrecondition: The cluster's arrivals follow the clock, which has not come so far.
        """
        request = AdvanceTimeRequest(time_ms=read_time_ms(time_ms, "time_ms"))
        token: str = self._call(PublishServiceStub, "AdvanceTime", request).position_token
        return token

    def _merger_order(self, key: str, timeout_s: float | None = None) -> Endpoints:
        mergers = self._mergers
        if mergers is None:
            mergers = self.describe(timeout_s=timeout_s).addresses("merger")
        return Endpoints(preferred_order(mergers, key))

    # --- calls -------------------------------------------------------------------------------

    def _channel(self, address: str) -> grpc.Channel:
        with self._lock:
            if self._closed.is_set():
                raise FailedPrecondition("the client is closed")
            channel = self._channels.get(address)
            if channel is None:
                channel = self._channels[address] = self._settings.open(address)
            return channel

    def _call(
        self,
        stub: Callable[[grpc.Channel], Any],
        method: str,
        request: object,
        failures: Failures | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Calls a method on one router after the other; `failures` gets what went wrong before."""
        backoff = Backoff(self._retry, random.random)
        deadline_s = time.monotonic() + self._seconds(timeout_s)
        last: SiroccoError | None = None
        while True:
            address = self._routers.current
            left_s = deadline_s - time.monotonic()
            try:
                found = getattr(stub(self._channel(address)), method)(
                    request, timeout=left_s, metadata=self._settings.metadata
                )
                self._contact.reached(address, ROUTER)
                return found
            except (grpc.RpcError, ValueError) as failure:
                # ValueError: the channel was closed meanwhile.
                error = self._contact.failed(address, ROUTER, method, failure)
            if isinstance(error, Unimplemented) and method in NEWER_CALLS:
                # An older router, or none at all? That is told by what each has always known.
                self.describe(timeout_s=max(deadline_s - time.monotonic(), LAST_TRY_S))
            # Also where there is no time for another try: the next call should not wait for the
            # same router, which may stand still.
            if error.retryable:
                self._routers.failed(address)
            pause_s = backoff.pause_s(error)
            if isinstance(error, DeadlineExceeded):
                # What went wrong before tells more than that the time was over then.
                raise last or error
            last = error
            pause_s = within(pause_s, deadline_s - time.monotonic(), error)
            if failures is not None:
                failures.append(error)
            self._pause(pause_s)

    def _seconds(self, timeout_s: float | None) -> float:
        """How long a call may take."""
        return self._timeout_s if timeout_s is None else read_seconds(timeout_s, "timeout_s")

    def _pause(self, seconds: float) -> None:
        if self._closed.wait(seconds):
            raise FailedPrecondition("the client is closed")


def new_session() -> int:
    """Returns a random name for a session, never 0."""
    return secrets.randbits(64) or 1
