"""Ended spans on their way to a collector: a bounded queue, emptied by a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from sirocco.telemetry.logging import event

logger = logging.getLogger(__name__)

# Spans that wait for the collector, some 2 kB each. Beyond them spans are dropped and counted.
WAITING_MAX: Final = 2_048

# Spans of one request to the collector, and how long the first of them waits for others.
BATCH_MAX: Final = 512
BATCH_S: Final = 1.0

# How long an ending process waits for its last spans to leave.
CLOSE_S: Final = 2.0

_Ended = TypeVar("_Ended")


class ExportQueue(Generic[_Ended]):
    """Takes spans from any thread, without waiting; the collector may be away.

    Args:
        export: hands spans over, and returns whether the collector has them; may take long, and
            may raise.
        waiting_max: spans that wait at most.

    Attributes:
        dropped: spans that found no room.
        failed: spans that the collector did not take.
    """

    def __init__(
        self, export: Callable[[list[_Ended]], bool], waiting_max: int = WAITING_MAX
    ) -> None:
        self.dropped = 0
        self.failed = 0
        self._export = export
        self._waiting: deque[_Ended] = deque()
        self._waiting_max = waiting_max
        self._lock = threading.Lock()
        self._is_batch = threading.Event()
        self._stopping = threading.Event()
        self._is_troubled = False
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    def put(self, span: _Ended) -> None:
        """Queues an ended span, or drops it."""
        with self._lock:
            if len(self._waiting) >= self._waiting_max:
                self.dropped += 1
                return
            self._waiting.append(span)
            is_batch = len(self._waiting) >= BATCH_MAX
        if is_batch:
            self._is_batch.set()

    def close(self) -> None:
        """Hands over what waits, as far as that takes no longer than `CLOSE_S`."""
        self._stopping.set()
        self._is_batch.set()
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._is_batch.wait(BATCH_S)
            self._is_batch.clear()
            self._empty()
        self._empty()

    def _empty(self) -> None:
        while self._waiting:
            with self._lock:
                batch = [self._waiting.popleft() for _ in range(min(BATCH_MAX, len(self._waiting)))]
            self._hand_over(batch)

    def _hand_over(self, batch: list[_Ended]) -> None:
        try:
            is_taken, reason = self._export(batch), "refused or not reached"
        except Exception as error:
            is_taken, reason = False, f"{type(error).__name__}: {error}"
        if not is_taken:
            self.failed += len(batch)
            if not self._is_troubled:
                extra = event("spans_lost", reason=reason)
                logger.warning("the collector does not take spans; they are dropped", extra=extra)
        self._is_troubled = not is_taken
