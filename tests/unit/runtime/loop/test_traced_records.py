"""Which records carry which traces, and what bounds them."""

from __future__ import annotations

import numpy as np
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from sirocco.protocol.contract.columns import NO_EVENTS, NO_MATCHES, NO_NAMES, EventColumns
from sirocco.protocol.contract.messages import NO_OBJECTS, Delivered, Switch
from sirocco.runtime.loop.traced_records import (
    CALLS_MAX,
    KEPT_NS,
    OBJECTS,
    PLACES_MAX,
    TRACEPARENT,
    TRACESTATE,
    TracedCall,
    TracedRecords,
    calls_in,
)
from sirocco.telemetry.call_sampler import TraceSettings
from sirocco.telemetry.spans import Tracing
from sirocco.telemetry.trace_context import TraceContext
from sirocco.transport.calls import METHOD_HEADER
from sirocco.transport.log import Headers, Record

METHOD = (METHOD_HEADER, b"/sirocco.v1.SlotService/Route")
LARGEST = (1 << 64) - 1


def call_of(number: int, first: int = 1, last: int = 10, session: int = 7) -> TracedCall:
    return TracedCall(TraceContext(1 << 100, number), session, first, last)


def record_of(*calls: TracedCall) -> Record:
    headers = [pair for call in calls for pair in call.headers]
    return Record("slots", 0, 0, 0, None, b"", (METHOD, *headers))


def message_of(*keys: tuple[int, int]) -> Delivered:
    sessions, numbers = np.array(keys, np.uint64).reshape(-1, 2).T
    return Delivered(
        objects=NO_OBJECTS,
        events=EventColumns(sessions, numbers, np.zeros(len(keys), np.int64)),
        queries=NO_NAMES,
        matches=NO_MATCHES,
        match_offsets=np.zeros(1, np.int64),
    )


class Followed:
    """Traced records on a clock that stands still, and the spans that ended."""

    def __init__(self) -> None:
        self.now_ns = 10**18
        self._exporter = InMemorySpanExporter()
        self._tracing = Tracing(TraceSettings(), self._exporter)
        spans = self._tracing.spans("c", "evaluator", "evaluator-0")
        self.records = TracedRecords(spans, "match", lambda: self.now_ns)

    def parents(self, headers: Headers) -> list[tuple[int, int]]:
        """First and last number of each call that headers carry."""
        return [(call.first, call.last) for call in calls_in(headers)]

    def ended(self) -> list[ReadableSpan]:
        self.records.close()
        self._tracing.close()
        return list(self._exporter.get_finished_spans())


def test_headers_are_read_as_they_were_written() -> None:
    calls = [
        TracedCall(TraceContext(3, 4, True, "a=1,b=2"), LARGEST, 1, LARGEST),
        TracedCall(TraceContext(5, 6), 0, 2, 2),
    ]
    assert calls_in(record_of(*calls).headers) == calls
    assert calls_in((METHOD,)) == []


def test_damaged_headers_are_left_out() -> None:
    good = call_of(1)
    bad: list[Headers] = [
        ((TRACEPARENT, b"\xff\x00"), (OBJECTS, b"1-1-1")),
        ((TRACEPARENT, good.place.traceparent.encode()),),
        ((TRACEPARENT, good.place.traceparent.encode()), (OBJECTS, b"1-1-" + 21 * b"9")),
        ((TRACEPARENT, good.place.traceparent.encode()), (OBJECTS, f"{1 << 64}-1-1".encode())),
        ((TRACESTATE, b"a=1"), (OBJECTS, b"1-1-1")),
    ]
    for headers in bad:
        assert calls_in((METHOD, *headers, *good.headers)) == [good]
    assert len(calls_in(100 * good.headers)) == PLACES_MAX


def test_a_record_carries_the_calls_whose_objects_it_holds() -> None:
    followed = Followed()
    records = followed.records
    assert records.headers(message_of((7, 1))) == ()
    calls = [call_of(1, 1, 10), call_of(2, 11, 20), call_of(3, 1, 10, session=8)]
    records.read([record_of(*calls[:2]), record_of(*calls), record_of()])
    assert followed.parents(records.headers(message_of((7, 10), (9, 1)))) == [(1, 10)]
    assert followed.parents(records.headers(message_of((7, 20), (7, 1)))) == [(1, 10), (11, 20)]
    # What lies between its numbers is not of the call.
    assert records.headers(message_of((7, 0), (7, 21), (8, 11), (6, 5))) == ()
    assert records.headers(message_of()) == ()
    assert records.headers(Switch(2)) == ()
    assert len(NO_EVENTS) == 0
    spans = followed.ended()
    assert [span.parent.span_id for span in spans if span.parent] == [1, 2, 3]
    assert [dict(span.attributes or {}) for span in spans] == [
        {"sirocco.objects": count} for count in (2, 1, 0)
    ]


def test_a_call_is_forgotten_when_nothing_is_seen_of_it() -> None:
    followed = Followed()
    records, begin_ns = followed.records, followed.now_ns
    records.read([record_of(call_of(1, 1, 10), call_of(2, 11, 20))])
    followed.now_ns += KEPT_NS
    assert records.headers(message_of((7, 1)))
    followed.now_ns += 1
    records.read([])
    assert records.headers(message_of((7, 11))) == ()
    assert followed.parents(records.headers(message_of((7, 1), (7, 11)))) == [(1, 10)]
    ends = {span.parent.span_id: span.end_time for span in followed.ended() if span.parent}
    # It ends when something was written last, not when that is noticed.
    assert ends == {2: begin_ns, 1: begin_ns + KEPT_NS + 1}


def test_calls_and_places_are_bounded() -> None:
    followed = Followed()
    records = followed.records
    calls = [call_of(n, n, n) for n in range(1, CALLS_MAX + 6)]
    records.read([record_of(call) for call in calls])
    assert records.left_out == 5
    headers = records.headers(message_of(*((7, n) for n in range(1, CALLS_MAX + 1))))
    assert len(calls_in(headers)) == PLACES_MAX
    assert records.left_out == 5 + CALLS_MAX - PLACES_MAX
    assert len(followed.ended()) == CALLS_MAX
