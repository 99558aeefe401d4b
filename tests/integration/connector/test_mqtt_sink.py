"""The sink into an MQTT broker: all arrives, also when the broker ends in between."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import aiomqtt
import orjson
import pytest

from sirocco.local.process import free_port
from sirocco.services.connector.sinks.mqtt import topic_of
from sirocco.services.connector.sinks.rows import Place, Row
from tests.support.fake_cluster import FakeCluster
from tests.support.running_sinks import deliver, running
from tests.support.waiting import until

# Debian installs it where users do not look for programs.
PROGRAM = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")


class Broker:
    """A broker on this host."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._config = folder / "mosquitto.conf"
        self._config.write_text(f"listener {self.port} 127.0.0.1\nallow_anonymous true\n")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert PROGRAM is not None
        self._process = subprocess.Popen([PROGRAM, "-c", self._config], stderr=subprocess.DEVNULL)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(120.0)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    if PROGRAM is None:
        pytest.skip("no mosquitto: apt-get install mosquitto, or scripts/setup.sh mqtt as root")
    made = Broker(tmp_path)
    made.start()
    yield made
    made.kill()


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    made = FakeCluster()
    yield made
    made.stop()


def section(broker: Broker, state: Path) -> dict[str, object]:
    return {
        "kind": "mqtt",
        "url": f"mqtt://127.0.0.1:{broker.port}",
        "topic": "alerts/{query}/{object}",
        "state": str(state),
        "start": "earliest",
    }


async def listen(broker: Broker, got: dict[str, str]) -> None:
    """Notes ids and topics, for ever; connects again when the broker is back."""
    while True:
        try:
            async with aiomqtt.Client("127.0.0.1", broker.port) as client:
                await client.subscribe("alerts/#", qos=1)
                got["listening"] = "alerts/#"
                async for message in client.messages:
                    assert isinstance(message.payload, bytes)
                    got[orjson.loads(message.payload)["id"]] = str(message.topic)
        except aiomqtt.MqttError:
            got.pop("listening", None)
            await asyncio.sleep(0.05)


def test_every_notification_arrives_under_its_topic(
    broker: Broker, cluster: FakeCluster, tmp_path: Path
) -> None:
    async def work() -> None:
        got: dict[str, str] = {}
        listening = asyncio.create_task(listen(broker, got))
        await until(lambda: "listening" in got)
        deliver(cluster, 300)
        async with running(cluster.router, section(broker, tmp_path)):
            await until(lambda: len(got) == 301)
        assert got["7-0"] == "alerts/q0/1"
        # A restart repeats nothing.
        deliver(cluster, 7, 300)
        async with running(cluster.router, section(broker, tmp_path)) as found:
            await until(lambda: len(got) == 308)
            # Counted when the broker has confirmed them, and their place is kept.
            await until(lambda: found.value("records_total", side="sink", name="alerts") == 7)
        listening.cancel()

    asyncio.run(work())


def test_a_killed_broker_loses_nothing(
    broker: Broker, cluster: FakeCluster, tmp_path: Path
) -> None:
    async def work() -> None:
        got: dict[str, str] = {}
        listening = asyncio.create_task(listen(broker, got))
        await until(lambda: "listening" in got)
        async with running(cluster.router, section(broker, tmp_path)) as found:
            deliver(cluster, 70)
            await until(lambda: len(got) == 71)
            broker.kill()
            await until(lambda: "listening" not in got)
            broker.start()
            await until(lambda: "listening" in got)
            deliver(cluster, 70, 70)
            await until(lambda: len(got) == 141)
            assert found.value("retries_total", side="sink", name="alerts") >= 1
        listening.cancel()

    asyncio.run(work())


@pytest.mark.parametrize(
    ("query", "topic"),
    [
        ("plain", "a/plain/x"),
        ("b/c", "a/b%2Fc/x"),
        ("#+", "a/%23%2B/x"),
        ("$SYS", "a/%24SYS/x"),
        ("100%", "a/100%25/x"),
        ("{object}", "a/{object}/x"),
        ("né\0", "a/n%C3%A9%00/x"),
    ],
)
def test_ids_are_one_level_of_a_topic(query: str, topic: str) -> None:
    row = Row("1-0", query, None, "x", b"{}", 0, Place("1"))
    assert topic_of("a/{query}/{object}", row) == topic
