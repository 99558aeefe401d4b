"""The contract of every log: the same scenarios on memory and on Kafka."""

from __future__ import annotations

import os
import threading
import time
import uuid
from typing import Any

import pytest

from sirocco.transport.errors import (
    Closed,
    OffsetOutOfRange,
    RecordTooLarge,
    TopicMismatch,
    TransportError,
    UnknownTopic,
)
from sirocco.transport.kafka_log import KafkaLog
from sirocco.transport.kafka_settings import KafkaSettings
from sirocco.transport.log import RECORD_BYTES_MAX, Log, Producer, TopicSpec
from tests.integration.transport.log_reading import at_head, take, until


def append_all(producer: Producer, topic: str, partition: int, values: list[bytes]) -> None:
    for value in values:
        producer.append(topic, partition, value)
    assert producer.flush(120.0) == 0


def test_create_topics_may_be_repeated_but_not_changed(log: Log, topic: str) -> None:
    assert log.partitions(topic) == 4
    other = f"{topic}-new"
    log.create_topics([TopicSpec(topic, 4), TopicSpec(other, 2, compacted=True)])
    assert log.partitions(other) == 2
    with pytest.raises(TopicMismatch) as caught:
        log.create_topics([TopicSpec(topic, 5)])
    assert (caught.value.topic, caught.value.wanted, caught.value.found) == (topic, 5, 4)
    log.create_topics([])


def test_unknown_topics_and_partitions_are_refused(log: Log, topic: str) -> None:
    producer, consumer = log.producer("p"), log.consumer("c")
    for name, partition in [("no-such-topic", 0), (topic, 4), (topic, -1)]:
        with pytest.raises(UnknownTopic):
            producer.append(name, partition, b"x")
        with pytest.raises(UnknownTopic):
            consumer.assign({(name, partition): 0})
        with pytest.raises(UnknownTopic):
            consumer.add({(name, partition): 0})
        with pytest.raises(UnknownTopic):
            log.bounds(name, partition)
        with pytest.raises(UnknownTopic):
            log.is_in_sync(name, partition)
        with pytest.raises(UnknownTopic):
            log.truncate(name, partition, 0)
    with pytest.raises(UnknownTopic):
        log.partitions("no-such-topic")
    assert producer.pending == 0


def test_a_record_comes_back_whole(log: Log, topic: str) -> None:
    producer, consumer = log.producer("p"), log.consumer("c")
    headers = (("method", b"/a.B/C"), ("x", b""), ("x", b"\x00\xff"))
    producer.append(topic, 2, b"value", key=b"key", headers=headers, timestamp_ms=1_405_123_200_000)
    before_ms = time.time_ns() // 1_000_000
    producer.append(topic, 2, b"")
    assert producer.flush(120.0) == 0
    consumer.assign({(topic, 2): 0})
    first, second = take(consumer, 2)
    assert (first.topic, first.partition, first.offset) == (topic, 2, 0)
    assert (first.key, first.value, first.headers) == (b"key", b"value", headers)
    assert first.timestamp_ms == 1_405_123_200_000
    assert (second.offset, second.key, second.value, second.headers) == (1, None, b"", ())
    assert abs(second.timestamp_ms - before_ms) < 60_000


def test_an_empty_value_with_a_key_comes_back_empty(log: Log, topic: str) -> None:
    producer, consumer = log.producer("p"), log.consumer("c")
    producer.append(topic, 0, b"", key=b"deleted")
    assert producer.flush(120.0) == 0
    consumer.assign({(topic, 0): 0})
    assert [(r.key, r.value) for r in take(consumer, 1)] == [(b"deleted", b"")]


def test_order_and_callbacks_per_partition(log: Log, topic: str) -> None:
    producer, consumer = log.producer("p"), log.consumer("c")
    acked: dict[int, list[tuple[int, int]]] = {p: [] for p in range(4)}

    def note(partition: int, number: int, error: Exception | None, offset: int) -> None:
        assert error is None
        acked[partition].append((number, offset))

    for number in range(2000):
        partition = number % 4
        producer.append(
            topic,
            partition,
            number.to_bytes(4, "big"),
            on_ack=lambda e, o, p=partition, n=number: note(p, n, e, o),  # type: ignore[misc]
        )
        if number % 100 == 0:
            producer.poll(0.0)
    assert producer.flush(120.0) == 0
    assert producer.pending == 0
    consumer.assign({(topic, p): 0 for p in range(4)})
    records = take(consumer, 2000)
    for partition in range(4):
        own = [r for r in records if r.partition == partition]
        assert [int.from_bytes(r.value, "big") for r in own] == list(range(partition, 2000, 4))
        assert [r.offset for r in own] == list(range(500))
        assert acked[partition] == [
            (number, offset) for offset, number in enumerate(range(partition, 2000, 4))
        ]
    assert consumer.positions() == {(topic, p): 500 for p in range(4)}


