"""Long work outside a loop: archive reads and writes, transactions, jobs of machines."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from sirocco.protocol.contract.effects import Compute, Computed, Effect, Event
from sirocco.runtime.loop.loop_inbox import LoopInbox
from sirocco.runtime.process.process_tuning import step_back

Action = Callable[[], Event | None]


class BackgroundJobs:
    """A few threads whose results return as events; an error of theirs ends the loop.

    Attributes:
        under_way: actions whose events the loop has not taken yet, without loads; counted in the
            loop alone.
    """

    def __init__(self, member: str, inbox: LoopInbox) -> None:
        self.under_way = 0
        self._inbox = inbox
        self._pool = ThreadPoolExecutor(4, thread_name_prefix=f"{member}-slow")
        # Separate pools: a try may take long while the archive or the log does not answer.
        self._loading = ThreadPoolExecutor(4, thread_name_prefix=f"{member}-loading")
        self._tidying = ThreadPoolExecutor(2, thread_name_prefix=f"{member}-tidying")
        # Past objects of slots that are read already.
        self._loading_late = ThreadPoolExecutor(4, thread_name_prefix=f"{member}-slices")
        # Work that is not urgent: writing Parquet, merging slices.
        self._background = ThreadPoolExecutor(2, f"{member}-background", step_back)

    def begin(self, action: Action) -> None:
        """Begins an action whose event is awaited."""
        self._begin(action, self._pool)

    def begin_late(self, action: Action) -> None:
        """Begins an action that must not delay others."""
        self._begin(action, self._background)

    def load(self, action: Callable[[], None]) -> None:
        """Begins an action that an ending process does not wait for; it raises nothing."""
        self._loading.submit(action)

    def load_late(self, action: Callable[[], None]) -> None:
        """Begins a long load beside which the loop has work to do; as `load` otherwise."""
        self._loading_late.submit(action)

    def compute(self, effect: Compute) -> None:
        """Begins a job of the machine."""
        self.begin_late(lambda: Computed(effect.key, effect.job()))

    def tidy(self, action: Callable[[], object]) -> None:
        """Runs housekeeping: what fails now is asked for again later."""
        self._tidying.submit(action)

    def finish(self) -> None:
        """Waits for all that has begun, without loads and housekeeping."""
        for pool in (self._loading, self._loading_late, self._tidying):
            pool.shutdown(wait=False, cancel_futures=True)
        for pool in (self._pool, self._background):
            pool.shutdown(wait=True)

    def close(self) -> None:
        """Begins nothing any more."""
        pools = (self._pool, self._loading, self._loading_late, self._tidying, self._background)
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=True)

    def _begin(self, action: Action, pool: ThreadPoolExecutor) -> None:
        def ended() -> list[Effect]:
            self.under_way -= 1
            return []

        def run() -> None:
            try:
                attempt()
            finally:
                self._inbox.put(ended)

        def attempt() -> None:
            try:
                result = action()
            except Exception as error:
                self._inbox.fail(error)
                return
            if result is not None:
                self._inbox.post(result)

        self.under_way += 1
        pool.submit(run)
