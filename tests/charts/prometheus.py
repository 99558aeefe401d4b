"""Runs a real Prometheus for tests, and the queries of the dashboards."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from tests.charts.rendering import CHART, ROOT

BOARDS = sorted((CHART / "dashboards").glob("*.json"))
_PATH = f"{ROOT / '.cache' / 'prometheus' / 'usr' / 'bin'}{os.pathsep}{os.environ['PATH']}"
PROMETHEUS = shutil.which("prometheus", path=_PATH)
needs_prometheus = pytest.mark.skipif(
    PROMETHEUS is None, reason="Prometheus is missing: scripts/setup.sh helm"
)
# The values that Grafana would fill in.
VARIABLES = {"$namespace": "geo", "$release": ".*", "$__rate_interval": "10s"}
# The labels that a scraper adds for a pod by the chart's monitor.
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
    """One query of one panel."""

    board: str
    panel: str
    expression: str

    def __str__(self) -> str:
        return f"{self.board}: {self.panel}: {self.expression}"


def queries_of(path: Path) -> Iterator[Query]:
    """Yields the queries of a dashboard, with values for its variables."""
    for panel in json.loads(path.read_text())["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            yield Query(path.stem, panel["title"], expression)


class Prometheus:
    """A server with data of its own.

    Args:
        directory: Holds its settings and data.
        targets: See `watch`.
        rules: Path of alerts, if there are any.
    """

    def __init__(
        self, directory: Path, targets: Mapping[str, str], rules: Path | None = None
    ) -> None:
        assert PROMETHEUS is not None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        self._directory = directory
        files = json.dumps(str(rules)) if rules else ""
        (directory / "prometheus.yml").write_text(CONFIG % files)
        self.watch(targets)
        command = [PROMETHEUS, "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
        self._log = (directory / "log").open("w+")
        self._process = subprocess.Popen(
            [*command, f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"],
            cwd=directory,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def watch(self, targets: Mapping[str, str]) -> None:
        """Sets the scrape targets from now on: pod → HOST:PORT, or HOST:PORT/PATH."""
        found = []
        for pod, target in targets.items():
            address, slash, path = target.partition("/")
            place = {"__metrics_path__": f"/{path}"} if slash else {}
            found.append({"targets": [address], "labels": {**LABELS, **place, "pod": pod}})
        aside = self._directory / "targets.aside"
        aside.write_text(json.dumps(found))
        aside.rename(self._directory / "targets.json")

    def stop(self) -> None:
        """Stops the server."""
        self._process.terminate()
        self._process.wait(120.0)
        self._log.close()

    def get(self, path: str, **arguments: str) -> Any:
        """Returns the data of an answer, None while there is none.

        Raises:
            AssertionError: Prometheus refuses the query, or has ended.
        """
        question = f"{self.address}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
        try:
            with urllib.request.urlopen(question, timeout=120.0) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise AssertionError(f"{arguments}: {error.read().decode()}") from error
        except OSError:
            assert self._process.poll() is None, self._read_log()
        return None

    def await_targets(self, count: int, timeout_s: float = 120.0) -> None:
        """Waits until this many targets have been scraped."""
        deadline = time.monotonic() + timeout_s
        while not self.has_data(f"count(up == 1) == {count}"):
            assert time.monotonic() < deadline, self.get("targets", state="active")
            time.sleep(0.2)

    def figures(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Returns the labels and numbers that answer a query; nothing while there is no answer."""
        data = self.get("query", query=expression)
        return [(one["metric"], float(one["value"][1])) for one in (data or {}).get("result", ())]

    def has_data(self, expression: str) -> bool:
        """Returns whether there is at least one number that is not NaN."""
        data = self.get("query", query=expression)
        return bool(data) and any(one["value"][1] != "NaN" for one in data["result"])

    def await_figures(
        self, queries: list[Query], timeout_s: float, lasts: Callable[[], bool] = lambda: True
    ) -> None:
        """Waits until every query has been answered with a number, each at some time.

        Args:
            queries: The queries.
            timeout_s: Bound of the wait.
            lasts: Whether the cluster is still running.
        """
        waiting = list(queries)
        deadline = time.monotonic() + timeout_s
        while waiting and lasts() and time.monotonic() < deadline:
            time.sleep(0.5)
            waiting = [query for query in waiting if not self.has_data(query.expression)]
        assert not waiting, "\n".join([*map(str, waiting), *self._circumstances()])

    def _circumstances(self) -> list[str]:
        """Returns why panels may lack figures: the machine's load, and what coordinators did."""
        rounds = self.figures("sirocco_coordinator_rounds_total")
        changes = self.figures("sirocco_coordinator_change_seconds_count")
        shown = [f"{each['__name__']} {each}: {figure:g}" for each, figure in rounds + changes]
        return [f"load of the machine: {os.getloadavg()}", *shown]

    def _read_log(self) -> str:
        self._log.seek(0)
        return self._log.read()
