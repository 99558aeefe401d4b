"""Topics that the controller has created or deleted, while the brokers do not know of it yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from sirocco.transport.errors import TransportUnavailable, UnknownTopic
from sirocco.transport.kafka_log import KafkaLog
from sirocco.transport.kafka_settings import KafkaSettings, KafkaTimes
from sirocco.transport.log import TopicSpec


class Cluster:
    """A controller that answers at once, and a broker whose metadata follow later.

    Args:
        later: how many requests for metadata are answered as before.
    """

    def __init__(self, partitions: int, later: int) -> None:
        self.partitions = partitions
        self.later = later
        self._before = partitions

    def create_topics(self, topics: Sequence[Any], **_more: Any) -> dict[str, Future[Any]]:
        self._become(topics[0].num_partitions)
        return {topics[0].topic: answered(None)}

    def delete_topics(self, topics: list[str], **_more: Any) -> dict[str, Future[Any]]:
        self._become(0)
        return {topics[0]: answered(None)}

    def list_topics(self, topic: str, **_more: Any) -> Any:
        self.later -= 1
        count = self._before if self.later >= 0 else self.partitions
        found = SimpleNamespace(error=None, partitions=dict.fromkeys(range(count)))
        return SimpleNamespace(topics={topic: found})

    def list_offsets(self, wanted: dict[Any, Any], **_more: Any) -> dict[Any, Future[Any]]:
        return dict.fromkeys(wanted, answered(SimpleNamespace(offset=0)))

    def poll(self, timeout_s: float) -> int:
        return 0

    def _become(self, partitions: int) -> None:
        self._before, self.partitions = self.partitions, partitions


def answered(result: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(result)
    return future


@pytest.fixture
def log() -> Iterator[KafkaLog]:
    made = KafkaLog(KafkaSettings(bootstrap="127.0.0.1:1"), KafkaTimes(call_s=0.1))
    yield made
    made.close()


def test_a_deleted_topic_is_gone_when_the_call_returns(
    log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_admin", Cluster(partitions=2, later=3))
    log.delete_topics(["t"])
    with pytest.raises(UnknownTopic):
        log.partitions("t")


def test_a_created_topic_is_known_when_the_call_returns(
    log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(partitions=0, later=3)
    monkeypatch.setattr(log, "_admin", cluster)
    log.create_topics([TopicSpec("t", 2)])
    assert cluster.later < 0


@pytest.mark.parametrize("is_deleted", [False, True])
def test_metadata_that_never_follow_are_a_typed_error(
    log: KafkaLog, monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    monkeypatch.setattr(log, "_admin", Cluster(partitions=2 * is_deleted, later=1 << 30))
    if is_deleted:
        with pytest.raises(TransportUnavailable, match="still known"):
            log.delete_topics(["t"])
    else:
        with pytest.raises(TransportUnavailable, match="not known"):
            log.create_topics([TopicSpec("t", 2)])
