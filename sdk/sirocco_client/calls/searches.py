"""The searches of the client for threads."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import grpc
from sirocco_api.v1.search_service_pb2 import SearchManyRequest
from sirocco_api.v1.search_service_pb2_grpc import SearchServiceStub

from sirocco_client.calls.calling import merger_order
from sirocco_client.calls.kept_searches import FailedSearch
from sirocco_client.calls.kept_streams import KeptStreams
from sirocco_client.calls.many_searches import ManySearches, SearchResult
from sirocco_client.calls.searching import GRACE_S, Searching
from sirocco_client.connection.connection import CHANNELS_MAX, Connection
from sirocco_client.connection.contact import MERGER
from sirocco_client.connection.endpoints import Endpoints
from sirocco_client.connection.retry import LAST_TRY_S, Backoff
from sirocco_client.errors import SiroccoError, Unavailable, Unimplemented
from sirocco_client.objects.answer import SearchPart


class Searches:
    """Asks mergers, one after the other until one answers. Safe to share between threads."""

    def __init__(self, connection: Connection) -> None:
        """Starts without calls."""
        self._connection = connection
        # Address → its channel, and the method on it.
        self._methods: dict[str, tuple[grpc.Channel, Any]] = {}
        self._kept = KeptStreams(self._call_many)
        # Each client has its own order of mergers, so that searches spread over them.
        self._key = secrets.token_hex(8)
        self._order: Endpoints | None = None

    def close(self) -> None:
        """Closes the streams that are kept."""
        self._methods.clear()
        self._kept.close()

    def parts(
        self, state: Searching, timeout_s: float | None, *, repeats: bool
    ) -> Iterator[SearchPart]:
        """Yields the parts of an answer.

        Args:
            state: The search.
            timeout_s: Time limit with all retries, seconds. None: the client's.
            repeats: Whether to search again after a connection broke in the middle.
        """
        connection = self._connection
        backoff = Backoff(connection.retry, random.random)
        deadline_s = time.monotonic() + connection.seconds(timeout_s)
        while True:
            mergers = self._mergers(deadline_s - time.monotonic())
            address = ""
            left_s = deadline_s - time.monotonic()
            call: Any = None
            try:
                address = mergers.current
                if repeats and self._kept.answers(address, state, left_s):
                    connection.contact.reached(address, MERGER)
                    return
                left_s = deadline_s - time.monotonic()
                with connection.using(address) as channel:
                    call = self._method(address, channel)(
                        state.request(left_s),
                        timeout=left_s + GRACE_S,
                        metadata=connection.metadata,
                    )
                    for response in call:
                        if (part := state.received(response)) is not None:
                            yield part
                state.ended()
                connection.contact.reached(address, MERGER)
                return
            except (grpc.RpcError, ValueError, Unavailable) as failure:
                error = connection.contact.failed(address, MERGER, "Search", failure)
            except FailedSearch as failed:
                error = connection.contact.failed(address, MERGER, "Search", failed.error)
            finally:
                if call is not None:
                    call.cancel()
            left_s = deadline_s - time.monotonic()
            # Also when no time is left for another try: the next search should not wait for the
            # same merger, which may hang.
            self._failed(mergers, address, error)
            connection.pause(state.pause_s(error, backoff, left_s, repeats=repeats))

    def many(self, state: ManySearches, limit_s: float) -> Iterator[SearchResult]:
        """Yields the answers to many searches.

        Args:
            state: The searches.
            limit_s: Time limit of each, seconds.
        """
        connection = self._connection
        while not state.is_done:
            mergers = self._mergers(limit_s)
            outgoing: SimpleQueue[SearchManyRequest | None] = SimpleQueue()
            address = ""
            call: Any = None
            # A server that hangs is noticed by the end of the call, so that no call lasts long.
            until_s = time.monotonic() + limit_s
            try:
                address = mergers.current
                call = self._call_many(
                    address, iter(outgoing.get, None), timeout_s=2 * limit_s + GRACE_S
                )
                while True:
                    now_s = time.monotonic()
                    while now_s < until_s and (request := state.next_request(now_s)) is not None:
                        outgoing.put(request)
                    yield from state.results()
                    if state.is_done or (now_s >= until_s and not state.is_waiting):
                        break
                    if not state.is_waiting:
                        connection.pause(state.pause_s(now_s))
                        continue
                    response = next(call, None)
                    if response is None:
                        raise Unavailable("the server ended the stream")
                    connection.contact.reached(address, MERGER)
                    state.received(response, time.monotonic())
            except (grpc.RpcError, ValueError, Unavailable) as failure:
                error = connection.contact.failed(address, MERGER, "SearchMany", failure)
                if isinstance(error, Unimplemented):
                    raise error from None
                state.broken(error, time.monotonic())
                self._failed(mergers, address, error)
            finally:
                outgoing.put(None)
                if call is not None:
                    call.cancel()

    def _mergers(self, left_s: float) -> Endpoints:
        if (order := self._order) is None:
            order = merger_order(self._connection, self._key, max(left_s, LAST_TRY_S))
            self._order = order
        return order

    def _failed(self, mergers: Endpoints, address: str, error: SiroccoError) -> None:
        """Goes on to the next merger. Once all were tried, others may have started."""
        if error.retryable and mergers.failed(address):
            self._order = None

    def _method(self, address: str, channel: grpc.Channel) -> Any:
        """Returns the method to call. Making a stub takes as long as some searches do."""
        of_channel, search = self._methods.get(address, (None, None))
        if of_channel is not channel:
            # Others may be of channels that are closed.
            if len(self._methods) >= CHANNELS_MAX:
                self._methods.clear()
            search = SearchServiceStub(channel).Search
            self._methods[address] = channel, search
        return search

    def _call_many(
        self,
        address: str,
        requests: Iterator[SearchManyRequest],
        timeout_s: float | None = None,
    ) -> Any:
        metadata = self._connection.metadata
        return self._connection.stream(
            address,
            lambda channel: SearchServiceStub(channel).SearchMany(
                requests, timeout=timeout_s, metadata=metadata
            ),
        )
