"""The sink into an MQTT broker: one message for each notification, at least once (QoS 1)."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from urllib.parse import quote

import aiomqtt

from sirocco.services.connector.sinks.blocks import Block
from sirocco.services.connector.sinks.errors import TargetUnavailable
from sirocco.services.connector.sinks.rows import Row
from sirocco.services.connector.sinks.sink import Counts
from sirocco.services.connector.sinks.state import Saved, Store

# Of a topic, by the protocol.
_TOPIC_BYTES = 65_535

# Characters that are levels, or that only filters may have, are written as in URLs.
_SAFE = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) not in "+#/%$")

_NAME = re.compile(r"\{(query|object|key)\}")

# Messages that the broker has not acknowledged.
IN_FLIGHT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttSettings:
    """Where messages go.

    Attributes:
        host: Of the broker.
        port: Of the broker.
        topic: With `{query}`, `{object}` and `{key}`.
        username: Empty without.
        password: Never printed.
        client_id: Empty: chosen by the client.
        tls: Whether the connection is encrypted.
        ca: Path of the authority's certificate; empty: the system's.
        timeout_s: For each call.
    """

    host: str
    port: int
    topic: str
    username: str = ""
    password: str = field(default="", repr=False)
    client_id: str = ""
    tls: bool = False
    ca: str = ""
    timeout_s: float = 15.0


class MqttTarget:
    """See `sink.Target`.

    Args:
        settings: where messages go.
        store: keeps the state.
        counts: metrics of the sink.
    """

    blocks_max = 1

    def __init__(self, settings: MqttSettings, store: Store, counts: Counts) -> None:
        self._settings = settings
        self._store = store
        self._counts = counts
        self._client: aiomqtt.Client | None = None
        self._open = AsyncExitStack()

    async def open(self) -> Saved | None:
        """See `Target`."""
        saved = await self._store.open()
        settings = self._settings
        client = aiomqtt.Client(
            settings.host,
            settings.port,
            username=settings.username or None,
            password=settings.password or None,
            identifier=settings.client_id or None,
            timeout=settings.timeout_s,
            tls_context=ssl.create_default_context(cafile=settings.ca or None)
            if settings.tls
            else None,
            max_inflight_messages=IN_FLIGHT,
            max_concurrent_outgoing_calls=2 * IN_FLIGHT,
            max_queued_incoming_messages=1,
        )
        # Below it, each call that waits would be a line of the log.
        client.pending_calls_threshold = 2 * IN_FLIGHT
        try:
            self._client = await self._open.enter_async_context(client)
        except (aiomqtt.MqttError, OSError) as error:
            raise TargetUnavailable("mqtt", f"the broker: {error}") from error
        return saved

    async def write(self, blocks: Sequence[Block]) -> None:
        """See `Target`."""
        for block in blocks:
            for begin in range(0, len(block.rows), IN_FLIGHT):
                await self._publish(block.rows[begin : begin + IN_FLIGHT])
            await self._store.save(block.saved)

    async def _publish(self, rows: Sequence[Row]) -> None:
        """Publishes some rows in their order and waits for the broker's word on all of them."""
        client, settings = self._client, self._settings
        assert client is not None
        messages = [(topic_of(settings.topic, row), row.value) for row in rows]
        # `{key}` alone is empty for an object without the attribute: no topic of the protocol.
        fitting = [one for one in messages if 0 < len(one[0].encode()) <= _TOPIC_BYTES]
        try:
            async with asyncio.TaskGroup() as group:
                for topic, value in fitting:
                    group.create_task(client.publish(topic, value, qos=1))
        except* (aiomqtt.MqttError, OSError) as errors:
            raise TargetUnavailable("mqtt", f"the broker: {errors.exceptions[0]}") from errors
        self._counts.delivered.inc(len(fitting))
        self._counts.dropped("topic", len(messages) - len(fitting))

    def stop(self) -> None:
        """See `Target`: a write takes a moment anyway."""

    async def is_free(self) -> bool:
        """See `Target`."""
        return await self._store.is_free()

    async def close(self) -> None:
        """See `Target`."""
        self._client = None
        try:
            await self._open.aclose()
        except (aiomqtt.MqttError, OSError):
            pass
        finally:
            await self._store.close()


def topic_of(template: str, row: Row) -> str:
    """Returns the topic of a notification."""
    values = {"query": row.query, "object": row.object, "key": row.key or ""}
    return _NAME.sub(lambda found: quote(values[found[1]], safe=_SAFE), template)
