"""Many searches on one stream: which are sent, answered and repeated.

No I/O and no clock; the same for both clients.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sirocco_api.v1.search_service_pb2 import SearchManyRequest, SearchManyResponse

from sirocco_client.base.numbers import Moment, read_whole
from sirocco_client.calls.searching import Searching
from sirocco_client.connection.error_messages import error_from_message
from sirocco_client.connection.retry import Backoff, Retry
from sirocco_client.errors import Internal, ResourceExhausted, SiroccoError, Unavailable
from sirocco_client.objects.answer import SearchAnswer
from sirocco_client.queries.query import Query

# Searches under way at a time by default: enough that messages are shared on the whole way, and
# that other clients of a merger find places.
IN_FLIGHT = 64
IN_FLIGHT_MAX = 1_024

# Of one request, as far as the queries fit.
REQUEST_BYTES_MAX = 256 << 10

# Results that are kept to give them out in order, for each search under way: one slow search holds
# back those after it, and then further ones are not sent.
AHEAD = 16


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Result of one of many searches.

    Attributes:
        query: The query as given.
        answer: Its answer; None if there is none.
        error: Why it has none. A `PartialResult` holds the answer of the other slots.
    """

    query: Query | Mapping[str, Any]
    answer: SearchAnswer | None
    error: SiroccoError | None

    def get(self) -> SearchAnswer:
        """Returns the answer.

        Raises:
            SiroccoError: There is none.
        """
        if self.answer is None:
            raise self.error or Internal("a search without an answer")
        return self.answer


@dataclass(slots=True, eq=False)
class _One:
    """One search.

    Attributes:
        place: among all.
        query: as given.
        state: what has arrived.
        backoff: counts the tries.
        deadline_s: when it has to be answered.
        due_s: when it may be sent.
    """

    place: int
    query: Query | Mapping[str, Any]
    state: Searching
    backoff: Backoff
    deadline_s: float
    due_s: float


class ManySearches:
    """The state of many searches.

    Args:
        queries: The queries, or searches whose state is the caller's.
        arguments: Of each query: the moment, the position token, whether partial answers are
            allowed.
        timeout_s: Time limit of each from its first sending, seconds.
        in_flight: How many may be under way.
        retry: Number and length of pauses.
        random: Returns numbers in [0, 1).
    """

    def __init__(
        self,
        queries: Iterable[Query | Mapping[str, Any] | Searching],
        arguments: tuple[Moment | None, str | None, bool],
        timeout_s: float,
        in_flight: int,
        retry: Retry,
        random: Callable[[], float],
    ) -> None:
        self._in_flight_max = read_whole(in_flight, "in_flight", 1, IN_FLIGHT_MAX)
        # Fewer after a refusal, one more after each answer.
        self._window = self._in_flight_max
        self._queries = iter(queries)
        self._arguments = arguments
        self._timeout_s = timeout_s
        self._retry, self._random = retry, random
        self._count = 0
        self._given = 0
        self._is_exhausted = False
        self._under_way: dict[int, _One] = {}
        # Answered with an error here, while the server still sends.
        self._dropped: set[int] = set()
        self._paused: deque[_One] = deque()
        self._results: dict[int, SearchResult] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether answers are outstanding."""
        return bool(self._under_way)

    @property
    def is_done(self) -> bool:
        """Whether everything is sent and answered, and all results are given out."""
        return self._is_exhausted and not self._under_way and not self._paused and not self._results

    def pause_s(self, now_s: float) -> float:
        """Returns how long to wait until something can be sent; 0 unless all pause."""
        if self._under_way or not self._paused:
            return 0.0
        return max(0.0, min(one.due_s for one in self._paused) - now_s)

    def next_request(self, now_s: float) -> SearchManyRequest | None:
        """Returns the next request; None if answers or pauses have to end first."""
        request, size = SearchManyRequest(), 0
        while len(self._under_way) < self._window and size < REQUEST_BYTES_MAX:
            one = self._next(now_s)
            if one is None:
                break
            self._under_way[one.place] = one
            written = request.searches.add(number=one.place)
            written.search.CopyFrom(one.state.request(one.deadline_s - now_s))
            size += written.search.ByteSize()
        return request if size else None

    def received(self, response: SearchManyResponse, now_s: float) -> None:
        """Processes a response.

        Raises:
            Unavailable: This server is ending: another one has to be asked.
            Internal: It answers what was not asked, or is damaged.
        """
        ending: SiroccoError | None = None
        for each in response.responses:
            if each.number in self._dropped:
                if each.HasField("error") or each.response.HasField("end"):
                    self._dropped.discard(each.number)
                continue
            one = self._under_way.get(each.number)
            if one is None:
                raise Internal("the server answered what it was not asked")
            if each.HasField("response"):
                try:
                    one.state.received(each.response)
                except ResourceExhausted as excess:
                    # The others are answered; what follows of this one is not kept.
                    self._ended(one, None, excess)
                    if not each.response.HasField("end"):
                        self._dropped.add(each.number)
                    continue
            if each.HasField("error"):
                error = error_from_message(each.error)
                self._failed(one, error, now_s)
                ending = error if isinstance(error, Unavailable) else ending
            elif one.state.is_complete:
                self._ended(one, one.state.answer(), None)
                self._window = min(self._window + 1, self._in_flight_max)
        if ending is not None:
            raise ending

    def broken(self, error: SiroccoError, now_s: float) -> None:
        """The stream broke: all that was under way is sent again, as far as there is time."""
        self._dropped.clear()
        for one in list(self._under_way.values()):
            self._failed(one, error, now_s)

    def results(self) -> Iterator[SearchResult]:
        """Yields the results that are next in the order of the queries."""
        while (result := self._results.pop(self._given, None)) is not None:
            self._given += 1
            yield result

    def _next(self, now_s: float) -> _One | None:
        for _ in range(len(self._paused)):
            one = self._paused.popleft()
            if one.due_s <= now_s:
                return one
            self._paused.append(one)
        while not self._is_exhausted and self._count - self._given < AHEAD * self._in_flight_max:
            query = next(self._queries, None)
            if query is None:
                self._is_exhausted = True
                return None
            place = self._count
            self._count += 1
            if isinstance(query, Searching):
                backoff = Backoff(self._retry, self._random)
                deadline_s = now_s + self._timeout_s
                return _One(place, query.query, query, backoff, deadline_s, now_s)
            try:
                state = Searching(query, *self._arguments)
            except SiroccoError as error:
                self._results[place] = SearchResult(query, None, error)
                continue
            backoff = Backoff(self._retry, self._random)
            return _One(place, query, state, backoff, now_s + self._timeout_s, now_s)
        return None

    def _failed(self, one: _One, error: SiroccoError, now_s: float) -> None:
        if isinstance(error, ResourceExhausted):
            self._window = max(1, self._window // 2)
        try:
            pause_s = one.state.pause_s(error, one.backoff, one.deadline_s - now_s, repeats=True)
        except SiroccoError as final:
            self._ended(one, None, final)
            return
        del self._under_way[one.place]
        one.due_s = now_s + pause_s
        self._paused.append(one)

    def _ended(self, one: _One, answer: SearchAnswer | None, error: SiroccoError | None) -> None:
        del self._under_way[one.place]
        self._results[one.place] = SearchResult(one.query, answer, error)
