"""Hands questions to the threads of the search pool, and results back, many in one turn."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")

# A result waits so long at most for those after it: about as long as the network takes. To wake the
# loop for each costs two turns of the interpreter lock, as much as a small search.
GROUP_S = 0.001

# How long a thread takes question after question. Then it lets the other work of the pool go first:
# the further parts of long answers, which would otherwise wait for as long as questions arrive.
TURN_S = 0.005


class WaitingQuestions(Generic[T]):
    """Questions that wait for a thread; all methods belong to the gRPC loop.

    A thread takes one question at a time, so that a long one holds back only its own thread.

    Args:
        pool: whose threads answer.
        threads: how many of them at a time.
        group_s: how long a thread keeps results back while more questions wait.
        clock_s: what the turn of a thread is measured by.
    """

    def __init__(
        self,
        pool: Executor,
        threads: int,
        group_s: float = GROUP_S,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pool = pool
        self._threads = threads
        self._group_s = group_s
        self._clock_s = clock_s
        # A deque takes and gives single items in any thread.
        self._waiting: deque[tuple[Callable[[], T], Callable[[T | BaseException], None]]] = deque()
        self._made: deque[tuple[Callable[[T | BaseException], None], T | BaseException]] = deque()
        self._running = 0
        self._timer: asyncio.TimerHandle | None = None

    def put(self, work: Callable[[], T], made: Callable[[T | BaseException], None]) -> None:
        """Has something done.

        Args:
            work: called in a thread.
            made: called with its result, or with what it raised, in the loop.
        """
        self._waiting.append((work, made))
        self._start()

    def _start(self) -> None:
        """Starts a thread if one is free, and something waits."""
        if not self._waiting:
            return
        loop = asyncio.get_running_loop()
        # Of a question alone no result is kept back.
        if self._timer is None and (self._running or len(self._waiting) > 1):
            self._timer = loop.call_later(self._group_s, self._look)
        if self._running < self._threads:
            self._running += 1
            self._pool.submit(self._work, loop)

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        """Does what waits, in a thread."""
        end_s = self._clock_s() + TURN_S
        while True:
            try:
                work, made = self._waiting.popleft()
            except IndexError:
                break
            result: T | BaseException
            try:
                result = work()
            except BaseException as error:
                result = error
            self._made.append((made, result))
            if self._waiting and self._clock_s() > end_s:
                with suppress(RuntimeError):
                    self._pool.submit(self._work, loop)
                    return
        # A loop that has ended needs no results.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._ended)

    def _ended(self) -> None:
        self._running -= 1
        self._deliver()
        # Something may have been put after the thread had looked for the last time.
        self._start()
        if not self._running and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """Delivers what is made while a thread is at work on the next, perhaps a long one."""
        self._deliver()
        self._timer = None
        if self._running:
            self._timer = asyncio.get_running_loop().call_later(self._group_s, self._look)

    def _deliver(self) -> None:
        while self._made:
            made, result = self._made.popleft()
            made(result)
