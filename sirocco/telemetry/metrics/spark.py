"""The metrics of a Spark job."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector


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
