"""Every query of every dashboard, asked of a real Prometheus that scrapes real services.

The services run in this process on the memory log, under a little load; each has an HTTP server of
its own, as in a pod.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, start_http_server
from sirocco_client import Client, KnnQuery, RangeQuery, SiroccoError, TermsQuery

from services.embedded import EmbeddedCluster
from sirocco.runtime.settings import ClusterSettings
from sirocco.telemetry import metrics
from tests.charts.rendering import CHART, ROOT

BOARDS = sorted((CHART / "dashboards").glob("*.json"))
ALERTS = CHART / "rules" / "alerts.yaml"
PROMETHEUS_PATH = (
    f"{ROOT / '.cache' / 'prometheus' / 'usr' / 'bin'}{os.pathsep}{os.environ['PATH']}"
)
PROMETHEUS = shutil.which("prometheus", path=PROMETHEUS_PATH)
needs_prometheus = pytest.mark.skipif(
    PROMETHEUS is None, reason="Prometheus is missing: scripts/setup.sh helm"
)
# What Grafana would put in.
VARIABLES = {"$namespace": "geo", "$release": ".*", "$__rate_interval": "10s"}
# What a scraper tells of a pod by the chart's monitor.
LABELS = {"namespace": "geo", "app_kubernetes_io_instance": "rel"}

CONFIG = """\
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [%s]
scrape_configs:
  - job_name: geo/rel-sirocco
    file_sd_configs: [{files: [targets.json], refresh_interval: 1s}]
"""


@dataclass(frozen=True, slots=True)
class Query:
    board: str
    panel: str
    expression: str

    def __str__(self) -> str:
        return f"{self.board}: {self.panel}: {self.expression}"


def queries_of(path: Path) -> Iterator[Query]:
    for panel in json.loads(path.read_text())["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            yield Query(path.stem, panel["title"], expression)


QUERIES = [query for path in BOARDS for query in queries_of(path)]


def known_names() -> set[str]:
    """Names of all samples that the services' metrics have."""
    found = set()
    for made in (
        metrics.RouterMetrics,
        metrics.EvaluatorMetrics,
        metrics.MergerMetrics,
        metrics.CoordinatorMetrics,
        metrics.SparkMetrics,
    ):
        registry = CollectorRegistry()
        made(registry)
        found |= names_in(registry)
    registry = CollectorRegistry()
    metrics.ProcessMetrics(registry, "router", "router-0")
    return found | names_in(registry)


def names_in(registry: CollectorRegistry) -> set[str]:
    suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
    return {
        family.name + suffix
        for family in registry.collect()
        for suffix in suffixes.get(family.type, ("",))
    }


@pytest.mark.parametrize("path", [*BOARDS, ALERTS], ids=lambda path: path.stem)
def test_only_metrics_that_exist_are_asked_for(path: Path) -> None:
    asked = set(re.findall(r"\b(?:sirocco|process)_[a-z_]+", path.read_text()))
    assert asked
    # The label of a selector, and the path of a runbook.
    assert asked - known_names() - {"sirocco_process_info"} == set()


def test_the_boards_are_those_of_their_description() -> None:
    said = subprocess.run(
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
    wanted = json.loads(said.stdout)
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


# Objects in each eighth of the world, from west to east; they wander on all the time, so what was
# even is even no more, and slots have to move or leaves to change.
SKEW = (40, 1, 20, 1, 1, 1, 10, 1)
WANDER_S = 10


class Load:
    """What clients do, over and over, until it is stopped."""

    def __init__(self, router: str) -> None:
        self._router = router
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, daemon=True),
            threading.Thread(target=self._receive, daemon=True),
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
        self._threads[0].join(20)

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
                # What is refused, or not waited for, counts as an error.
                with suppress(SiroccoError):
                    client.unregister("nobody")
                with suppress(SiroccoError):
                    client.search(RangeQuery(id="s", mode="snapshot"), timeout_s=0.002)

    def _receive(self) -> None:
        with Client(self._router) as client, client.subscribe("ops") as notifications:
            for _ in notifications:
                if self._stopping.is_set():
                    return


