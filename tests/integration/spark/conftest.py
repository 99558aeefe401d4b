"""One Spark session for all tests, and an archive written by the running system."""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs pyspark: pip install 'sirocco[spark]'")

ROOT = Path(__file__).resolve().parents[3]
JOBS = ROOT / "spark-jobs"
sys.path.insert(0, str(JOBS))

from sirocco_client import Client, query_from_json  # noqa: E402

import sirocco.services.embedded  # noqa: E402
import sirocco.services.evaluator.service  # noqa: E402
from sirocco.index.store.store import StoreLimits  # noqa: E402
from sirocco.local.kafka import CACHE, fetch_jars  # noqa: E402
from sirocco.protocol.evaluator.machine import EvaluatorSettings  # noqa: E402
from sirocco.runtime.settings import ClusterSettings  # noqa: E402
from sirocco.transport.archive import LocalArchive  # noqa: E402

CONNECTOR = CACHE / "spark-kafka-connector"
CONNECTOR_CHECKSUMS = JOBS / "kafka-connector-jars.sha256"
SEED = 20261121
OBJECTS = 3_000
START_MS = 1_405_123_200_000
WORDS = [f"word{i}" for i in range(60)]
# Slices of a few hundred objects, so that a small history has many, some of them merged.
LIMITS = StoreLimits(active_rows=128, slices=2, slice_rows=512)
SETTINGS = ClusterSettings(
    cluster="past",
    slots=3,
    leaves=12,
    intake_partitions=1,
    registry_partitions=2,
    event_time=True,
    retention_ms=None,
    archive_ms=None,
)


def random_objects(count: int, seed: int = SEED) -> list[dict[str, Any]]:
    """Returns objects around Paris and at the world's edges; some lack text, time, attributes."""
    dice = random.Random(seed)
    objects: list[dict[str, Any]] = []
    for number in range(count):
        lon, lat = dice.gauss(2.35, 3.0), dice.gauss(48.85, 2.0)
        if number % 50 == 0:
            lon, lat = dice.choice([-180.0, 180.0, 0.0]), dice.choice([-90.0, 90.0, 45.0])
        one: dict[str, Any] = {"id": number, "lon": lon, "lat": lat}
        if number % 7 == 0:
            one["id"] = f"named {number}"
        if number % 11 or number == 0:
            one["ts"] = START_MS + 40 * number - dice.randrange(500)
        if number % 13:
            words = [WORDS[min(int(dice.expovariate(0.1)), 59)] for _ in range(5)]
            one["text"] = " ".join([*words, "été", "Straße"][: dice.randrange(1, 8)])
        if number % 3 == 0:
            one |= {"size": number % 10, "kind": dice.choice(["a", "b"])}
        objects.append(one)
    return objects


@dataclass(frozen=True)
class History:
    """The input of the system, and the archive that it wrote.

    Attributes:
        objects: in the order of publication.
        queries: the standing ones, as registered.
        archive: its directory.
    """

    objects: list[dict[str, Any]]
    queries: list[dict[str, Any]]
    archive: Path

    @property
    def source(self) -> str:
        """The value of the jobs' option."""
        return f"archive:{self.archive}"


def standing_queries() -> list[dict[str, Any]]:
    """Standing queries of all kinds."""
    dice = random.Random(SEED + 1)
    queries: list[dict[str, Any]] = []
    for number in range(60):
        lon, lat = dice.gauss(2.35, 3.0), dice.gauss(48.85, 2.0)
        query: dict[str, Any] = {"id": f"s{number}", "mode": "continuous"}
        rect = {"west": lon - 1, "south": lat - 1, "east": lon + 1, "north": lat + 1}
        if number % 10 == 7:
            query |= {"kind": "knn", "point": {"lon": lon, "lat": lat}, "k": 3}
        elif number % 10 == 8:
            query |= {"kind": "terms", "region": {"rect": rect}, "k": 3, "step": "1m"}
            query |= {"window": "5m"}
        elif number % 10 == 9:
            query |= {"kind": "range", "region": {"rect": rect}, "track": "kind"}
        else:
            query |= {"kind": "range", "region": {"rect": rect}}
            query["text"] = f"{dice.choice(WORDS[:9])} AND {dice.choice(WORDS[:9])} OR été"
        queries.append(query)
    return queries


@pytest.fixture(scope="session")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    """An archive with slices of many sizes and the newest objects in checkpoints."""
    archive = tmp_path_factory.mktemp("archive")
    patch = pytest.MonkeyPatch()
    patch.setattr(sirocco.services.embedded, "MemoryArchive", lambda: LocalArchive(archive))
    plain = EvaluatorSettings
    patch.setattr(
        sirocco.services.evaluator.service,
        "EvaluatorSettings",
        functools.partial(plain, store_limits=LIMITS),
    )
    reported = History(random_objects(OBJECTS), standing_queries(), archive)
    with (
        patch.context(),
        sirocco.services.embedded.EmbeddedCluster(SETTINGS) as cluster,
        Client(cluster.router_address) as client,
    ):
        made = [query_from_json(query, "tests") for query in reported.queries]
        results = list(client.register_many(made, start_ms=START_MS))
        assert all(result.error is None for result in results)
        with client.publisher() as publisher:
            for begin in range(0, OBJECTS, 500):
                publisher.publish_many(reported.objects[begin : begin + 500])
                token = publisher.flush().position_token
                client.await_processed(token)
    patch.undo()
    return reported


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A local session, as small as the data."""
    from sirocco_spark.session import open_session  # noqa: PLC0415 - only where it is installed

    connector = fetch_jars(
        JOBS / "kafka-connector-pom.xml", CONNECTOR, "spark-sql-kafka-*.jar", CONNECTOR_CHECKSUMS
    )
    small = {
        "spark_sql_shuffle_partitions": "4",
        "spark_driver_memory": "1g",
        "spark_jars": ",".join(map(str, sorted(connector.glob("*.jar")))),
    }
    session = open_session("tests", "local[2]", **small)
    yield session
    session.stop()


def kill_at(command: Sequence[str], line_part: str) -> None:
    """Runs a job; kills it and its processes when a text appears on stderr."""
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as run:
        assert run.stderr is not None
        for line in run.stderr:
            if line_part in line:
                break
        else:
            raise AssertionError(f"it ended with {run.wait()} before it said {line_part!r}")
        os.killpg(run.pid, signal.SIGKILL)


def write_lines(path: Path, members: Sequence[Any]) -> str:
    """Writes lines of JSON; strings as they are."""
    lines = [one if isinstance(one, str) else json.dumps(one) for one in members]
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)
