"""What `helm test` says of a connector: of a real one, and of instances that share the work."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from sirocco.telemetry.metrics.connector import ConnectorMetrics
from sirocco.telemetry.metrics.process import new_registry
from tests.charts.rendering import CHART
from tests.support.connector_runs import running
from tests.support.fake_cluster import FakeCluster
from tests.support.running_sinks import Receiver, webhook


@pytest.fixture(scope="module")
def check() -> Iterator[ModuleType]:
    """The script, as a module."""
    spec = importlib.util.spec_from_file_location("chart_check", CHART / "files" / "check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    made = FakeCluster()
    yield made
    made.stop()


def test_a_connector_that_works_is_told_with_its_sinks(
    check: ModuleType, cluster: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sinks = {
        name: webhook(Receiver(), tmp_path / name, subscriber=name) for name in ("desk", "fleet")
    }
    with running(cluster.router, {"sinks": sinks}) as one:
        check.check_connector(one.metrics_address, 120)
    said = capsys.readouterr().out
    assert f"ready are {one.metrics_address}" in said
    assert "sources that are read: none" in said
    assert "sinks at work: desk, fleet" in said


def test_a_source_that_reaches_nothing_is_told(
    check: ModuleType, cluster: FakeCluster, tmp_path: Path
) -> None:
    away = {"kind": "kafka", "bootstrap": "127.0.0.1:9", "topics": ["t"], "dead_letters": "drop"}
    config = {
        "sources": {"orders": away},
        "sinks": {"desk": webhook(Receiver(), tmp_path / "desk", subscriber="desk")},
    }
    with (
        running(cluster.router, config) as one,
        pytest.raises(SystemExit, match=f"{one.metrics_address} is not ready"),
    ):
        check.check_connector(one.metrics_address, 0)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "no.such.host.invalid:1"])
def test_a_connector_that_is_not_there_is_told(check: ModuleType, address: str) -> None:
    with pytest.raises(SystemExit, match="not all instances answer"):
        check.check_connector(address, 0)


@pytest.mark.parametrize(
    ("instances", "missing"),
    [
        # The others stand by.
        ([(True, {"desk": 0, "fleet": 1}), (True, {"desk": 1, "fleet": 0})], ""),
        ([(True, {"desk": 0}), (True, {"desk": 0})], "no instance works for the sink desk"),
        ([(True, {"desk": 1}), (False, {"desk": 0})], "b:1 is not ready"),
        # A rolling update: the new configuration has one more.
        (
            [(False, {"desk": 1}), (False, {"desk": 0, "fleet": 0})],
            "a:1 is not ready, b:1 is not ready, no instance works for the sink fleet",
        ),
        ([(True, {})], ""),
    ],
)
def test_each_sink_works_in_one_instance(
    check: ModuleType, instances: list[tuple[bool, Mapping[str, int]]], missing: str
) -> None:
    found = [
        check.Instance(address, is_ready, tuple(text_string_to_metric_families(_page(active))))
        for address, (is_ready, active) in zip(("a:1", "b:1"), instances, strict=False)
    ]
    assert check.missing_of(found) == missing


def _page(active: Mapping[str, int]) -> str:
    """Returns the metrics of an instance that works for some sinks."""
    registry = new_registry()
    metrics = ConnectorMetrics(registry)
    for name, value in active.items():
        metrics.sink_active.labels(name).set(value)
    return generate_latest(registry).decode()
