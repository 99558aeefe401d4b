"""The trace that a client's call belongs to, as its request or its metadata say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sirocco.telemetry.trace_context import TraceContext, read_context

if TYPE_CHECKING:
    import grpc
    from sirocco_api.v1 import trace_pb2 as pb

NAMES = ("traceparent", "tracestate")


def read_message(message: pb.TraceContext) -> TraceContext | None:
    """Returns what a request says; None if it is not valid."""
    return read_context(message.traceparent, message.tracestate)


def read_metadata(context: grpc.aio.ServicerContext) -> TraceContext | None:
    """Returns what the metadata of a call say; None if they are not valid."""
    found = {name: text for name, text in context.invocation_metadata() or () if name in NAMES}
    texts = [text if isinstance(text, str) else "" for text in map(found.get, NAMES)]
    return read_context(*texts)


def put_message(message: pb.TraceContext, place: TraceContext) -> None:
    """Writes a span as the parent of what a request asks for."""
    message.traceparent = place.traceparent
    message.tracestate = place.state
