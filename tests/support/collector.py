"""A collector of traces: OTLP over gRPC, as services send to it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector(TraceServiceServicer):
    """Keeps what it is sent.

    Attributes:
        spans: with the instances of the services that sent them.
        endpoint: where it listens.
    """

    def __init__(self) -> None:
        self.spans: list[tuple[str, Span]] = []
        self.endpoint = ""

    def Export(  # noqa: N802 -- the contract's name
        self, request: ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> ExportTraceServiceResponse:
        for each in request.resource_spans:
            names = {one.key: one.value.string_value for one in each.resource.attributes}
            for scope in each.scope_spans:
                self.spans += [(names["service.instance.id"], span) for span in scope.spans]
        return ExportTraceServiceResponse()


@contextmanager
def running_collector() -> Iterator[Collector]:
    collector = Collector()
    server = grpc.server(ThreadPoolExecutor(4))
    add_TraceServiceServicer_to_server(collector, server)
    collector.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield collector
    finally:
        server.stop(None).wait()
