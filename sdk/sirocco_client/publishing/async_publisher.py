"""A publisher for asyncio: the twin of `publisher`, with a task instead of its thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from typing import Any

from sirocco_api.v1.columns_pb2 import ObjectColumns

from sirocco_client.base.numbers import read_wait_s
from sirocco_client.connection.connection import AsyncConnection
from sirocco_client.errors import Rejected
from sirocco_client.objects.columns import check_columns
from sirocco_client.objects.object import Object
from sirocco_client.publishing.async_publishing import AsyncPublishing
from sirocco_client.publishing.flush import CLOSE_TIMEOUT_S, END_TIMEOUT_S, flush_wait_s
from sirocco_client.publishing.outbox import Outbox, PublishFlow, PublishResult
from sirocco_client.publishing.session import new_session


class AsyncPublisher(AsyncPublishing[Outbox]):
    """Publishes objects as `Publisher` does. All of its methods belong to one event loop."""

    def __init__(
        self,
        flow: PublishFlow,
        connection: AsyncConnection,
        on_rejected: Callable[[Rejected], None] | None,
    ) -> None:
        """Use `AsyncClient.publisher`."""
        outbox = Outbox(flow, new_session)
        super().__init__(outbox, connection, on_rejected, connection.timeout_s)

    async def publish(self, source: Mapping[str, Any] | Object) -> int:
        """As `Publisher.publish`."""
        await self._admit()
        if self._outbox.add(source, time.monotonic()):
            self._wake()
        return self._outbox.added

    async def publish_many(
        self,
        sources: Iterable[Mapping[str, Any] | Object] | AsyncIterable[Mapping[str, Any] | Object],
    ) -> int:
        """As `Publisher.publish_many`; also takes an asynchronous iterable."""
        count = 0
        if isinstance(sources, AsyncIterable):
            async for source in sources:
                await self.publish(source)
                count += 1
            return count
        if not isinstance(sources, list | tuple):
            for source in sources:
                await self.publish(source)
                count += 1
            return count
        while count < len(sources):
            await self._admit()
            part = sources[count : count + self._outbox.room()]
            wakes = True
            try:
                wakes = self._outbox.add_many(part, count, time.monotonic())
            finally:
                # Also after an error: the objects before it were accepted.
                if wakes:
                    self._wake()
            count += len(part)
        return count

    async def publish_columns(self, columns: ObjectColumns) -> int:
        """As `Publisher.publish_columns`."""
        check_columns(columns)
        for part in self._outbox.split(columns):
            await self._admit()
            self._outbox.add_columns(part, time.monotonic())
            self._wake()
        return int(columns.count)

    async def flush(self, timeout_s: float | None = None) -> PublishResult:
        """As `Publisher.flush`."""
        wait_s = read_wait_s(timeout_s, "timeout_s")
        deadline_s = None if wait_s is None else time.monotonic() + wait_s
        wanted = self._outbox.added
        self._outbox.seal(time.monotonic())
        if self._outbox.has_work:
            self._wake()
        while self._outbox.acknowledged < wanted:
            now_s, is_closed = time.monotonic(), self._is_closed
            await self._changed.wait(
                flush_wait_s(self._outbox, wanted, deadline_s, now_s, is_closed=is_closed)
            )
        # `on_rejected` may have failed on the last answer.
        self._outbox.check()
        self._outbox.raise_rejections()
        return self._outbox.result()

    async def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """As `Publisher.close`."""
        # Before anything else: what is accepted is still to be sent.
        read_wait_s(timeout_s, "timeout_s")
        if self._is_closed:
            return
        # Callers that wait for room must see it.
        self._is_closing = True
        self._changed.set()
        try:
            await self.flush(timeout_s)
        finally:
            self._is_closed = True
            self._changed.set()
            self._work.set()
            if self._task is not None:
                # A finished stream ends by itself; if not, it is cancelled.
                await asyncio.wait((self._task,), timeout=END_TIMEOUT_S)
                self._task.cancel()
                await asyncio.wait((self._task,))

    @property
    def acknowledged(self) -> int:
        """As `Publisher.acknowledged`."""
        return self._outbox.acknowledged

    @property
    def position_token(self) -> str:
        """As `Publisher.position_token`."""
        return self._outbox.result().position_token

    def _report(self, refused: list[Rejected]) -> None:
        if self._on_rejected is None:
            self._outbox.keep(refused)
            return
        for each in refused:
            self._on_rejected(each)