def test_many_records_are_appended_as_one_by_one(log: Log, topic: str) -> None:
    producer, consumer = log.producer("p"), log.consumer("c")
    headers = (("method", b"/a.B/C"),)
    records = [(number.to_bytes(4, "big"), b"v" * (number % 3)) for number in range(500)]
    acked: list[tuple[Exception | None, int]] = []
    producer.append(topic, 1, b"before")
    taken = producer.append_many(
        topic, 1, records, headers=headers, on_ack=lambda *ack: acked.append(ack)
    )
    producer.append(topic, 1, b"after")
    assert taken == 500
    assert producer.flush(120.0) == 0
    assert producer.pending == 0
    assert {error for error, _ in acked} == {None}
    assert sum(count for _, count in acked) == 500
    consumer.assign({(topic, 1): 0})
    read = take(consumer, 502)
    assert [(r.key, r.value) for r in read[1:-1]] == records
    assert {r.headers for r in read[1:-1]} == {headers}
    assert [read[0].value, read[-1].value] == [b"before", b"after"]
    with pytest.raises(UnknownTopic):
        producer.append_many(topic, 4, records)
    with pytest.raises(RecordTooLarge):
        producer.append_many(topic, 1, [(b"k", b"x" * RECORD_BYTES_MAX)])
    assert producer.pending == 0


def test_callbacks_run_only_inside_calls_of_the_producer(log: Log, topic: str) -> None:
    producer = log.producer("p")
    thread_ids: list[int] = []
    producer.append(topic, 0, b"x", on_ack=lambda _e, _o: thread_ids.append(threading.get_ident()))
    until(lambda: log.bounds(topic, 0) == (0, 1), "the record is in the log")
    assert thread_ids == []
    assert producer.pending == 1

    def is_acknowledged() -> bool:
        producer.poll(0.1)
        return producer.pending == 0

    until(is_acknowledged, "acknowledged")
    assert thread_ids == [threading.get_ident()]


def test_an_error_in_a_callback_reaches_the_caller(log: Log, topic: str) -> None:
    producer = log.producer("p")

    def fail(_error: Exception | None, _offset: int) -> None:
        raise ArithmeticError("from the callback")

    producer.append(topic, 0, b"x", on_ack=fail)
    with pytest.raises(ArithmeticError):
        producer.flush(120.0)


def test_reading_begins_at_exact_offsets(log: Log, topic: str) -> None:
    producer, consumer = log.producer("p"), log.consumer("c")
    append_all(producer, topic, 0, [b"%d" % i for i in range(10)])
    append_all(producer, topic, 1, [b"%d" % i for i in range(10)])
    consumer.assign({(topic, 0): 7, (topic, 1): 10})
    assert [r.value for r in take(consumer, 3)] == [b"7", b"8", b"9"]
    assert at_head(log, consumer)
    append_all(producer, topic, 1, [b"new"])
    assert [(r.offset, r.value) for r in take(consumer, 1)] == [(10, b"new")]


def test_assign_replaces_and_add_and_remove_do_not_disturb_others(log: Log, topic: str) -> None:
    producer, consumer = log.producer("p"), log.consumer("c")
    for partition in range(4):
        append_all(producer, topic, partition, [b"%d-%d" % (partition, i) for i in range(5)])
    consumer.assign({(topic, 0): 0, (topic, 1): 0})
    take(consumer, 10)
    consumer.assign({(topic, 1): 3})
    assert [r.value for r in take(consumer, 2)] == [b"1-3", b"1-4"]
    consumer.add({(topic, 2): 4, (topic, 3): 5})
    assert [r.value for r in take(consumer, 1)] == [b"2-4"]
    consumer.remove([(topic, 1)])
    append_all(producer, topic, 1, [b"unseen"])
    append_all(producer, topic, 3, [b"seen"])
    assert [r.value for r in take(consumer, 1)] == [b"seen"]
    assert consumer.positions() == {(topic, 2): 5, (topic, 3): 6}
    with pytest.raises(UnknownTopic):
        consumer.assign({(topic, 2): 0, (topic, 99): 0})
    assert consumer.positions() == {(topic, 2): 5, (topic, 3): 6}
    with pytest.raises(ValueError, match="assigned already"):
        consumer.add({(topic, 2): 0})
    for call in (consumer.remove, consumer.pause, consumer.resume):
        with pytest.raises(ValueError, match="not assigned"):
            call([(topic, 1)])
    with pytest.raises(ValueError, match="not assigned"):
        consumer.seek(topic, 1, 0)
    consumer.assign({})
    assert consumer.poll(10, 0.05) == []


