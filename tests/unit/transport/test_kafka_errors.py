"""The meaning of the client library's errors."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from sirocco.transport.kafka_log import KafkaLog
from sirocco.transport.kafka_settings import KafkaSettings, KafkaTimes


def test_the_end_of_a_log_is_requested_again_while_its_new_leader_does_not_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = KafkaLog(KafkaSettings(bootstrap="127.0.0.1:1"))
    refusals = [KafkaError(KafkaError.OFFSET_NOT_AVAILABLE)] * 2

    class Found:
        offset = 7

    def list_offsets(wanted: dict[Any, Any], **_more: Any) -> dict[Any, Future[Any]]:
        answer: Future[Any] = Future()
        if refusals:
            answer.set_exception(KafkaException(refusals.pop()))
        else:
            answer.set_result(Found())
        return dict.fromkeys(wanted, answer)

    monkeypatch.setattr(log, "partitions", lambda topic: 1)
    monkeypatch.setattr(log._admin, "list_offsets", list_offsets)
    assert log.bounds("t", 0) == (7, 7)
    log.close()


def test_the_end_of_a_log_is_requested_of_the_leader_of_today(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client kept the epoch of a leader that had been away until its metadata aged."""
    log = KafkaLog(KafkaSettings(bootstrap="127.0.0.1:1"), KafkaTimes(call_s=0.2))
    asked: list[tuple[Any, ...]] = []

    def list_topics(*topics: Any, **_more: Any) -> None:
        asked.append(topics)

    def list_offsets(wanted: dict[Any, Any], **_more: Any) -> dict[Any, Future[Any]]:
        answer: Future[Any] = Future()
        if asked:
            answer.set_result(SimpleNamespace(offset=7))
        else:
            answer.set_exception(KafkaException(KafkaError(KafkaError.FENCED_LEADER_EPOCH)))
        return dict.fromkeys(wanted, answer)

    monkeypatch.setattr(log, "partitions", lambda topic: 1)
    monkeypatch.setattr(log._admin, "list_topics", list_topics)
    monkeypatch.setattr(log._admin, "list_offsets", list_offsets)
    assert log.bounds("t", 0) == (7, 7)
    assert asked == [()], "of all topics: of one, the client keeps no answer"
    log.close()
