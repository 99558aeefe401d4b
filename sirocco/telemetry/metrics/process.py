"""The metrics of every process, whatever its service."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector

# Why an edge refuses a call or a message (`runtime.grpc.edge`).
REFUSED_AT_THE_EDGE = ("calls", "late", "memory", "message", "unread")

LOST_SPANS = ("queue", "collector", "calls")


def new_registry() -> CollectorRegistry:
    """Returns an empty registry for the metrics of a process."""
    return CollectorRegistry()


class ProcessMetrics:
    """Metrics that every service has, beside those of any process: CPU, memory, open files.

    Args:
        registry: of the service.
        service, member: its kind, and its id in the cluster.
    """

    def __init__(self, registry: CollectorRegistry, service: str, member: str) -> None:
        ProcessCollector(registry=registry)
        self.info = Gauge(
            "sirocco_process_info",
            "Always 1; the labels name the service and its id in the cluster",
            ["service", "member"],
            registry=registry,
        )
        self.info.labels(service=service, member=member).set(1)
        self.unusable_states = Gauge(
            "sirocco_process_unusable_states",
            "Granted Kafka partitions not processed: their state is missing or damaged",
            registry=registry,
        )
        self.clock_held = Gauge(
            "sirocco_process_clock_held_seconds",
            "How far the machine's clock has jumped ahead of the time that the process uses",
            registry=registry,
        )
        self.lag = Gauge(
            "sirocco_process_lag_records",
            "Records of owned Kafka partitions that are in the log and not yet read",
            ["topic"],
            registry=registry,
        )
        self.refused_calls = Counter(
            "sirocco_process_refused_calls",
            "Calls refused without a valid token",
            ["reason"],
            registry=registry,
        )
        self.edge_refusals = Counter(
            "sirocco_process_edge_refusals",
            "Calls and messages refused before a service sees them: calls or memory of messages at "
            "their limit, late requests, and messages that are too large, over a bound or damaged",
            ["reason"],
            registry=registry,
        )
        for reason in REFUSED_AT_THE_EDGE:
            self.edge_refusals.labels(reason=reason)
        self.lost_spans = Counter(
            "sirocco_process_lost_spans",
            "Spans that no collector has",
            ["reason"],
            registry=registry,
        )
        for reason in LOST_SPANS:
            self.lost_spans.labels(reason=reason)
        self.rejected_records = Counter(
            "sirocco_process_rejected_records",
            "Records sent to dead-letters",
            registry=registry,
        )
        self.unacknowledged_appends = Gauge(
            "sirocco_process_unacknowledged_appends",
            "Appends that the log has not confirmed",
            registry=registry,
        )
