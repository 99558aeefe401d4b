"""Records that cannot be published, written to a topic with the reason in their headers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Producer

from sirocco.services.connector.sources.records import Bad
from sirocco.transport.kafka_errors import LOGGER
from sirocco.transport.kafka_settings import KafkaSettings, client_config

Headers: TypeAlias = list[tuple[str, bytes]]

# Of a reason and its field.
_TEXT_BYTES_MAX = 2_000

# Of a key that is kept.
_KEY_BYTES_MAX = 64 << 10

# What is under way, with keys and headers: the library's own bound counts values alone.
_UNDER_WAY_BYTES_MAX = 64 << 20

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
        self._under_way_bytes = 0
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
        """Hands a record over; waits while too much is under way."""
        self._produce(_letter(bad, self._source))

    def poll(self) -> None:
        """Reports what the brokers have by now."""
        if self._producer is not None:
            self._producer.poll(0)

    def close(self) -> None:
        """Waits a moment for what is under way."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.flush(_FLUSH_S)

    def _produce(self, letter: _Letter) -> None:
        def delivered(error: KafkaError | None, _: Any) -> None:
            self._under_way_bytes -= letter.size
            if error is None:
                self._on_written(*letter.at)
            elif error.code() in _TOO_LARGE and letter.value is not None:
                self._produce(letter.without_value())
            else:
                self.failure = error

        producer = self._producer
        if producer is None:
            # It is read again.
            return
        while self._under_way_bytes and self._under_way_bytes + letter.size > _UNDER_WAY_BYTES_MAX:
            producer.poll(_ROOM_S)
        while True:
            try:
                producer.produce(
                    self._topic,
                    letter.value,
                    key=letter.key,
                    headers=list[tuple[str, str | bytes | None]](letter.headers),
                    on_delivery=delivered,
                )
            except BufferError:
                producer.poll(_ROOM_S)
            except KafkaException as error:
                if error.args[0].code() not in _TOO_LARGE or letter.value is None:
                    raise
                self._produce(letter.without_value())
                return
            else:
                self._under_way_bytes += letter.size
                return


@dataclass(frozen=True, slots=True)
class _Letter:
    """One record on its way.

    Attributes:
        at: Where it was: topic, partition, offset.
        headers: Its own, and the reason.
    """

    at: tuple[str, int, int]
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        headers = sum(len(name) + len(value) for name, value in self.headers)
        return len(self.key or b"") + len(self.value or b"") + headers

    def without_value(self) -> _Letter:
        """Returns what says of a record that is too large for the topic how large it was."""
        cut = ("sirocco.cut", str(len(self.value or b"")).encode())
        return replace(self, value=None, headers=[*self.headers, cut])


def _letter(bad: Bad, source: str) -> _Letter:
    record = bad.record
    at = (record.topic(), record.partition(), record.offset())
    key = record.key()
    if key is not None and len(key) > _KEY_BYTES_MAX:
        key = None
    ours = {
        "source": source,
        "topic": at[0],
        "partition": str(at[1]),
        "offset": str(at[2]),
        "reason": bad.reason,
        "field": bad.error.field or "",
        "error": bad.error.message,
    }
    headers = [*(record.headers() or ())] + [
        (f"sirocco.{name}", text.encode(errors="replace")[:_TEXT_BYTES_MAX])
        for name, text in ours.items()
    ]
    return _Letter(at, key, record.value(), headers)
