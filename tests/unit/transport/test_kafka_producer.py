"""Refusals of the client library, as errors of this layer; no broker is asked."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from sirocco.transport.errors import TransactionAborted
from sirocco.transport.kafka_log import KafkaLog
from sirocco.transport.kafka_settings import KafkaSettings, KafkaTimes


class Client:
    """Accepts every step of a transaction, and no record."""

    def begin_transaction(self) -> None:
        pass

    def abort_transaction(self, timeout_s: float) -> None:
        pass

    def produce(self, *_args: Any, **_more: Any) -> None:
        raise KafkaException(KafkaError(KafkaError._STATE))

    def poll(self, timeout_s: float) -> None:
        pass


def test_a_record_for_a_failed_transaction_receives_its_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The client refuses it with the same text as one without a transaction.
    monkeypatch.setattr(KafkaLog, "partitions", lambda self, topic: 1)
    log = KafkaLog(KafkaSettings(bootstrap="127.0.0.1:1"), KafkaTimes(connect_s=0.01))
    producer = log.producer("p", transactional_id="x")
    monkeypatch.setattr(producer, "_producer", Client())
    with pytest.raises(RuntimeError, match="outside"):
        producer.append("t", 0, b"x")
    producer.begin()
    with pytest.raises(TransactionAborted):
        producer.append("t", 0, b"x")
    producer.abort()
    with pytest.raises(RuntimeError, match="outside"):
        producer.append("t", 0, b"x")
    log.close()
