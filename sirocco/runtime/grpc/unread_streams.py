"""Ends a stream of answers that its client does not read.

With HTTP/2 a sender waits while its client takes nothing. Without a limit a client that never reads
its answer would keep the resources of the call for as long as it likes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

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
    watch = _Watch(context, unread_ms / 1_000, ended, end_s)
    try:
        async with aclosing(responses) as each:  # type: ignore[type-var]
            async for response in each:
                watch.since_s = watch.loop.time()
                yield response
                watch.since_s = None
    finally:
        watch.close()


class _Watch:
    def __init__(
        self,
        context: grpc.aio.ServicerContext,
        unread_s: float,
        ended: Callable[[], None],
        end_s: float | None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.since_s: float | None = None
        self._context = context
        self._unread_s = unread_s
        self._ended = ended
        self._end_s = float("inf") if end_s is None else end_s
        self._task = asyncio.current_task()
        self._timer = self.loop.call_later(unread_s / LOOKS, self._look)

    def close(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        now_s = self.loop.time()
        since_s = self.since_s
        if since_s is not None and (now_s - since_s >= self._unread_s or now_s >= self._end_s):
            self._ended()
            _ENDING.add(task := self.loop.create_task(self._end()))
            task.add_done_callback(_ENDING.discard)
            return
        self._timer = self.loop.call_later(self._unread_s / LOOKS, self._look)

    async def _end(self) -> None:
        error = ResourceExhausted(
            f"the client has not read a message for {self._unread_s:g} s, or at its search's end"
        )
        status = self.loop.create_task(_status(self._context, error))
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
