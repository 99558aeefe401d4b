"""Traces of publish calls: which ones, and the span of each in the router that takes it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sirocco.protocol.contract.messages import IntakeObjects
from sirocco.runtime.loop.traced_records import TracedCall
from sirocco.telemetry.call_sampler import CallSampler
from sirocco.telemetry.trace_context import TraceContext
from sirocco.transport.log import Headers

if TYPE_CHECKING:
    from sirocco.telemetry.spans import Span, Spans


class PublishTraces:
    """Begins spans of publish calls; in the loop of the gRPC server."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._sampler = CallSampler(spans.settings)

    def begin(self, asked: TraceContext | None) -> PublishSpan | None:
        """Returns the span of a call that is traced; `asked`: what its client says."""
        if not self._sampler.takes(asked):
            return None
        return PublishSpan(self._spans.begin("accept", asked, "SERVER"))


class PublishSpan:
    """The span of one call, from its check until the log has it."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def headers(self, taken: IntakeObjects) -> Headers:
        """Returns what the record of the call carries."""
        self._span.note("sirocco.objects", len(taken.objects))
        last = taken.first_number + taken.span - 1
        return TracedCall(self._span.context, taken.session, taken.first_number, last).headers

    def appended(self, future: asyncio.Future[int]) -> None:
        """Ends it, once the log has the record or never will."""
        if future.cancelled() or future.exception() is not None:
            self.failed()
        else:
            self._span.end()

    def failed(self) -> None:
        """Ends it: the call was refused."""
        self._span.note("sirocco.outcome", "failed")
        self._span.end()
