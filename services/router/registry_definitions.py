"""Reads registered queries back from the registry, which stores their definitions."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import closing

import numpy as np
from numpy.typing import NDArray

from sirocco.codec.queries import write_query
from sirocco.internal_api.v1 import owner_service_pb2 as pb
from sirocco.model.errors import NotFound, Unavailable
from sirocco.model.query import query_handle
from sirocco.protocol.contract.messages import NO_REVISION, Change
from sirocco.protocol.router.machine import RouterMachine
from sirocco.protocol.router.queries.registry_partition import Registry
from sirocco.runtime.loop.registry_reader import read_changes
from sirocco.runtime.process.clock import now_ms
from sirocco.transport.log import Log

PAGE_SIZE_MAX = 1_000
PAGE_SIZE_DEFAULT = 100

# A page ends before it is larger than this, but holds at least one query: a thousand polygons of
# some hundred vertices exceed the largest message (8 MiB). A list's answer gets one more page while
# it is below this, and one query is at most as large as a record (4 MiB).
PAGE_BYTES_MAX = 2 << 20


# A page also ends after so many changes, though it holds nothing: for a tenant with few queries all
# of the others' would be read, a minute of CPU time for a million.
CHANGES_MAX = 10_000

# Pages that are read at a time. They would take all threads from what else is looked up.
PAGES_AT_A_TIME = 2


class StoredQueries:
    """Reads the owned registry partitions of the log.

    The machine knows the offset of each live query's definition, and compaction keeps it as long as
    it is the query's newest record.
    """

    def __init__(self, log: Log, machine: RouterMachine, changes_max: int = CHANGES_MAX) -> None:
        self._changes_max = changes_max
        self._log = log
        self._machine = machine
        self._turns = asyncio.Semaphore(PAGES_AT_A_TIME)

    async def read(self, request: pb.ReadQueriesRequest) -> pb.ReadQueriesResponse:
        """Answers from the log, in a thread because consumers block."""
        if request.id:
            return await asyncio.to_thread(self._one, request)
        await self._turns.acquire()
        page = asyncio.ensure_future(asyncio.to_thread(self._page, request))
        # The thread reads on when its caller has gone: the next page waits for it.
        page.add_done_callback(self._page_ended)
        return await asyncio.shield(page)

    def _page_ended(self, page: asyncio.Future[pb.ReadQueriesResponse]) -> None:
        self._turns.release()
        # Its caller may have gone: asyncio logs errors that nobody has taken.
        if not page.cancelled():
            page.exception()

    def _one(self, request: pb.ReadQueriesRequest) -> pb.ReadQueriesResponse:
        registry = self._registry(request.partition)
        handle = query_handle(request.id)
        place = registry.place(handle)
        is_here = place != NO_REVISION and registry.live.has(handle, request.id)
        if not (is_here and self._stands(registry, handle)):
            raise NotFound("no query is registered under this id", field="id")
        change = self.at(request.partition, place)
        # Between finding the offset and reading it, a change may have arrived, with another id of
        # the same handle: ask again.
        if change is None or change.query is None or change.query.id != request.id:
            raise Unavailable("the query changed while it was read")
        return pb.ReadQueriesResponse(queries=[_stored(place, change)], next_offset=-1)

    def _stands(self, registry: Registry, handle: int) -> bool:
        return registry.live.is_standing(handle, self._machine.lifetimes_ms(now_ms()))

    def _registry(self, partition: int) -> Registry:
        registry = self._machine.registries.get(partition)
        if registry is None:
            raise Unavailable("this router does not own that part of the registry")
        return registry

    def _page(self, request: pb.ReadQueriesRequest) -> pb.ReadQueriesResponse:
        registry = self._registry(request.partition)
        size = min(request.page_size or PAGE_SIZE_DEFAULT, PAGE_SIZE_MAX)
        response = pb.ReadQueriesResponse(next_offset=-1)
        size_bytes = 0
        begin, end = request.from_offset, registry.offset
        with closing(self.changes(request.partition, begin, end)) as changes:
            for count, (offset, change) in enumerate(changes):
                if count == self._changes_max:
                    response.next_offset = offset
                    return response
                if change.query is None or registry.place(change.handle) != offset:
                    continue
                if not self._stands(registry, change.handle):
                    continue
                if request.subscriber and change.subscriber != request.subscriber:
                    continue
                if not change.query.id.startswith(request.id_prefix):
                    continue
                stored = _stored(offset, change)
                size_bytes += stored.ByteSize()
                is_full = len(response.queries) == size or size_bytes > PAGE_BYTES_MAX
                if is_full and response.queries:
                    response.next_offset = offset
                    return response
                response.queries.append(stored)
        return response

    def at(self, partition: int, offset: int) -> Change | None:
        """Returns the change at an offset, None if it is no longer there. Blocks."""
        with closing(self.changes(partition, offset, offset + 1)) as changes:
            return next((change for place, change in changes if place == offset), None)

    def changes(
        self, partition: int, begin: int, end: int, wanted: NDArray[np.int64] | None = None
    ) -> Generator[tuple[int, Change], None, None]:
        """Yields changes in the log from `begin` to before `end`, see `read_changes`."""
        yield from read_changes(self._log, partition, begin, end, wanted)


def _stored(offset: int, change: Change) -> pb.StoredQuery:
    """Returns the definition stored at an offset."""
    assert change.query is not None
    return pb.StoredQuery(
        query=write_query(change.query, change.subscriber),
        revision=change.expected_revision if change.is_republished else offset,
        start_ms=change.start_ms,
        start_given=change.is_start_given,
    )
