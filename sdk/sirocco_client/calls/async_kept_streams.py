"""Streams for single searches, of the client for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from sirocco_client.calls.kept_searches import (
    IDLE_S,
    BrokenStream,
    FailedSearch,
    Numbered,
    StreamRules,
)
from sirocco_client.calls.searching import GRACE_S, Searching
from sirocco_client.errors import DeadlineExceeded


class _Stream:
    """One open stream.

    Attributes:
        address: Of the merger.
        call: The call.
        numbered: Its searches.
        until_s: When it is closed if it stays idle.
    """

    def __init__(self, address: str, call: Any) -> None:
        self.address = address
        self.call = call
        self.numbered = Numbered()
        self.until_s = 0.0


class AsyncKeptStreams:
    """The streams of one client; belongs to its event loop."""

    def __init__(
        self,
        call: Callable[[str], Any],
        clock_s: Callable[[], float] = time.monotonic,
        idle_s: float = IDLE_S,
    ) -> None:
        """As `KeptStreams`; `call`: calls `SearchMany` at the address of a merger."""
        self._call = call
        self._clock_s = clock_s
        self._idle_s = idle_s
        self._is_closed = False
        self._rules = StreamRules()
        self._count = 0
        # The one that was used last is at the end.
        self._free: list[_Stream] = []
        self._timer: asyncio.TimerHandle | None = None

    async def answers(self, address: str, state: Searching, left_s: float) -> bool:
        """As `KeptStreams.answers`."""
        stream = self._taken(address)
        if stream is None:
            return False
        is_sound = False
        try:
            async with asyncio.timeout(left_s + GRACE_S):
                await stream.call.write(stream.numbered.request(state.request(left_s)))
                while (response := await stream.call.read()) is not grpc.aio.EOF:
                    if is_sound := stream.numbered.received(response, state):
                        return True
        except FailedSearch as failed:
            is_sound = failed.is_stream_sound
            raise
        except TimeoutError:
            error = DeadlineExceeded("the merger did not answer in time")
            raise FailedSearch(error) from None
        except (grpc.RpcError, grpc.aio.UsageError, asyncio.InvalidStateError, BrokenStream):
            pass
        finally:
            self._give_back(stream, is_sound)
        # Why it broke, a call says: its errors are those of a search.
        self._rules.broke(address, self._clock_s())
        state.restart()
        return False

    def close(self) -> None:
        """Closes all idle streams; the others end with their channels."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._free:
            self._drop(self._free.pop())

    def _taken(self, address: str) -> _Stream | None:
        now_s = self._clock_s()
        is_warm = self._rules.begins(now_s)
        for place in reversed(range(len(self._free))):
            if self._free[place].address != address:
                continue
            stream = self._free.pop(place)
            if not stream.call.done():
                return stream
            # The merger ended it, as when it restarts.
            self._drop(stream)
        if not is_warm or not self._rules.may_open(address, self._count, now_s):
            return None
        stream = _Stream(address, self._call(address))
        self._count += 1
        return stream

    def _give_back(self, stream: _Stream, is_sound: bool) -> None:
        if not is_sound or self._is_closed:
            self._drop(stream)
            return
        stream.until_s = self._clock_s() + self._idle_s
        self._free.append(stream)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._idle_s, self._look)

    def _drop(self, stream: _Stream) -> None:
        self._count -= 1
        stream.call.cancel()

    def _look(self) -> None:
        """Closes streams that have been idle for long."""
        now_s = self._clock_s()
        idle = [stream for stream in self._free if stream.until_s <= now_s]
        self._free = [stream for stream in self._free if stream.until_s > now_s]
        for stream in idle:
            self._drop(stream)
        self._timer = None
        if self._free:
            wait_s = min(stream.until_s for stream in self._free) - now_s
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._look)
