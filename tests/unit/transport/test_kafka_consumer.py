"""Errors that the client library returns instead of records; no broker is asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import KafkaError

from sirocco.transport.errors import OffsetOutOfRange, TransportError, TransportUnavailable
from sirocco.transport.kafka_consumer import KafkaConsumer
from sirocco.transport.kafka_errors import OUT_OF_RANGE
from sirocco.transport.kafka_log import KafkaLog
from sirocco.transport.kafka_settings import KafkaSettings


@dataclass(frozen=True, slots=True)
class Event:
    """An error as the client library returns it."""

    code: int
    of: str | None = None

    def topic(self) -> str | None:
        return self.of

    def partition(self) -> int:
        return -1 if self.of is None else 0

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


@pytest.mark.parametrize("of", [None, "t"])
def test_what_passes_is_passed_over(
    consumer: KafkaConsumer, monkeypatch: pytest.MonkeyPatch, of: str | None
) -> None:
    # The client library reports it once, and fetches again.
    monkeypatch.setattr(KafkaLog, "partitions", lambda self, topic: 1)
    consumer.assign({("t", 0): 2})
    events: list[Any] = [Event(KafkaError.REQUEST_TIMED_OUT, of)]
    assert consumer._accept(events) == []
    assert consumer.poll(1, 0.0) == []
    assert consumer.positions() == {("t", 0): 2}


def test_what_concerns_all_of_it_ends_the_next_poll_once(consumer: KafkaConsumer) -> None:
    events: list[Any] = [Event(KafkaError.CLUSTER_AUTHORIZATION_FAILED)]
    assert consumer._accept(events) == []
    with pytest.raises(TransportError, match=r"^c: CLUSTER_AUTHORIZATION_FAILED"):
        consumer.poll(1, 0.0)
    assert consumer.poll(1, 0.0) == []


@pytest.mark.parametrize("code", sorted(OUT_OF_RANGE))
def test_the_refusal_of_a_former_place_is_none_of_the_present_one(
    consumer: KafkaConsumer, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    # The log holds 0 to 2. The client was at 78, and has been moved to 2 when its refusal is read.
    monkeypatch.setattr(KafkaLog, "bounds", lambda self, topic, partition: (0, 3))
    monkeypatch.setattr(KafkaLog, "partitions", lambda self, topic: 1)
    consumer.assign({("t", 0): 2})
    refusals: list[Any] = [Event(code, consumer._log.outer("t"))]
    assert consumer._accept(refusals) == []
    assert consumer.poll(1, 0.0) == []
    assert consumer.positions() == {("t", 0): 2}
    consumer.assign({("t", 0): 77})
    assert consumer._accept(refusals) == []
    with pytest.raises(OffsetOutOfRange):
        consumer.poll(1, 0.0)


def test_a_refusal_is_classified_when_the_log_answers_again(
    consumer: KafkaConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The client refuses a position once: if that were lost, that Kafka partition would never
    # advance.
    is_away = True

    def bounds(self: KafkaLog, topic: str, partition: int) -> tuple[int, int]:
        if is_away:
            raise TransportUnavailable("the broker is away")
        return 0, 3

    monkeypatch.setattr(KafkaLog, "bounds", bounds)
    monkeypatch.setattr(KafkaLog, "partitions", lambda self, topic: 1)
    consumer.assign({("t", 0): 77})
    refusals: list[Any] = [Event(KafkaError.OFFSET_OUT_OF_RANGE, consumer._log.outer("t"))]
    assert consumer._accept(refusals) == []
    assert consumer.poll(1, 0.0) == []
    is_away = False
    with pytest.raises(OffsetOutOfRange):
        consumer.poll(1, 0.0)
    assert consumer.poll(1, 0.0) == []
