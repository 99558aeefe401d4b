"""The log on Kafka; confluent-kafka is known to the `kafka_*` modules of this package alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewTopic,
    OffsetSpec,
)

from sirocco.transport.errors import (
    OffsetOutOfRange,
    TopicMismatch,
    TransportError,
    TransportUnavailable,
    UnknownTopic,
)
from sirocco.transport.kafka_consumer import KafkaConsumer
from sirocco.transport.kafka_errors import MOVED, UNKNOWN, cause_of, made, typed
from sirocco.transport.kafka_producer import KafkaProducer
from sirocco.transport.kafka_reports import UNANSWERED, KafkaReports
from sirocco.transport.kafka_settings import (
    TIMES,
    KafkaSettings,
    KafkaTimes,
    client_config,
    topic_config,
)
from sirocco.transport.log import APPEND_WAIT_S, TopicSpec, WaitingAppends

# Pause between two requests about what is under way: short against a leader's election.
_RETRY_S: Final = 0.02


def reachable(settings: KafkaSettings, timeout_s: float) -> bool:
    """Whether the cluster answers and has a controller."""
    admin = AdminClient(client_config(settings, "probe") | {"log_level": 0})
    try:
        return bool(admin.list_topics(timeout=timeout_s).controller_id >= 0)
    except KafkaException:
        return False


class KafkaLog:
    """`Log` on a Kafka cluster. Thread-safe.

    Args:
        settings: the cluster; its `topic_prefix` is added here and never seen outside.
        times: how long it may take.
    """

    def __init__(self, settings: KafkaSettings, times: KafkaTimes = TIMES) -> None:
        self.settings: Final = settings
        self.times = times
        self._lock = threading.Lock()
        self._reports = KafkaReports(settings)
        config: dict[str, Any] = {"log_level": 0, "error_cb": self._reports.note}
        self._admin = made(lambda: AdminClient(client_config(settings, "admin") | config), "kafka")
        self._partitions: dict[str, int] = {}
        self._clients: list[KafkaProducer | KafkaConsumer] = []

    def create_topics(self, specs: Sequence[TopicSpec]) -> None:
        """See `Log.create_topics`."""
        wanted = [
            NewTopic(
                self.outer(spec.name),
                spec.partitions,
                self.settings.replication,
                config=topic_config(spec.compacted),
            )
            for spec in specs
        ]
        if not wanted:
            return
        futures = self._admin.create_topics(wanted, request_timeout=self.times.call_s)
        for topic, future in futures.items():
            self._answer(future, f"create {topic}", allowed=KafkaError.TOPIC_ALREADY_EXISTS)
        for spec in specs:
            found = self._partitions_led(spec.name)
            if found != spec.partitions:
                raise TopicMismatch(spec.name, spec.partitions, found)
            # So that a first append need not ask a broker that is away.
            self._partitions[spec.name] = found

    def delete_topics(self, names: Sequence[str]) -> None:
        """Deletes topics and all that is in them; ignores those that do not exist.

        Raises:
            TransportUnavailable: the cluster did not answer, or names them still.
            TransportError: it refuses.
        """
        wanted = [self.outer(name) for name in names]
        futures = self._admin.delete_topics(wanted, request_timeout=self.times.call_s)
        for topic, future in futures.items():
            self._partitions.pop(self.inner(topic), None)
            self._answer(future, f"delete {topic}", allowed=KafkaError.UNKNOWN_TOPIC_OR_PART)
        for name in names:
            self._count_once(name, exists=False)

    def partitions(self, topic: str) -> int:
        """See `Log.partitions`; asked once per topic, as the number is fixed."""
        known = self._partitions.get(topic)
        if known is None:
            known = self._count(topic)
            if known == 0:
                raise UnknownTopic(topic)
            self._partitions[topic] = known
        return known

    def producer(
        self,
        name: str,
        *,
        transactional_id: str | None = None,
        append_wait_s: float = APPEND_WAIT_S,
    ) -> KafkaProducer:
        """See `Log.producer`."""
        producer = KafkaProducer(self, name, transactional_id, append_wait_s)
        with self._lock:
            self._clients.append(producer)
        return producer

    def consumer(self, name: str) -> KafkaConsumer:
        """See `Log.consumer`."""
        consumer = KafkaConsumer(self, name)
        with self._lock:
            self._clients.append(consumer)
        return consumer

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """See `Log.bounds`. Right after a commit, the high bound may lag for some ms."""
        self.check(topic, partition)
        at = TopicPartition(self.outer(topic), partition)
        low = self._offsets([at], OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        high = self._offsets([at], OffsetSpec.latest())  # type: ignore[no-untyped-call]
        return low[0], high[0]

    def waiting_appends(self) -> list[WaitingAppends]:
        """See `Log.waiting_appends`."""
        with self._lock:
            producers = [one for one in self._clients if isinstance(one, KafkaProducer)]
        return [each for producer in producers for each in producer.waiting()]

    def is_in_sync(self, topic: str, partition: int) -> bool:
        """See `Log.is_in_sync`."""
        found = self._described(topic).get(partition)
        if found is None:
            raise UnknownTopic(f"{topic}/{partition}")
        return found.leader >= 0 and set(found.isrs) == set(found.replicas)

    def truncate(self, topic: str, partition: int, before_offset: int) -> None:
        """See `Log.truncate`."""
        self.check(topic, partition)
        at = TopicPartition(self.outer(topic), partition, before_offset)
        future = self._admin.delete_records([at], request_timeout=self.times.call_s)[at]
        done = self._answer(
            future, f"truncate {topic}/{partition}", allowed=KafkaError.OFFSET_OUT_OF_RANGE
        )
        if done is None:
            low, _ = self.bounds(topic, partition)
            raise OffsetOutOfRange(topic, partition, before_offset, low)

    def close(self) -> None:
        """See `Log.close`."""
        with self._lock:
            clients, self._clients = self._clients, []
        for client in clients:
            client.close()

    def check(self, topic: str, partition: int) -> None:
        """Refuses a topic or a Kafka partition that does not exist.

        Raises:
            UnknownTopic: no such topic or Kafka partition.
        """
        if not 0 <= partition < self.partitions(topic):
            raise UnknownTopic(f"{topic}/{partition}")

    def outer(self, topic: str) -> str:
        """Returns the topic's name in the cluster."""
        return self.settings.topic_prefix + topic

    def inner(self, topic: str) -> str:
        """Returns the topic's name for the caller."""
        return topic.removeprefix(self.settings.topic_prefix)

    def forget(self, client: KafkaProducer | KafkaConsumer) -> None:
        """Takes a closed client off the list."""
        with self._lock:
            if client in self._clients:
                self._clients.remove(client)

    def _partitions_led(self, topic: str) -> int:
        """Waits until a created topic can be used; returns its number of Kafka partitions.

        The metadata name leaders before those know it; a producer that is refused by one waits for
        a second.
        """
        found = self._count_once(topic, exists=True)
        everywhere = [TopicPartition(self.outer(topic), partition) for partition in range(found)]
        self._offsets(everywhere, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        return found

    def _count_once(self, topic: str, *, exists: bool) -> int:
        """Waits until the metadata name a topic, or no longer do; returns its Kafka partitions.

        The controller answers as soon as it has decided, before the brokers know of it.
        """
        deadline = time.monotonic() + self.times.call_s
        while bool(found := self._count(topic)) != exists:
            if time.monotonic() > deadline:
                known = "created, but not known" if exists else "deleted, but still known"
                raise TransportUnavailable(f"{topic}: {known}")
            time.sleep(_RETRY_S)
        return found

    def _count(self, topic: str) -> int:
        """Returns the number of Kafka partitions; 0: no such topic."""
        return len(self._described(topic))

    def _described(self, topic: str) -> dict[int, Any]:
        """Returns the metadata of the Kafka partitions; none: no such topic."""
        outer = self.outer(topic)
        try:
            found = self._admin.list_topics(outer, timeout=self.times.call_s).topics[outer]
        except KafkaException as error:
            raise self._failure(cause_of(error), f"metadata of {topic}") from error
        if found.error is not None and found.error.code() not in UNKNOWN:
            raise typed(found.error, f"metadata of {topic}")
        described: dict[int, Any] = found.partitions
        return described

    def _offsets(self, wanted: list[TopicPartition], spec: OffsetSpec) -> list[int]:
        """Returns one offset for each; asks again while leaders move."""
        deadline = time.monotonic() + self.times.call_s
        while True:
            futures = self._admin.list_offsets(
                dict.fromkeys(wanted, spec),
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=self.times.call_s,
            )
            try:
                return [int(self._answer(futures[at], f"bounds of {at}").offset) for at in wanted]
            # The metadata know it, its leader not yet.
            except (TransportUnavailable, UnknownTopic) as error:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_S)
                cause = error.__cause__
                if isinstance(cause, KafkaException) and cause_of(cause).code() in MOVED:
                    self._renew_leaders()

    def _renew_leaders(self) -> None:
        """Has the client ask for the leaders; by itself it would use those it knows for minutes.

        Of a single topic, it would not keep the answer.
        """
        try:
            self._admin.list_topics(timeout=self.times.call_s)
        except KafkaException as error:
            raise self._failure(cause_of(error), "metadata") from error

    def _answer(self, future: Any, what: str, *, allowed: int | None = None) -> Any:
        """Returns the result of an admin call, None where it failed with the `allowed` code."""
        try:
            found = future.result(timeout=self.times.call_s + 1.0)
            self._admin.poll(0)  # earlier reports of the client do not matter
            return found
        except FutureTimeoutError as error:
            raise TransportUnavailable(f"{what}: no answer") from error
        except KafkaException as error:
            if cause_of(error).code() == allowed:
                return None
            raise self._failure(cause_of(error), what) from error

    def _failure(self, cause: KafkaError, what: str) -> TransportError:
        """The error of a call; without an answer it has the reason, if the client knows one."""
        if cause.code() not in UNANSWERED:
            return typed(cause, what)
        return self._reports.explained(self._admin, cause, what)
