"""State of a search: the request, the parts received, and what follows a failure.

No I/O and no clock; the same for both clients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sirocco_api.v1.search_service_pb2 import SearchRequest, SearchResponse, TermCountColumns

from sirocco_client.base.caller_trace import caller_trace
from sirocco_client.base.members import read_text
from sirocco_client.base.numbers import Moment, read_time_ms
from sirocco_client.connection.retry import Backoff
from sirocco_client.errors import (
    DeadlineExceeded,
    Internal,
    ResourceExhausted,
    SiroccoError,
    Unavailable,
)
from sirocco_client.objects.answer import PartialResult, SearchAnswer, SearchPart
from sirocco_client.objects.object_rows import strings_of
from sirocco_client.queries.query import KnnQuery, Query, RankedQuery, TermsQuery, write_query
from sirocco_client.queries.query_json import query_from_json

# Extra waiting time of a call beyond its time limit: the server still has to send what was found
# until then, and which slots are missing.
GRACE_S = 1.0

# Bytes of an answer that are kept here. A range query names no number of objects, and what a server
# sends until the time limit may be more than there is memory. `search_parts` keeps nothing.
ANSWER_BYTES_MAX = 1 << 30


def snapshot_of(query: Query | Mapping[str, Any]) -> Query:
    """Returns the query that is searched: of mode "snapshot", with an id.

    Raises:
        InvalidArgument: The JSON form is malformed.
    """
    if isinstance(query, Mapping):
        query = query_from_json({"id": _NO_ID, "mode": "snapshot", **query}, "")
    if not isinstance(query, Query):
        # The writer of messages refuses it.
        return query
    if query.mode == "snapshot" and query.id:
        return query
    return replace(query, mode="snapshot", id=query.id or _NO_ID)


# Id of a query without one.
_NO_ID = "search"

# More objects than there are.
_ANY = 1 << 62


class Searching:
    """The state of one search.

    Attributes:
        query: What is asked.
        is_complete: The answer has arrived.
    """

    def __init__(
        self,
        query: Query | Mapping[str, Any],
        now_ms: Moment | None,
        position_token: str | None,
        allow_partial: bool,
        *,
        keeps: bool = True,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
    ) -> None:
        """Begins a search.

        Args:
            query, now_ms, position_token, allow_partial: As of `Client.search`.
            keeps: Whether the parts are kept; otherwise the caller takes them.
            answer_bytes_max: So many bytes are kept.
        """
        self._keeps = keeps
        self._answer_bytes_max = answer_bytes_max
        self.query = asked = snapshot_of(query)
        self._request = SearchRequest(
            query=write_query(asked),
            now_ms=read_time_ms(now_ms, "now_ms"),
            position_token=read_text(position_token or "", "position_token"),
            allow_partial=allow_partial,
            trace=caller_trace(),
        )
        self.restart()

    def restart(self) -> None:
        """Forgets the received parts; the search is sent again."""
        self.is_complete = False
        self._now_ms = 0
        self._slots = 0
        self._missing: Sequence[int] = ()
        self._warnings: Sequence[str] = ()
        self._parts: list[SearchPart] = []
        self._has_parts = False
        self._objects = 0
        self._answer_bytes = 0
        self._terms: list[tuple[str, int]] = []

    def request(self, left_s: float) -> SearchRequest:
        """Returns the request, for an answer within this many seconds."""
        self._request.timeout_ms = max(1, int(left_s * 1_000))
        return self._request

    def received(self, response: SearchResponse) -> SearchPart | None:
        """Processes a response; returns its objects, None if it has none.

        Raises:
            Internal: The response is damaged, or more than was asked for.
            ResourceExhausted: The answer is too large to be kept.
        """
        self._terms += _read_terms(response.terms)
        self._objects += response.objects.count
        self._check_size(response)
        if response.HasField("end"):
            self.is_complete = True
            self._now_ms = response.end.now_ms
            self._slots = response.end.slots
            self._missing = response.end.missing_slots
            self._warnings = response.end.warnings
        if not response.objects.count:
            return None
        part = SearchPart(response)
        self._has_parts = True
        if self._keeps:
            self._parts.append(part)
        return part

    def _check_size(self, response: SearchResponse) -> None:
        objects_max, terms_max = _most(self.query)
        if self._objects > objects_max or len(self._terms) > terms_max:
            self.restart()
            raise Internal("the server sent more than was asked for")
        if not self._keeps:
            return
        self._answer_bytes += response.ByteSize()
        if self._answer_bytes > self._answer_bytes_max:
            self.restart()
            raise ResourceExhausted(
                f"the answer takes more than {self._answer_bytes_max} bytes; "
                "`search_parts` yields its objects as they arrive"
            )

    def ended(self) -> None:
        """The call ended without an error.

        Raises:
            Unavailable: The answer is incomplete.
        """
        if not self.is_complete:
            raise Unavailable("the server ended the answer before its end")

    def pause_s(
        self, error: SiroccoError, backoff: Backoff, left_s: float, *, repeats: bool
    ) -> float:
        """Prepares the next try after an error; returns how long to pause before it.

        Args:
            error: What went wrong.
            backoff: Counts the tries.
            left_s: Seconds until the time limit.
            repeats: Whether received parts may arrive again.

        Raises:
            SiroccoError: The given error, if another try is useless. A `PartialResult` holds the
                received parts.
        """
        if isinstance(error, PartialResult):
            self._missing = error.missing_slots
            error.answer = self.answer() if self._keeps else None
        pause_s = backoff.pause_s(error)
        # These errors mean that the server reached the time limit that it was given.
        is_over = isinstance(error, DeadlineExceeded | PartialResult) or pause_s >= left_s
        if is_over or (self._has_parts and not repeats):
            raise error
        self.restart()
        return pause_s

    def answer(self) -> SearchAnswer:
        """Returns what has arrived."""
        return SearchAnswer(
            self.query,
            self._now_ms,
            tuple(self._parts),
            tuple(self._terms),
            self._slots,
            tuple(self._missing),
            warnings=tuple(self._warnings),
        )


def _most(query: Query) -> tuple[int, int]:
    """Returns how many objects, and terms, an answer may have."""
    match query:
        case KnnQuery() | RankedQuery():
            return query.k, 0
        case TermsQuery():
            return 0, query.k
        case _:
            return _ANY, 0


def _read_terms(columns: TermCountColumns) -> list[tuple[str, int]]:
    if not columns.counts:
        return []
    counts = memoryview(columns.counts).cast("Q").tolist()
    terms = strings_of(columns.terms, columns.term_offsets, len(counts))
    return list(zip(terms, counts, strict=True))
