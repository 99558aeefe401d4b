"""Spans of deliveries: from a record of `deliveries` until a subscriber's stream has taken it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from sirocco.protocol.contract.messages import Delivered
from sirocco.runtime.loop.traced_records import CallObjects, TracedCall, calls_in
from sirocco.transport.log import Headers

if TYPE_CHECKING:
    from sirocco.telemetry.spans import Span, Spans

# Subscribers whose spans a call's trace gets in one merger: thousands may get the same object.
SUBSCRIBERS_MAX: Final = 16

# Calls for which the subscribers are counted, those that came last.
COUNTED_CALLS_MAX: Final = 256


class DeliveryTraces:
    """Begins the spans of deliveries; in the loop of the gRPC server."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._counts: OrderedDict[TracedCall, int] = OrderedDict()

    def begin(self, headers: Headers, own: Delivered, subscriber: str) -> list[Span]:
        """Returns the spans of what a subscriber is sent of a record with these headers."""
        calls = calls_in(headers)
        counts = CallObjects(calls).counts(own.events).tolist()
        names = {"sirocco.subscriber": subscriber}
        return [
            self._spans.begin("deliver", call.place, "PRODUCER", names | {"sirocco.objects": count})
            for call, count in zip(calls, counts, strict=True)
            if count and self._has_room(call)
        ]

    def _has_room(self, call: TracedCall) -> bool:
        count = self._counts.pop(call, 0)
        self._counts[call] = count + 1
        if len(self._counts) > COUNTED_CALLS_MAX:
            self._counts.popitem(last=False)
        return count < SUBSCRIBERS_MAX


def end_all(spans: Iterable[Span]) -> None:
    """Ends spans now."""
    for span in spans:
        span.end()
