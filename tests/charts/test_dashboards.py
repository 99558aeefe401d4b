"""Every query of every dashboard, run on a real Prometheus that scrapes real services.

The services run in this process on the memory log, under a little load; each has an HTTP server of
its own, as in a pod.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
import yaml
from prometheus_client import CollectorRegistry, start_http_server
from sirocco_client import Client, KnnQuery, RangeQuery, SiroccoError, TermsQuery

from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster
from sirocco.services.gateway.server import Gateway
from sirocco.services.gateway.settings import GatewaySettings
from sirocco.telemetry.metrics.connector import ConnectorMetrics
from sirocco.telemetry.metrics.coordinator import CoordinatorMetrics
from sirocco.telemetry.metrics.evaluator import EvaluatorMetrics
from sirocco.telemetry.metrics.gateway import GatewayMetrics
from sirocco.telemetry.metrics.merger import MergerMetrics
from sirocco.telemetry.metrics.process import ProcessMetrics, new_registry
from sirocco.telemetry.metrics.router import RouterMetrics
from sirocco.telemetry.metrics.spark import SparkMetrics
from tests.charts.prometheus import BOARDS, Prometheus, needs_prometheus, queries_of
from tests.charts.rendering import CHART, ROOT

ALERTS = CHART / "rules" / "alerts.yaml"

QUERIES = [query for path in BOARDS for query in queries_of(path)]


def known_names() -> set[str]:
    """Returns the names of all samples of the services' metrics."""
    found = set()
    for made in (
        RouterMetrics,
        EvaluatorMetrics,
        MergerMetrics,
        CoordinatorMetrics,
        GatewayMetrics,
        ConnectorMetrics,
        SparkMetrics,
    ):
        registry = CollectorRegistry()
        made(registry)
        found |= names_in(registry)
    registry = CollectorRegistry()
    ProcessMetrics(registry, "router", "router-0")
    return found | names_in(registry)


def names_in(registry: CollectorRegistry) -> set[str]:
    suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
    return {
        family.name + suffix
        for family in registry.collect()
        for suffix in suffixes.get(family.type, ("",))
    }


@pytest.mark.parametrize("path", [*BOARDS, ALERTS], ids=lambda path: path.stem)
def test_only_existing_metrics_are_queried(path: Path) -> None:
    asked = set(re.findall(r"\b(?:sirocco|process)_[a-z_]+", path.read_text()))
    assert asked
    # Not metrics: the label of a selector, and the path of a runbook.
    assert asked - known_names() - {"sirocco_process_info"} == set()


def test_the_boards_are_those_of_their_description() -> None:
    output = subprocess.run(
        [
            sys.executable,
            "-c",
            "import json, chart_dashboards as c; print(json.dumps(c.rendered()))",
        ],
        cwd=ROOT / "scripts",
        capture_output=True,
        text=True,
        check=True,
    )
    wanted = json.loads(output.stdout)
    assert {path.stem: path.read_text() for path in BOARDS} == wanted, (
        "run python scripts/chart_dashboards.py"
    )


