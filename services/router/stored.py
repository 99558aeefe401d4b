"""Reading registered queries back: the registry itself is where their definitions are kept."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import closing

from sirocco_api.v1 import owner_service_pb2 as pb

from sirocco.codec.queries import write_query
from sirocco.model.errors import NotFound, Unavailable
from sirocco.model.query import query_handle
from sirocco.protocol.messages import NO_REVISION, REGISTRY, Change
from sirocco.protocol.registry import Registry
from sirocco.protocol.router import RouterMachine
from sirocco.runtime.clock import now_ms
from sirocco.runtime.hops import HopReader
from sirocco.transport.log import Log

PAGE_SIZE_MAX = 1_000
PAGE_SIZE_DEFAULT = 100

# A page ends before it is larger than this, but holds one query at least: a thousand polygons of
# some hundred vertices are more than a message may have (8 MiB). Into a list's answer goes one
# page more while it is below this, and one query is at most as large as a record (4 MiB).
PAGE_BYTES_MAX = 2 << 20

# How long the log may hand out nothing of what it has before the read is given up.
READ_S = 2.0


class StoredQueries:
    """Reads the owned registry partitions of the log.

    The machine knows where the definition of each live query stands, and compaction keeps it as
    long as it is the newest record of the query.
    """

    def __init__(self, log: Log, machine: RouterMachine) -> None:
        self._log = log
        self._machine = machine

    async def read(self, request: pb.ReadQueriesRequest) -> pb.ReadQueriesResponse:
        """Answers from the log, in a thread: consumers block."""
        return await asyncio.to_thread(self._read, request)

    def _read(self, request: pb.ReadQueriesRequest) -> pb.ReadQueriesResponse:
        registry = self._registry(request.partition)
        if request.id:
            handle = query_handle(request.id)
            place = registry.place(handle)
            if place == NO_REVISION or not self._stands(registry, handle):
                raise NotFound("no query is registered under this id", field="id")
            found = self._page(request, place, registry.offset, 1)
            if not found.queries:
                # A change came between the look at the revision and the read: ask again.
                raise Unavailable("the query changed while it was read")
            return found
        size = request.page_size or PAGE_SIZE_DEFAULT
        return self._page(request, request.from_offset, registry.offset, min(size, PAGE_SIZE_MAX))

    def _stands(self, registry: Registry, handle: int) -> bool:
        return registry.live.is_standing(handle, self._machine.lifetimes_ms(now_ms()))

    def _registry(self, partition: int) -> Registry:
        registry = self._machine.registries.get(partition)
        if registry is None:
            raise Unavailable("this router does not own that part of the registry")
        return registry

    def _page(
        self, request: pb.ReadQueriesRequest, begin: int, end: int, size: int
    ) -> pb.ReadQueriesResponse:
        registry = self._registry(request.partition)
        response = pb.ReadQueriesResponse(next_offset=-1)
        size_bytes = 0
        with closing(self.changes(request.partition, begin, end)) as changes:
            for offset, change in changes:
                if change.query is None or registry.place(change.handle) != offset:
                    continue
                if not self._stands(registry, change.handle):
                    continue
                if request.subscriber and change.subscriber != request.subscriber:
                    continue
                if not change.query.id.startswith(request.id_prefix):
                    continue
                stored = pb.StoredQuery(
                    query=write_query(change.query, change.subscriber),
                    revision=change.expected_revision if change.is_restated else offset,
                    start_ms=change.start_ms,
                    start_given=change.is_start_given,
                )
                size_bytes += stored.ByteSize()
                is_full = len(response.queries) == size or size_bytes > PAGE_BYTES_MAX
                if is_full and response.queries:
                    response.next_offset = offset
                    return response
                response.queries.append(stored)
                if request.id:
                    return response
        return response

    def at(self, partition: int, offset: int) -> Change | None:
        """The change at an offset; None when it is no longer there. Blocks."""
        with closing(self.changes(partition, offset, offset + 1)) as changes:
            return next((change for place, change in changes if place == offset), None)

    def changes(
        self, partition: int, begin: int, end: int
    ) -> Generator[tuple[int, Change], None, None]:
        """The changes in the log from `begin` to before `end`, with their offsets."""
        low, high = self._log.bounds(REGISTRY, partition)
        position = max(begin, low)
        end = min(end, high)
        if position >= end:
            return
        reader = HopReader(lambda *_: None)
        consumer = self._log.consumer(f"stored-{partition}")
        try:
            consumer.assign({(REGISTRY, partition): position})
            while consumer.positions()[REGISTRY, partition] < end:
                records = consumer.poll(500, READ_S)
                if not records and consumer.positions()[REGISTRY, partition] < end:
                    # A page that ends here would look like the last one.
                    raise Unavailable("the registry cannot be read at the moment; try again")
                for entry in reader.entries(records):
                    if isinstance(entry.message, Change):
                        yield entry.offset, entry.message
        finally:
            consumer.close()
