"""Waiting in asyncio: for a change, and finding out what a cancellation ended."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio

from sirocco_client.errors import Unavailable

# What a broken stream raises. InvalidStateError: written to a call that has already ended.
BROKEN = (grpc.RpcError, grpc.aio.UsageError, asyncio.InvalidStateError, Unavailable)


class Signal:
    """Wakes all present waiters. A waiter checks its condition again."""

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Wakes all."""
        if self._next is not None and not self._next.done():
            self._next.set_result(None)
        self._next = None

    async def wait(self, timeout_s: float | None = None) -> None:
        """Returns at the next `set`, or when the time is over."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        await asyncio.wait((self._next,), timeout=timeout_s)


def was_call_cancelled() -> bool:
    """Whether a CancelledError means a cancelled call rather than the end of the running task."""
    task = asyncio.current_task()
    return task is None or not task.cancelling()


def error_of_cancellation() -> Unavailable:
    """Returns the error of a cancelled call, while a CancelledError is handled.

    Raises:
        CancelledError: That error, if the running task is to end.
    """
    if not was_call_cancelled():
        raise  # noqa: PLE0704 - what is being handled
    return Unavailable("the call was cancelled")
