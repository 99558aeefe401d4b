"""Waiting in asyncio: for a change, and telling whose cancellation it is."""

from __future__ import annotations

import asyncio


class Signal:
    """Wakes everyone who waits at this moment. Who waits looks again at what it waits for."""

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
    """Whether a CancelledError tells of a cancelled call rather than of the running task's end."""
    task = asyncio.current_task()
    return task is None or not task.cancelling()
