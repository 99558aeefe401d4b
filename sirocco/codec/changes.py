"""`Change` (one change of one query) ⇄ `ChangeRequest`.

A router reads its own appended changes back from the registry, so that every change applies in the
order of the log; it need not parse the same query again. `_written` keeps written queries until
they are read; others are parsed, which only takes longer.
"""

from __future__ import annotations

from collections import OrderedDict

from sirocco_api.v1 import query_pb2

from sirocco.codec.arrays import check_time
from sirocco.codec.columns import Member, read_locators
from sirocco.codec.queries import put_query, read_query
from sirocco.internal_api.v1 import registry_service_pb2 as pb
from sirocco.model.errors import InvalidArgument
from sirocco.model.limits import STORED_LIMITS
from sirocco.model.query import Query, RankedQuery, query_handle
from sirocco.protocol.contract.messages import NO_PAST, NO_REVISION, Change
from sirocco.protocol.contract.record_sizes import check_change

# Changes between append and read: a few bulk requests of a thousand from several streams at once.
# About 1 kB each.
WRITTEN_MAX = 16_384

# Only queries of the usual size are kept, so that the largest (10,000 vertices, 256 conjunctions)
# do not take a megabyte each.
WRITTEN_BYTES_MAX = 512
WRITTEN_CONJUNCTIONS_MAX = 8


class WrittenQueries:
    """Queries with their subscribers by the bytes of their messages; each is taken once.

    Threads may share it: every step is one operation on a dictionary.
    """

    def __init__(self) -> None:
        self._queries: OrderedDict[bytes, tuple[Query, str]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._queries)

    def keep(self, data: bytes, query: Query, subscriber: str) -> None:
        """Keeps a query until it is taken, as long as there is room."""
        text = None if isinstance(query, RankedQuery) else query.expression
        if len(data) > WRITTEN_BYTES_MAX or (
            text is not None and len(text.conjunctions) > WRITTEN_CONJUNCTIONS_MAX
        ):
            return
        self._queries[data] = query, subscriber
        while len(self._queries) > WRITTEN_MAX:
            self._queries.popitem(last=False)

    def take(self, data: bytes) -> tuple[Query, str] | None:
        """Returns and forgets a query; None if it is not here."""
        return self._queries.pop(data, None)


_written = WrittenQueries()


def write_change(message: Change) -> pb.ChangeRequest:
    """Returns the request of a message."""
    request = pb.ChangeRequest(
        handle=message.handle,
        start_ms=message.start_ms,
        expected_revision=message.expected_revision,
        digest=message.digest,
        epoch=message.epoch,
        restated=message.is_republished,
        start_given=message.is_start_given,
    )
    if message.query is not None:
        put_query(request.query, message.query, message.subscriber)
        if message.past_ms != NO_PAST:
            request.past_ms = message.past_ms
        request.locator = message.locator
        if message.since != NO_REVISION:
            request.since = message.since
        _written.keep(request.query.SerializeToString(), message.query, message.subscriber)
    return request


def read_change(request: pb.ChangeRequest) -> Change:
    """Returns the message of a request.

    Raises:
        InvalidArgument: The query is invalid, or not that of the handle.
    """
    query, subscriber = None, ""
    if request.HasField("query"):
        query, subscriber = _read(request.query)
        if query_handle(query.id) != request.handle:
            raise InvalidArgument("is not that of the query's id", field="handle")
    check_time(request.start_ms, "start_ms")
    if request.HasField("past_ms") and request.past_ms < 0:
        raise InvalidArgument("must not be negative", field="past_ms")
    if request.HasField("since") and request.since < 0:
        raise InvalidArgument("must not be negative", field="since")
    return Change(
        handle=request.handle,
        query=query,
        subscriber=subscriber,
        start_ms=request.start_ms,
        expected_revision=request.expected_revision,
        digest=request.digest,
        epoch=request.epoch,
        past_ms=request.past_ms if request.HasField("past_ms") else NO_PAST,
        is_republished=request.restated,
        locator=read_locators(request.locator, None, 1, "locator")[0] if request.locator else b"",
        is_start_given=request.start_given,
        since=request.since if request.HasField("since") else NO_REVISION,
    )


def _read(message: query_pb2.Query) -> tuple[Query, str]:
    written = _written.take(message.SerializeToString())
    if written is not None:
        return written
    with Member("query"):
        query, subscriber = read_query(message, STORED_LIMITS)
        # A change that the log would refuse is refused here, and becomes a dead letter.
        check_change(query, subscriber)
        return query, subscriber
