"""Publishes the objects of another log under their numbers there, for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from sirocco_api.v1.columns_pb2 import ObjectColumns

from sirocco_client.base.numbers import read_wait_s
from sirocco_client.connection.connection import AsyncConnection
from sirocco_client.connection.retry import Backoff
from sirocco_client.errors import (
    Rejected,
    SiroccoError,
    Unavailable,
    Unimplemented,
)
from sirocco_client.objects.columns import check_columns
from sirocco_client.publishing.async_publishing import AsyncPublishing
from sirocco_client.publishing.flush import END_TIMEOUT_S, flush_wait_s
from sirocco_client.publishing.numbered_outbox import NumberedOutbox


class AsyncNumberedPublisher(AsyncPublishing[NumberedOutbox]):
    """Publishes objects that have numbers, each number once, whatever dies.

    The caller reads a log and remembers `acknowledged` beside its place there. After a crash it
    opens a publisher with the same session and that number, and publishes again from there on: the
    servers drop what they have. They forget a session that is silent for a day; what was published
    and not remembered by then would be taken again.
    """

    method = "PublishNumbered"

    def __init__(
        self,
        outbox: NumberedOutbox,
        connection: AsyncConnection,
        on_rejected: Callable[[Rejected], None],
        on_acknowledged: Callable[[], None] | None,
    ) -> None:
        """Use `AsyncClient.numbered_publisher`."""
        super().__init__(outbox, connection, on_rejected, reach_s=None)
        self._on_acknowledged = on_acknowledged

    async def publish_columns(self, columns: ObjectColumns, numbers: Sequence[int]) -> None:
        """Accepts objects with their numbers. Waits while too much is unacknowledged.

        Args:
            columns: The objects; see `columns.proto`.
            numbers: One for each, ascending, above all that were given before. They may skip some.

        Raises:
            InvalidArgument: Columns or numbers do not fit together; nothing was accepted.
            PublishFailed: The publisher gave up.
        """
        check_columns(columns)
        await self._admit()
        self._outbox.add(columns, numbers)
        if self._outbox.has_work:
            self._wake()

    async def flush(self, timeout_s: float | None = None) -> int:
        """Waits until all accepted objects are acknowledged; returns the last number.

        Raises:
            DeadlineExceeded: Some objects are not acknowledged yet; sending continues.
            PublishFailed: The publisher gave up.
        """
        wait_s = read_wait_s(timeout_s, "timeout_s")
        deadline_s = None if wait_s is None else time.monotonic() + wait_s
        wanted = self._outbox.added
        while self._outbox.acknowledged < wanted:
            now_s, is_closed = time.monotonic(), self._is_closed
            await self._changed.wait(
                flush_wait_s(self._outbox, wanted, deadline_s, now_s, is_closed=is_closed)
            )
        return self._outbox.acknowledged

    async def close(self, timeout_s: float = 0) -> None:
        """Ends the stream, after waiting for acknowledgements for a time; raises nothing.

        What is not acknowledged may be in the log; the next publisher of the session repeats it.
        """
        if self._is_closed:
            return
        self._is_closing = True
        self._changed.set()
        try:
            if timeout_s and self._outbox.failure is None:
                await self.flush(timeout_s)
        except SiroccoError:
            pass
        finally:
            self._is_closed = True
            self._changed.set()
            self._work.set()
            if self._task is not None:
                if not self._outbox.has_work:
                    await asyncio.wait((self._task,), timeout=END_TIMEOUT_S)
                self._task.cancel()
                await asyncio.wait((self._task,))

    @property
    def acknowledged(self) -> int:
        """Every object up to this number is in the log, or was refused and reported."""
        return self._outbox.acknowledged

    @property
    def outstanding_bytes(self) -> int:
        """Approximate size of what is not acknowledged."""
        return self._outbox.outstanding_bytes

    @property
    def failure(self) -> SiroccoError | None:
        """Why the publisher gave up; None while it works."""
        return self._outbox.failure

    def _give_up(self, error: SiroccoError) -> None:
        super()._give_up(error)
        if self._on_acknowledged is not None:
            self._on_acknowledged()

    def _acknowledge(self, response: Any) -> None:
        super()._acknowledge(response)
        if self._on_acknowledged is not None:
            self._on_acknowledged()

    def _report(self, refused: list[Rejected]) -> None:
        assert self._on_rejected is not None
        for each in refused:
            self._on_rejected(each)

    async def _converse(self, address: str, backoff: Backoff) -> SiroccoError | None:
        error = await super()._converse(address, backoff)
        if isinstance(error, Unimplemented):
            # While a cluster is upgraded, another router may know the call.
            return Unavailable(f"{address} is too old: it takes no numbers")
        return error
