"""The sink into a Kafka topic: records and the state after them in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaException, Producer

from sirocco.services.connector.sinks.blocks import Block
from sirocco.services.connector.sinks.dead_letters import letter_of
from sirocco.services.connector.sinks.errors import TargetUnavailable
from sirocco.services.connector.sinks.kafka_state import Transactions
from sirocco.services.connector.sinks.rows import Row
from sirocco.services.connector.sinks.sink import Counts
from sirocco.services.connector.sinks.state import Saved
from sirocco.transport.kafka_errors import LOGGER, made
from sirocco.transport.kafka_reports import KafkaReports
from sirocco.transport.kafka_settings import KafkaSettings, client_config

# For the acknowledgement of dead letters.
_LETTERS_S = 15.0

# A dead letter is one notification and the reason.
_LETTER_BYTES = 20 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaTargetSettings:
    """Where the records go.

    Attributes:
        kafka: The cluster.
        topic: Of the records; it must exist, or the broker makes it.
        state_topic: Of the sink's state; made if it is missing.
        record_bytes: Of a record; greater ones are dropped and counted.
    """

    kafka: KafkaSettings
    topic: str
    state_topic: str
    record_bytes: int


class KafkaTarget:
    """See `sink.Target`.

    Args:
        settings: where the records go.
        name: of the sink.
        counts: its metrics.
    """

    blocks_max = 1

    def __init__(self, settings: KafkaTargetSettings, name: str, counts: Counts) -> None:
        self._settings = settings
        self._counts = counts
        self._transactions = Transactions(
            settings.kafka, name, settings.state_topic, settings.record_bytes
        )

    async def open(self) -> Saved | None:
        """See `Target`."""
        return await self._transactions.open()

    async def write(self, blocks: Sequence[Block]) -> None:
        """See `Target`."""
        for block in blocks:
            messages = self._messages(block.rows)
            await self._transactions.commit(messages, self._settings.topic, block.saved)
            self._counts.delivered.inc(len(messages))
            self._counts.dropped("too_large", len(block.rows) - len(messages))

    def _messages(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        most = self._settings.record_bytes
        return [_message(row) for row in rows if _size_of(row) <= most]

    def stop(self) -> None:
        """See `Target`: a write takes a moment anyway."""

    async def is_free(self) -> bool:
        """See `Target`."""
        return await self._transactions.is_free()

    async def close(self) -> None:
        """See `Target`."""
        await self._transactions.close()


def _size_of(row: Row) -> int:
    headers = sum(len(name) + len(value) for name, value in row.headers)
    return len(row.value) + len(row.key or "") + headers


def _message(row: Row) -> dict[str, Any]:
    message: dict[str, Any] = {"value": row.value}
    if row.key is not None:
        message["key"] = row.key
    if row.headers:
        message["headers"] = list(row.headers)
    return message


class KafkaLetters:
    """Dead letters in a Kafka topic; see `dead_letters.DeadLetters`.

    Args:
        settings: of the cluster.
        name: of the sink.
        topic: of dead letters.
        wait_s: for their acknowledgement.
    """

    def __init__(
        self, settings: KafkaSettings, name: str, topic: str, wait_s: float = _LETTERS_S
    ) -> None:
        self._reports = KafkaReports(settings)
        self._config: dict[str, Any] = client_config(settings, f"sirocco-sink-{name}") | {
            "error_cb": self._reports.note,
            "enable.idempotence": True,
            "message.max.bytes": _LETTER_BYTES,
            "message.timeout.ms": int(wait_s * 1_000),
        }
        self._topic = topic
        self._wait_s = wait_s
        self._producer: Any = None

    async def put(self, rows: Sequence[Row], reason: str, batch: str, now_ms: int) -> None:
        """See `DeadLetters`."""
        letters = [(row.query, letter_of(row, reason, batch, now_ms)) for row in rows]
        await asyncio.to_thread(self._put, letters)

    def _put(self, letters: Sequence[tuple[str, bytes]]) -> None:
        failures: list[Any] = []

        def note(error: Any, _message: Any) -> None:
            if error is not None:
                failures.append(error)

        try:
            self._producer = self._producer or made(
                lambda: Producer(self._config, logger=LOGGER), "kafka"
            )
            for key, value in letters:
                self._producer.produce(self._topic, value, key, on_delivery=note)
            left = self._producer.flush(self._wait_s + 1)
        except (BufferError, KafkaException) as error:
            raise TargetUnavailable("dead_letters", f"Kafka: {error}") from error
        if left or failures:
            self._check_access()
            reason = failures[0].str() if failures else "no answer in time"
            raise TargetUnavailable("dead_letters", f"Kafka: {reason}")

    def _check_access(self) -> None:
        """Asks for the topic; raises AccessRefused where it gets no answer because of it."""
        what = f"dead letters in {self._topic}"
        with suppress(KafkaException), self._reports.refusals(self._producer, what):
            self._producer.list_topics(self._topic, timeout=self._wait_s)

    async def close(self) -> None:
        """See `DeadLetters`."""
        self._producer = None
