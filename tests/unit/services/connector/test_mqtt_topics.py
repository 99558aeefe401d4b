"""Topics of an MQTT sink, as clients' ids and attributes make them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sirocco.services.connector.sinks.mqtt import MqttSettings, MqttTarget
from sirocco.services.connector.sinks.rows import Place, Row


class Broker:
    """Takes what MQTT lets a client publish."""

    def __init__(self) -> None:
        self.topics: list[str] = []

    async def publish(self, topic: str, _value: bytes, qos: int) -> None:
        # As paho does, before anything is sent.
        if not topic:
            raise ValueError("Invalid topic.")
        self.topics.append(topic)


class Counted:
    """Stands for both counters of a sink."""

    def __init__(self) -> None:
        self.count = 0
        self.left_out: list[tuple[str, int]] = []
        self.delivered = self

    def inc(self, count: int) -> None:
        self.count += count

    def dropped(self, reason: str, count: int) -> None:
        self.left_out.append((reason, count))


@pytest.mark.parametrize("template", ["{key}", "{object}"])
def test_a_notification_without_a_topic_is_left_out_alone(template: str) -> None:
    counts: Any = Counted()
    target = MqttTarget(MqttSettings(host="h", port=1, topic=template), None, counts)  # type: ignore[arg-type]
    broker = target._client = Broker()  # type: ignore[assignment]
    rows = [
        Row("1-0", "q", "a", "17", b"{}", 0, Place("1", 1)),
        # An object without the attribute, or a list.
        Row("1-1", "q", None, "", b"{}", 0, Place("1", 2)),
        Row("1-2", "q", "b", "18", b"{}", 0, Place("2")),
    ]
    asyncio.run(target._publish(rows))
    assert len(broker.topics) == 2  # type: ignore[attr-defined]
    assert counts.count == 2
    assert counts.left_out == [("topic", 1)]