class Job:
    """A Spark job's figures, told by the jobs' own code; Spark itself is tested elsewhere."""

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


class Prometheus:
    """A server with data of its own.

    Attributes:
        router: where clients find the cluster that it watches.
    """

    router = ""

    def __init__(self, directory: Path, targets: dict[str, str]) -> None:
        assert PROMETHEUS is not None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        (directory / "prometheus.yml").write_text(CONFIG % json.dumps(str(ALERTS)))
        found = [
            {"targets": [address], "labels": {**LABELS, "pod": pod}}
            for pod, address in targets.items()
        ]
        (directory / "targets.json").write_text(json.dumps(found))
        command = [PROMETHEUS, "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
        self._log = (directory / "log").open("w+")
        self._process = subprocess.Popen(
            [*command, f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"],
            cwd=directory,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(20)
        self._log.close()

    def get(self, path: str, **arguments: str) -> Any:
        """Returns the data of an answer, None while there is none.

        Raises:
            AssertionError: Prometheus refuses the question, or has ended.
        """
        question = f"{self.address}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
        try:
            with urllib.request.urlopen(question, timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise AssertionError(f"{arguments}: {error.read().decode()}") from error
        except OSError:
            assert self._process.poll() is None, self._read_log()
        return None

    def await_targets(self, count: int, timeout_s: float = 30) -> None:
        """Waits until so many have been scraped."""
        deadline = time.monotonic() + timeout_s
        while not self.has_data(f"count(up == 1) == {count}"):
            assert time.monotonic() < deadline, self.get("targets", state="active")
            time.sleep(0.2)

    def has_data(self, expression: str) -> bool:
        """Whether there is at least one number that is one."""
        data = self.get("query", query=expression)
        return bool(data) and any(one["value"][1] != "NaN" for one in data["result"])

    def _read_log(self) -> str:
        self._log.seek(0)
        return self._log.read()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    # Any imbalance is one too many, so slots move.
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
    ):
        job = Job(monkeypatch)
        targets = {
            f"rel-sirocco-{service.name}-{i}": service.http_address
            for i, service in enumerate(cluster.services)
        }
        server = Prometheus(
            tmp_path_factory.mktemp("prometheus"), targets | {"rel-sirocco-job": job.address}
        )
        server.router = cluster.router_address
        try:
            # What comes to nothing but one change has to be seen before it and after it.
            server.await_targets(len(targets) + 1)
            load = Load(cluster.router_address)
            yield server
            load.stop()
        finally:
            server.stop()
            job.server.shutdown()


@needs_prometheus
def test_every_panel_shows_something(prometheus: Prometheus) -> None:
    waiting = list(QUERIES)
    # A few scrapes and a change of balance: seconds, and minutes where others have the machine.
    deadline = time.monotonic() + 150
    while waiting and time.monotonic() < deadline:
        time.sleep(0.5)
        waiting = [query for query in waiting if not prometheus.has_data(query.expression)]
    assert not waiting, "\n".join(map(str, waiting))


@needs_prometheus
@pytest.mark.parametrize(
    "truth",
    [
        "count(sirocco_process_info) == 5",
        "sum(sirocco_coordinator_leading) == 1",
        "sum(sirocco_merger_streams) == 1",
        "sum(sirocco_merger_credit_matches) > 0 and sum(sirocco_merger_starved_streams) == 0",
        "sum(sirocco_evaluator_slots) == 4 and count(sirocco_evaluator_slot_queries) == 4",
        "sum(sirocco_evaluator_slot_queries) == sum(sirocco_evaluator_live_queries) > 0",
        "sum(sirocco_evaluator_slot_objects) == sum(sirocco_evaluator_stored_objects) > 0",
        # There are fewer leaves than are told.
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
def test_what_helm_test_does_finds_its_match(prometheus: Prometheus) -> None:
    script = CHART / "files" / "check.py"
    done = subprocess.run(
        [sys.executable, script, prometheus.router], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "matched after" in done.stdout
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
