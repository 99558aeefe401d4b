"""The span that a caller is in: what it asks for becomes a part of that trace.

It is the current span of OpenTelemetry, if the program uses that; nothing is installed or imported
for it. Servers follow it as far as their operator lets them.
"""

from __future__ import annotations

import sys
from contextvars import ContextVar
from typing import Final

from sirocco_api.v1.trace_pb2 import TraceContext

# Set by programs that pass on the headers `traceparent` and `tracestate` of others unread.
FORWARDED: Final[ContextVar[TraceContext | None]] = ContextVar("forwarded", default=None)


def caller_trace() -> TraceContext | None:
    """Returns the caller's span; None outside of any."""
    if (forwarded := FORWARDED.get()) is not None:
        return forwarded
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None
    found = api.get_current_span().get_span_context()
    if not found.is_valid:
        return None
    return TraceContext(
        traceparent=f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags & 1:02x}",
        tracestate=found.trace_state.to_header(),
    )
