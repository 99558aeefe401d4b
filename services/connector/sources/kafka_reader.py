"""A consumer of Kafka topics in a group: batches of decoded records, and the places to commit.

All of its methods belong to one thread. Partitions are assigned and revoked while it polls.
"""

from __future__ import annotations

import logging
import random
import secrets
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from sirocco_client import Retry
from sirocco_client.connection.retry import ATTEMPTS_MAX, Backoff
from sirocco_client.errors import Unavailable

from sirocco.services.connector.sources.kafka_config import KafkaSourceSettings
from sirocco.services.connector.sources.kafka_dead_letters import DeadLetters
from sirocco.services.connector.sources.kept_record import kept
from sirocco.services.connector.sources.progress import Place, place_of
from sirocco.services.connector.sources.records import Bad, Decoded
from sirocco.services.connector.sources.registry_formats import Reader, open_reader
from sirocco.services.connector.sources.schema_registry import RegistryAwayError
from sirocco.telemetry.logging import event
from sirocco.transport.kafka_errors import LOGGER, made
from sirocco.transport.kafka_reports import KafkaReports
from sirocco.transport.kafka_settings import client_config

logger = logging.getLogger(__name__)

# One call to the brokers.
_CALL_S = 10.0

# How long a poll waits for a first record: what is acknowledged meanwhile waits for its commit.
_POLL_S = 0.1

# Of records that one fetch brings, and those that wait here. The library counts the bytes of values
# alone: many fetches of keys and headers would wait, were these fewer records not enough for it to
# fetch no more.
_FETCH_BYTES = 16 << 20
_QUEUED_KBYTES = 32 << 10
_QUEUED_RECORDS = 100

At = tuple[str, int]


class Host(Protocol):
    """What a reader asks of its source."""

    def assign(self, places: dict[At, Place]) -> None:
        """Begins with partitions."""

    def release(self, partitions: list[At], wait_s: float) -> dict[At, Place]:
        """Ends with partitions; returns what may be committed."""

    def written_aside(self, at: At, offset: int) -> None:
        """Records that the dead letters have a record."""

    def retried(self, reason: str) -> None:
        """Counts an attempt that failed."""


@dataclass(frozen=True, slots=True)
class Part:
    """Records of one partition.

    Attributes:
        at: Topic and partition.
        decoded: What they hold.
        count: How many there are.
        upto: The offset after the last one.
    """

    at: At
    decoded: Decoded
    count: int
    upto: int


@dataclass(slots=True)
class Batch:
    """What one poll has brought.

    Attributes:
        parts: By partition.
        ends: Partition → offset at its present end, which it was read to.
    """

    parts: list[Part] = field(default_factory=list)
    ends: dict[At, int] = field(default_factory=dict)


