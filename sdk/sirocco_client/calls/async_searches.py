"""The searches of the client for asyncio."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
from sirocco_api.v1.search_service_pb2_grpc import SearchServiceStub

from sirocco_client.calls.async_calling import merger_order
from sirocco_client.calls.async_kept_streams import AsyncKeptStreams
from sirocco_client.calls.kept_searches import FailedSearch
from sirocco_client.calls.many_searches import ManySearches, SearchResult
from sirocco_client.calls.searching import GRACE_S, Searching
from sirocco_client.connection.async_waiting import BROKEN, error_of_cancellation
from sirocco_client.connection.connection import AsyncConnection
from sirocco_client.connection.contact import MERGER
from sirocco_client.connection.endpoints import Endpoints
from sirocco_client.connection.retry import LAST_TRY_S, Backoff
from sirocco_client.errors import SiroccoError, Unavailable, Unimplemented
from sirocco_client.objects.answer import SearchPart


class AsyncSearches:
    """Asks mergers, one after the other until one answers; belongs to one event loop."""

    def __init__(self, connection: AsyncConnection) -> None:
        """Starts without calls."""
        self._connection = connection
        self._kept = AsyncKeptStreams(self._call_many)
        # Each client has its own order of mergers, so that searches spread over them.
        self._key = secrets.token_hex(8)
        self._order: Endpoints | None = None

    def close(self) -> None:
        """Closes the streams that are kept."""
        self._kept.close()

    async def parts(
        self, state: Searching, timeout_s: float | None, *, repeats: bool
    ) -> AsyncIterator[SearchPart]:
        """As `Searches.parts`."""
        connection = self._connection
        backoff = Backoff(connection.retry, random.random)
        deadline_s = time.monotonic() + connection.seconds(timeout_s)
        while True:
            mergers = await self._mergers(deadline_s - time.monotonic())
            address = ""
            left_s = deadline_s - time.monotonic()
            call: Any = None
            error: SiroccoError
            try:
                address = mergers.current
                if repeats and await self._kept.answers(address, state, left_s):
                    connection.contact.reached(address, MERGER)
                    return
                left_s = deadline_s - time.monotonic()
                with connection.using(address) as channel:
                    call = SearchServiceStub(channel).Search(
                        state.request(left_s),
                        timeout=left_s + GRACE_S,
                        metadata=connection.metadata,
                    )
                    async for response in call:
                        if (part := state.received(response)) is not None:
                            yield part
                state.ended()
                connection.contact.reached(address, MERGER)
                return
            except (grpc.RpcError, grpc.aio.UsageError, Unavailable) as failure:
                error = connection.contact.failed(address, MERGER, "Search", failure)
            except FailedSearch as failed:
                error = connection.contact.failed(address, MERGER, "Search", failed.error)
            except asyncio.CancelledError:
                error = error_of_cancellation()
            finally:
                if call is not None:
                    call.cancel()
            left_s = deadline_s - time.monotonic()
            # Also when no time is left for another try: the next search should not wait for the
            # same merger, which may hang.
            self._failed(mergers, address, error)
            await asyncio.sleep(state.pause_s(error, backoff, left_s, repeats=repeats))

    async def many(self, state: ManySearches, limit_s: float) -> AsyncIterator[SearchResult]:
        """As `Searches.many`."""
        connection = self._connection
        while not state.is_done:
            mergers = await self._mergers(limit_s)
            address = ""
            call: Any = None
            error: SiroccoError
            # A server that hangs is noticed by the end of the call, so that no call lasts long.
            until_s = time.monotonic() + limit_s
            try:
                address = mergers.current
                call = self._call_many(address, timeout_s=2 * limit_s + GRACE_S)
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
                    connection.contact.reached(address, MERGER)
                    state.received(response, time.monotonic())
                continue
            except BROKEN as failure:
                error = connection.contact.failed(address, MERGER, "SearchMany", failure)
            except asyncio.CancelledError:
                error = error_of_cancellation()
            finally:
                if call is not None:
                    call.cancel()
            if isinstance(error, Unimplemented):
                raise error
            state.broken(error, time.monotonic())
            self._failed(mergers, address, error)

    async def _mergers(self, left_s: float) -> Endpoints:
        if (order := self._order) is None:
            order = await merger_order(self._connection, self._key, max(left_s, LAST_TRY_S))
            self._order = order
        return order

    def _failed(self, mergers: Endpoints, address: str, error: SiroccoError) -> None:
        """Goes on to the next merger. Once all were tried, others may have started."""
        if error.retryable and mergers.failed(address):
            self._order = None

    def _call_many(self, address: str, timeout_s: float | None = None) -> Any:
        metadata = self._connection.metadata
        return self._connection.stream(
            address,
            lambda channel: SearchServiceStub(channel).SearchMany(
                timeout=timeout_s, metadata=metadata
            ),
        )