def test_panels_have_places_of_their_own() -> None:
    for path in BOARDS:
        panels = json.loads(path.read_text())["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels)
        taken = [
            (x, y)
            for place in (panel["gridPos"] for panel in panels)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        ]
        assert len(set(taken)) == len(taken), path.stem
        assert max(x for x, _ in taken) < 24
        titles = [panel["title"] for panel in panels]
        assert len(set(titles)) == len(titles), path.stem


# --- a cluster, a little load, and a Prometheus


# Objects in each eighth of the world, from west to east. They move on all the time, so the load
# becomes uneven again and again, and slots have to move or leaves to change.
SKEW = (40, 1, 20, 1, 1, 1, 10, 1)
WANDER_S = 10


class Load:
    """The requests of clients, repeated until it is stopped."""

    def __init__(self, router: str, http: str) -> None:
        self._router = router
        self._http = http
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, daemon=True),
            threading.Thread(target=self._receive, daemon=True),
            threading.Thread(target=self._browse, daemon=True),
        ]
        with Client(router) as client:
            client.register(RangeQuery(id="fires", subscriber="ops", text="fire"))
            client.register(KnnQuery(id="near", subscriber="ops", lon=2.35, lat=48.85, k=3))
            client.register(
                TermsQuery(id="words", subscriber="ops", k=3, window="10s", step="500ms")
            )
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(120.0)

    def _work(self) -> None:
        with Client(self._router) as client, client.publisher() as publisher:
            number, begun_s = 0, time.monotonic()
            while not self._stopping.wait(0.1):
                wandered = 3 * int((time.monotonic() - begun_s) / WANDER_S)
                for eighth, objects in enumerate(SKEW):
                    west = -170 + 45 * ((eighth + wandered) % len(SKEW))
                    for _ in range(objects):
                        number += 1
                        place = {"lon": west, "lat": number % 90 - 45}
                        publisher.publish({"id": number, "text": f"fire {number % 7}", **place})
                publisher.publish({"id": "nowhere", "lon": 200, "lat": 0})
                with suppress(SiroccoError):
                    publisher.flush()
                for query in (
                    RangeQuery(id="s", mode="snapshot", text="fire"),
                    KnnQuery(id="s", mode="snapshot", lon=2.35, lat=48.85, k=3),
                ):
                    client.search(query)
                # Refused requests and timeouts count as errors.
                with suppress(SiroccoError):
                    client.unregister("nobody")
                with suppress(SiroccoError):
                    client.search(RangeQuery(id="s", mode="snapshot"), timeout_s=0.002)

    def _receive(self) -> None:
        with Client(self._router) as client, client.subscribe("ops") as notifications:
            for _ in notifications:
                if self._stopping.is_set():
                    return

    def _browse(self) -> None:
        """Publishes, and listens as another subscriber, over HTTP."""
        url, lines = f"http://{self._http}/v1", {"content-type": "application/x-ndjson"}
        query = {"kind": "range", "text": "fire"}
        httpx.put(f"{url}/queries/web?subscriber=web", json=query, timeout=120.0)
        body = '{"id": 1, "lon": 2, "lat": 3, "text": "fire"}\nbad\n'
        with httpx.stream("GET", f"{url}/subscribers/web/notifications", timeout=120.0) as events:
            for _ in events.iter_lines():
                if self._stopping.wait(0.05):
                    return
                httpx.post(f"{url}/objects", content=body, headers=lines, timeout=120.0)


@contextmanager
def _gateway(router: str) -> Iterator[Gateway]:
    one = Gateway(GatewaySettings(routers=router, name="gateway-0"))
    one.start()
    yield one
    one.stop()


