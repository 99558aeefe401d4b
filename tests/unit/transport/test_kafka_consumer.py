"""Events of the client that concern no Kafka partition; no broker is asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import KafkaError

from sirocco.transport.errors import TransportError
from sirocco.transport.kafka_consumer import KafkaConsumer
from sirocco.transport.kafka_log import KafkaLog
from sirocco.transport.kafka_settings import KafkaSettings


@dataclass(frozen=True, slots=True)
class Event:
    """An error as the client hands it out."""

    code: int

    def topic(self) -> str | None:
        return None

    def partition(self) -> int:
        return -1

    def error(self) -> KafkaError:
        return KafkaError(self.code)


@pytest.fixture
def consumer() -> Iterator[KafkaConsumer]:
    log = KafkaLog(KafkaSettings(bootstrap="127.0.0.1:1"))
    yield log.consumer("c")
    log.close()


@pytest.mark.parametrize(
    "code", [KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.COORDINATOR_NOT_AVAILABLE]
)
def test_what_concerns_the_group_alone_is_passed_over(consumer: KafkaConsumer, code: int) -> None:
    events: list[Any] = [Event(code)]
    assert consumer._accept(events) == []
    assert consumer.poll(1, 0.0) == []


def test_what_concerns_all_of_it_ends_the_next_poll_once(consumer: KafkaConsumer) -> None:
    events: list[Any] = [Event(KafkaError.CLUSTER_AUTHORIZATION_FAILED)]
    assert consumer._accept(events) == []
    with pytest.raises(TransportError, match=r"^c: CLUSTER_AUTHORIZATION_FAILED"):
        consumer.poll(1, 0.0)
    assert consumer.poll(1, 0.0) == []
