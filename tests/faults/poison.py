"""Appends damaged records to every Kafka partition of every topic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from sirocco.protocol.contract.messages import (
    CONTROL,
    DEAD_LETTERS,
    DELIVERIES,
    INTAKE,
    PARTIALS,
    REGISTRY,
    SLOTS,
)
from sirocco.transport.errors import OffsetOutOfRange
from sirocco.transport.kafka_log import KafkaLog
from sirocco.transport.kafka_settings import KafkaSettings
from sirocco.transport.log import Record
from tests.faults.catalogue import Seen
from tests.faults.load import Load
from tests.faults.rig import Rig

# Topics where a second copy of a record is a repeat to be dropped; elsewhere it would be a
# declaration of its own.
_REPEATED = (INTAKE, SLOTS, PARTIALS)

# Records before a Kafka partition's end among which it looks for some to damage.
_LOOK_BACK = 50
_READ_S = 120.0


def poison(rig: Rig, load: Load) -> Seen:
    """Appends garbage, damaged, misplaced and repeated records; everything has to continue."""
    prefix = f"{rig.cluster.settings.cluster}."
    log = KafkaLog(KafkaSettings(bootstrap=rig.kafka.address, topic_prefix=prefix))
    try:
        before = rig.pids()
        appended = spoil(log)
        resumed_s = load.progress()
        load.run(5.0)
        same = rig.pids() == before
        received = letters(log)
    finally:
        log.close()
    missing = [at for at in appended if at not in received]
    note = f"{len(appended)} of them, {len(appended) - len(missing)} in `dead-letters`"
    if missing:
        note += f", not {sorted({topic for topic, _, _ in missing})}"
    return Seen(resumed_s, note if same else f"{note}; processes ended", same and not missing)


def spoil(log: KafkaLog) -> list[tuple[str, int, int]]:
    """Appends bad records to every topic of a cluster; returns their positions."""
    topics = (INTAKE, REGISTRY, SLOTS, PARTIALS, DELIVERIES, CONTROL)
    return _append(log, {topic: _genuine(log, topic) for topic in topics})


def _genuine(log: KafkaLog, topic: str) -> Record | None:
    """Returns the longest of the last records of a topic."""
    consumer = log.consumer("poison")
    try:
        found: list[Record] = []
        for partition in range(log.partitions(topic)):
            low, high = log.bounds(topic, partition)
            consumer.assign({(topic, partition): max(low, high - _LOOK_BACK)})
            # Its owner may truncate it meanwhile; other partitions have enough records.
            with suppress(OffsetOutOfRange):
                found += consumer.poll(_LOOK_BACK, 1.0)
    finally:
        consumer.close()
    return max(found, key=lambda record: len(record.value), default=None)


def _append(log: KafkaLog, genuine: dict[str, Record | None]) -> list[tuple[str, int, int]]:
    """Appends; returns the positions of the records that have to go to `dead-letters`.

    These are all unreadable records except those on `deliveries`: it has many readers and no owner,
    so each reader skips such a record, and logs it.
    """
    producer = log.producer("poison")
    senseless: list[tuple[str, int, int]] = []
    failures: list[Exception] = []

    def put(topic: str, partition: int, record: Record, value: bytes, *, counts: bool) -> None:
        def acknowledged(error: Exception | None, offset: int) -> None:
            if error is not None:
                failures.append(error)
            elif counts and topic != DELIVERIES:
                senseless.append((topic, partition, offset))

        producer.append(
            topic,
            partition,
            value,
            key=record.key or b"poison",
            headers=record.headers,
            on_ack=acknowledged,
        )

    nothing = Record(
        topic="", partition=0, offset=0, timestamp_ms=0, key=b"poison", value=b"", headers=()
    )
    for topic, record in genuine.items():
        other = genuine[SLOTS if topic != SLOTS else PARTIALS]
        for partition in range(log.partitions(topic)):
            put(topic, partition, nothing, b"\xff\x00 rubbish", counts=True)
            if record is not None:
                put(topic, partition, record, b"\xff" + record.value, counts=True)
                put(topic, partition, record, record.value[: len(record.value) // 2], counts=True)
            if other is not None:
                put(topic, partition, other, other.value, counts=True)
            if record is not None and topic in _REPEATED and partition == record.partition:
                put(topic, partition, record, record.value, counts=False)
    producer.flush(_READ_S)
    producer.close()
    if failures:
        raise failures[0]
    return senseless


def letters(log: KafkaLog) -> set[tuple[str, int, int]]:
    """Returns the positions of the records that went to `dead-letters`."""
    return {
        (headers["topic"].decode(), int(headers["partition"]), int(headers["offset"]))
        for headers, _ in read_letters(log)
    }


def read_letters(log: KafkaLog) -> Iterator[tuple[dict[str, bytes], bytes]]:
    """Yields headers and value of all records in `dead-letters`."""
    consumer = log.consumer("letters")
    try:
        low, high = log.bounds(DEAD_LETTERS, 0)
        consumer.assign({(DEAD_LETTERS, 0): low})
        while consumer.positions()[DEAD_LETTERS, 0] < high:
            for record in consumer.poll(500, 1.0):
                yield dict(record.headers), record.value
    finally:
        consumer.close()