def test_seek_goes_back_and_forth_during_reading(log: Log, topic: str) -> None:
    producer, consumer = log.producer("p"), log.consumer("c")
    append_all(producer, topic, 0, [b"%d" % i for i in range(3000)])
    consumer.assign({(topic, 0): 0})
    take(consumer, 100)
    consumer.seek(topic, 0, 50)
    assert [r.offset for r in take(consumer, 1000)] == list(range(50, 1050))
    consumer.seek(topic, 0, 2990)
    assert [r.offset for r in take(consumer, 10)] == list(range(2990, 3000))
    consumer.seek(topic, 0, 0)
    assert [r.offset for r in take(consumer, 3000)] == list(range(3000))


def test_paused_partitions_stand_still_and_lose_nothing(log: Log, topic: str) -> None:
    producer, consumer = log.producer("p"), log.consumer("c")
    for partition in (0, 1):
        append_all(producer, topic, partition, [b"%d" % i for i in range(2000)])
    consumer.assign({(topic, 0): 0, (topic, 1): 0})
    seen = take(consumer, 50)
    consumer.pause([(topic, 0)])
    stopped = consumer.positions()[topic, 0]
    rest = 2000 - sum(1 for r in seen if r.partition == 1)
    assert {r.partition for r in take(consumer, rest)} == {1}
    assert consumer.poll(10, 0.2) == []
    assert consumer.positions() == {(topic, 0): stopped, (topic, 1): 2000}
    consumer.seek(topic, 0, stopped)
    assert consumer.poll(10, 0.2) == [], "seeking ends no pause"
    consumer.resume([(topic, 0)])
    assert [r.offset for r in take(consumer, 2000 - stopped)] == list(range(stopped, 2000))


def test_poll_waits_only_while_there_is_nothing(log: Log, topic: str) -> None:
    producer, consumer = log.producer("p"), log.consumer("c")
    consumer.assign({(topic, p): 0 for p in range(4)})
    started = time.monotonic()
    assert consumer.poll(100, 0.15) == []
    assert time.monotonic() - started >= 0.1

    def append() -> None:
        producer.append(topic, 3, b"x")
        producer.flush(120.0)

    thread = threading.Thread(target=append)
    thread.start()
    # Longer than a test may take: were it waited for, this one would fail.
    assert [r.value for r in consumer.poll(100, 3_600.0)] == [b"x"]
    thread.join()


def test_lag_is_what_is_there_and_not_yet_read(log: Log, topic: str) -> None:
    producer, consumer = log.producer("p"), log.consumer("c")
    for partition in (0, 1):
        append_all(producer, topic, partition, [b"x"] * 10)
    consumer.assign({(topic, 0): 0, (topic, 1): 4})
    # All but one: the ends arrive with answers to fetches, so some of each must have been read.
    take(consumer, 15)
    assert consumer.lag() == {topic: 1}
    take(consumer, 1)
    assert consumer.lag() == {topic: 0}
    assert log.consumer("other").lag() == {}


def test_poll_takes_no_more_than_asked(log: Log, topic: str) -> None:
    producer, consumer = log.producer("p"), log.consumer("c")
    append_all(producer, topic, 0, [b"x"] * 50)
    consumer.assign({(topic, 0): 0})
    seen = 0
    while seen < 50:
        batch = consumer.poll(7, 5.0)
        assert 1 <= len(batch) <= 7
        seen += len(batch)


def test_no_partition_starves_after_a_full_one(log: Log, topic: str) -> None:
    producer, consumer = log.producer("p"), log.consumer("c")
    much = os.urandom(100_000)
    append_all(producer, topic, 0, [much] * 300)
    append_all(producer, topic, 1, [b"little"])
    consumer.assign({(topic, 0): 0, (topic, 1): 0})
    turns = [r.partition for r in take(consumer, 301)]
    assert turns.index(1) < 250, "the other Kafka partition came only after the full one"


def test_large_records_pass_and_larger_ones_are_refused(log: Log, topic: str) -> None:
    producer, consumer = log.producer("p"), log.consumer("c")
    large = os.urandom(RECORD_BYTES_MAX - 1000)
    with pytest.raises(RecordTooLarge) as caught:
        producer.append(topic, 0, b"x" * (RECORD_BYTES_MAX - 2), key=b"key")
    assert (caught.value.size_bytes, caught.value.limit_bytes) == (
        RECORD_BYTES_MAX + 1,
        RECORD_BYTES_MAX,
    )
    append_all(producer, topic, 0, [large, b"small", large])
    consumer.assign({(topic, 0): 0})
    assert [r.value for r in take(consumer, 3)] == [large, b"small", large]


def test_partitions_are_in_sync_and_nothing_waits_that_is_acknowledged(
    log: Log, topic: str
) -> None:
    producer = log.producer("p")
    append_all(producer, topic, 1, [b"x", b"y"])
    assert log.waiting_appends() == []
    assert [log.is_in_sync(topic, partition) for partition in range(4)] == [True] * 4


