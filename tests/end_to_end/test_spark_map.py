"""A map that Spark builds from the archive of a running system takes effect there, under load.

The stream never ends, but is thin while the job runs: the job reads what is stored, and the change
of the map is what a full stream could break.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sirocco_client import Client

import sirocco.services.embedded
import sirocco.services.evaluator.service
from sirocco.index.store.store import StoreLimits
from sirocco.local.kafka import KafkaServer
from sirocco.local.redis import RedisServer
from sirocco.protocol.evaluator.machine import EvaluatorSettings
from sirocco.runtime.settings import ClusterSettings
from sirocco.schemes.map.map import PartitionMap
from sirocco.schemes.map.map_bytes import from_bytes, to_bytes
from sirocco.transport.archive import LocalArchive
from tests.end_to_end.test_map_changes import SLOTS, await_version
from tests.end_to_end.under_load import QUERIES, WAIT_S, Traffic, cluster_of_two

pytest.importorskip("pyspark", reason="needs pyspark: pip install 'sirocco[spark]'")

SEED = "20261121-spark"
ROOT = Path(__file__).resolve().parents[2]
JOB = ROOT / "spark-jobs" / "build_map.py"
JOB_S = 1_200
# Slices of some hundred objects, so that the archive has some after seconds.
OBJECTS_BYTES = 50_000
LIMITS = StoreLimits(active_rows=64, slices=2, slice_rows=512)


@pytest.mark.spark
def test_a_map_built_from_the_archive_follows_under_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # init
    archive = tmp_path / "archive"
    archive.mkdir()
    monkeypatch.setattr(sirocco.services.embedded, "MemoryArchive", lambda: LocalArchive(archive))
    plain = EvaluatorSettings
    limited = functools.partial(plain, store_limits=LIMITS)
    monkeypatch.setattr(sirocco.services.evaluator.service, "EvaluatorSettings", limited)
    settings = ClusterSettings(slots=SLOTS, leaves=8, scheme="uniform-grid")

    # test
    with (
        sirocco.services.embedded.EmbeddedCluster(settings, routers=2, evaluators=2) as cluster,
        Client(cluster.router_address) as client,
        Traffic((cluster.router_address,), "spark", SEED) as traffic,
    ):
        traffic.await_progress()
        _await_slices(archive)
        source = f"archive:{archive}"
        with traffic.slower():
            summary = _build(source, source, "kdt-tree", tmp_path / "map")
        built = _follow(client, traffic, tmp_path / "map")

    # check
    assert summary["objects"] > 0
    assert summary["queries"] > 0
    assert (built.scheme, built.slots) == ("kdt-tree", SLOTS)
    assert len(built.leaves) > 1


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.timeout(1_800)
def test_a_map_by_keyword_follows_in_processes_on_kafka(
    kafka_server: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    """Objects come from the archive of the processes, queries from the topic that they read."""
    # init
    name = "spark"
    archive = tmp_path / "archive" / name
    by_space = {"SIROCCO_SCHEME": "uniform-grid", "SIROCCO_LEAVES": "8"}

    # test
    with cluster_of_two(name, kafka_server, redis_server, tmp_path, **by_space) as cluster:
        address = ",".join(cluster.router_addresses)
        with Client(address) as client, Traffic(cluster.router_addresses, name, SEED) as traffic:
            traffic.await_progress()
            _await_objects(archive)
            queries = f"kafka:{kafka_server.address}/{name}"
            with traffic.slower():
                summary = _build(f"archive:{archive}", queries, "text-frequency", tmp_path / "map")
            built = _follow(client, traffic, tmp_path / "map")

    # check
    assert summary["objects"] > 0
    assert summary["queries"] == len(QUERIES)
    assert (built.scheme, built.slots) == ("text-frequency", SLOTS)
    assert built.keyword_nodes


def _follow(client: Client, traffic: Traffic, path: Path) -> PartitionMap:
    """Makes the system adopt a map, and ends the traffic: nothing may be lost or doubled."""
    traffic.await_progress()
    built = from_bytes(path.read_bytes())
    version = client.propose_map(to_bytes(built.with_version(2)))
    traffic.register_under_way("word0")
    await_version(client, version)
    traffic.await_progress()
    traffic.finish()
    return built


def _await_slices(archive: Path) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not any((archive / "slices").rglob("*-*")):
        assert time.monotonic() < deadline_s, "no slice came into the archive"
        time.sleep(0.1)


def _await_objects(archive: Path) -> None:
    """The archive of new processes has checkpoints; the first ones hold no object yet."""
    deadline_s = time.monotonic() + WAIT_S
    while not any(
        one.is_file() and one.stat().st_size > OBJECTS_BYTES
        for one in (archive / "checkpoints" / "slots").rglob("*")
    ):
        assert time.monotonic() < deadline_s, "no object came into the archive"
        time.sleep(0.1)


def _build(objects: str, queries: str, scheme: str, out: Path) -> dict[str, int]:
    command = [sys.executable, str(JOB), "--objects", objects, "--queries", queries]
    command += ["--scheme", scheme, "--leaves", "24", "--slots", str(SLOTS), "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'sdk'}"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=JOB_S, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, int] = json.loads(out.with_name(out.name + ".json").read_text())
    assert json.loads(done.stdout.splitlines()[-1]) == found
    assert "build_map: counting objects" in done.stderr
    return found
