"""The metrics of a connector: records of sources, notifications of sinks."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class ConnectorMetrics:
    """Metrics of a connector."""

    def __init__(self, registry: CollectorRegistry) -> None:
        # `side` is source or sink, `name` the one in the configuration.
        one = ["side", "name"]
        self.records = Counter(
            "sirocco_connector_records",
            "Records that sources read, notifications that sinks handed on",
            one,
            registry=registry,
        )
        self.objects = Counter(
            "sirocco_connector_objects",
            "Objects of sources that the cluster acknowledged",
            one,
            registry=registry,
        )
        self.empty = Counter(
            "sirocco_connector_empty_records",
            "Records without a value, which sources pass over",
            one,
            registry=registry,
        )
        self.dead_letters = Counter(
            "sirocco_connector_dead_letters",
            "Records and notifications that were put aside, by reason",
            [*one, "reason"],
            registry=registry,
        )
        self.retries = Counter(
            "sirocco_connector_retries",
            "Attempts that failed and were made again",
            one,
            registry=registry,
        )
        self.lag = Gauge(
            "sirocco_connector_lag_records",
            "Records that a source has not read yet, notifications that a sink holds",
            one,
            registry=registry,
        )
        self.under_way_bytes = Gauge(
            "sirocco_connector_under_way_bytes",
            "Bytes that are read and not acknowledged yet",
            one,
            registry=registry,
        )
        self.sink_dropped = Counter(
            "sirocco_connector_sink_dropped",
            "Notifications that a sink does not hand on, by reason; expired counts gaps of unknown "
            "length",
            ["name", "reason"],
            registry=registry,
        )
        self.sink_lag = Gauge(
            "sirocco_connector_sink_lag_seconds",
            "Age of the oldest notification that a sink has received and its target has not",
            ["name"],
            registry=registry,
        )
        self.sink_cursor_age = Gauge(
            "sirocco_connector_sink_cursor_age_seconds",
            "Time since a sink last kept its place, which a working one does every 10 s",
            ["name"],
            registry=registry,
        )
        self.sink_active = Gauge(
            "sirocco_connector_sink_active",
            "1 while a sink works; 0 while another instance does, nothing can be reached, or its "
            "receiver wants no more",
            ["name"],
            registry=registry,
        )
