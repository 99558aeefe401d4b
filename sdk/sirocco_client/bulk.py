"""Many registrations on one stream: what is under way, and what to send again after a break.

No I/O. Registering an equal query again is no error, so unanswered requests are simply repeated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from sirocco_api.v1.query_pb2 import Query as WrittenQuery
from sirocco_api.v1.query_service_pb2 import RegisterQueriesRequest, RegisterQueriesResponse

from sirocco_client.errors import Internal, error_from_message
from sirocco_client.queries import Query, RegistrationResult, write_query

# What the queries of one request may take. A thousand polygons are soon more than a message may be
# (8 MiB), and routers hold four requests of each stream.
REQUEST_BYTES_MAX = 2 << 20

# Requests under way: enough to hide the round trip, few enough that a break repeats little.
REQUESTS_MAX = 4


class BulkRegistration:
    """The state of one bulk registration."""

    def __init__(self, start_ms: int | None, past_ms: int | None) -> None:
        self._start_ms = start_ms
        self._past_ms = past_ms
        self._requests: deque[RegisterQueriesRequest] = deque()
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

        Raises:
            InvalidArgument: A query cannot be what it says.
        """
        written: list[WrittenQuery] = []
        held = 0
        for query in queries:
            message = write_query(query)
            size = message.ByteSize()
            if written and held + size > REQUEST_BYTES_MAX:
                self._append(written)
                written, held = [], 0
            written.append(message)
            held += size
        self._append(written)

    def _append(self, written: Sequence[WrittenQuery]) -> None:
        self._requests.append(
            RegisterQueriesRequest(queries=written, start_ms=self._start_ms, past_ms=self._past_ms)
        )

    def next_request(self) -> RegisterQueriesRequest | None:
        """Returns what to send next on the present stream, None if an answer has to come first."""
        if self._sent == min(len(self._requests), REQUESTS_MAX):
            return None
        self._sent += 1
        return self._requests[self._sent - 1]

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
        request = self._requests.popleft()
        self._sent -= 1
        if len(response.results) != len(request.queries):
            raise Internal(
                f"{len(response.results)} results for {len(request.queries)} registrations"
            )
        return [
            RegistrationResult(
                query.id,
                result.revision,
                error_from_message(result.error) if result.HasField("error") else None,
            )
            for query, result in zip(request.queries, response.results, strict=True)
        ]
