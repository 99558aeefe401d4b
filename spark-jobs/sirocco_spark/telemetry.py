"""A job's metrics for Prometheus, if SIROCCO_HTTP_PORT is set, as in a pod.

A job may end between two scrapes. So it still serves its last metrics for SIROCCO_JOB_LINGER_S
seconds, which should be longer than the scrape interval.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server

from sirocco.telemetry.metrics.spark import SparkMetrics


class Report:
    """The metrics of the jobs of this process; nothing is served before `serving`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._metrics = SparkMetrics(self.registry)

    @contextmanager
    def serving(self, job: str) -> Iterator[None]:
        """Serves while the job runs and for a while after; only counts if no port is set."""
        port = int(os.environ.get("SIROCCO_HTTP_PORT", "0"))
        self._metrics.running.labels(spark_job=job).set(1)
        if not port:
            yield
            return
        server, thread = start_http_server(port, registry=self.registry)
        try:
            yield
        finally:
            time.sleep(float(os.environ.get("SIROCCO_JOB_LINGER_S", "0")))
            server.shutdown()
            thread.join(5)
            server.server_close()

    def phase(self, job: str, name: str, seconds: float) -> None:
        """A phase of the job is done."""
        self._metrics.phase_seconds.labels(spark_job=job, phase=name).set(seconds)

    def ended(self, job: str, outcome: str, summary: Mapping[str, Any]) -> None:
        """The job has ended: `done`, `refused` (its input cannot be used), or `failed`."""
        self._metrics.running.labels(spark_job=job).set(0)
        self._metrics.finished.labels(spark_job=job, outcome=outcome).set(time.time())
        if "objects" in summary:
            self._metrics.objects.labels(spark_job=job).set(summary["objects"])
        for what in ("objects", "queries"):
            refused = summary.get(f"refused_{what}")
            if refused is not None:
                self._metrics.refused.labels(spark_job=job, what=what).set(refused["count"])


report = Report()
"""Of this process."""
