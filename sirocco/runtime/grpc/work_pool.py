"""A few threads for expensive work on clients' input, shared fairly between callers.

Expressions, polygons and filters of clients are parsed outside of the event loop, so that health,
publishes and other clients continue meanwhile. Turns go round between tenants, or between
connections without tenants. A tenant has a budget of CPU time a second: work beyond it waits, and
is refused if it would wait for long.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sirocco.model.errors import ResourceExhausted
from sirocco.model.quotas.quota import Bucket
from sirocco.runtime.grpc.authentication import caller
from sirocco.runtime.grpc.edge import connection
from sirocco.runtime.process.clock import monotonic_ms

T = TypeVar("T")
U = TypeVar("U")

# Kernels release the interpreter's lock, the rest does not: more threads would wait for each other,
# and the event loop for all of them.
THREADS = 2

# Waiting jobs, in total and of one caller.
WAITING_MAX = 4_096
WAITING_EACH_MAX = 256

# CPU time of one tenant in each second: the other half of one thread's time is for others.
TENANT_MS_PER_S = 500.0

# Time of one turn for a job that is made of many small ones.
TURN_S = 0.01

# How long a job may wait before its caller is asked to retry, and after what time.
WAIT_S = 10.0
RETRY_AFTER_MS = 500

# Interval between checks of tenants that are over their budget, and of jobs that have waited long.
LOOK_S = 0.05


@dataclass(slots=True)
class _Sender:
    """The waiting jobs of one tenant, or of one connection.

    Attributes:
        budget: of CPU time, ms; None for connections, which are short-lived.
        running: jobs that run now.
    """

    jobs: deque[tuple[Callable[[], Any], asyncio.Future[Any], float]] = field(default_factory=deque)
    budget: Bucket | None = None
    running: int = 0

    def may_start(self, now_ms: int, running_max: int) -> bool:
        """Whether it may have a turn now."""
        if not self.jobs or self.running >= running_max:
            return False
        return self.budget is None or self.budget.wait_ms(now_ms) == 0

    def is_done(self, now_ms: int) -> bool:
        """Whether nothing of it has to be remembered."""
        if self.jobs or self.running:
            return False
        return self.budget is None or self.budget.is_full(now_ms)


class WorkPool:
    """Runs jobs in threads, in turns of their callers.

    Args:
        name: of the threads.
        tenant_ms_per_s: CPU time of one tenant.
        wait_s: how long a job waits at most.
        turn_s: after which time items of `map` make room for jobs of others.
        waiting_each_max: waiting jobs of one caller.
        running_each_max: jobs of one caller at a time, where jobs take long.
    """

    def __init__(
        self,
        name: str,
        *,
        threads: int = THREADS,
        tenant_ms_per_s: float = TENANT_MS_PER_S,
        wait_s: float = WAIT_S,
        turn_s: float = TURN_S,
        waiting_each_max: int = WAITING_EACH_MAX,
        running_each_max: int = THREADS,
    ) -> None:
        self._waiting_each_max = waiting_each_max
        self._running_each_max = running_each_max
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._tenant_ms_per_s = tenant_ms_per_s
        self._wait_s = wait_s
        self._turn_s = turn_s
        # In the order of their turns; those without jobs and with a full budget are forgotten.
        self._senders: OrderedDict[tuple[str, str], _Sender] = OrderedDict()
        self._waiting = 0
        self._running = 0
        self._looking: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Number of jobs that wait for their turn."""
        return self._waiting

    async def run(self, job: Callable[[], T], *, sender: tuple[str, str] | None = None) -> T:
        """Runs a job for the caller; returns its result, or raises what it raises.

        Args:
            job: is run in a thread, outside of the call's context.
            sender: tenant and connection of the caller; None: those of the present gRPC call.

        Raises:
            ResourceExhausted: Too many wait, or it would wait for long.
        """
        tenant, peer = sender or (caller().grant.tenant, connection())
        key = (tenant, "" if tenant else peer)
        found = self._senders.get(key)
        if found is None:
            budget = Bucket(self._tenant_ms_per_s, monotonic_ms()) if tenant else None
            found = self._senders[key] = _Sender(budget=budget)
        if self._waiting >= WAITING_MAX or len(found.jobs) >= self._waiting_each_max:
            raise _exhausted()
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        found.jobs.append((job, done, time.monotonic() + self._wait_s))
        self._waiting += 1
        self._dispatch()
        return await done

    async def map(self, function: Callable[[U], T], items: Sequence[U]) -> list[T]:
        """Applies a function to all items, in short turns; raises as `run`."""
        results: list[T] = []

        def some() -> None:
            end_s = time.perf_counter() + self._turn_s
            while len(results) < len(items):
                results.append(function(items[len(results)]))
                # Not CPU time, which takes a system call to read.
                if time.perf_counter() > end_s:
                    return

        while len(results) < len(items):
            await self.run(some)
        return results

    def close(self) -> None:
        """Ends the threads; waiting jobs are not run."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _dispatch(self) -> None:
        """Gives free threads to the callers whose turn it is."""
        now_ms = monotonic_ms()
        begun, done = [], []
        for key, sender in self._senders.items():
            # Thousands of connections may wait: most of them are not looked at.
            if self._running >= self._threads:
                break
            self._drop_late(sender)
            if sender.may_start(now_ms, self._running_each_max):
                begun.append(key)
                self._begin(sender)
            elif sender.is_done(now_ms):
                done.append(key)
        for key in begun:
            self._senders.move_to_end(key)
        for key in done:
            del self._senders[key]
        if self._waiting and self._looking is None:
            loop = asyncio.get_running_loop()
            self._looking = loop.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._looking = None
        for sender in self._senders.values():
            self._drop_late(sender)
        self._dispatch()

    def _drop_late(self, sender: _Sender) -> None:
        now_s = time.monotonic()
        while sender.jobs and (sender.jobs[0][1].done() or sender.jobs[0][2] < now_s):
            _, done, _ = sender.jobs.popleft()
            self._waiting -= 1
            # Done already: the caller has gone.
            if not done.done():
                done.set_exception(_exhausted())

    def _begin(self, sender: _Sender) -> None:
        job, done, _ = sender.jobs.popleft()
        self._waiting -= 1
        self._running += 1
        sender.running += 1
        loop = asyncio.get_running_loop()

        def ended(result: Any, error: BaseException | None, spent_ms: float) -> None:
            self._running -= 1
            sender.running -= 1
            if sender.budget is not None:
                sender.budget.take(spent_ms, monotonic_ms())
            if not done.done():
                if error is None:
                    done.set_result(result)
                else:
                    done.set_exception(error)
            self._dispatch()

        def work() -> None:
            begin_s = time.thread_time()
            result, error = None, None
            try:
                result = job()
            except BaseException as caught:
                error = caught
            spent_ms = 1_000 * (time.thread_time() - begin_s)
            if not loop.is_closed():
                loop.call_soon_threadsafe(ended, result, error, spent_ms)

        self._pool.submit(work)


def _exhausted() -> ResourceExhausted:
    return ResourceExhausted(
        "the call needs more work than there is time for now", retry_after_ms=RETRY_AFTER_MS
    )
