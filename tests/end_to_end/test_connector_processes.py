"""Connectors as processes before real services: killed under load, and while partitions move."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sirocco_client import Client, Notification, RangeQuery

from sirocco.local.cluster import LocalCluster, LocalClusterSettings
from sirocco.local.kafka import KafkaServer
from sirocco.local.redis import RedisServer
from tests.support.connector_runs import new_topic, produce
from tests.support.seeds import drawn_seed
from tests.support.waiting import eventually

PARTITIONS = 6
BURSTS = 40
BURST_RECORDS = 500

# Records of each burst that hold no object; they leave gaps in the numbers.
BAD_EVERY = 50


@pytest.fixture(scope="module")
def cluster(
    kafka_server: KafkaServer, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    directory = Path(tmp_path_factory.mktemp("connector"))
    settings = LocalClusterSettings(
        cluster="connector",
        kafka=kafka_server.address,
        redis=redis_server.url,
        archive=str(directory / "archive"),
        counts={"router": 2, "evaluator": 1, "merger": 1, "coordinator": 1},
        options={"SIROCCO_SLOTS": "8"},
    )
    with LocalCluster(directory, settings) as running:
        yield running


class Process:
    """One `sirocco connect`."""

    def __init__(self, config: Path) -> None:
        self.log = config.with_suffix(f".{time.monotonic_ns()}.log")
        with self.log.open("w") as out:
            command = [sys.executable, "-m", "sirocco.cli", "connect", str(config)]
            self._process = subprocess.Popen(command, stderr=out, env=os.environ | {})

    def has_taken(self) -> int:
        """How many partitions it got so far."""
        return self.log.read_text().count('"partition_taken"')

    def kill(self) -> None:
        """kill -9."""
        self._process.kill()
        self._process.wait()

    def end(self) -> int:
        """SIGTERM; returns the exit status."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(120.0)


class Subscriber:
    """Counts what one subscriber receives, by object."""

    def __init__(self, router: str, name: str) -> None:
        self.received: Counter[int] = Counter()
        self._client = Client(router)
        self._client.register(RangeQuery(id=name, subscriber=name, text=name))
        self._subscription = self._client.subscribe(name)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for one in self._subscription:
            assert isinstance(one, Notification)
            self.received[int(one.object.id)] += 1

    def close(self) -> None:
        self._subscription.close()
        self._client.close()


def config_of(
    folder: Path, cluster: LocalCluster, kafka: KafkaServer, topic: str, **more: Any
) -> Path:
    section = {
        "kind": "kafka",
        "bootstrap": [kafka.address],
        "topics": [topic],
        "group": topic,
        "dead_letters": "drop",
        "commit_interval": "300ms",
        **more,
    }
    path = folder / "connect.yaml"
    path.write_text(
        json.dumps({"router": ",".join(cluster.router_addresses), "sources": {"events": section}})
    )
    return path


def burst(address: str, topic: str, first: int, word: str) -> list[int]:
    """Writes some records; returns the ids of the objects."""
    values: list[Any] = []
    for number in range(first, first + BURST_RECORDS):
        if number % BAD_EVERY:
            values.append({"id": number, "lon": 1, "lat": 2, "text": word})
        else:
            values.append(None if number % (2 * BAD_EVERY) else b"no object")
    produce(address, topic, values, partition=lambda row: row % PARTITIONS)
    return [number for number in range(first, first + BURST_RECORDS) if number % BAD_EVERY]


def check(subscriber: Subscriber, wanted: Counter[int]) -> None:
    eventually(lambda: subscriber.received.total() >= wanted.total())
    # What is doubled may come late.
    time.sleep(2)
    assert wanted - subscriber.received == Counter(), "lost"
    assert subscriber.received - wanted == Counter(), "doubled"


def test_a_killed_connector_loses_and_doubles_nothing(
    cluster: LocalCluster, kafka_server: KafkaServer, tmp_path: Path
) -> None:
    topic = new_topic(kafka_server.address, PARTITIONS)
    subscriber = Subscriber(cluster.router_addresses[0], "killedword")
    # A dead member must not hold its partitions for the whole session.
    config = config_of(tmp_path, cluster, kafka_server, topic, session_timeout="6s")
    process = Process(config)
    wanted: Counter[int] = Counter()
    kills = 0
    for number in range(BURSTS):
        wanted.update(burst(kafka_server.address, topic, number * BURST_RECORDS, "killedword"))
        if number % 8 == 4:
            # In the middle of what it reads.
            eventually(lambda: process.has_taken() > 0)  # noqa: B023
            seen = subscriber.received.total()
            eventually(lambda: subscriber.received.total() > seen)  # noqa: B023
            process.kill()
            kills += 1
            process = Process(config)
    check(subscriber, wanted)
    assert kills == 5
    assert process.end() == 0
    subscriber.close()


def test_partitions_that_move_between_instances_lose_and_double_nothing(
    cluster: LocalCluster, kafka_server: KafkaServer, tmp_path: Path
) -> None:
    rng = random.Random(drawn_seed())
    topic = new_topic(kafka_server.address, PARTITIONS)
    subscriber = Subscriber(cluster.router_addresses[0], "movedword")
    config = config_of(tmp_path, cluster, kafka_server, topic, session_timeout="6s")
    processes = [Process(config)]
    wanted: Counter[int] = Counter()
    moves = 0
    for number in range(BURSTS):
        wanted.update(burst(kafka_server.address, topic, number * BURST_RECORDS, "movedword"))
        if number % 6 == 3:
            if len(processes) < 2:
                processes.append(Process(config))
                eventually(lambda: processes[-1].has_taken() > 0)
            elif rng.random() < 0.5:
                processes.pop(rng.randrange(2)).kill()
            else:
                assert processes.pop(rng.randrange(2)).end() == 0
            moves += 1
    check(subscriber, wanted)
    assert moves >= 6
    for process in processes:
        assert process.end() == 0
    subscriber.close()
