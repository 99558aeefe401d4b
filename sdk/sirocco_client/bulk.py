"""Many registrations on one stream: what is under way, and what to send again after a break.

No I/O. Registering an equal query again is no error, so unanswered requests are simply repeated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from sirocco_api.v1.query_pb2 import Query as WrittenQuery
from sirocco_api.v1.query_service_pb2 import RegisterQueriesRequest, RegisterQueriesResponse
from sirocco_api.v1.query_service_pb2 import RegistrationResult as RegistrationMessage

from sirocco_client.errors import Internal, InvalidArgument, SiroccoError, error_from_message
from sirocco_client.numbers import read_time_ms
from sirocco_client.queries import Query, RegistrationResult, write_query

# What the queries of one request may take. A thousand polygons are soon more than a message may be
# (8 MiB), and routers hold four requests of each stream.
REQUEST_BYTES_MAX = 2 << 20

# What one query may take: what is larger is refused here, as the server would refuse the request.
QUERY_BYTES_MAX = 4 << 20

# Queries of one request that a server takes.
QUERIES_MAX = 10_000

# Requests under way: enough to hide the round trip, few enough that a break repeats little.
REQUESTS_MAX = 4


@dataclass(slots=True)
class _Batch:
    """One request, and what is known of its queries.

    Attributes:
        ids: of all queries.
        refused: row → why it is not sent.
    """

    ids: list[str]
    refused: dict[int, SiroccoError]
    request: RegisterQueriesRequest


class BulkRegistration:
    """The state of one bulk registration."""

    def __init__(self, start_ms: int | None, past_ms: int | None) -> None:
        self._start_ms = read_time_ms(start_ms, "start_ms")
        self._past_ms = past_ms
        self._requests: deque[_Batch] = deque()
        self._sent = 0

    @property
    def has_room(self) -> bool:
        """Whether another batch may be added."""
        return len(self._requests) < REQUESTS_MAX

    @property
    def is_waiting(self) -> bool:
        """Whether answers are missing."""
        return bool(self._requests)

    def add(self, queries: Sequence[Query]) -> None:
        """Adds a batch: one request, or several where it is too large for one.

        A query that is too large to travel is answered here; the others go on.

        Raises:
            InvalidArgument: A query cannot be what it says.
        """
        batch, held = self._begin(), 0
        for query in queries:
            message = write_query(query)
            size = message.ByteSize()
            if size > QUERY_BYTES_MAX:
                batch.refused[len(batch.ids)] = InvalidArgument(
                    f"takes {size} bytes, the limit is {QUERY_BYTES_MAX}", field=_largest(message)
                )
                batch.ids.append(query.id)
                continue
            if held and held + size > REQUEST_BYTES_MAX:
                batch, held = self._begin(), 0
            batch.ids.append(query.id)
            batch.request.queries.append(message)
            held += size

    def _begin(self) -> _Batch:
        request = RegisterQueriesRequest(start_ms=self._start_ms, past_ms=self._past_ms)
        self._requests.append(_Batch([], {}, request))
        return self._requests[-1]

    def next_request(self) -> RegisterQueriesRequest | None:
        """Returns what to send next on the present stream, None if an answer has to come first."""
        if self._sent == min(len(self._requests), REQUESTS_MAX):
            return None
        self._sent += 1
        return self._requests[self._sent - 1].request

    def rewind(self) -> None:
        """The stream broke: what is unanswered has to be sent again."""
        self._sent = 0

    def answered(self, response: RegisterQueriesResponse) -> list[RegistrationResult]:
        """Takes the answer to the oldest request; returns the results in the order of its queries.

        Raises:
            Internal: It does not fit that request.
        """
        if not self._sent:
            raise Internal("the server answered what it was not asked")
        batch = self._requests.popleft()
        self._sent -= 1
        if len(response.results) != len(batch.request.queries):
            raise Internal(
                f"{len(response.results)} results for {len(batch.request.queries)} registrations"
            )
        results = iter(response.results)
        return [
            RegistrationResult(query_id, 0, batch.refused[row])
            if row in batch.refused
            else _result(query_id, next(results))
            for row, query_id in enumerate(batch.ids)
        ]


def _largest(message: WrittenQuery) -> str:
    """The member that takes most of a query."""
    kind = getattr(message, message.WhichOneof("kind"))
    sizes = {"where": len(message.where), "id": len(message.id)}
    for each, value in kind.ListFields():
        sizes[each.name] = value.ByteSize() if each.name == "region" else len(str(value))
    return max(sizes, key=sizes.__getitem__)


def _result(query_id: str, result: RegistrationMessage) -> RegistrationResult:
    error = error_from_message(result.error) if result.HasField("error") else None
    return RegistrationResult(query_id, result.revision, error)
