"""The promises of only the embedded log."""

from __future__ import annotations

import random
import threading

import pytest

from sirocco.transport.log import TopicSpec
from sirocco.transport.memory_log import MemoryLog
from tests.support.waiting import eventually


def test_values_are_not_copied() -> None:
    log = MemoryLog()
    log.create_topics([TopicSpec("t", 1)])
    value = b"x" * 1000
    log.producer("p").append("t", 0, value)
    consumers = [log.consumer("a"), log.consumer("b")]
    for consumer in consumers:
        consumer.assign({("t", 0): 0})
    first, second = (consumer.poll(1, 0.0)[0] for consumer in consumers)
    assert first.value is value
    assert first is second


def test_memory_is_counted_and_given_back() -> None:
    log = MemoryLog()
    log.create_topics([TopicSpec("t", 1)])
    producer = log.producer("p")
    assert log.bytes_total == 0
    for _ in range(10):
        producer.append("t", 0, b"x" * 1000, key=b"k" * 10, headers=(("h" * 5, b"v" * 5),))
    assert 10 * 1020 <= log.bytes_total <= 10 * 1020 + 10 * 300
    log.truncate("t", 0, 5)
    assert 5 * 1020 <= log.bytes_total <= 5 * 1020 + 5 * 300
    log.truncate("t", 0, 10)
    assert log.bytes_total == 0
    dropping = log.producer("q", transactional_id="x")
    dropping.init_transactions()
    dropping.begin()
    dropping.append("t", 0, b"x" * 1000)
    dropping.abort()
    assert log.bytes_total < 100
    log.truncate("t", 0, 12)
    assert log.bytes_total == 0


def test_a_waiting_poll_wakes_at_once() -> None:
    log = MemoryLog()
    log.create_topics([TopicSpec("t", 1)])
    producer, consumer = log.producer("p"), log.consumer("c")
    consumer.assign({("t", 0): 0})
    woken: list[int] = []

    def wait() -> None:
        while len(woken) < 20:
            # Longer than the test may wait: only a poll that is woken returns.
            woken.extend(len(woken) for _ in consumer.poll(1, 600.0))

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    for number in range(20):
        producer.append("t", 0, b"x")
        eventually(lambda number=number: len(woken) > number)
    thread.join()


def test_closing_wakes_a_waiting_poll() -> None:
    log = MemoryLog()
    log.create_topics([TopicSpec("t", 1)])
    consumer = log.consumer("c")
    consumer.assign({("t", 0): 0})
    ended = threading.Event()

    def wait() -> None:
        try:
            consumer.poll(1, 60.0)
        except Exception:
            ended.set()

    thread = threading.Thread(target=wait)
    thread.start()
    log.close()
    assert ended.wait(120.0)
    thread.join()


@pytest.mark.parametrize("seed", range(20))
def test_any_mix_of_transactions_equals_a_plain_model(seed: int) -> None:
    """Three transactional producers and a plain one, compared with a list of visible records."""
    rng = random.Random(seed)
    log = MemoryLog()
    log.create_topics([TopicSpec("t", 2)])
    consumer = log.consumer("c")
    consumer.assign({("t", 0): 0, ("t", 1): 0})
    plain = log.producer("plain")
    producers = [log.producer(str(n), transactional_id=str(n)) for n in range(3)]
    for producer in producers:
        producer.init_transactions()
    open_values: dict[int, list[tuple[int, bytes]]] = {}
    committed: set[tuple[int, bytes]] = set()
    seen: list[tuple[int, int, bytes]] = []
    for step in range(300):
        who, partition, value = rng.randrange(4), rng.randrange(2), b"%d" % step
        if who == 3:
            plain.append("t", partition, value)
            committed.add((partition, value))
        elif who not in open_values:
            producers[who].begin()
            open_values[who] = []
        elif rng.random() < 0.6:
            producers[who].append("t", partition, value)
            open_values[who].append((partition, value))
        elif rng.random() < 0.7:
            producers[who].commit()
            committed.update(open_values.pop(who))
        else:
            producers[who].abort()
            del open_values[who]
        for record in consumer.poll(rng.randrange(1, 20), 0.0):
            seen.append((record.partition, record.offset, record.value))
            assert (record.partition, record.value) in committed, f"seed {seed}, step {step}"
    for who in list(open_values):
        producers[who].abort()
    while batch := consumer.poll(100, 0.0):
        seen += [(r.partition, r.offset, r.value) for r in batch]
    again = f"seed {seed}: pytest {__file__} -k 'plain_model and {seed}'"
    assert {(p, v) for p, _, v in seen} == committed, again
    assert len(seen) == len(committed), again
    for partition in (0, 1):
        values = [int(v) for p, _, v in seen if p == partition]
        assert values == sorted(values), again
        assert consumer.positions()["t", partition] == log.bounds("t", partition)[1], again
