"""The metrics of a merger: lists and steps, subscriptions, searches."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from sirocco.telemetry.metrics.buckets import LATENCY_S, SEARCH_S


class MergerMetrics:
    """Metrics of a merger."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.partitions = Gauge(
            "sirocco_merger_partitions", "Owned Kafka partitions", registry=registry
        )
        self.merged_matches = Gauge(
            "sirocco_merger_merged_matches", "Matches taken since start", registry=registry
        )
        self.repeated_matches = Gauge(
            "sirocco_merger_repeated_matches",
            "Matches dropped as repeats since start",
            registry=registry,
        )
        self.open_lists = Gauge(
            "sirocco_merger_open_lists",
            "Standing knn, terms and ranked queries whose lists are known",
            registry=registry,
        )
        self.ended_versions = Gauge(
            "sirocco_merger_ended_versions",
            "Ended versions of such queries that slower slots may still report",
            registry=registry,
        )
        self.early_versions = Gauge(
            "sirocco_merger_early_versions",
            "Ended versions forgotten too early because there were too many",
            registry=registry,
        )
        self.pending_steps = Gauge(
            "sirocco_merger_pending_steps", "Steps that wait for slots", registry=registry
        )
        self.pending_step_bytes = Gauge(
            "sirocco_merger_pending_step_bytes", "Memory of waiting steps", registry=registry
        )
        self.step_lag = Gauge(
            "sirocco_merger_step_lag_seconds",
            "Time from the earliest waiting step to the newest time of any slot",
            registry=registry,
        )
        self.late_parts = Gauge(
            "sirocco_merger_late_parts",
            "Parts of steps that arrived after the step was sent, in owned Kafka partitions",
            registry=registry,
        )
        self.partial_steps = Gauge(
            "sirocco_merger_partial_steps",
            "Steps sent as partial, without the slots that do not advance",
            registry=registry,
        )
        self.streams = Gauge("sirocco_merger_streams", "Open subscriptions", registry=registry)
        self.starved_streams = Gauge(
            "sirocco_merger_starved_streams",
            "Open subscriptions that wait for credit from their client",
            registry=registry,
        )
        self.credit = Gauge(
            "sirocco_merger_credit_matches",
            "Matches that open subscriptions may still be sent",
            registry=registry,
        )
        self.behind = Gauge(
            "sirocco_merger_behind_records",
            "Records that the slowest subscription has still to receive",
            registry=registry,
        )
        self.delivered_matches = Counter(
            "sirocco_merger_delivered_matches", "Matches sent to subscribers", registry=registry
        )
        self.delivery_latency = Histogram(
            "sirocco_merger_delivery_latency_seconds",
            "Time from an object's arrival to its sending to a subscriber",
            buckets=LATENCY_S,
            registry=registry,
        )
        self.searches = Counter(
            "sirocco_merger_searches",
            "Searches of clients, by outcome",
            ["kind", "outcome"],
            registry=registry,
        )
        self.search_seconds = Histogram(
            "sirocco_merger_search_seconds",
            "Time from a search to the end of its answer",
            ["kind"],
            buckets=SEARCH_S,
            registry=registry,
        )
        self.stream_refusals = Counter(
            "sirocco_merger_stream_refusals",
            "Subscriptions refused, by the limit: of the process, the caller's share or tenant",
            ["limit"],
            registry=registry,
        )
        self.search_refusals = Counter(
            "sirocco_merger_search_refusals",
            "Searches refused, by the limit: of the process, the caller's share or tenant",
            ["limit"],
            registry=registry,
        )
        self.unread_answers = Counter(
            "sirocco_merger_unread_answers",
            "Searches and subscriptions ended because their client did not read",
            registry=registry,
        )
        self.searches_under_way = Gauge(
            "sirocco_merger_searches_under_way", "Searches not yet answered", registry=registry
        )
