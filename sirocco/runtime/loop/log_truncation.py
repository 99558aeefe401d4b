"""Truncates the beginnings of Kafka partitions that are not needed any more, at intervals."""

from __future__ import annotations

from collections.abc import Callable

from sirocco.runtime.loop.limits import LOOP
from sirocco.runtime.process.clock import monotonic_ms
from sirocco.transport.log import Log


class LogTruncation:
    """Requests of one loop to truncate, until they are carried out."""

    def __init__(self, log: Log, interval_ms: int = LOOP.truncate_interval_ms) -> None:
        self._interval_ms = interval_ms
        self._log = log
        self._requested: dict[tuple[str, int], int] = {}
        self._done_ms = monotonic_ms()

    def request(self, topic: str, partition: int, before: int) -> None:
        """Requests to truncate before an offset: the records before it are not needed."""
        self._requested[topic, partition] = before

    def due(self) -> Callable[[], None] | None:
        """Returns the work to do outside the loop, if it is time for it."""
        if not self._requested or monotonic_ms() - self._done_ms < self._interval_ms:
            return None
        self._done_ms = monotonic_ms()
        due, self._requested = self._requested, {}

        def truncate() -> None:
            for (topic, partition), before in due.items():
                self._log.truncate(topic, partition, before)

        return truncate
