"""Bulk changes of queries on one stream: requests in flight, and what to resend after a break.

No I/O. Unanswered requests are simply repeated: registering or updating an equal query again is not
an error, and a repeated removal may find that its query is gone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from sirocco_api.v1.query_pb2 import Query as WrittenQuery
from sirocco_api.v1.query_service_pb2 import (
    RegisterQueriesRequest,
    RegisterQueriesResponse,
    UnregisterQueriesRequest,
    UnregisterQueriesResponse,
    UpdateQueriesRequest,
    UpdateQueriesResponse,
)
from sirocco_api.v1.query_service_pb2 import RegistrationResult as RegistrationResultMessage

from sirocco_client.base.members import shown
from sirocco_client.base.numbers import Moment, read_time_ms
from sirocco_client.calls.plain_queries import plain_query, queries_field
from sirocco_client.connection.error_messages import error_from_message
from sirocco_client.errors import Internal, InvalidArgument, NotFound
from sirocco_client.queries.query import Query, RegistrationResult, write_query

# Bytes of the changes of one request. A thousand polygons easily exceed the largest message (8
# MiB), and routers hold four requests of each stream.
REQUEST_BYTES_MAX = 2 << 20

# Bytes of one query: larger ones are refused here, because the server would refuse the request.
QUERY_BYTES_MAX = 4 << 20

# Bytes of an id in a request besides the id.
_ID_BYTES = 4

# Changes per request that a server accepts.
QUERIES_MAX = 10_000

# Changes per request by default. Each request becomes records for each slot, so that larger ones
# cost less: a thousand took 1.7 times the CPU of four thousand (Kafka, 8 slots). Results arrive
# request by request.
BATCH_ROWS = 8_000

# Requests in flight: enough to hide the round trip, few enough that a break repeats little.
REQUESTS_MAX = 4

T = TypeVar("T")
BulkRequest: TypeAlias = "RegisterQueriesRequest | UpdateQueriesRequest | UnregisterQueriesRequest"
BulkResponse: TypeAlias = (
    "RegisterQueriesResponse | UpdateQueriesResponse | UnregisterQueriesResponse"
)


@dataclass(frozen=True, slots=True)
class _Part:
    """One request.

    Attributes:
        request: the message.
        rows: for each given row: the query's id if it is in the request, otherwise its result.
    """

    request: BulkRequest
    rows: list[str | RegistrationResult]


class Bulk(ABC, Generic[T]):
    """The state of one bulk change; `T` is the type of its rows.

    Attributes:
        method: of `QueryService`.
    """

    method: ClassVar[str]

    def __init__(self) -> None:
        self._requests: deque[_Part] = deque()
        self._sent = 0
        # Number of the first requests that were already sent on a broken stream.
        self._repeated = 0

    @property
    def has_room(self) -> bool:
        """Whether another batch may be added."""
        return len(self._requests) < REQUESTS_MAX

    @property
    def is_waiting(self) -> bool:
        """Whether answers are outstanding."""
        return bool(self._requests)

    def next_request(self) -> BulkRequest | None:
        """Returns the next request for the present stream, None if an answer must arrive first."""
        if self._sent == min(len(self._requests), REQUESTS_MAX):
            return None
        self._sent += 1
        return self._requests[self._sent - 1].request

    def rewind(self) -> None:
        """Prepares to resend the unanswered requests after a broken stream."""
        self._repeated = max(self._repeated, self._sent)
        self._sent = 0

    def answered(self, response: BulkResponse) -> list[RegistrationResult]:
        """Processes the answer to the oldest request; returns the results in the order of its rows.

        Raises:
            Internal: It does not fit that request.
        """
        if not self._sent:
            raise Internal("the server answered what it was not asked")
        rows = self._requests.popleft().rows
        self._sent -= 1
        ids = [row for row in rows if type(row) is str]
        is_repeated = self._repeated > 0
        self._repeated = max(0, self._repeated - 1)
        if len(response.results) != len(ids):
            raise Internal(f"{len(response.results)} results for {len(ids)} changes")
        listed = list(response.results)
        warnings = _warnings(response)
        is_plain = len(ids) == len(rows) and not warnings
        if is_plain and not any(each.HasField("error") for each in listed):
            return [
                RegistrationResult(name, each.revision, None)
                for name, each in zip(ids, listed, strict=True)
            ]
        results = iter(listed)
        places = count()
        return [
            self._result(
                row, next(results), warnings.get(next(places), ()), is_repeated=is_repeated
            )
            if isinstance(row, str)
            else row
            for row in rows
        ]

    def add(self, batch: Sequence[T]) -> None:
        """Adds a batch as one request, or several if it is too large.

        A malformed row is not sent; its result holds the error.
        """
        written: list[Any] = []
        rows: list[str | RegistrationResult] = []
        held = 0
        for row in batch:
            query_id = self._id_of(row)
            try:
                message, size = self._written(row)
                if size > QUERY_BYTES_MAX:
                    raise InvalidArgument(
                        f"takes {size} bytes, the limit is {QUERY_BYTES_MAX}",
                        field=self._largest(message),
                    )
            except InvalidArgument as error:
                rows.append(RegistrationResult(query_id, 0, error))
                continue
            if written and held + size > REQUEST_BYTES_MAX:
                self._requests.append(_Part(self._request(written), rows))
                written, rows, held = [], [], 0
            written.append(message)
            rows.append(query_id)
            held += size
        self._requests.append(_Part(self._request(written), rows))

    @abstractmethod
    def _id_of(self, row: T) -> str:
        """Returns the id of a row's query."""

    @abstractmethod
    def _written(self, row: T) -> tuple[Any, int]:
        """Returns a row's form in a request, and its size in bytes.

        Raises:
            InvalidArgument: The row is malformed.
        """

    def _largest(self, message: Any) -> str:
        """Returns the member that takes most of a row's bytes."""
        return "id"

    @abstractmethod
    def _request(self, written: Sequence[Any]) -> BulkRequest:
        """Returns the request of some rows."""

    def _result(
        self,
        query_id: str,
        result: RegistrationResultMessage,
        warnings: tuple[str, ...],
        *,
        is_repeated: bool,
    ) -> RegistrationResult:
        if result.HasField("error"):
            return RegistrationResult(query_id, result.revision, error_from_message(result.error))
        return RegistrationResult(query_id, result.revision, None, warnings)


