"""Traces of searches: which ones, and the span of each in the merger that answers it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sirocco_api.v1.search_service_pb2 import SearchRequest

from sirocco.runtime.grpc.call_contexts import read_message, read_metadata
from sirocco.telemetry.call_sampler import CallSampler

if TYPE_CHECKING:
    import grpc

    from sirocco.telemetry.spans import Span, Spans


class SearchTraces:
    """Begins spans of searches; in the loop of the gRPC server."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._sampler = CallSampler(spans.settings)

    def begin(
        self, request: SearchRequest, kind: str, context: grpc.aio.ServicerContext | None = None
    ) -> Span | None:
        """Returns the span of a search that is traced; `context`: of a call for it alone."""
        asked = None
        if request.HasField("trace"):
            asked = read_message(request.trace)
        elif context is not None:
            asked = read_metadata(context)
        if not self._sampler.takes(asked):
            return None
        return self._spans.begin("search", asked, "SERVER", {"sirocco.kind": kind})
