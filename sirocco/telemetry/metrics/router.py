"""The metrics of a router: publishing, routing, changes of queries, tenants."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from sirocco.telemetry.metrics.buckets import LATENCY_S


class RouterMetrics:
    """Metrics of a router."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.published_objects = Counter(
            "sirocco_router_published_objects",
            "Objects accepted from publishers",
            registry=registry,
        )
        self.rejected_objects = Counter(
            "sirocco_router_rejected_objects",
            "Objects refused by validation",
            ["field"],
            registry=registry,
        )
        self.far_objects = Counter(
            "sirocco_router_far_objects",
            "Objects refused because their own time is too far ahead of the clock",
            registry=registry,
        )
        self.publish_latency = Histogram(
            "sirocco_router_publish_latency_seconds",
            "Time from a publish request to its acknowledgement by the log",
            buckets=LATENCY_S,
            registry=registry,
        )
        self.publish_streams = Gauge(
            "sirocco_router_publish_streams", "Open publishing sessions", registry=registry
        )
        self.bytes_under_way = Gauge(
            "sirocco_router_under_way_bytes",
            "Bytes appended by this router that some slots have not processed yet",
            registry=registry,
        )
        self.routed_objects = Gauge(
            "sirocco_router_routed_objects",
            "Objects routed to slots since start",
            registry=registry,
        )
        self.held_back_objects = Gauge(
            "sirocco_router_held_back_objects",
            "Objects not sent to a slot since start because no query needs them there",
            registry=registry,
        )
        self.waiting_for_map = Gauge(
            "sirocco_router_waiting_for_map",
            "Owned Kafka partitions that wait for a map that this process does not have; "
            "normally 0 shortly after the start",
            registry=registry,
        )
        self.followed_members = Gauge(
            "sirocco_router_followed_members",
            "Attributes whose values are tracked, in the owned partitions of intake",
            registry=registry,
        )
        self.copied_bytes = Gauge(
            "sirocco_router_copied_bytes",
            "Bytes of the copies of tracked objects since start, before compression",
            registry=registry,
        )
        self.query_changes = Counter(
            "sirocco_router_query_changes",
            "Change requests answered",
            ["action", "outcome"],
            registry=registry,
        )
        self.uncopied_queries = Gauge(
            "sirocco_router_uncopied_queries",
            "Queries that this router has still to copy for a change of the map",
            registry=registry,
        )
        self.copied_queries = Gauge(
            "sirocco_router_copied_queries",
            "Queries sent to slots since start because the map changed",
            registry=registry,
        )
        self.tenant_objects = Counter(
            "sirocco_router_tenant_objects",
            "Objects of each tenant's publishers, refused ones included",
            ["tenant"],
            registry=registry,
        )
        self.tenant_bytes = Counter(
            "sirocco_router_tenant_bytes",
            "Bytes of publish requests of each tenant",
            ["tenant"],
            registry=registry,
        )
        self.tenant_refusals = Counter(
            "sirocco_router_tenant_refusals",
            "Requests of each tenant refused because of its limits",
            ["tenant", "limit"],
            registry=registry,
        )
        self.live_queries = Gauge(
            "sirocco_router_live_queries",
            "Live queries of the owned registry partitions",
            registry=registry,
        )
