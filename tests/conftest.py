"""Real parts for all tests: started at the first use, once per session, stopped at its end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sirocco.local.kafka import KafkaServer
from sirocco.local.redis import RedisServer


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A Kafka broker; topics of a test need names of their own. Whoever kills it restarts it."""
    server = KafkaServer(Path(tmp_path_factory.mktemp("kafka")))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis; a test takes a key prefix of its own. Whoever kills it restarts it."""
    server = RedisServer(Path(tmp_path_factory.mktemp("redis")))
    server.start()
    yield server
    server.stop()
