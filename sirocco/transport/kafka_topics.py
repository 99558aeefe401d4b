"""What a producer and a consumer ask of the log that made them."""

from __future__ import annotations

from typing import Any, Protocol

from sirocco.transport.kafka_settings import KafkaSettings, KafkaTimes


class KafkaTopics(Protocol):
    """The topics of one cluster, and the clients that are open."""

    @property
    def settings(self) -> KafkaSettings:
        """Of the cluster."""

    @property
    def times(self) -> KafkaTimes:
        """How long it may take."""

    def check(self, topic: str, partition: int) -> None:
        """Raises UnknownTopic if there is no such Kafka partition."""

    def outer(self, topic: str) -> str:
        """Returns the name of a topic in Kafka."""

    def inner(self, topic: str) -> str:
        """Returns the name of a topic in the protocol."""

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """Returns the first offset and the one after the last."""

    def forget(self, client: Any) -> None:
        """Takes note that a client is closed."""