def test_truncated_offsets_are_a_typed_error(log: Log, topic: str) -> None:
    producer, consumer = log.producer("p"), log.consumer("c")
    for partition in (0, 1):
        append_all(producer, topic, partition, [b"%d" % i for i in range(10)])
    log.truncate(topic, 0, 6)
    assert log.bounds(topic, 0) == (6, 10)
    log.truncate(topic, 0, 3)
    assert log.bounds(topic, 0) == (6, 10)
    consumer.assign({(topic, 0): 2, (topic, 1): 0})
    seen: list[Any] = []
    errors: list[Any] = []
    until_s = time.monotonic() + 120.0
    while (len(seen) < 10 or not errors) and time.monotonic() < until_s:
        try:
            seen += consumer.poll(100, 0.2)
        except OffsetOutOfRange as error:
            errors.append(error)
    assert [(e.topic, e.partition, e.offset, e.earliest) for e in errors] == [(topic, 0, 2, 6)]
    assert [r.offset for r in seen] == list(range(10)), "the other partition goes on"
    consumer.seek(topic, 0, errors[0].earliest)
    assert [r.offset for r in take(consumer, 4)] == [6, 7, 8, 9]


def test_a_position_above_the_log_is_out_of_range(log: Log, topic: str) -> None:
    append_all(log.producer("p"), topic, 0, [b"x"] * 3)
    consumer = log.consumer("c")
    consumer.assign({(topic, 0): 77})
    with pytest.raises(OffsetOutOfRange) as caught:
        take(consumer, 1)
    assert (caught.value.offset, caught.value.earliest) == (77, 0)
    assert consumer.poll(1, 0.2) == []
    consumer.seek(topic, 0, 78)
    consumer.remove([(topic, 0)])
    consumer.add({(topic, 0): 2})
    assert [r.offset for r in take(consumer, 1)] == [2]


def test_truncate_to_the_end_empties_and_beyond_is_refused(log: Log, topic: str) -> None:
    producer = log.producer("p")
    append_all(producer, topic, 0, [b"x"] * 5)
    with pytest.raises(OffsetOutOfRange):
        log.truncate(topic, 0, 6)
    log.truncate(topic, 0, 5)
    assert log.bounds(topic, 0) == (5, 5)
    append_all(producer, topic, 0, [b"next"])
    consumer = log.consumer("c")
    consumer.assign({(topic, 0): 5})
    assert [(r.offset, r.value) for r in take(consumer, 1)] == [(5, b"next")]


def test_several_threads_may_append_to_one_producer(log: Log, topic: str) -> None:
    producer, consumer = log.producer("p"), log.consumer("c")

    def append(partition: int) -> None:
        for number in range(500):
            producer.append(topic, partition, number.to_bytes(4, "big"))

    threads = [threading.Thread(target=append, args=(p,)) for p in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert producer.flush(120.0) == 0
    consumer.assign({(topic, p): 0 for p in range(4)})
    records = take(consumer, 2000)
    for partition in range(4):
        numbers = [int.from_bytes(r.value, "big") for r in records if r.partition == partition]
        assert numbers == list(range(500))


def test_closed_parts_raise_that_they_are_closed(log: Log, topic: str) -> None:
    producer, consumer = log.producer("p"), log.consumer("c")
    consumer.assign({(topic, 0): 0})
    producer.close()
    consumer.close()
    producer.close()
    consumer.close()
    with pytest.raises(Closed):
        producer.append(topic, 0, b"x")
    with pytest.raises(Closed):
        consumer.poll(1, 0.0)
    other = log.consumer("d")
    log.close()
    with pytest.raises(Closed):
        other.poll(1, 0.0)


def test_two_clusters_in_one_kafka_do_not_mix(log: Log, topic: str) -> None:
    """With a prefix, a topic of one cluster is unknown to the other."""
    if not isinstance(log, KafkaLog):
        other: Log = type(log)()
    else:
        other = KafkaLog(
            KafkaSettings(bootstrap=log.settings.bootstrap, topic_prefix=f"{uuid.uuid4().hex[:6]}.")
        )
    with pytest.raises(TransportError):
        other.partitions(topic)
    other.create_topics([TopicSpec(topic, 1)])
    assert (other.partitions(topic), log.partitions(topic)) == (1, 4)
    append_all(other.producer("p"), topic, 0, [b"other"])
    consumer = other.consumer("c")
    consumer.assign({(topic, 0): 0})
    assert [(r.topic, r.value) for r in take(consumer, 1)] == [(topic, b"other")]
    assert log.bounds(topic, 0) == (0, 0)
    other.close()
