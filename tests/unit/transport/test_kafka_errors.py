"""The meaning of the client library's errors."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from sirocco.transport.kafka_log import KafkaLog
from sirocco.transport.kafka_settings import KafkaSettings


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
