"""Ends a stream of answers that its client does not read.

With HTTP/2 a sender waits while its client takes nothing. Without a limit a client that never reads
its answer would keep the resources of the call for as long as it likes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Self

import grpc

from sirocco.model.errors import ResourceExhausted
from sirocco.runtime.grpc.grpc_errors import abort

# Checks within the time that a message may take.
LOOKS = 4

# The status is queued after the unread messages too; then the call's task ends without it.
STATUS_S = 0.1


async def in_time(
    responses: AsyncIterator[Any],
    context: grpc.aio.ServicerContext,
    unread_ms: int,
    ended: Callable[[], None],
    end_s: float | None = None,
) -> AsyncIterator[Any]:
    """Passes responses on as long as the client takes each of them in time.

    Otherwise the call ends with RESOURCE_EXHAUSTED, and the task that serves it is cancelled.

    Args:
        responses: of the call.
        context: of the call.
        unread_ms: how long a client may take for one message.
        ended: called when a call is ended in this way.
        end_s: by the loop's clock; a message that still waits then ends the call.
    """
    with ReadingWatch(context, unread_ms, ended, end_s) as watch:
        async with aclosing(responses) as each:  # type: ignore[type-var]
            async for response in each:
                watch.waits()
                yield response
                watch.is_read()


class ReadingWatch:
    """Ends a call whose client does not take a message in time; see `in_time`.

    The task that serves the call enters it, calls `waits` before each message, `is_read` after it.
    """

    def __init__(
        self,
        context: grpc.aio.ServicerContext,
        unread_ms: int,
        ended: Callable[[], None],
        end_s: float | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._since_s: float | None = None
        self._context = context
        self._unread_s = unread_ms / 1_000
        self._ended = ended
        self._end_s = float("inf") if end_s is None else end_s
        self._task = asyncio.current_task()

    def __enter__(self) -> Self:
        self._timer = self._loop.call_later(self._unread_s / LOOKS, self._look)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._timer.cancel()

    def waits(self) -> None:
        """A message is about to be sent."""
        self._since_s = self._loop.time()

    def is_read(self) -> None:
        """It has been taken."""
        self._since_s = None

    def _look(self) -> None:
        now_s = self._loop.time()
        since_s = self._since_s
        if since_s is not None and (now_s - since_s >= self._unread_s or now_s >= self._end_s):
            self._ended()
            _ENDING.add(task := self._loop.create_task(self._end()))
            task.add_done_callback(_ENDING.discard)
            return
        self._timer = self._loop.call_later(self._unread_s / LOOKS, self._look)

    async def _end(self) -> None:
        error = ResourceExhausted(
            f"the client has not read a message for {self._unread_s:g} s, or at its search's end"
        )
        status = self._loop.create_task(_status(self._context, error))
        _ENDING.add(status)
        status.add_done_callback(_ENDING.discard)
        # The client receives it only after the messages that it has not read.
        await asyncio.wait([status], timeout=STATUS_S)
        if self._task is not None:
            self._task.cancel()


async def _status(context: grpc.aio.ServicerContext, error: ResourceExhausted) -> None:
    try:
        await abort(context, error)
    except (grpc.aio.AbortError, grpc.aio.BaseError, asyncio.InvalidStateError):
        # The call has ended, or the connection is gone.
        return


# The loop holds tasks weakly.
_ENDING: set[asyncio.Task[None]] = set()
