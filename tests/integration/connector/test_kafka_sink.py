"""The sink into a Kafka topic: nothing is lost or doubled, whatever ends in the middle."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from cloudevents.core.bindings.kafka import KafkaMessage, from_binary_event
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from sirocco.local.kafka import KafkaServer
from sirocco.services.connector.sinks import kafka_state
from sirocco.services.connector.sinks.kafka_state import Transactions
from sirocco.services.connector.sinks.rows import Place
from sirocco.services.connector.sinks.state import Saved
from sirocco.transport.kafka_settings import KafkaSettings
from tests.support import seeds
from tests.support.fake_cluster import FakeCluster
from tests.support.running_sinks import deliver, running
from tests.support.waiting import until

pytestmark = pytest.mark.kafka


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    made = FakeCluster()
    yield made
    made.stop()


@pytest.fixture
def topic(kafka_server: KafkaServer) -> str:
    name = f"alerts-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": kafka_server.settings.bootstrap})
    for made in admin.create_topics([NewTopic(name, 3, 1)]).values():
        made.result(120.0)
    return name


def section(server: KafkaServer, topic: str, **members: object) -> dict[str, object]:
    return {
        "kind": "kafka",
        "bootstrap": server.settings.bootstrap,
        "replication": 1,
        "topic": topic,
        "start": "earliest",
        **members,
    }


def records_of(server: KafkaServer, topic: str) -> list[Any]:
    """Returns the committed records of all partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": server.settings.bootstrap,
            "group.id": "test",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    partitions = consumer.list_topics(topic, 20).topics[topic].partitions
    consumer.assign([TopicPartition(topic, one, OFFSET_BEGINNING) for one in partitions])
    found, ends = [], 0
    while ends < len(partitions):
        for message in consumer.consume(1_000, 1.0):
            error = message.error()
            if error is None:
                found.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ends += 1
    consumer.close()
    return found


def objects_of(server: KafkaServer, topic: str) -> list[int]:
    """Returns the ids of the objects of all records, ordered."""
    rows = [orjson.loads(message.value()) for message in records_of(server, topic)]
    return sorted(int(row["object"]["id"]) for row in rows)


async def has(server: KafkaServer, topic: str, count: int) -> None:
    """Waits until a topic has so many records."""
    deadline_s = time.monotonic() + 300.0
    while (found := len(await asyncio.to_thread(records_of, server, topic))) < count:
        assert time.monotonic() < deadline_s, f"{found} of {count}"


@pytest.mark.parametrize(
    ("members", "key"),
    [
        ({}, lambda row: row["query"]),
        ({"key": "object"}, lambda row: row["object"]["id"]),
        ({"key": "attribute:a"}, lambda row: "1" if "a" in row["object"] else None),
        ({"key": "none"}, lambda _row: None),
    ],
)
def test_records_have_their_keys_and_an_order(
    kafka_server: KafkaServer,
    cluster: FakeCluster,
    topic: str,
    members: dict[str, object],
    key: Callable[[Any], str | None],
) -> None:
    deliver(cluster, 100)

    async def work() -> None:
        async with running(cluster.router, section(kafka_server, topic, **members), topic):
            await has(kafka_server, topic, 100)

    asyncio.run(work())
    last: dict[Any, int] = {}
    for message in records_of(kafka_server, topic):
        row = orjson.loads(message.value())
        expected = key(row)
        assert message.key() == (None if expected is None else expected.encode())
        if expected is not None:
            number = int(row["object"]["id"])
            assert last.get(message.key(), 0) < number
            last[message.key()] = number
    assert objects_of(kafka_server, topic) == list(range(1, 101))


def test_cloud_events_in_binary_mode_are_read_by_the_sdk(
    kafka_server: KafkaServer, cluster: FakeCluster, topic: str
) -> None:
    deliver(cluster, 20)
    members = section(kafka_server, topic, format="cloudevents-binary")

    async def work() -> None:
        async with running(cluster.router, members, topic):
            await has(kafka_server, topic, 20)

    asyncio.run(work())
    found = []
    for record in records_of(kafka_server, topic):
        message = KafkaMessage(dict(record.headers()), record.key(), record.value())
        event = from_binary_event(message)
        assert event.get_type() == "sirocco.match"
        assert event.get_datacontenttype() == "application/json"
        data: Any = event.get_data()
        found.append(int(data["object"]["id"]))
    assert sorted(found) == list(range(1, 21))


def test_of_two_instances_one_works(
    kafka_server: KafkaServer, cluster: FakeCluster, topic: str
) -> None:
    members = section(kafka_server, topic)

    async def work() -> None:
        deliver(cluster, 50)
        async with running(cluster.router, members, topic) as first:
            await has(kafka_server, topic, 50)
            async with running(cluster.router, members, topic) as second:
                await until(lambda: second.value("sink_active", name=topic))
                deliver(cluster, 50, 50)
                await has(kafka_server, topic, 100)
                await until(lambda: not first.value("sink_active", name=topic))
                # It is ready to take over, and does not fight.
                assert first.sink.is_ready
                deliver(cluster, 50, 100)
                await has(kafka_server, topic, 150)
                assert second.value("records_total", side="sink", name=topic) == 100

    asyncio.run(work())
    assert objects_of(kafka_server, topic) == list(range(1, 151))


