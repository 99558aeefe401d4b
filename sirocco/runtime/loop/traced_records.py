"""Follows traced publish calls from record to record: which ones a record holds objects of.

Records combine objects of many calls. So each record carries the places in traces of some of them,
in headers, each with the numbers that the call published. A process begins one span for each place
that it reads, and gives the records that it writes the places of its own spans: of those calls
whose objects are in the record, by their events. Machines know nothing of this.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sirocco.protocol.contract.columns import EventColumns
from sirocco.protocol.contract.messages import Delivered, Found, Message, Routed
from sirocco.telemetry.trace_context import TraceContext, read_context
from sirocco.transport.log import Headers, Record

if TYPE_CHECKING:
    from sirocco.telemetry.spans import Span, Spans

# Each place begins with the first; the others belong to it.
TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
OBJECTS: Final = "traced-objects"

# Places in one record: up to some 650 bytes each. Further calls are not followed from there.
PLACES_MAX: Final = 8

# Calls that a process follows at a time; a record is compared with each of them. Further ones are
# not followed.
CALLS_MAX: Final = 64

# A call is forgotten when no record has held objects of it for so long: a window of a merger, with
# its transaction, takes a tenth of it. Where records wait longer, the trace ends.
KEPT_NS: Final = 2_000_000_000

_NUMBERS = re.compile("([0-9]{1,20})-([0-9]{1,20})-([0-9]{1,20})", re.ASCII)
_UINT64 = 1 << 64


class TracedCall(NamedTuple):
    """The objects of one publish call, and a span of its trace.

    Attributes:
        place: the span.
        session: in which they were published.
        first, last: their numbers.
    """

    place: TraceContext
    session: int
    first: int
    last: int

    @property
    def headers(self) -> Headers:
        """What a record carries of it."""
        found = [
            (TRACEPARENT, self.place.traceparent.encode()),
            (OBJECTS, f"{self.session}-{self.first}-{self.last}".encode()),
        ]
        if self.place.state:
            found.append((TRACESTATE, self.place.state.encode()))
        return tuple(found)


def calls_in(headers: Headers) -> list[TracedCall]:
    """Returns the calls that a record carries; what is not valid is left out."""
    places: list[dict[str, str]] = []
    for name, content in headers:
        if name == TRACEPARENT:
            places.append({})
        if places:
            places[-1][name] = content.decode("latin-1")
    found = [_call(each) for each in places[:PLACES_MAX]]
    return [each for each in found if each is not None]


def _call(texts: dict[str, str]) -> TracedCall | None:
    place = read_context(texts[TRACEPARENT], texts.get(TRACESTATE, ""))
    numbers = _NUMBERS.fullmatch(texts.get(OBJECTS, ""))
    if place is None or numbers is None:
        return None
    session, first, last = (int(each) for each in numbers.groups())
    return TracedCall(place, session, first, last) if max(session, last) < _UINT64 else None


class CallObjects:
    """Finds objects of some calls among events.

    Args:
        calls: c of them.
    """

    def __init__(self, calls: Sequence[TracedCall]) -> None:
        columns = np.array([call[1:] for call in calls], np.uint64).reshape(-1, 3, 1)
        self._sessions, self._firsts, self._lasts = columns[:, 0], columns[:, 1], columns[:, 2]

    def counts(self, events: EventColumns) -> NDArray[np.int64]:
        """Returns i8[c], how many of the events are of each call."""
        is_own = events.sessions == self._sessions
        is_own &= events.numbers >= self._firsts
        is_own &= events.numbers <= self._lasts
        counts: NDArray[np.int64] = is_own.sum(axis=1)
        return counts


class _Followed:
    """One call in this process.

    Attributes:
        call: its place is that of the span here.
        seen_ns: when a record held objects of it last, epoch.
        objects: how many of them were written.
    """

    __slots__ = ("call", "objects", "seen_ns", "span")

    def __init__(self, call: TracedCall, span: Span, now_ns: int) -> None:
        self.call = call._replace(place=span.context)
        self.span = span
        self.seen_ns = now_ns
        self.objects = 0

    def end(self) -> None:
        self.span.note("sirocco.objects", self.objects)
        self.span.end(self.seen_ns)


class TracedRecords:
    """The traced calls of one process.

    Args:
        spans: makes its spans.
        name: of a span here.
        now_ns: epoch time.

    Attributes:
        left_out: how often a call was not followed, as there were too many.
    """

    def __init__(self, spans: Spans, name: str, now_ns: Callable[[], int] = time.time_ns) -> None:
        self.left_out = 0
        self._spans = spans
        self._name = name
        self._now_ns = now_ns
        self._followed: dict[TracedCall, _Followed] = {}
        # Transactions write in other threads: what they use is replaced, not changed.
        self._present: tuple[list[_Followed], CallObjects] | None = None

    def read(self, records: Sequence[Record]) -> None:
        """Takes notice of the records of a turn."""
        for record in records:
            # The path of the method is always there.
            if len(record.headers) > 1:
                for call in calls_in(record.headers):
                    self._follow(call)
        if self._present is not None:
            self._forget(self._now_ns() - KEPT_NS)

    def headers(self, message: Message) -> Headers:
        """Returns what the record of a message carries."""
        present = self._present
        if present is None or not isinstance(message, Routed | Found | Delivered):
            return ()
        if not len(message.events):
            return ()
        followed, objects = present
        counts = objects.counts(message.events)
        rows = np.flatnonzero(counts).tolist()
        self.left_out += max(0, len(rows) - PLACES_MAX)
        now_ns = self._now_ns()
        found: list[tuple[str, bytes]] = []
        for row in rows[:PLACES_MAX]:
            one = followed[row]
            one.seen_ns = now_ns
            one.objects += int(counts[row])
            found += one.call.headers
        return tuple(found)

    def close(self) -> None:
        """Ends all spans."""
        self._forget(self._now_ns() + 1)

    def _follow(self, call: TracedCall) -> None:
        now_ns = self._now_ns()
        if (known := self._followed.get(call)) is not None:
            known.seen_ns = now_ns
            return
        if len(self._followed) >= CALLS_MAX:
            self.left_out += 1
            return
        span = self._spans.begin(self._name, call.place, "CONSUMER")
        self._followed[call] = _Followed(call, span, now_ns)
        self._replace()

    def _forget(self, before_ns: int) -> None:
        gone = [call for call, one in self._followed.items() if one.seen_ns < before_ns]
        for call in gone:
            self._followed.pop(call).end()
        if gone:
            self._replace()

    def _replace(self) -> None:
        followed = list(self._followed.values())
        calls = [one.call for one in followed]
        self._present = (followed, CallObjects(calls)) if followed else None
