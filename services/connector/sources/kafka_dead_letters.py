"""Records that cannot be published, written to a topic with the reason in their headers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Producer

from sirocco.services.connector.sources.records import Bad
from sirocco.transport.kafka_errors import LOGGER
from sirocco.transport.kafka_settings import KafkaSettings, client_config

Headers: TypeAlias = list[tuple[str, str | bytes | None]]

# Of a reason and its field.
_TEXT_BYTES_MAX = 2_000

# Of the record's own headers, which are kept up to here, and of a key that is kept.
_HEADER_BYTES_MAX = 64 << 10

_QUEUE_MESSAGES = 50_000
_QUEUE_KBYTES = 65_536
_ROOM_S = 0.1
_FLUSH_S = 10.0

_TOO_LARGE = frozenset((KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD))


class DeadLetters:
    """Writes records to a topic; each is reported once the brokers have it.

    Its methods belong to one thread.

    Attributes:
        failure: Why the brokers refuse a record for good; None while they do not.

    Args:
        kafka: The cluster.
        topic: The topic.
        source: Name of the source.
        on_written: Called on the same thread with topic, partition and offset of a record.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        topic: str,
        source: str,
        on_written: Callable[[str, int, int], None],
    ) -> None:
        self._topic = topic
        self._source = source
        self._on_written = on_written
        self.failure: KafkaError | None = None
        self._producer: Producer | None = Producer(
            client_config(kafka, f"sirocco-{source}-dead-letters")
            | {
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                # As long as it takes: a record must not be lost, and its partition waits.
                "message.timeout.ms": 0,
                "queue.buffering.max.messages": _QUEUE_MESSAGES,
                "queue.buffering.max.kbytes": _QUEUE_KBYTES,
            },
            logger=LOGGER,
        )

    def write(self, bad: Bad) -> None:
        """Hands a record over; waits while too many are under way."""
        record = bad.record
        self._produce(record, _headers(bad, self._source), record.value())

    def poll(self) -> None:
        """Reports what the brokers have by now."""
        if self._producer is not None:
            self._producer.poll(0)

    def close(self) -> None:
        """Waits a moment for what is under way."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.flush(_FLUSH_S)

    def _produce(self, record: Any, headers: Headers, value: bytes | None) -> None:
        at = (record.topic(), record.partition(), record.offset())

        def delivered(error: KafkaError | None, _: Any) -> None:
            if error is None:
                self._on_written(*at)
            elif error.code() in _TOO_LARGE and value is not None:
                self._without_value(record, headers, value)
            else:
                self.failure = error

        key = record.key()
        if key is not None and len(key) > _HEADER_BYTES_MAX:
            key = None
        producer = self._producer
        if producer is None:
            # It is read again.
            return
        while True:
            try:
                producer.produce(
                    self._topic, value, key=key, headers=headers, on_delivery=delivered
                )
                return
            except BufferError:
                producer.poll(_ROOM_S)
            except KafkaException as error:
                if error.args[0].code() not in _TOO_LARGE or value is None:
                    raise
                self._without_value(record, headers, value)
                return

    def _without_value(self, record: Any, headers: Headers, value: bytes) -> None:
        """Says of a record that is too large for the topic how large it was."""
        self._produce(record, [*headers, ("sirocco.cut", str(len(value)).encode())], None)


def _headers(bad: Bad, source: str) -> Headers:
    record = bad.record
    own: Headers = []
    size = 0
    for name, value in record.headers() or ():
        size += len(name) + len(value or b"")
        if size <= _HEADER_BYTES_MAX and value is not None:
            own.append((name, value))
    ours = {
        "source": source,
        "topic": record.topic(),
        "partition": str(record.partition()),
        "offset": str(record.offset()),
        "reason": bad.reason,
        "field": bad.error.field or "",
        "error": bad.error.message,
    }
    return own + [
        (f"sirocco.{name}", text.encode(errors="replace")[:_TEXT_BYTES_MAX])
        for name, text in ours.items()
    ]
