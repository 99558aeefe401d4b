"""The client for threads."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar
from weakref import WeakSet

from sirocco_client.base.durations import read_past_ms
from sirocco_client.base.numbers import Moment
from sirocco_client.calls import router_calls
from sirocco_client.calls.balance import Balance
from sirocco_client.calls.bulk import (
    BATCH_ROWS,
    BulkRegistration,
    BulkRemoval,
    BulkUpdate,
)
from sirocco_client.calls.bulk_stream import change_many
from sirocco_client.calls.calling import call_routers, merger_order
from sirocco_client.calls.cluster import ClusterDescription
from sirocco_client.calls.many_searches import IN_FLIGHT, ManySearches, SearchResult
from sirocco_client.calls.map_change import MapChange
from sirocco_client.calls.router_calls import PAGE_SIZE, RouterCall
from sirocco_client.calls.searches import Searches
from sirocco_client.calls.searching import Searching
from sirocco_client.connection.channels import MESSAGE_BYTES_MAX, Tls
from sirocco_client.connection.connection import Connection
from sirocco_client.connection.contact import ConnectionChange
from sirocco_client.connection.retry import Retry
from sirocco_client.connection.tokens import Token
from sirocco_client.errors import (
    Rejected,
)
from sirocco_client.notifications.receiving import CREDIT, Receiving
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


class Client:
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
        token: Token = None,
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
            token: Bearer token sent with every call, or a function that returns the present one, as
                `TokenFile` does. It is called for each call and stream, by any thread. After a
                refusal it is asked once more, so that streams outlive their token.
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
        self._connection = Connection(
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
        self._searches = Searches(self._connection)
        self._lock = threading.Lock()
        self._subscriptions: WeakSet[Subscription] = WeakSet()

    def __repr__(self) -> str:
        """Shows the addresses, never the token."""
        return f"<Client of {self._connection}>"

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
        self._connection.end()
        with self._lock:
            subscriptions = list(self._subscriptions)
        for subscription in subscriptions:
            subscription.close()
        self._searches.close()
        self._connection.close()

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
        return change_many(
            self._connection, BulkRegistration(start_ms, read_past_ms(past)), queries, batch
        )

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
        return change_many(
            self._connection, BulkUpdate(start_ms, read_past_ms(past)), queries, batch
        )

    def unregister_many(
        self, query_ids: Iterable[str], *, batch: int = BATCH_ROWS
    ) -> Iterator[RegistrationResult]:
        """Removes many queries; yields one result per id, in order, like `register_many`.

        The result of an id that is not registered holds `NotFound`; the others continue.

        Args:
            query_ids: Any number.
            batch: Ids per request.
        """
        return change_many(self._connection, BulkRemoval(), query_ids, batch)

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
        return Publisher(flow or PublishFlow(), self._connection, on_rejected)

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
            self._connection,
            partial(merger_order, self._connection),
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
            ResourceExhausted: The answer takes more than 1 GiB; use `search_parts`.
            InvalidArgument: `field` names the wrong member.
        """
        state = Searching(query, now_ms, position_token, allow_partial)
        for _ in self._searches.parts(state, timeout_s, repeats=True):
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
        limit_s = self._connection.seconds(timeout_s)
        arguments = now_ms, position_token, allow_partial
        retry = self._connection.retry
        state = ManySearches(queries, arguments, limit_s, in_flight, retry, random.random)
        return self._searches.many(state, limit_s)

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
        return self._searches.parts(state, timeout_s, repeats=False)

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

    # --- parts -------------------------------------------------------------------------------

    def _began(self, subscription: Subscription) -> None:
        with self._lock:
            self._connection.check_open()
            self._subscriptions.add(subscription)

    def _call(self, call: RouterCall[T], timeout_s: float | None = None) -> T:
        return call_routers(self._connection, call, timeout_s)
