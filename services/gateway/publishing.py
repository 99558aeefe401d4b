"""One publisher for all requests with the same token.

A publisher is a session, which routers remember for a day. A session for each request would fill
their memory, and cost a stream each time.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from sirocco_api.v1.columns_pb2 import ObjectColumns
from sirocco_client import AsyncPublisher, PublishFailed, PublishFlow, Rejected, SiroccoError
from sirocco_client.errors import DeadlineExceeded
from sirocco_client.objects.columns import split_columns
from sirocco_client.publishing.outbox import REQUEST_BYTES_MAX

# Objects of one request to a router: the batches for which the engine's records are sized.
PART_OBJECTS = 1_000

# Several bodies under way, as long as the log takes to acknowledge one.
FLOW = PublishFlow(outstanding_objects_max=100_000, outstanding_bytes_max=64 << 20)

_CLOSE_S = 2.0


@dataclass(slots=True, eq=False)
class Receipt:
    """What became of the objects of one body.

    Attributes:
        first: The publisher's number of the first one.
        count: How many were handed to the publisher.
        rejected: (row, error) of those that the cluster refused.
        position: Token of a position at which all of them are known.
    """

    first: int
    count: int = 0
    rejected: list[tuple[int, SiroccoError]] = field(default_factory=list)
    position: str = ""


class SharedPublisher:
    """Publishes the objects of many requests in one session.

    Args:
        new: opens a publisher; called again after one has given up.
        publish_s: for the acknowledgement of one body's objects.
    """

    def __init__(self, new: Callable[..., AsyncPublisher], publish_s: float) -> None:
        self._new = new
        self._publish_s = publish_s
        self._session: _Session | None = None

    async def publish(self, columns: ObjectColumns) -> Receipt:
        """Publishes objects, and waits until the log has them.

        Raises:
            PublishFailed: The publisher gave up; some of them may be in the log.
            DeadlineExceeded: They were not acknowledged in time; some may still be.
        """
        if self._session is None:
            self._session = _Session(self._new)
        session = self._session
        try:
            async with asyncio.timeout(self._publish_s):
                return await session.publish(columns)
        except TimeoutError:
            raise DeadlineExceeded("the objects were not acknowledged in time") from None
        except PublishFailed:
            if self._session is session:
                self._session = None
            with suppress(SiroccoError):
                await session.close()
            raise

    async def close(self) -> None:
        """Ends the session."""
        session, self._session = self._session, None
        if session is not None:
            with suppress(SiroccoError):
                await session.close()


class _Session:
    """One publisher, with the receipts of those that wait for it."""

    def __init__(self, new: Callable[..., AsyncPublisher]) -> None:
        self._publisher = new(FLOW, on_rejected=self._refuse)
        self._lock = asyncio.Lock()
        self._added = 0
        # Ascending by first number; rejections find theirs by bisection.
        self._receipts: list[Receipt] = []

    async def publish(self, columns: ObjectColumns) -> Receipt:
        async with self._lock:
            receipt = Receipt(self._added + 1)
            self._receipts.append(receipt)
            try:
                for part in split_columns(columns, PART_OBJECTS, REQUEST_BYTES_MAX):
                    # One part is added as a whole, or not at all if this is cancelled.
                    await self._publisher.publish_columns(part)
                    receipt.count += part.count
                    self._added += part.count
            except BaseException:
                self._receipts.remove(receipt)
                raise
        try:
            # All that was added so far; what others add meanwhile is not waited for.
            result = await self._publisher.flush()
        finally:
            self._receipts.remove(receipt)
        receipt.position = result.position_token
        return receipt

    async def close(self) -> None:
        await self._publisher.close(_CLOSE_S)

    def _refuse(self, one: Rejected) -> None:
        found = bisect_right(self._receipts, one.number, key=lambda each: each.first) - 1
        if found < 0:
            return
        receipt = self._receipts[found]
        row = one.number - receipt.first
        if row < receipt.count:
            receipt.rejected.append((row, one.error))
