"""The metrics of a coordinator: members, the map, balancing."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

# Moving a slot takes as long as loading its checkpoint, changing the map as copying queries.
CHANGE_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


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