class KafkaReader:
    """Reads the topics of a source.

    Attributes:
        ends: Partition → offset of the next record that is written there, as of the last commit.
        failure: Why dead letters cannot be written; None while they can.
    """

    def __init__(self, settings: KafkaSourceSettings, host: Host) -> None:
        self._settings = settings
        self._host = host
        self._consumer: Consumer | None = None
        self._dead_letters: DeadLetters | None = None
        self._reader: Reader | None = None
        self._later: list[Bad] = []
        # Records whose schemas the registry has not returned yet, and when it is asked again.
        self._waiting: list[Any] = []
        self._due_s = 0.0
        self._pauses = Backoff(_retry_of(settings), random.random)
        self._held: dict[At, int] = {}
        self._error: KafkaException | None = None
        self.ends: dict[At, int] = {}

    @property
    def has_dead_letters(self) -> bool:
        """Whether bad records are written to a topic."""
        return self._settings.dead_letters is not None

    @property
    def failure(self) -> str | None:
        """Why the brokers refuse dead letters."""
        found = None if self._dead_letters is None else self._dead_letters.failure
        return None if found is None else str(found)

    def open(self) -> None:
        """Connects and joins the group.

        Raises:
            KafkaException: The brokers do not answer, or a topic does not exist yet.
            AccessRefused: They refuse the password, or nobody here trusts them.
            TransportError: The client takes no such settings.
        """
        settings = self._settings
        self._reader = open_reader(settings)
        reports = KafkaReports(settings.kafka)
        config = _consumer_config(settings) | {"error_cb": reports.note}
        consumer = self._consumer = made(lambda: Consumer(config, logger=LOGGER), "kafka")
        wanted = list(settings.topics)
        if settings.dead_letters is not None:
            wanted.append(settings.dead_letters)
        for topic in wanted:
            with reports.refusals(consumer, f"topic {topic}"):
                found = consumer.list_topics(topic, timeout=_CALL_S).topics[topic]
            if found.error is not None:
                raise KafkaException(
                    KafkaError(found.error.code(), f"topic {topic}: {found.error.str()}")
                )
        if settings.dead_letters is not None:
            self._dead_letters = DeadLetters(
                settings.kafka,
                settings.dead_letters,
                settings.name,
                lambda topic, partition, offset: self._host.written_aside(
                    (topic, partition), offset
                ),
            )
        consumer.subscribe(
            list(settings.topics),
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._lost,
        )

    def poll(self) -> Batch:
        """Returns what there is, after a moment.

        Raises:
            KafkaException: The group, or the reading, cannot go on with this client.
        """
        assert self._consumer is not None
        if self._dead_letters is not None:
            later, self._later = self._later, []
            self.put_aside(later)
            self._dead_letters.poll()
        first = self._consumer.poll(_POLL_S)
        found = [] if first is None else [first]
        if found and not self._waiting:
            found += self._consumer.consume(self._settings.batch_records - 1, 0)
        if self._error is not None:
            raise self._error
        found = self._waiting + found
        if not self._is_prepared(found):
            return Batch()
        return self._sorted(found)

    def _is_prepared(self, messages: list[Any]) -> bool:
        """Whether the schemas of all records are known; if not, they wait and nothing is read."""
        assert self._consumer is not None
        assert self._reader is not None
        was_waiting = bool(self._waiting)
        self._waiting = []
        if not messages:
            return False
        if was_waiting and time.monotonic() < self._due_s:
            self._waiting = messages
            return False
        try:
            self._reader.prepare(messages)
        except RegistryAwayError as error:
            self._waiting = messages
            self._host.retried(str(error))
            self._due_s = time.monotonic() + self._pauses.pause_s(Unavailable(str(error)))
            # Paused, since the group would expel a consumer that does not poll.
            self.pause()
            return False
        if was_waiting:
            self._pauses.progressed()
            self.resume()
        return True

    def put_aside(self, bad: list[Bad]) -> None:
        """Hands records to the dead letters."""
        assert self._dead_letters is not None or not bad
        for each in bad:
            self._dead_letters.write(each)  # type: ignore[union-attr]

    def put_aside_later(self, bad: Bad) -> None:
        """Hands a record to the dead letters at the next poll; from any thread."""
        self._later.append(bad)

    def pause(self) -> None:
        """Stops reading; polling continues."""
        assert self._consumer is not None
        self._consumer.pause(self._consumer.assignment())

    def resume(self) -> None:
        """Continues to read."""
        assert self._consumer is not None
        self._consumer.resume(self._consumer.assignment())

    def commit(self, places: Mapping[At, Place]) -> None:
        """Commits places, without waiting; and looks where the partitions end."""
        assert self._consumer is not None
        if places:
            self._consumer.commit(offsets=_commits(places), asynchronous=True)
        ends = {}
        for at in self._held:
            _, high = self._consumer.get_watermark_offsets(TopicPartition(*at), cached=True)
            if high >= 0:
                ends[at] = high
        self.ends = ends

    def close(self) -> None:
        """Leaves the group, after what is under way was waited for and committed."""
        consumer, self._consumer = self._consumer, None
        if self._dead_letters is not None:
            self.put_aside(self._later)
            self._later = []
            self._dead_letters.close()
        if consumer is not None:
            # Partitions are taken away within.
            consumer.close()

    # --- partitions that come and go, within a poll ---------------------------------------------

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        try:
            places = self._places(consumer, partitions)
        except KafkaException as error:
            # Raised by `poll`: the client starts anew.
            self._error = error
            consumer.incremental_assign([])
            return
        self._host.assign(places)
        self._held.update({at: place.position for at, place in places.items()})
        consumer.incremental_assign(
            [TopicPartition(*at, place.position) for at, place in places.items()]
        )

    def _places(self, consumer: Consumer, partitions: list[TopicPartition]) -> dict[At, Place]:
        places: dict[At, Place] = {}
        new: dict[At, Place] = {}
        for each in consumer.committed(partitions, timeout=_CALL_S):
            if each.error is not None:
                raise KafkaException(each.error)
            low, high = consumer.get_watermark_offsets(each, timeout=_CALL_S)
            at = (each.topic, each.partition)
            place = places[at] = place_of(
                each.offset,
                each.metadata,
                low,
                high,
                earliest=self._settings.earliest,
                new_session=secrets.randbits(63),
            )
            if place.metadata != each.metadata:
                new[at] = place
            elif low > place.position:
                logger.warning(
                    "",
                    extra=event(
                        "records_gone",
                        source=self._settings.name,
                        topic=at[0],
                        partition=at[1],
                        count=low - place.position,
                    ),
                )
        if new:
            # Before anything is published: after a crash the same session continues.
            for each in consumer.commit(offsets=_commits(new), asynchronous=False) or ():
                if each.error is not None:
                    raise KafkaException(each.error)
        return places

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        found = [(each.topic, each.partition) for each in partitions]
        places = self._host.release(found, self._settings.release_s)
        self._forget(found)
        if places:
            try:
                consumer.commit(offsets=_commits(places), asynchronous=False)
            except KafkaException as error:
                # The next owner reads a little of it again.
                logger.warning(str(error), extra=event("commit_failed", source=self._settings.name))

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        found = [(each.topic, each.partition) for each in partitions]
        self._host.release(found, 0.0)
        self._forget(found)

    def _forget(self, partitions: list[At]) -> None:
        for at in partitions:
            self._held.pop(at, None)
            self.ends.pop(at, None)
        gone = set(partitions)
        self._waiting = [
            each for each in self._waiting if (each.topic(), each.partition()) not in gone
        ]

    # --- records ----------------------------------------------------------------------------------

    def _sorted(self, messages: list[Any]) -> Batch:
        """Returns the records of messages, which leave the list."""
        batch = Batch()
        by_partition: dict[At, list[Any]] = defaultdict(list)
        messages.reverse()
        while messages:
            # Each message is freed, with all its headers, before the next one.
            message = messages.pop()
            if (error := message.error()) is None:
                at = (message.topic(), message.partition())
                by_partition[at].append(kept(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                batch.ends[message.topic(), message.partition()] = message.offset()
            elif error.fatal():
                raise KafkaException(error)
            else:
                self._host.retried(str(error))
        for at, records in by_partition.items():
            if at not in self._held:
                continue
            if records[0].offset() < self._held[at]:
                raise KafkaException(
                    KafkaError(KafkaError._STATE, f"{at[0]}/{at[1]} went back: another topic?")
                )
            upto = self._held[at] = records[-1].offset() + 1
            assert self._reader is not None
            batch.parts.append(Part(at, self._reader.read(records), len(records), upto))
        return batch


def _retry_of(settings: KafkaSourceSettings) -> Retry:
    longest_s = settings.registry.retry_s if settings.registry is not None else 1.0
    return Retry(ATTEMPTS_MAX, min(500.0, longest_s * 1_000), longest_ms=longest_s * 1_000)


def _commits(places: Mapping[At, Place]) -> list[TopicPartition]:
    return [
        TopicPartition(*at, place.position, metadata=place.metadata) for at, place in places.items()
    ]


def _consumer_config(settings: KafkaSourceSettings) -> dict[str, Any]:
    return client_config(settings.kafka, f"sirocco-{settings.name}") | {
        "group.id": settings.group,
        "session.timeout.ms": int(settings.session_s * 1_000),
        "heartbeat.interval.ms": int(settings.session_s * 1_000 / 5),
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        # Only where the log has thrown away what was not read: places are always given.
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        # Reports the end after markers of transactions, which no record shows.
        "enable.partition.eof": True,
        # Partitions that stay are read on while others move.
        "partition.assignment.strategy": "cooperative-sticky",
        "fetch.wait.max.ms": 100,
        "fetch.queue.backoff.ms": 10,
        "queued.min.messages": _QUEUED_RECORDS,
        "queued.max.messages.kbytes": _QUEUED_KBYTES,
        "fetch.max.bytes": _FETCH_BYTES,
        "fetch.message.max.bytes": max(1 << 20, settings.record_bytes),
        # Also of what a batch of records unpacks to, with zstd.
        "receive.message.max.bytes": 2 * max(_FETCH_BYTES, settings.record_bytes),
    }
