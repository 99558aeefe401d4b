"""The log on Kafka while its broker is away, and afterwards."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from sirocco.local.kafka import KafkaServer
from sirocco.transport.errors import (
    AppendFailed,
    FencedError,
    LogFull,
    TransactionAborted,
    TransportUnavailable,
    UnknownTopic,
)
from sirocco.transport.kafka_log import KafkaLog
from sirocco.transport.kafka_settings import KafkaSettings, KafkaTimes
from sirocco.transport.log import Producer, TopicSpec
from tests.integration.transport.log_reading import take

pytestmark = pytest.mark.kafka


@pytest.fixture
def log(kafka_server: KafkaServer) -> Iterator[KafkaLog]:
    made = KafkaLog(kafka_server.settings)
    yield made
    made.close()


@pytest.fixture
def topic(log: KafkaLog) -> str:
    name = f"t-{uuid.uuid4().hex[:12]}"
    log.create_topics([TopicSpec(name, 2)])
    return name


def test_a_killed_broker_loses_and_reorders_nothing(
    kafka_server: KafkaServer, log: KafkaLog, topic: str
) -> None:
    """Appends continue through kill -9 and restart; readers get exactly the appended records."""
    producer, consumer = log.producer("p"), log.consumer("c")
    consumer.assign({(topic, 0): 0, (topic, 1): 0})
    acked: dict[int, list[int]] = {0: [], 1: []}
    stop = threading.Event()
    appended = {0: 0, 1: 0}

    def append() -> None:
        while not stop.is_set():
            for partition in (0, 1):
                number = appended[partition]
                producer.append(
                    topic,
                    partition,
                    number.to_bytes(8, "big"),
                    on_ack=lambda e, _o, p=partition, n=number: (  # type: ignore[misc]
                        acked[p].append(n) if e is None else None
                    ),
                )
                appended[partition] += 1
            producer.poll(0.001)

    thread = threading.Thread(target=append)
    thread.start()
    try:
        take(consumer, 500)
        kafka_server.kill()
    finally:
        kafka_server.start()
    before = {partition: len(numbers) for partition, numbers in acked.items()}
    deadline = time.monotonic() + 300.0
    while any(len(acked[p]) < before[p] + 200 for p in (0, 1)):
        assert time.monotonic() < deadline, "appends go on after the restart"
        time.sleep(0.01)
    stop.set()
    thread.join()
    assert producer.flush(120.0) == 0
    assert acked == {p: list(range(appended[p])) for p in (0, 1)}
    consumer.assign({(topic, 0): 0, (topic, 1): 0})
    records = take(consumer, sum(appended.values()), timeout_s=300.0)
    for partition in (0, 1):
        numbers = [int.from_bytes(r.value, "big") for r in records if r.partition == partition]
        assert numbers == list(range(appended[partition]))


def fill(producer: Producer, topic: str, acknowledged: list[object]) -> None:
    """Appends until the queue is full; `acknowledged`: the offset or the error of each record."""
    for _ in range(1000):
        producer.append(
            topic,
            0,
            b"x" * 1_000_000,
            on_ack=lambda error, offset: acknowledged.append(error or offset),
        )


def test_a_full_queue_is_a_typed_error_and_nothing_is_lost(
    kafka_server: KafkaServer, log: KafkaLog, topic: str
) -> None:
    producer, hasty = (log.producer("p", append_wait_s=wait_s) for wait_s in (0.1, 0.0))
    acknowledged: list[object] = []
    producer.append(topic, 0, b"first")
    assert producer.flush(120.0) == 0
    kafka_server.kill()
    try:
        with pytest.raises(LogFull) as caught:
            fill(producer, topic, acknowledged)
        taken = producer.pending
        assert caught.value.retryable
        assert 50 <= taken <= 70, "64 MiB are held, not more"
        assert producer.flush(0.2) == taken
        with pytest.raises(LogFull):
            fill(hasty, topic, acknowledged)
        taken += hasty.pending
    finally:
        kafka_server.start()
    assert producer.flush(120.0) == 0
    assert hasty.flush(120.0) == 0
    assert len(acknowledged) == taken
    assert log.bounds(topic, 0) == (0, taken + 1), acknowledged


def test_calls_end_as_unavailable(
    kafka_server: KafkaServer, log: KafkaLog, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "times", KafkaTimes(call_s=1.0))
    producer, consumer = log.producer("p"), log.consumer("c")
    failures: list[Exception | None] = []
    kafka_server.kill()
    try:
        assert log.partitions(topic) == 2, "known since it was created"
        with pytest.raises(TransportUnavailable):
            log.partitions("another")
        with pytest.raises(TransportUnavailable):
            log.bounds(topic, 0)
        with pytest.raises(TransportUnavailable):
            log.is_in_sync(topic, 0)
        consumer.assign({(topic, 0): 0})
        assert consumer.poll(1, 0.2) == []
        producer.append(topic, 0, b"x", on_ack=lambda error, _offset: failures.append(error))
        producer.close()
        assert isinstance(failures[0], AppendFailed), "what was never sent is reported as failed"
    finally:
        kafka_server.start()


def test_appends_without_an_answer_are_named_until_the_broker_is_back(
    kafka_server: KafkaServer, log: KafkaLog, topic: str
) -> None:
    producer = log.producer("p")
    for number in range(3):
        producer.append(topic, number % 2, b"before")
    assert producer.flush(120.0) == 0
    kafka_server.kill()
    try:
        producer.append(topic, 1, b"x")
        assert producer.append_many(topic, 1, [(b"k", b"y"), (b"l", b"z")]) == 2
        (waits,) = log.waiting_appends()
        assert waits[:-1] == ("p", topic, 1, 1), "the first had its answer"
        producer.poll(0.01)
        (again,) = log.waiting_appends()
        assert again == waits._replace(polls=waits.polls + 1)
    finally:
        kafka_server.start()
    assert producer.flush(120.0) == 0
    assert log.waiting_appends() == []
    assert log.is_in_sync(topic, 1)
    producer.close()


def test_deleted_topics_are_gone_with_what_was_in_them(log: KafkaLog, topic: str) -> None:
    producer = log.producer("p")
    producer.append(topic, 0, b"x")
    assert producer.flush(120.0) == 0
    log.delete_topics([topic, "t-that-never-was"])
    with pytest.raises(UnknownTopic):
        log.partitions(topic)
    log.create_topics([TopicSpec(topic, 3)])
    assert log.bounds(topic, 0) == (0, 0)
    assert log.partitions(topic) == 3


def test_a_wrong_address_is_unavailable() -> None:
    log = KafkaLog(KafkaSettings(bootstrap="127.0.0.1:1"), KafkaTimes(call_s=1.0))
    with pytest.raises(TransportUnavailable):
        log.create_topics([TopicSpec("t", 1)])
    log.close()


def test_a_record_that_the_broker_refuses_leaves_no_gap(log: KafkaLog) -> None:
    """Later appends are refused too, by the client or by the adapter."""
    topic = f"t-{uuid.uuid4().hex[:12]}"
    admin = AdminClient({"bootstrap.servers": log.settings.bootstrap})
    made = NewTopic(topic, 1, config={"max.message.bytes": "10000"})
    admin.create_topics([made])[topic].result(120.0)
    log.create_topics([TopicSpec(topic, 1)])
    producer = log.producer("p")
    outcomes: list[tuple[int, type[Exception] | None]] = []

    def append(number: int, size: int) -> None:
        producer.append(
            topic,
            0,
            os.urandom(size),
            on_ack=lambda error, _offset: outcomes.append(
                (number, None if error is None else type(error))
            ),
        )

    append(0, 100)
    assert producer.flush(120.0) == 0
    append(1, 50_000)
    append(2, 100)
    assert producer.flush(120.0) == 0
    assert outcomes == [(0, None), (1, AppendFailed), (2, AppendFailed)]
    with pytest.raises(AppendFailed):
        append(3, 100)
    assert log.bounds(topic, 0) == (0, 1)


def until_answered(step: Callable[[], None]) -> None:
    """Takes a step of a transaction, again while the broker has no time for it."""
    while True:
        try:
            return step()
        except TransportUnavailable:
            continue


def test_a_successor_continues_from_a_transaction_open_when_the_broker_died(
    kafka_server: KafkaServer, log: KafkaLog, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outage outlasts the transaction; the broker never received its begin."""
    monkeypatch.setattr(log, "times", KafkaTimes(transaction_ms=2_000))
    name = f"x-{uuid.uuid4().hex[:12]}"
    producer = log.producer("p", transactional_id=name)
    producer.init_transactions()
    producer.begin()
    producer.append(topic, 0, b"before")
    producer.commit()
    pid = kafka_server.process.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    producer.begin()
    producer.append(topic, 0, b"lost")
    producer.flush(1.0)  # sends the begin of the transaction
    kafka_server.kill()
    try:
        with pytest.raises(TransactionAborted):
            until_answered(producer.commit)
    finally:
        kafka_server.start()
    with pytest.raises(FencedError):
        until_answered(producer.abort)
    successor = log.producer("p", transactional_id=name)
    until_answered(successor.init_transactions)
    successor.begin()
    successor.append(topic, 0, b"after")
    until_answered(successor.commit)
    consumer = log.consumer("c")
    consumer.assign({(topic, 0): 0})
    assert [record.value for record in take(consumer, 2)] == [b"before", b"after"]