class Job:
    """A Spark job's metrics, reported by the jobs' own code; Spark itself is tested elsewhere."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(str(ROOT / "spark-jobs"))
        from sirocco_spark.telemetry import Report  # noqa: PLC0415 -- its path is known only now

        report = Report()
        self.server, self.thread = start_http_server(0, "127.0.0.1", registry=report.registry)
        with report.serving("build_map"):
            report.phase("build_map", "counting objects", 1.5)
            summary = {"objects": 10, "refused_objects": {"count": 1, "reasons": {}}}
            report.ended("build_map", "done", summary)
        report.ended("compact", "failed", {})

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.server_port}"


@contextmanager
def _connector() -> Iterator[str]:
    """Serves the metrics of a connector; sources and sinks themselves are tested elsewhere."""
    registry = new_registry()
    shown = ConnectorMetrics(registry)
    for side, name in (("source", "orders"), ("sink", "alerts")):
        shown.records.labels(side=side, name=name).inc()
        shown.dead_letters.labels(side=side, name=name, reason="decode")
        shown.retries.labels(side=side, name=name)
        shown.lag.labels(side=side, name=name).set(1)
    shown.objects.labels(side="source", name="orders")
    shown.empty.labels(side="source", name="orders")
    shown.under_way_bytes.labels(side="source", name="orders").set(1)
    shown.sink_dropped.labels(name="alerts", reason="expired")
    shown.sink_active.labels(name="alerts").set(1)
    shown.sink_lag.labels(name="alerts").set(1)
    shown.sink_cursor_age.labels(name="alerts").set(1)
    server, _ = start_http_server(0, "127.0.0.1", registry=registry)
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()


class Watching(Prometheus):
    """Prometheus beside a cluster.

    Attributes:
        router: address of the cluster's router.
        http: address of the gateway.
    """

    router = ""
    http = ""


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watching]:
    # Any imbalance is above the limit, so slots move.
    settings = ClusterSettings(
        cluster="boards",
        slots=4,
        leaves=8,
        intake_partitions=2,
        balance_interval_ms=1_000,
        balance_cooldown_ms=0,
        balance_objects_min=1,
        balance_threshold=1.0,
    )
    with (
        pytest.MonkeyPatch.context() as monkeypatch,
        EmbeddedCluster(settings, evaluators=2) as cluster,
        _gateway(cluster.router_address) as gateway,
        _connector() as connector,
    ):
        job = Job(monkeypatch)
        targets = {
            f"rel-sirocco-{service.name}-{i}": service.http_address
            for i, service in enumerate(cluster.services)
        }
        server = Watching(
            tmp_path_factory.mktemp("prometheus"),
            targets
            | {
                "rel-sirocco-job": job.address,
                "rel-sirocco-gateway": gateway.metrics_address,
                "rel-sirocco-connector": connector,
            },
            ALERTS,
        )
        server.router, server.http = cluster.router_address, gateway.address
        try:
            # A metric that changes only once has to be scraped before and after the change.
            server.await_targets(len(targets) + 3)
            load = Load(cluster.router_address, gateway.address)
            yield server
            load.stop()
        finally:
            server.stop()
            job.server.shutdown()


@needs_prometheus
@pytest.mark.timeout(1_800)
def test_every_panel_shows_something(prometheus: Prometheus) -> None:
    # A few scrapes and a rebalancing: seconds, or many minutes on a busy machine.
    prometheus.await_figures(QUERIES, 1_500)


@needs_prometheus
@pytest.mark.parametrize(
    "truth",
    [
        "count(sirocco_process_info) == 6",
        "sum(sirocco_coordinator_leading) == 1",
        "sum(sirocco_merger_streams) == 2",
        "sum(sirocco_gateway_streams) == 1",
        "sum(sirocco_merger_credit_matches) > 0 and sum(sirocco_merger_starved_streams) == 0",
        "sum(sirocco_evaluator_slots) == 4 and count(sirocco_evaluator_slot_queries) == 4",
        "sum(sirocco_evaluator_slot_queries) == sum(sirocco_evaluator_live_queries) > 0",
        "sum(sirocco_evaluator_slot_objects) == sum(sirocco_evaluator_stored_objects) > 0",
        # There are fewer leaves than the limit.
        "count(sirocco_coordinator_leaf_load_ratio) == max(sirocco_coordinator_map_leaves) > 0",
        "sum(sirocco_coordinator_leaf_load_ratio) > 0.999",
        'min by (topic) (sirocco_process_lag_records{topic=~"slots|partials"}) < 1000',
        "min(process_resident_memory_bytes) > 1e7",
    ],
)
def test_figures_are_those_of_the_cluster(prometheus: Prometheus, truth: str) -> None:
    deadline = time.monotonic() + 20
    while not prometheus.has_data(truth):
        assert time.monotonic() < deadline, truth
        time.sleep(0.3)


@needs_prometheus
def test_what_helm_test_does_finds_its_match(prometheus: Watching) -> None:
    script = CHART / "files" / "check.py"
    done = subprocess.run(
        [sys.executable, script, prometheus.router],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"SIROCCO_CHECK_HTTP": prometheus.http},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "matched after" in done.stdout
    assert "matched over HTTP after" in done.stdout
    with Client(prometheus.router) as client:
        assert [each for each in client.list() if each.query.id.startswith("helm-test")] == []


@needs_prometheus
def test_a_query_that_asks_for_nothing_is_noticed(prometheus: Prometheus) -> None:
    assert not prometheus.has_data('sirocco_process_info{namespace="elsewhere"}')
    with pytest.raises(AssertionError, match="parse error"):
        prometheus.has_data("sum by (")


@needs_prometheus
def test_a_sound_cluster_raises_no_alarm_but_for_the_job_that_failed(
    prometheus: Prometheus,
) -> None:
    deadline = time.monotonic() + 20
    while not (data := prometheus.get("rules")) and time.monotonic() < deadline:
        time.sleep(0.2)
    rules = [rule for group in data["groups"] for rule in group["rules"]]
    declared = yaml.safe_load(ALERTS.read_text())["groups"]
    assert len(rules) == sum(len(group["rules"]) for group in declared)
    assert [rule["name"] for rule in rules if rule["state"] == "firing"] == ["SiroccoJobFailed"]
    assert [rule.get("lastError", "") for rule in rules] == [""] * len(rules)
