"""Transactions: all or nothing, and only an id's newest producer; on memory and on Kafka."""

from __future__ import annotations

import uuid

import pytest

from sirocco.transport.errors import FencedError
from sirocco.transport.log import Log, Producer
from tests.integration.transport.log_reading import at_head, take, until


@pytest.fixture
def transactional_id() -> str:
    return f"x-{uuid.uuid4().hex[:12]}"


def begun(log: Log, transactional_id: str) -> Producer:
    producer = log.producer("merger", transactional_id=transactional_id)
    producer.init_transactions()
    producer.begin()
    return producer


def test_committed_records_appear_together(log: Log, topic: str, transactional_id: str) -> None:
    consumer = log.consumer("c")
    consumer.assign({(topic, 0): 0, (topic, 1): 0})
    producer = begun(log, transactional_id)
    acks: list[tuple[Exception | None, int]] = []
    producer.append(topic, 0, b"a", on_ack=lambda e, o: acks.append((e, o)))
    producer.append(topic, 1, b"b", on_ack=lambda e, o: acks.append((e, o)))
    assert producer.flush(120.0) == 0
    assert acks == [(None, 0), (None, 0)]
    assert log.bounds(topic, 0) == (0, 0)
    assert consumer.poll(10, 0.3) == []
    producer.commit()
    assert sorted(r.value for r in take(consumer, 2)) == [b"a", b"b"]
    # The end of the transaction takes an offset of its own, which positions skip.
    until(lambda: log.bounds(topic, 0) == (0, 2), "the end of the transaction is in the log")
    until(lambda: at_head(log, consumer), "the consumer stands behind it")
    assert consumer.positions() == {(topic, 0): 2, (topic, 1): 2}


def test_aborted_records_are_never_seen(log: Log, topic: str, transactional_id: str) -> None:
    consumer = log.consumer("c")
    consumer.assign({(topic, 0): 0})
    producer = begun(log, transactional_id)
    producer.append(topic, 0, b"dropped")
    producer.flush(120.0)
    producer.abort()
    producer.begin()
    producer.append(topic, 0, b"kept")
    producer.commit()
    assert [(r.offset, r.value) for r in take(consumer, 1)] == [(2, b"kept")]
    assert consumer.poll(1, 0.2) == []


def test_an_abort_alone_lets_consumers_reach_the_head(
    log: Log, topic: str, transactional_id: str
) -> None:
    consumer = log.consumer("c")
    consumer.assign({(topic, 0): 0})
    producer = begun(log, transactional_id)
    producer.append(topic, 0, b"dropped")
    producer.flush(120.0)
    producer.abort()
    until(lambda: log.bounds(topic, 0)[1] == 2, "the end of the transaction is in the log")
    until(lambda: at_head(log, consumer), "the consumer stands behind it")


def test_an_empty_transaction_leaves_nothing(log: Log, topic: str, transactional_id: str) -> None:
    producer = begun(log, transactional_id)
    producer.commit()
    producer.begin()
    producer.abort()
    assert log.bounds(topic, 0) == (0, 0)


def test_commit_waits_for_everything_appended(log: Log, topic: str, transactional_id: str) -> None:
    producer = begun(log, transactional_id)
    acked: list[int] = []
    for number in range(500):
        producer.append(topic, number % 4, b"x" * 1000, on_ack=lambda _e, o: acked.append(o))
    producer.commit()
    assert len(acked) == 500
    assert producer.pending == 0


def test_records_of_others_wait_after_an_open_transaction(
    log: Log, topic: str, transactional_id: str
) -> None:
    plain, consumer = log.producer("plain"), log.consumer("c")
    consumer.assign({(topic, 0): 0})
    plain.append(topic, 0, b"before")
    plain.flush(120.0)
    producer = begun(log, transactional_id)
    producer.append(topic, 0, b"inside")
    producer.flush(120.0)
    plain.append(topic, 0, b"after")
    plain.flush(120.0)
    assert [r.value for r in take(consumer, 1)] == [b"before"]
    assert consumer.poll(10, 0.3) == []
    assert log.bounds(topic, 0) == (0, 1)
    producer.abort()
    assert [(r.offset, r.value) for r in take(consumer, 1)] == [(2, b"after")]


def test_a_zombie_is_fenced_and_its_transaction_dropped(
    log: Log, topic: str, transactional_id: str
) -> None:
    consumer = log.consumer("c")
    consumer.assign({(topic, 0): 0})
    zombie = begun(log, transactional_id)
    zombie.append(topic, 0, b"zombie")
    zombie.flush(120.0)
    successor = log.producer("merger", transactional_id=transactional_id)
    successor.init_transactions()
    successor.begin()
    successor.append(topic, 0, b"successor")
    successor.commit()
    assert [r.value for r in take(consumer, 1)] == [b"successor"]
    with pytest.raises(FencedError):
        zombie.commit()
    with pytest.raises(FencedError):
        zombie.begin()
    with pytest.raises(FencedError):
        zombie.append(topic, 0, b"again")
    successor.begin()
    successor.append(topic, 0, b"goes on")
    successor.commit()
    assert [r.value for r in take(consumer, 1)] == [b"goes on"]


def test_a_zombie_that_idled_is_fenced_by_its_next_commit(
    log: Log, topic: str, transactional_id: str
) -> None:
    zombie = begun(log, transactional_id)
    zombie.append(topic, 0, b"1")
    zombie.commit()
    successor = begun(log, transactional_id)

    def another() -> None:
        zombie.begin()
        zombie.append(topic, 0, b"2")
        zombie.commit()

    with pytest.raises(FencedError):
        another()
    successor.append(topic, 0, b"3")
    successor.commit()
    consumer = log.consumer("c")
    consumer.assign({(topic, 0): 0})
    assert [r.value for r in take(consumer, 2)] == [b"1", b"3"]


def test_initialising_ends_what_a_dead_predecessor_left_open(
    log: Log, topic: str, transactional_id: str
) -> None:
    dead = begun(log, transactional_id)
    dead.append(topic, 0, b"left open")
    dead.flush(120.0)
    dead.close()
    successor = log.producer("merger", transactional_id=transactional_id)
    successor.init_transactions()
    until(lambda: log.bounds(topic, 0) == (0, 2), "readers are not held back any more")


def test_misuse_is_refused(log: Log, topic: str, transactional_id: str) -> None:
    plain = log.producer("plain")
    for call in (plain.init_transactions, plain.begin, plain.commit, plain.abort):
        with pytest.raises(RuntimeError):
            call()
    producer = log.producer("merger", transactional_id=transactional_id)
    with pytest.raises(RuntimeError):
        producer.begin()
    producer.init_transactions()
    with pytest.raises(RuntimeError):
        producer.append(topic, 0, b"outside")
    producer.begin()
    with pytest.raises(RuntimeError):
        producer.begin()
    producer.append(topic, 0, b"inside")
    producer.commit()
    with pytest.raises(RuntimeError):
        producer.commit()
