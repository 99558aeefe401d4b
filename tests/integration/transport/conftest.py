"""The logs and map stores on which every scenario runs."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from sirocco.transport.kafka_log import KafkaLog
from sirocco.transport.log import Log, TopicSpec
from sirocco.transport.memory_log import MemoryLog


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.kafka)])
def log(request: pytest.FixtureRequest) -> Iterator[Log]:
    made: Log
    if request.param == "memory":
        made = MemoryLog()
    else:
        made = KafkaLog(request.getfixturevalue("kafka_server").settings)
    yield made
    made.close()


@pytest.fixture
def topic(log: Log) -> str:
    """A new topic of four Kafka partitions."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    log.create_topics([TopicSpec(name, 4)])
    return name
