"""Many changes of queries on one stream: what is under way, and what to send again after a break.

No I/O. Registering or updating an equal query again is no error, and a removal that is repeated may
find that its query has gone: so unanswered requests are simply repeated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
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

from sirocco_client.errors import Internal, InvalidArgument, NotFound, error_from_message
from sirocco_client.members import shown
from sirocco_client.numbers import read_time_ms
from sirocco_client.queries import Query, RegistrationResult, write_query

# What the changes of one request may take. A thousand polygons are soon more than a message may be
# (8 MiB), and routers hold four requests of each stream.
REQUEST_BYTES_MAX = 2 << 20

# What one query may take: what is larger is refused here, as the server would refuse the request.
QUERY_BYTES_MAX = 4 << 20

# Changes of one request that a server takes.
QUERIES_MAX = 10_000

# Requests under way: enough to hide the round trip, few enough that a break repeats little.
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
        request: what is sent.
        rows: for each row that was given the id of the query that is in the request, or the result
            of one that is not.
    """

    request: BulkRequest
    rows: list[str | RegistrationResult]


class Bulk(ABC, Generic[T]):
    """The state of one bulk change; `T` is what it is given.

    Attributes:
        method: of `QueryService`.
    """

    method: ClassVar[str]

    def __init__(self) -> None:
        self._requests: deque[_Part] = deque()
        self._sent = 0
        # Of the requests in front, how many were sent on a stream that broke.
        self._repeated = 0

    @property
    def has_room(self) -> bool:
        """Whether another batch may be added."""
        return len(self._requests) < REQUESTS_MAX

    @property
    def is_waiting(self) -> bool:
        """Whether answers are missing."""
        return bool(self._requests)

    def next_request(self) -> BulkRequest | None:
        """Returns what to send next on the present stream, None if an answer has to come first."""
        if self._sent == min(len(self._requests), REQUESTS_MAX):
            return None
        self._sent += 1
        return self._requests[self._sent - 1].request

    def rewind(self) -> None:
        """The stream broke: what is unanswered has to be sent again."""
        self._repeated = max(self._repeated, self._sent)
        self._sent = 0

    def answered(self, response: BulkResponse) -> list[RegistrationResult]:
        """Takes the answer to the oldest request; returns the results in the order of its rows.

        Raises:
            Internal: It does not fit that request.
        """
        if not self._sent:
            raise Internal("the server answered what it was not asked")
        rows = self._requests.popleft().rows
        self._sent -= 1
        ids = [row for row in rows if isinstance(row, str)]
        is_repeated = self._repeated > 0
        self._repeated = max(0, self._repeated - 1)
        if len(response.results) != len(ids):
            raise Internal(f"{len(response.results)} results for {len(ids)} changes")
        results = iter(response.results)
        return [
            self._result(row, next(results), is_repeated=is_repeated)
            if isinstance(row, str)
            else row
            for row in rows
        ]

    def add(self, batch: Sequence[T]) -> None:
        """Adds a batch: one request, or several where it is too large for one.

        A row that cannot be what it says is not sent: its result says why.
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
        """The id of the query of a row."""

    @abstractmethod
    def _written(self, row: T) -> tuple[Any, int]:
        """Returns what stands for a row in a request, and its bytes.

        Raises:
            InvalidArgument: The row cannot be what it says.
        """

    def _largest(self, message: Any) -> str:
        """The member that takes most of a row."""
        return "id"

    @abstractmethod
    def _request(self, written: Sequence[Any]) -> BulkRequest:
        """Returns the request of some rows."""

    def _result(
        self, query_id: str, result: RegistrationResultMessage, *, is_repeated: bool
    ) -> RegistrationResult:
        error = error_from_message(result.error) if result.HasField("error") else None
        return RegistrationResult(query_id, result.revision, error)


class BulkChange(Bulk[Query]):
    """Many queries, registered or updated."""

    def __init__(self, start_ms: int | None, past_ms: int | None) -> None:
        super().__init__()
        self._start_ms = read_time_ms(start_ms, "start_ms")
        self._past_ms = past_ms

    def _id_of(self, row: Query) -> str:
        return str(getattr(row, "id", ""))

    def _written(self, row: Query) -> tuple[WrittenQuery, int]:
        message = write_query(row)
        return message, message.ByteSize()

    def _largest(self, message: WrittenQuery) -> str:
        kind = getattr(message, str(message.WhichOneof("kind")))
        sizes = {"where": len(message.where), "id": len(message.id)}
        for each, value in kind.ListFields():
            sizes[each.name] = value.ByteSize() if each.name == "region" else len(str(value))
        return max(sizes, key=sizes.__getitem__)


class BulkRegistration(BulkChange):
    """The state of one bulk registration."""

    method = "RegisterQueries"

    def _request(self, written: Sequence[WrittenQuery]) -> BulkRequest:
        return RegisterQueriesRequest(
            queries=written, start_ms=self._start_ms, past_ms=self._past_ms
        )


class BulkUpdate(BulkChange):
    """The state of one bulk update."""

    method = "UpdateQueries"

    def _request(self, written: Sequence[WrittenQuery]) -> BulkRequest:
        return UpdateQueriesRequest(queries=written, start_ms=self._start_ms, past_ms=self._past_ms)


class BulkRemoval(Bulk[str]):
    """The state of one bulk removal."""

    method = "UnregisterQueries"

    def _id_of(self, row: str) -> str:
        return row if isinstance(row, str) else shown(row)

    def _written(self, row: str) -> tuple[str, int]:
        try:
            return row, len(row.encode()) + 4
        except (AttributeError, UnicodeEncodeError):
            raise InvalidArgument(f"{shown(row)} is no valid string", field="id") from None

    def _request(self, written: Sequence[str]) -> BulkRequest:
        return UnregisterQueriesRequest(ids=written)

    def _result(
        self, query_id: str, result: RegistrationResultMessage, *, is_repeated: bool
    ) -> RegistrationResult:
        found = super()._result(query_id, result, is_repeated=is_repeated)
        # A try whose answer was lost may have removed it.
        is_gone = is_repeated and isinstance(found.error, NotFound)
        return RegistrationResult(query_id, 0, None) if is_gone else found
