"""Receives notifications in a thread, and measures their latencies."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
from sirocco_client import NotificationBatch, Subscription

from sirocco.loadgen.latency import LatencyHistogram, SendTimes

# The cursor may advance without a notification.
_LOOK_S = 0.02


class Receiver:
    """Reads a subscription up to requested cursors.

    Args:
        subscription: Opened before the first object is published.
        sent: When the objects were sent, on the clock of `time.monotonic`.
        take: Called with every batch, in the thread of the receiver.

    Attributes:
        latency: From sending an object to receiving its notification; for matches only, as lists
            also name objects of long ago.
        notifications: Number of matches and lists received.
        last_s: When the last one was received, on the clock of `time.monotonic`.
    """

    def __init__(
        self,
        subscription: Subscription,
        sent: SendTimes,
        take: Callable[[NotificationBatch], None],
    ) -> None:
        self.latency = LatencyHistogram()
        self.notifications = 0
        self.last_s = 0.0
        self._subscription = subscription
        self._sent = sent
        self._take = take
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="receiver", daemon=True)

    def start(self) -> None:
        """Begins to read."""
        self._subscription.open()
        self._thread.start()

    def check(self) -> None:
        """Raises the error that ended the reading, if there was one."""
        if self._failure is not None:
            raise self._failure

    def await_cursors(self, cursors: Sequence[str], timeout_s: float) -> None:
        """Waits until everything before the subscriber's cursor among these was received.

        Args:
            cursors: The end of each Kafka partition of `deliveries`.
            timeout_s: How long to wait without progress.

            Raises:
                TimeoutError: Nothing arrived for that time.
        """
        ends = dict(_parts(cursor) for cursor in cursors)
        seen, deadline_s = "", 0.0
        while True:
            self.check()
            cursor = self._subscription.cursor
            if cursor:
                partition, offset = _parts(cursor)
                if offset >= ends[partition]:
                    return
            if cursor != seen or not deadline_s:
                seen, deadline_s = cursor, time.monotonic() + timeout_s
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"no notifications between {cursor} and {ends}")
            time.sleep(_LOOK_S)

    def stop(self) -> None:
        """Ends the subscription."""
        self._subscription.close()
        self._thread.join()

    def _run(self) -> None:
        try:
            for batch in self._subscription.batches():
                at_s = time.monotonic()
                rows = np.asarray(batch.match_objects)
                numbers = np.asarray(batch.numbers)[rows]
                self.latency.add(self._sent.durations_ms(numbers, at_s))
                self._take(batch)
                self.notifications += len(batch)
                self.last_s = at_s
        except Exception as error:
            self._failure = error


def _parts(cursor: str) -> tuple[str, int]:
    partition, _, offset = cursor.partition(".")
    return partition, int(offset)
