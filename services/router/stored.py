"""Reading registered queries back: the registry itself is where their definitions are kept."""

from __future__ import annotations

import asyncio

from sirocco_api.v1 import owner_service_pb2 as pb

from sirocco.codec.queries import write_query
from sirocco.model.errors import NotFound, Unavailable
from sirocco.model.query import query_handle
from sirocco.protocol.messages import NO_REVISION, REGISTRY, Change
from sirocco.protocol.router import RouterMachine
from sirocco.runtime.hops import HopReader
from sirocco.transport.log import Log

PAGE_SIZE_MAX = 1_000
PAGE_SIZE_DEFAULT = 100

# How long the log may hand out nothing of what it has before the read is given up.
READ_S = 2.0


class StoredQueries:
    """Reads the owned registry partitions of the log.

    The machine knows which revision of a query is live; the record at that offset is its
    definition, and compaction keeps it as long as it is the newest.
    """

    def __init__(self, log: Log, machine: RouterMachine) -> None:
        self._log = log
        self._machine = machine

    async def read(self, request: pb.ReadQueriesRequest) -> pb.ReadQueriesResponse:
        """Answers from the log, in a thread: consumers block."""
        return await asyncio.to_thread(self._read, request)

    def _read(self, request: pb.ReadQueriesRequest) -> pb.ReadQueriesResponse:
        registry = self._machine.registries.get(request.partition)
        if registry is None:
            raise Unavailable("this router does not own that part of the registry")
        if request.id:
            revision = registry.live.revision(query_handle(request.id))
            if revision == NO_REVISION:
                raise NotFound("no query is registered under this id", field="id")
            found = self._page(request, revision, registry.offset, 1)
            if not found.queries:
                # A change came between the look at the revision and the read: ask again.
                raise Unavailable("the query changed while it was read")
            return found
        size = request.page_size or PAGE_SIZE_DEFAULT
        return self._page(request, request.from_offset, registry.offset, min(size, PAGE_SIZE_MAX))

    def _page(
        self, request: pb.ReadQueriesRequest, begin: int, end: int, size: int
    ) -> pb.ReadQueriesResponse:
        registry = self._machine.registries[request.partition]
        response = pb.ReadQueriesResponse(next_offset=-1)
        low, high = self._log.bounds(REGISTRY, request.partition)
        position = max(begin, low)
        end = min(end, high)
        if position >= end:
            return response
        reader = HopReader(lambda *_: None)
        consumer = self._log.consumer(f"stored-{request.partition}")
        try:
            consumer.assign({(REGISTRY, request.partition): position})
            while consumer.positions()[REGISTRY, request.partition] < end:
                records = consumer.poll(500, READ_S)
                if not records and consumer.positions()[REGISTRY, request.partition] < end:
                    # A page that ends here would look like the last one.
                    raise Unavailable("the registry cannot be read at the moment; try again")
                for entry in reader.entries(records):
                    change = entry.message
                    if not isinstance(change, Change) or change.query is None:
                        continue
                    if registry.live.revision(change.handle) != entry.offset:
                        continue
                    if request.subscriber and change.subscriber != request.subscriber:
                        continue
                    if len(response.queries) == size:
                        response.next_offset = entry.offset
                        return response
                    response.queries.append(
                        pb.StoredQuery(
                            query=write_query(change.query, change.subscriber),
                            revision=entry.offset,
                            start_ms=change.start_ms,
                        )
                    )
                    if request.id:
                        return response
        finally:
            consumer.close()
        return response
