"""Transactions of a sink in Kafka: its state is a record of a compacted topic, within them.

The transactional id is that of the sink, so that each new instance shuts out the one before. What a
transaction left behind is decided, one way or the other, before the state is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from sirocco.services.connector.sinks.blocks import MOVED_MS
from sirocco.services.connector.sinks.errors import SinkStopped, TargetUnavailable
from sirocco.services.connector.sinks.state import Saved
from sirocco.transport.kafka_errors import LOGGER, made
from sirocco.transport.kafka_reports import KafkaReports
from sirocco.transport.kafka_settings import KafkaSettings, client_config

T = TypeVar("T")

STATE_TOPIC = "sirocco-sinks"

# Of a state topic that is made here. Sinks share it; a start reads the end of one of them.
_PARTITIONS = 8

# One call, before it counts as unavailable: longer than the election of a leader.
_CALL_S = 15.0

# How long the broker keeps the transaction of an instance that is gone and not replaced.
TRANSACTION_MS = 30_000

# Records that are read at the end of the state topic at first; ten times as many when the state is
# not among them.
_TAIL = 500

# Room of the producer's queue: more than a block may have (`settings.BLOCKS_OF_KAFKA`).
_QUEUE_ROWS = 100_000
_QUEUE_KB = 131_072

# A state that was not renewed for so long belongs to an instance that does not work.
_SILENT_S = 3 * MOVED_MS / 1_000

_FENCED = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    }
)
_REFUSED = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


class Transactions:
    """The transactions of one sink.

    Args:
        settings: of the Kafka cluster.
        name: of the sink.
        topic: of states.
        record_bytes: of a message, at most.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        name: str,
        topic: str = STATE_TOPIC,
        record_bytes: int = 1 << 20,
    ) -> None:
        self._record_bytes = record_bytes
        self._settings = settings
        self._name = name
        self._topic = topic
        self._producer: Any = None
        self._partition = 0
        # The producer's calls block. One thread, since they belong in an order.
        self._thread = ThreadPoolExecutor(1, f"sink-{name}")
        # End of the state topic when it was seen to move, and when that was.
        self._seen: tuple[int, float] | None = None

    async def open(self) -> Saved | None:
        """See `Store`."""
        return await self._call(self._open)

    async def save(self, saved: Saved) -> None:
        """See `Store`."""
        await self.commit((), "", saved)

    async def commit(self, messages: Sequence[dict[str, Any]], topic: str, saved: Saved) -> None:
        """Writes messages to a topic and the state after them, all or nothing.

        Raises:
            TargetUnavailable: Nothing of it can be relied on: open anew.
            SinkStopped: Another instance does the work, or the cluster refuses.
        """
        await self._call(lambda: self._commit(messages, topic, saved))

    async def is_free(self) -> bool:
        """See `Store`."""
        return await self._call(self._is_silent)

    async def close(self) -> None:
        """See `Store`."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)

    async def _call(self, work: Callable[[], T]) -> T:
        def run() -> T:
            try:
                return work()
            except KafkaException as error:
                raise _error_of(error.args[0]) from error

        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    def _open(self) -> Saved | None:
        self._close()
        self._make_topic()
        config = client_config(self._settings, f"sirocco-sink-{self._name}") | {
            "transactional.id": f"sirocco-sink-{self._name}",
            "transaction.timeout.ms": TRANSACTION_MS,
            "enable.idempotence": True,
            "acks": "all",
            # A commit waits for what is sent; messages gather meanwhile anyway.
            "linger.ms": 5,
            "batch.num.messages": 10_000,
            "batch.size": 1_000_000,
            "compression.type": self._settings.compression,
            "queue.buffering.max.messages": _QUEUE_ROWS,
            "queue.buffering.max.kbytes": _QUEUE_KB,
            "message.max.bytes": self._record_bytes + 65_536,
            # As Java clients do: a key is in the same partition, whichever client writes it.
            "partitioner": "murmur2_random",
        }
        self._producer = Producer(config, logger=LOGGER)
        # Shuts out the instance before, and waits for the end of its last transaction.
        self._producer.init_transactions(_CALL_S)
        low, high = self._bounds()
        with self._consumer("read_committed") as consumer:
            return self._last(consumer, low, high)

    def _make_topic(self) -> None:
        reports = KafkaReports(self._settings)
        config: dict[str, Any] = client_config(self._settings, "sirocco-sink-admin") | {
            "log_level": 0,
            "error_cb": reports.note,
        }
        admin = made(lambda: AdminClient(config), "kafka")
        # The first call of a client here: what is refused later is refused when it is opened anew.
        with reports.refusals(admin, f"topic {self._topic}"):
            found = admin.list_topics(timeout=_CALL_S).topics.get(self._topic)
        if found is None or not found.partitions:
            replication = self._settings.replication
            wanted = NewTopic(
                self._topic,
                _PARTITIONS,
                replication,
                config={
                    "cleanup.policy": "compact",
                    # Only closed segments are compacted.
                    "segment.ms": "600000",
                    "min.cleanable.dirty.ratio": "0.1",
                },
            )
            try:
                admin.create_topics([wanted])[self._topic].result(_CALL_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
            found = self._topic_when_made(admin)
        self._partition = zlib.crc32(self._name.encode()) % len(found.partitions)

    def _topic_when_made(self, admin: Any) -> Any:
        until_s = time.monotonic() + _CALL_S
        while time.monotonic() < until_s:
            found = admin.list_topics(timeout=_CALL_S).topics.get(self._topic)
            if found is not None and found.partitions:
                return found
            time.sleep(0.05)
        raise TargetUnavailable("kafka", f"the topic {self._topic} does not appear")

    @contextlib.contextmanager
    def _consumer(self, isolation: str) -> Iterator[Any]:
        config = client_config(self._settings, f"sirocco-sink-{self._name}") | {
            # Never joined.
            "group.id": f"sirocco-sink-{self._name}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
        consumer = Consumer(config, logger=LOGGER)
        try:
            yield consumer
        finally:
            consumer.close()

    def _bounds(self) -> tuple[int, int]:
        """Returns the first offset of the state partition and the one after the last.

        To a consumer that reads committed records alone, the end is where the first open
        transaction begins. That may be one of another sink, with the state of this one after it.
        """
        with self._consumer("read_uncommitted") as consumer:
            low, high = consumer.get_watermark_offsets(self._at(OFFSET_BEGINNING), _CALL_S)
            return low, high

    def _last(self, consumer: Any, low: int, high: int) -> Saved | None:
        """Returns the last state of this sink; reads the topic from its end."""
        tail, begin = _TAIL, high
        while begin > low:
            end, begin = begin, max(low, high - tail)
            found = self._last_within(consumer, begin, end)
            if found is not None:
                where = f"the topic {self._topic}, partition {self._partition}"
                return Saved.from_bytes(found, where)
            tail *= 10
        return None

    def _at(self, offset: int) -> Any:
        return TopicPartition(self._topic, self._partition, offset)

    def _last_within(self, consumer: Any, begin: int, end: int) -> bytes | None:
        """Returns the last state among some offsets; waits for the ends of open transactions."""
        consumer.assign([self._at(begin)])
        key, found, until_s = self._name.encode(), None, time.monotonic() + _CALL_S
        while time.monotonic() < until_s:
            for message in consumer.consume(10_000, 0.1):
                error = message.error()
                is_end = error is not None and error.code() == KafkaError._PARTITION_EOF
                if error is not None and not is_end:
                    raise KafkaException(error)
                if message.offset() >= end:
                    return found
                if not is_end and message.key() == key:
                    found = message.value()
        raise TargetUnavailable("kafka", f"a transaction in {self._topic} does not end")

    def _commit(self, messages: Sequence[dict[str, Any]], topic: str, saved: Saved) -> None:
        producer = self._producer
        if producer is None:
            raise TargetUnavailable("kafka", "there is no producer")
        producer.begin_transaction()
        _produce(producer, topic, messages)
        producer.produce(
            self._topic, saved.to_bytes(), self._name.encode(), partition=self._partition
        )
        # Commits what has been acknowledged, and raises if anything was not.
        producer.commit_transaction(_CALL_S)

    def _is_silent(self) -> bool:
        """Whether the state has not been renewed for some time."""
        _, high = self._bounds()
        if self._seen is not None and high > self._seen[0]:
            # Others may have written to this partition; so look for the sink's own state.
            with self._consumer("read_committed") as consumer:
                if self._last_within(consumer, self._seen[0], high) is not None:
                    self._seen = None
        now_s = time.monotonic()
        if self._seen is None:
            self._seen = (high, now_s)
            return False
        is_silent = now_s - self._seen[1] > _SILENT_S
        self._seen = None if is_silent else (high, self._seen[1])
        return is_silent

    def _close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is None:
            return
        # An open transaction is aborted by the next instance, or by the broker when its time is
        # over; here it saves readers that wait.
        with contextlib.suppress(KafkaException):
            producer.purge()
            producer.abort_transaction(2.0)


def _produce(producer: Any, topic: str, messages: Sequence[dict[str, Any]]) -> None:
    """Puts messages into the producer's queue, which is empty before and has room for a block."""
    if messages and "headers" in messages[0]:
        # Messages of a batch cannot have any.
        for message in messages:
            producer.produce(topic, **message)
        return
    if not messages or producer.produce_batch(topic, messages) == len(messages):
        return
    # A part that is in the queue must not be followed by a second try: the order would be lost.
    raise KafkaException(next(one["_error"] for one in messages if "_error" in one))


def _error_of(error: Any) -> TargetUnavailable | SinkStopped:
    code = error.code()
    if code in _REFUSED:
        return SinkStopped("refused", f"Kafka refuses: {error.str()}")
    if code in _FENCED:
        return SinkStopped("elsewhere", f"another instance has taken over: {error.str()}")
    return TargetUnavailable("kafka", f"Kafka: {error.str()}")
