"""Every metric of every service; the names are a contract with dashboards and alerts."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

# From 1 ms to 10 s: a notification takes 20 to 200 ms, a failover some seconds.
LATENCY_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

# A search takes from a fraction of a millisecond to its deadline.
SEARCH_S = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0, 30.0)

# Moving a slot takes as long as loading its checkpoint, changing the map as copying queries.
CHANGE_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


def new_registry() -> CollectorRegistry:
    """Returns an empty registry for the metrics of a process."""
    return CollectorRegistry()


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


class EvaluatorMetrics:
    """Metrics of an evaluator."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.slots = Gauge("sirocco_evaluator_slots", "Owned slots", registry=registry)
        self.live_queries = Gauge(
            "sirocco_evaluator_live_queries", "Live queries in owned slots", registry=registry
        )
        self.index_bytes = Gauge(
            "sirocco_evaluator_index_bytes", "Memory of indexes and query tables", registry=registry
        )
        self.stored_objects = Gauge(
            "sirocco_evaluator_stored_objects", "Objects in memory for searches", registry=registry
        )
        self.store_bytes = Gauge(
            "sirocco_evaluator_store_bytes", "Memory of stored objects", registry=registry
        )
        self.paused = Gauge(
            "sirocco_evaluator_paused",
            "1 while reading is paused because memory is full of unarchived objects",
            registry=registry,
        )
        self.stepping_slots = Gauge(
            "sirocco_evaluator_stepping_slots",
            "Owned slots whose reading waits until overdue steps are evaluated",
            registry=registry,
        )
        self.careful_slots = Gauge(
            "sirocco_evaluator_careful_slots",
            "Owned slots read piece by piece because evaluators ended while processing them",
            registry=registry,
        )
        self.incomplete_slots = Gauge(
            "sirocco_evaluator_incomplete_slots",
            "Owned slots that match, but cannot be searched before their past objects are loaded",
            registry=registry,
        )
        self.slot_queries = Gauge(
            "sirocco_evaluator_slot_queries",
            "Live queries of each owned slot",
            ["slot"],
            registry=registry,
        )
        self.slot_objects = Gauge(
            "sirocco_evaluator_slot_objects",
            "Objects in memory of each owned slot",
            ["slot"],
            registry=registry,
        )
        self.matched_objects = Gauge(
            "sirocco_evaluator_matched_objects",
            "Objects matched against queries since start",
            registry=registry,
        )
        self.matches = Gauge(
            "sirocco_evaluator_matches", "Matches found since start", registry=registry
        )
        self.dropped_intervals = Gauge(
            "sirocco_evaluator_dropped_intervals",
            "Intervals dropped since start, as repeats or after a gap",
            ["reason"],
            registry=registry,
        )
        self.tracked_bytes = Gauge(
            "sirocco_evaluator_tracked_bytes",
            "Bytes counted for tracked values inside queries, in owned slots",
            registry=registry,
        )
        self.untracked_objects = Counter(
            "sirocco_evaluator_untracked_objects",
            "Objects that found no room: values that did not enter a query, objects that were not "
            "kept as the newest of their value",
            ["reason"],
            registry=registry,
        )
        self.searches = Counter(
            "sirocco_evaluator_searches",
            "Search requests of mergers, by outcome",
            ["kind", "outcome"],
            registry=registry,
        )
        self.search_seconds = Histogram(
            "sirocco_evaluator_search_seconds",
            "Time from a merger's search request to the end of its answer",
            ["kind"],
            buckets=SEARCH_S,
            registry=registry,
        )


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


class CoordinatorMetrics:
    """Metrics of a coordinator."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.leading = Gauge(
            "sirocco_coordinator_leading", "Whether this coordinator leads", registry=registry
        )
        self.members = Gauge(
            "sirocco_coordinator_members", "Living members", ["service"], registry=registry
        )
        self.map_version = Gauge(
            "sirocco_coordinator_map_version", "Partition map in force", registry=registry
        )
        self.map_leaves = Gauge(
            "sirocco_coordinator_map_leaves", "Leaves of the map in force", registry=registry
        )
        self.imbalance = Gauge(
            "sirocco_coordinator_imbalance_ratio",
            "Load of the most loaded evaluator over the mean, last round; 0 for too few objects",
            registry=registry,
        )
        self.leaf_load = Gauge(
            "sirocco_coordinator_leaf_load_ratio",
            "Share of the whole load of each of the most loaded leaves in the last round",
            ["leaf"],
            registry=registry,
        )
        self.slot_moves = Counter(
            "sirocco_coordinator_slot_moves",
            "Slots moved to balance loads",
            registry=registry,
        )
        self.map_changes = Counter(
            "sirocco_coordinator_map_changes",
            "Maps put in force to balance loads",
            registry=registry,
        )
        self.change_seconds = Histogram(
            "sirocco_coordinator_change_seconds",
            "Time from the decision of a change to its end",
            ["kind"],
            buckets=CHANGE_S,
            registry=registry,
        )
        self.unwarmed = Gauge(
            "sirocco_coordinator_unwarmed_slots",
            "Slots whose next owners are still to load their past objects before they move",
            registry=registry,
        )
        self.warming_seconds = Histogram(
            "sirocco_coordinator_warming_seconds",
            "Time of each phase before a slot moves: warm, the next owner loads past objects; "
            "save, the owner writes a checkpoint",
            ["phase"],
            buckets=CHANGE_S,
            registry=registry,
        )
        # From the start on: a rate does not count the first value of a series that begins with it.
        for kind in ("map", "moves"):
            self.change_seconds.labels(kind=kind)
        for phase in ("warm", "save"):
            self.warming_seconds.labels(phase=phase)
        self.rounds = Counter(
            "sirocco_coordinator_balance_rounds",
            "Balancing rounds, by outcome",
            ["outcome"],
            registry=registry,
        )


# Why an edge refuses a call or a message (`runtime.grpc.edge`).
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


REFUSED_AT_THE_EDGE = ("calls", "late", "memory", "message", "unread")

LOST_SPANS = ("queue", "collector", "calls")


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


class SparkMetrics:
    """Metrics of a Spark job, which it serves while it runs and for a moment after.

    The label is `spark_job`: Prometheus uses `job` for what it scrapes.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        ProcessCollector(registry=registry)
        self.running = Gauge(
            "sirocco_spark_running", "Whether the job still works", ["spark_job"], registry=registry
        )
        self.phase_seconds = Gauge(
            "sirocco_spark_phase_seconds",
            "How long each part of the job took",
            ["spark_job", "phase"],
            registry=registry,
        )
        self.objects = Gauge(
            "sirocco_spark_objects",
            "Objects that the job has read",
            ["spark_job"],
            registry=registry,
        )
        self.refused = Gauge(
            "sirocco_spark_refused",
            "Objects and queries that the job could not use",
            ["spark_job", "what"],
            registry=registry,
        )
        self.finished = Gauge(
            "sirocco_spark_finished_timestamp_seconds",
            "When the job ended, and how",
            ["spark_job", "outcome"],
            registry=registry,
        )
