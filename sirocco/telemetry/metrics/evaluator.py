"""The metrics of an evaluator: slots, matching, memory, searches."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from sirocco.telemetry.metrics.buckets import SEARCH_S


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
