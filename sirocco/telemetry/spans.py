"""Spans of OpenTelemetry. Its packages are the extra `otel`: imported where tracing is on alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider, sampling
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from sirocco.telemetry.call_sampler import TraceSettings
from sirocco.telemetry.export_queue import WAITING_MAX, ExportQueue
from sirocco.telemetry.trace_context import TraceContext

# How long one request to the collector may take.
EXPORT_S: Final = 10.0


class Span:
    """One span under way; it is recorded when it ends.

    Attributes:
        context: its place, for its children.
    """

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        found = span.get_span_context()
        self.context = TraceContext(
            found.trace_id, found.span_id, True, found.trace_state.to_header()
        )

    def note(self, name: str, value: str | int) -> None:
        """Sets an attribute."""
        self._span.set_attribute(name, value)

    def end(self, at_ns: int | None = None) -> None:
        """Ends it, now or at an epoch time."""
        self._span.end(at_ns)


class Spans:
    """Makes the spans of one service.

    Attributes:
        settings: which calls are traced.
    """

    def __init__(self, tracer: trace.Tracer, settings: TraceSettings) -> None:
        self.settings = settings
        self._tracer = tracer

    def begin(
        self,
        name: str,
        parent: TraceContext | None,
        kind: str,
        attributes: Mapping[str, str | int] | None = None,
    ) -> Span:
        """Begins a span now; without a parent it begins a trace. `kind`: a name of `SpanKind`."""
        # An explicit context: nothing of the thread's own.
        within = trace.set_span_in_context(_place(parent), Context())
        return Span(self._tracer.start_span(name, within, trace.SpanKind[kind], attributes))


def _place(parent: TraceContext | None) -> trace.Span:
    if parent is None:
        return trace.INVALID_SPAN
    return trace.NonRecordingSpan(
        trace.SpanContext(
            parent.trace_id,
            parent.span_id,
            is_remote=True,
            trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
            trace_state=trace.TraceState.from_header([parent.state] if parent.state else []),
        )
    )


class Tracing:
    """What a process needs to trace: its settings, and the way of spans to a collector.

    Args:
        settings: which calls are traced.
        exporter: hands spans over; None for OTLP to the address of the settings.
        waiting_max: spans that wait for it at most.

    Attributes:
        queue: what waits.
    """

    def __init__(
        self,
        settings: TraceSettings,
        exporter: SpanExporter | None = None,
        waiting_max: int = WAITING_MAX,
    ) -> None:
        self.settings = settings
        self._exporter = exporter or OTLPSpanExporter(
            settings.endpoint,
            insecure=settings.endpoint.startswith("http://"),
            timeout=EXPORT_S,
        )
        self.queue: ExportQueue[ReadableSpan] = ExportQueue(self._export, waiting_max)

    def spans(self, cluster: str, service: str, member: str) -> Spans:
        """Returns what makes the spans of one service, which they name."""
        names = {
            "service.namespace": cluster,
            "service.name": f"sirocco-{service}",
            "service.instance.id": member,
        }
        # Which calls are traced is decided before there is a span.
        provider = TracerProvider(
            sampler=sampling.ALWAYS_ON, resource=Resource.create(names), shutdown_on_exit=False
        )
        provider.add_span_processor(_Queued(self.queue))
        return Spans(provider.get_tracer("sirocco"), self.settings)

    def close(self) -> None:
        """Hands over what waits, for a moment, and ends."""
        self.queue.close()
        self._exporter.shutdown()

    def _export(self, spans: list[ReadableSpan]) -> bool:
        return self._exporter.export(spans) is SpanExportResult.SUCCESS


class _Queued(SpanProcessor):
    def __init__(self, queue: ExportQueue[ReadableSpan]) -> None:
        self._queue = queue

    def on_end(self, span: ReadableSpan) -> None:
        self._queue.put(span)
