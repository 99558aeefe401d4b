"""Sinks after a cluster of processes, under load, while connector, merger and receiver are killed.

The ledger: each object is once in the topic and once in the files. The webhook's receiver has it at
least once, under one id.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from sirocco_client import Client, RangeQuery

from sirocco.local.cluster import LocalCluster, LocalClusterSettings
from sirocco.local.kafka import KafkaServer
from sirocco.local.redis import RedisServer
from tests.support.running_sinks import SECRET, Receiver
from tests.support.seeds import drawn_seed
from tests.support.waiting import eventually

# Objects of one burst, and bursts: about 20 s of load.
BURST, BURSTS = 400, 24


@pytest.fixture(scope="module")
def cluster(
    kafka_server: KafkaServer, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    directory = Path(tmp_path_factory.mktemp("sinks"))
    settings = LocalClusterSettings(
        cluster="sinks",
        kafka=kafka_server.address,
        redis=redis_server.url,
        archive=str(directory / "archive"),
        counts={"router": 1, "evaluator": 1, "merger": 2, "coordinator": 1},
        options={"SIROCCO_SLOTS": "4"},
    )
    with LocalCluster(directory, settings) as running:
        yield running


class ReceiverThread:
    """A receiver of webhooks on a loop of its own, which can be cut off and come back."""

    def __init__(self) -> None:
        self.receiver = Receiver()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        async with self.receiver.served():
            await self._stop.wait()

    def kill(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(120.0)

    def objects(self) -> dict[str, int]:
        """Returns the object of each id."""
        found: dict[str, int] = {}
        for request in list(self.receiver.requests):
            for row in json.loads(request.body)["notifications"]:
                number = int(row["object"]["id"])
                assert found.setdefault(row["id"], number) == number
        return found


class Connector:
    """One `sirocco connect`."""

    def __init__(self, config: Path) -> None:
        self._config = config
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "sirocco.cli", "connect", str(self._config)]
        with self._config.with_suffix(".log").open("ab") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(120.0)

    def end(self) -> int:
        self._process.terminate()
        return self._process.wait(120.0)


def records_of(address: str, topic: str) -> list[Any]:
    config = {
        "bootstrap.servers": address,
        "group.id": "ledger",
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
    consumer = Consumer(config)
    partitions = consumer.list_topics(topic, 20).topics[topic].partitions
    consumer.assign([TopicPartition(topic, one, OFFSET_BEGINNING) for one in partitions])
    found, ends = [], 0
    while ends < len(partitions):
        for message in consumer.consume(10_000, 1.0):
            error = message.error()
            if error is None:
                found.append(orjson.loads(message.value() or b""))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ends += 1
    consumer.close()
    return found


def files_of(folder: Path) -> list[Any]:
    paths = [path for path in sorted(folder.iterdir()) if path.suffix in (".ndjson", ".part")]
    return [orjson.loads(line) for path in paths for line in path.read_bytes().splitlines()]


def counted(rows: list[Any]) -> Counter[int]:
    return Counter(int(row["object"]["id"]) for row in rows)


def test_no_kill_loses_or_doubles_a_notification(
    cluster: LocalCluster, kafka_server: KafkaServer, tmp_path: Path
) -> None:
    rng = random.Random(drawn_seed())
    topic = f"sunk-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka_server.address})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(120.0)
    receiver = ReceiverThread()
    receiver.start()
    common = {"subscriber": "ledger", "start": "earliest"}
    webhook = {
        "kind": "webhook",
        "url": receiver.receiver.url,
        "secret": SECRET,
        "state": str(tmp_path / "state"),
        "allow_http": True,
        "allow_private": True,
        "batch": {"count": 50, "wait": "20ms"},
        "retry": {"first": "50ms", "longest": "500ms"},
    }
    kafka = {"kind": "kafka", "bootstrap": kafka_server.address, "topic": topic, "replication": 1}
    files = {"kind": "file", "folder": str(tmp_path / "files"), "file_bytes": 65_536}
    sinks = {f"{topic}-{one['kind']}": common | one for one in (webhook, kafka, files)}
    config = tmp_path / "connect.yaml"
    routers = ",".join(cluster.router_addresses)
    config.write_text(yaml.safe_dump({"router": routers, "sinks": sinks}))
    connector = Connector(config)
    with Client(routers) as client, client.publisher() as publisher:
        client.register(RangeQuery(id="ledger", subscriber="ledger", text="sunk"))
        for number in range(BURSTS):
            begin = number * BURST
            publisher.publish_many(
                {"id": i, "lon": 1.0, "lat": 2.0, "text": "sunk"}
                for i in range(begin, begin + BURST)
            )
            publisher.flush()
            time.sleep(rng.random())
            if number % 4 == 2:
                connector.kill()
                connector.start()
            if number == BURSTS // 2:
                cluster.kill("merger-0")
            if number == BURSTS // 3:
                receiver.kill()
            if number == BURSTS // 3 + 2:
                receiver.start()
    cluster.mend()
    total = BURST * BURSTS
    every = Counter(range(total))
    eventually(lambda: len(set(receiver.objects().values())) >= total, "all at the receiver")
    eventually(lambda: len(records_of(kafka_server.address, topic)) >= total, "all in the topic")
    eventually(lambda: len(files_of(tmp_path / "files")) >= total, "all in files")
    assert connector.end() == 0
    receiver.kill()
    assert counted(records_of(kafka_server.address, topic)) == every
    assert counted(files_of(tmp_path / "files")) == every
    objects = receiver.objects()
    assert set(objects.values()) == set(every)
    # An object has one id, however often it came.
    assert len(objects) == total
    # The three sinks name each notification alike.
    assert objects == {row["id"]: int(row["object"]["id"]) for row in files_of(tmp_path / "files")}
