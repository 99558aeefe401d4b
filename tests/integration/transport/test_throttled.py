"""A producer under one of Kafka's quotas: its appends wait, and nothing is wrong."""

from __future__ import annotations

import os
import subprocess
import time
import uuid

import pytest

from sirocco.local.kafka import KafkaServer, fetch_kafka, java
from sirocco.transport.kafka_log import KafkaLog
from sirocco.transport.log import TopicSpec

pytestmark = pytest.mark.kafka

WAIT_S = 120.0


def limit(server: KafkaServer, name: str, bytes_per_s: int) -> None:
    """Gives a client a quota of bytes that it may append."""
    what = ["--alter", "--add-config", f"producer_byte_rate={bytes_per_s}"]
    whose = ["--entity-type", "clients", "--entity-name", name]
    subprocess.run(
        [
            *(java(), "-cp", f"{fetch_kafka()}/*", "kafka.admin.ConfigCommand"),
            *("--bootstrap-server", server.address, *what, *whose),
        ],
        check=True,
        capture_output=True,
    )


def test_appends_that_a_quota_delays_do_not_count_as_waiting(kafka_server: KafkaServer) -> None:
    # init
    log = KafkaLog(kafka_server.settings)
    name = f"t-{uuid.uuid4().hex[:12]}"
    log.create_topics([TopicSpec(name, 1)])
    limit(kafka_server, name, 1_000)
    producer = log.producer(name)

    # test: the first few are over the quota, the next ones wait behind them
    for _ in range(10):
        producer.append(name, 0, os.urandom(100_000))  # compression gains nothing
        producer.poll(0.3)
    deadline_s = time.monotonic() + WAIT_S
    while log.waiting_appends():
        assert time.monotonic() < deadline_s, "the client did not notice the quota"
        producer.poll(0.05)

    # check
    assert producer.pending > 0, "they are delayed, not answered"
    producer.close()
    log.close()
