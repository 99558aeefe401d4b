"""The metrics of a gateway: requests, streams, what it refuses."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from sirocco.telemetry.metrics.buckets import LATENCY_S

# Why a gateway refuses or ends something.
REFUSED_BY_THE_GATEWAY = (
    *("body", "calls", "connections", "headers", "late", "memory", "size", "streams", "unread"),
)


class GatewayMetrics:
    """Metrics of a gateway."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "sirocco_gateway_requests",
            "Requests answered; a stream counts when it ends",
            ["route", "status"],
            registry=registry,
        )
        self.latency = Histogram(
            "sirocco_gateway_latency_seconds",
            "Time from a request's head to the end of its answer, without streams",
            ["route"],
            buckets=LATENCY_S,
            registry=registry,
        )
        self.objects = Counter(
            "sirocco_gateway_objects", "Objects that the cluster acknowledged", registry=registry
        )
        self.bad_lines = Counter(
            "sirocco_gateway_bad_lines",
            "Lines of bodies that were no objects, or that the cluster refused",
            registry=registry,
        )
        self.body_bytes = Counter(
            "sirocco_gateway_body_bytes", "Bytes of bodies of objects, unpacked", registry=registry
        )
        self.notifications = Counter(
            "sirocco_gateway_notifications", "Notifications written to streams", registry=registry
        )
        self.streams = Gauge(
            "sirocco_gateway_streams", "Open streams of notifications", registry=registry
        )
        self.connections = Gauge(
            "sirocco_gateway_connections",
            "Open HTTP connections, without WebSockets",
            registry=registry,
        )
        self.memory = Gauge(
            "sirocco_gateway_memory_bytes",
            "Memory taken from the limit by bodies that are read or processed",
            registry=registry,
        )
        self.refused = Counter(
            "sirocco_gateway_refusals",
            "Connections, bodies, requests and streams refused or ended, by what was at its limit",
            ["reason"],
            registry=registry,
        )
        for reason in REFUSED_BY_THE_GATEWAY:
            self.refused.labels(reason=reason)
