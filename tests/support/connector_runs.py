"""Connectors in this process, before a cluster in this process, and topics of a real broker."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from prometheus_client.parser import text_string_to_metric_families

from sirocco.services.connector.config import read_config
from sirocco.services.connector.process import Connector, ProcessSettings
from sirocco.services.embedded import EmbeddedCluster
from tests.support.plain_client import PlainClient, new_session, query_message

TIMEOUT_S = 300.0

_names = itertools.count(1)


def new_topic(address: str, partitions: int = 1, **config: str) -> str:
    """Creates a topic of a new name."""
    name = f"topic-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(name, partitions, config=config)])[name].result(120.0)
    return name


def produce(
    address: str,
    topic: str,
    values: Iterable[bytes | dict[str, Any] | None],
    *,
    partition: Callable[[int], int] = lambda _: 0,
    key: Callable[[int], bytes | None] = lambda _: None,
    **config: Any,
) -> None:
    """Writes records; dicts as JSON."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 20} | config)
    for row, value in enumerate(values):
        data = json.dumps(value).encode() if isinstance(value, dict) else value
        while True:
            try:
                producer.produce(topic, data, partition=partition(row), key=key(row))
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(TIMEOUT_S) == 0


def records_of(address: str, topic: str, count: int) -> list[Any]:
    """Reads so many records from the start of a topic of one partition."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "reader", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Any] = []
    for _ in range(300):
        if len(found) >= count:
            break
        found += consumer.consume(count - len(found), 0.1)
    consumer.close()
    assert all(each.error() is None for each in found)
    assert len(found) == count
    return found


def committed(address: str, group: str, topic: str, partition: int = 0) -> tuple[int, str]:
    """Returns what a group has committed."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": group})
    (found,) = consumer.committed([TopicPartition(topic, partition)], timeout=120.0)
    consumer.close()
    return found.offset, found.metadata or ""


class Running:
    """A connector at work."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self.is_clean: bool | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def metrics_address(self) -> str:
        """host:port of its metrics and probes."""
        return self._connector.metrics_address

    def _run(self) -> None:
        self.is_clean = asyncio.run(self._connector.run())

    def metric(self, name: str, /, **labels: str) -> float:
        """Returns the sum of a metric."""
        text = httpx.get(f"http://{self.metrics_address}/metrics").text
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def is_ready(self) -> bool:
        """Whether it says so."""
        return httpx.get(f"http://{self.metrics_address}/readyz").status_code == 200

    def stop(self) -> None:
        """Ends it in order."""
        self._connector.stop()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()

    def join(self) -> None:
        """Waits until it has ended by itself."""
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()


@contextmanager
def running(
    router: str, config: Mapping[str, Any], environment: Mapping[str, str] | None = None
) -> Iterator[Running]:
    """Runs a connector with a configuration."""
    read = read_config(json.dumps({"router": router, **config}), environment or {})
    one = Running(Connector(read, ProcessSettings(name=f"connector-{next(_names)}")))
    try:
        yield one
    finally:
        one.stop()


class Ledger:
    """All that a new subscriber receives, by object."""

    def __init__(self, cluster: EmbeddedCluster, **query: Any) -> None:
        self.name = f"ledger-{new_session()}"
        self._plain = PlainClient(cluster)
        self._plain.register(query_message(self.name, self.name, **query))
        self.received: Counter[int] = Counter()
        self._receiving = self._plain.receive(self.name)

    def expect(self, wanted: Counter[int]) -> None:
        """Waits for as many notifications as are wanted, and compares."""
        for matches in self._receiving.matches():
            self.received.update(each for _, each in matches)
            if self.received.total() >= wanted.total():
                break
        assert self.received == wanted

    def close(self) -> None:
        self._plain.__exit__(None, None, None)


def item(number: int, word: str, **more: Any) -> dict[str, Any]:
    return {"id": number, "lon": 1.5, "lat": 2.5, "text": word, **more}


def source(address: str, topic: str, **more: Any) -> dict[str, Any]:
    section = {"kind": "kafka", "bootstrap": [address], "topics": [topic], "dead_letters": "drop"}
    return {"sources": {"events": section | more}}