class Crash(BaseException):
    """The process ends here."""


class Dying:
    """A producer whose process ends before or after a call; what it has sent stays sent."""

    calls = 0
    fatal = -1
    is_dead = False

    def __init__(self, config: dict[str, Any], **named: Any) -> None:
        self._real = Producer(config, **named)

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            if Dying.is_dead:
                return None
            self._pass()
            result = getattr(self._real, name)(*args, **named)
            self._pass()
            return result

        return call

    @staticmethod
    def _pass() -> None:
        Dying.calls += 1
        if Dying.calls == Dying.fatal:
            Dying.is_dead = True
            raise Crash


def test_a_crash_between_any_two_steps_loses_and_doubles_nothing(
    kafka_server: KafkaServer, cluster: FakeCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = section(kafka_server, topic)
    total = 0
    for fatal in range(1, 40):
        Dying.calls, Dying.fatal, Dying.is_dead = 0, fatal, False

        async def crash() -> bool:
            async with running(cluster.router, members, topic) as found:
                await until(lambda: found.task.done() or Dying.calls >= 10)
                return found.task.done()

        deliver(cluster, 10, total)
        total += 10
        with monkeypatch.context() as patched:
            patched.setattr(kafka_state, "Producer", Dying)
            try:
                crashed = asyncio.run(crash())
            except Crash:
                crashed = True
        if not crashed and Dying.calls < fatal:
            break
    else:
        pytest.fail("every run crashed")

    async def finish() -> None:
        async with running(cluster.router, members, topic):
            await has(kafka_server, topic, total)

    asyncio.run(finish())
    assert objects_of(kafka_server, topic) == list(range(1, total + 1))
    assert fatal > 10


def test_killed_processes_lose_and_double_nothing(
    kafka_server: KafkaServer, cluster: FakeCluster, topic: str, tmp_path: Path
) -> None:
    """kill -9 at random moments, the next process at once; the last one catches up."""
    cluster.batch_matches = 200
    config = tmp_path / "connector.yaml"
    members = {**section(kafka_server, topic), "subscriber": "s1"}
    config.write_text(yaml.safe_dump({"router": cluster.router, "sinks": {topic: members}}))
    rng = random.Random(seeds.drawn_seed())
    total = 0
    for _ in range(6):
        process = subprocess.Popen(
            [sys.executable, "-m", "sirocco.services.connector"],
            env=os.environ | {"SIROCCO_CONNECTOR_CONFIG": str(config)},
            stderr=subprocess.DEVNULL,
        )
        try:
            until_s = time.monotonic() + 1.5 + rng.random() * 2
            while time.monotonic() < until_s:
                deliver(cluster, 500, total)
                total += 500
                time.sleep(0.05)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(120.0)

    async def finish() -> None:
        async with running(cluster.router, members, topic):
            await has(kafka_server, topic, total)

    asyncio.run(finish())
    assert objects_of(kafka_server, topic) == list(range(1, total + 1))


def test_a_killed_broker_loses_and_doubles_nothing(
    kafka_server: KafkaServer, cluster: FakeCluster, topic: str
) -> None:
    members = section(kafka_server, topic)

    async def work() -> None:
        async with running(cluster.router, members, topic) as found:
            deliver(cluster, 50)
            await has(kafka_server, topic, 50)
            kafka_server.kill()
            deliver(cluster, 50, 50)
            await until(lambda: found.value("sink_lag_seconds", name=topic) > 0.5)
            # In this thread: the broker ends with the one that starts it.
            kafka_server.start()
            deliver(cluster, 50, 100)
            await has(kafka_server, topic, 150)

    asyncio.run(work())
    assert objects_of(kafka_server, topic) == list(range(1, 151))


def test_a_state_behind_the_open_transaction_of_another_sink_is_found(
    kafka_server: KafkaServer, topic: str
) -> None:
    """A reader of committed records does not see it before that transaction ends."""
    settings: KafkaSettings = kafka_server.settings
    states = f"{topic}-states"
    admin = AdminClient({"bootstrap.servers": settings.bootstrap})
    admin.create_topics([NewTopic(states, 1, 1)])[states].result(120.0)
    other = Producer(
        {
            "bootstrap.servers": settings.bootstrap,
            "transactional.id": f"{topic}-other",
            "transaction.timeout.ms": 5_000,
        }
    )
    other.init_transactions(20)

    async def work() -> None:
        first = Transactions(settings, topic, states)
        assert await first.open() is None
        await first.save(Saved(Place("0.1")))
        other.begin_transaction()
        other.produce(states, b"{}", b"other")
        other.flush(120.0)
        await first.save(Saved(Place("0.2")))
        await first.close()
        second = Transactions(settings, topic, states)
        found = await second.open()
        assert found is not None
        assert found.place == Place("0.2")
        await second.close()

    asyncio.run(work())