class BulkChange(Bulk[Query]):
    """Many queries, registered or updated."""

    def __init__(self, start_ms: Moment | None, past_ms: int | None) -> None:
        super().__init__()
        self._start_ms = read_time_ms(start_ms, "start_ms")
        self._past_ms = past_ms

    def add(self, batch: Sequence[Query]) -> None:
        """See `Bulk.add`; a batch of plain queries is one request."""
        written: list[bytes] = []
        for row in batch:
            each = plain_query(row)
            if each is None:
                super().add(batch)
                return
            written.append(each)
        # A plain query has a few hundred bytes, and is refused by none of the checks there.
        if sum(map(len, written)) > REQUEST_BYTES_MAX:
            super().add(batch)
            return
        self._requests.append(_Part(self._request(written), [row.id for row in batch]))

    def _put_times(self, request: RegisterQueriesRequest | UpdateQueriesRequest) -> None:
        if self._start_ms is not None:
            request.start_ms = self._start_ms
        if self._past_ms is not None:
            request.past_ms = self._past_ms

    def _id_of(self, row: Query) -> str:
        return str(getattr(row, "id", ""))

    def _written(self, row: Query) -> tuple[bytes, int]:
        written = plain_query(row)
        if written is None:
            written = write_query(row).SerializeToString()
        return written, len(written)

    def _largest(self, written: bytes) -> str:
        message = WrittenQuery.FromString(written)
        kind = getattr(message, str(message.WhichOneof("kind")))
        sizes = {"where": len(message.where), "id": len(message.id)}
        for each, value in kind.ListFields():
            sizes[each.name] = value.ByteSize() if each.name == "region" else len(str(value))
        return max(sizes, key=sizes.__getitem__)


class BulkRegistration(BulkChange):
    """The state of one bulk registration."""

    method = "RegisterQueries"

    def _request(self, written: Sequence[bytes]) -> BulkRequest:
        request = RegisterQueriesRequest.FromString(queries_field(written))
        self._put_times(request)
        return request


class BulkUpdate(BulkChange):
    """The state of one bulk update."""

    method = "UpdateQueries"

    def _request(self, written: Sequence[bytes]) -> BulkRequest:
        request = UpdateQueriesRequest.FromString(queries_field(written))
        self._put_times(request)
        return request


class BulkRemoval(Bulk[str]):
    """The state of one bulk removal."""

    method = "UnregisterQueries"

    def add(self, batch: Sequence[str]) -> None:
        """See `Bulk.add`; a batch of ordinary ids is one request."""
        if all(type(row) is str for row in batch):
            whole = "".join(batch)
            # Each ASCII character is a byte, and no id alone reaches the limit of one.
            if whole.isascii() and len(whole) + _ID_BYTES * len(batch) <= REQUEST_BYTES_MAX:
                self._requests.append(_Part(self._request(batch), list(batch)))
                return
        super().add(batch)

    def _id_of(self, row: str) -> str:
        return row if isinstance(row, str) else shown(row)

    def _written(self, row: str) -> tuple[str, int]:
        try:
            return row, len(row.encode()) + _ID_BYTES
        except (AttributeError, UnicodeEncodeError):
            raise InvalidArgument(f"{shown(row)} is no valid string", field="id") from None

    def _request(self, written: Sequence[str]) -> BulkRequest:
        return UnregisterQueriesRequest(ids=written)

    def _result(
        self,
        query_id: str,
        result: RegistrationResultMessage,
        warnings: tuple[str, ...],
        *,
        is_repeated: bool,
    ) -> RegistrationResult:
        found = super()._result(query_id, result, warnings, is_repeated=is_repeated)
        # An earlier try whose answer was lost may have removed it.
        is_removed = is_repeated and isinstance(found.error, NotFound)
        return RegistrationResult(query_id, 0, None) if is_removed else found


def _warnings(response: BulkResponse) -> dict[int, tuple[str, ...]]:
    """Returns the warnings of a response, by row of the request."""
    if isinstance(response, UnregisterQueriesResponse):
        return {}
    return {each.row: tuple(each.warnings) for each in response.warnings}
