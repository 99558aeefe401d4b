"""Single searches on streams that are kept open: when to open one, and what travels on it.

A call for each search costs client and merger a quarter more than a message on an open stream. One
search at a time is on a stream, so that no answer waits behind another's.

No I/O and no clock; the same for both clients.
"""

from __future__ import annotations

from sirocco_api.v1.search_service_pb2 import SearchManyRequest, SearchManyResponse, SearchRequest

from sirocco_client.calls.searching import Searching
from sirocco_client.connection.error_messages import error_from_message
from sirocco_client.errors import SiroccoError, Unavailable

# Streams of one client. Searches beyond them are calls of their own.
STREAMS_MAX = 8

# A search that follows another within this time opens a stream: a stream for a single search costs
# more than a call.
WARM_S = 1.0

# A stream without searches is closed after this time: it takes a thread here, and memory and one of
# few places at the merger.
IDLE_S = 5.0

# How long searches are calls after a stream broke or was refused: a merger that is older than the
# method, or has no place for a stream, is not asked for one with each search.
REST_S = 10.0


class FailedSearch(Exception):  # noqa: N818 - the error is inside
    """A search on a stream got an error as its answer, or none in time.

    Attributes:
        error: What a call of its own would have ended with.
    """

    def __init__(self, error: SiroccoError) -> None:
        super().__init__(error)
        self.error = error

    @property
    def is_stream_sound(self) -> bool:
        """Whether other searches may follow on the stream: a merger that ends says so."""
        return not isinstance(self.error, Unavailable)


class BrokenStream(Exception):  # noqa: N818 - caught beside gRPC's own
    """The merger answered what it was not asked."""


class StreamRules:
    """Decides whether a search may open a stream."""

    def __init__(self) -> None:
        self._last_s = float("-inf")
        # Address → until when no stream is opened there.
        self._rests: dict[str, float] = {}

    def begins(self, now_s: float) -> bool:
        """Notes that a search begins; returns whether it follows closely on another one."""
        is_warm = now_s - self._last_s < WARM_S
        self._last_s = now_s
        return is_warm

    def broke(self, address: str, now_s: float) -> None:
        """Notes that a stream broke without an answer, or was refused."""
        self._rests[address] = now_s + REST_S

    def may_open(self, address: str, count: int, now_s: float) -> bool:
        """Whether another stream may be opened, besides this number."""
        if count >= STREAMS_MAX:
            return False
        if address in self._rests:
            if now_s < self._rests[address]:
                return False
            del self._rests[address]
        return True


class Numbered:
    """The searches of one stream, one after the other."""

    def __init__(self) -> None:
        self._number = 0

    def request(self, search: SearchRequest) -> SearchManyRequest:
        """Returns the message that asks."""
        self._number += 1
        request = SearchManyRequest(kept=self._number == 1)
        request.searches.add(number=self._number).search.CopyFrom(search)
        return request

    def received(self, response: SearchManyResponse, state: Searching) -> bool:
        """Processes a message; returns whether the answer is complete.

        Raises:
            FailedSearch: The answer is an error.
            BrokenStream: It answers another search.
            Internal: It is damaged.
        """
        for each in response.responses:
            if each.number != self._number:
                raise BrokenStream
            if each.HasField("response"):
                state.received(each.response)
            if each.HasField("error"):
                raise FailedSearch(error_from_message(each.error))
        return state.is_complete
