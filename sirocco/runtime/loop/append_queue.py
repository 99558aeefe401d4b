"""Appends of a loop: in order, with actions that wait until the log has them.

A failed append ends the loop: a gap is never left, the successor repeats from the checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from sirocco.protocol.contract.messages import Message, without_content
from sirocco.protocol.contract.plain_queries import ChangeColumns
from sirocco.runtime.loop.barriers import Barriers
from sirocco.runtime.loop.hops import DeadLetter, HopWriter
from sirocco.runtime.loop.traced_records import TracedRecords
from sirocco.runtime.process.clock import monotonic_ms
from sirocco.telemetry.logging import event
from sirocco.transport.errors import LogFull, RecordTooLarge
from sirocco.transport.log import Log

T = TypeVar("T")

logger = logging.getLogger(__name__)

# An append may wait this long for room in the producer's queue before the process gives up: longer
# than a broker's restart (about 10 s), shorter than a lease would be renewed for a dead loop.
APPEND_WAIT_MS = 30_000


class AppendQueue:
    """The producer of one loop; all methods are called in that loop's thread.

    Attributes:
        rejected_total: dead letters so far.
    """

    def __init__(
        self,
        member: str,
        log: Log,
        beat: Callable[[], None],
        traced: TracedRecords | None = None,
    ) -> None:
        self.rejected_total = 0
        self._beat = beat
        self._barriers = Barriers()
        self._producer = log.producer(member)
        self._writer = HopWriter(self._producer, self._appended, traced)
        self._error: Exception | None = None

    @property
    def unacknowledged(self) -> int:
        """Number of appends that the log has not confirmed."""
        return self._barriers.unacknowledged

    def after_all(self, action: Callable[[], None]) -> None:
        """Runs an action in the loop when the log has all that was appended before."""
        self._barriers.after_all(action)

    def append(self, topic: str, partition: int, message: Message) -> None:
        """Appends a message; waits for room.

        A record that the log will never take would end this process and each successor at the same
        place. It is written to `dead-letters`, and its positions are covered by a record without
        content.

        Raises:
            ResourceExhausted: There was no room for `APPEND_WAIT_MS`.
        """
        try:
            self._in_time(partial(self._writer.append, topic, partition, message))
        except RecordTooLarge as error:
            self.reject(DeadLetter.unwritten(topic, partition, message, str(error)))
            rest = without_content(message)
            if rest is not None:
                self._in_time(partial(self._writer.append, topic, partition, rest))

    def append_changes(self, partition: int, changes: ChangeColumns) -> None:
        """Appends changes of queries, a record each; waits for room.

        Raises:
            LogFull: There was no room for `APPEND_WAIT_MS`.
        """
        number = self._barriers.begin()
        appends = self._writer.append_changes(partition, changes)
        appends.on_end(lambda done: self._appended(number, done.error, -1))
        while not self._once_there_is_room(appends.more):
            pass

    def reject(self, letter: DeadLetter) -> None:
        """Sets a record aside that cannot be processed; waits for room, as `append`."""
        extra = event(
            "record_rejected",
            topic=letter.topic,
            partition=letter.partition,
            offset=letter.offset,
            reason=letter.reason,
        )
        logger.warning("record cannot be processed; it is in dead-letters", extra=extra)
        self.rejected_total += 1
        self._in_time(partial(self._writer.dead_letter, letter))

    def take_results(self) -> None:
        """Takes confirmations of appends from the log.

        Raises:
            Exception: An append failed.
        """
        self._producer.poll(0)
        if self._error is not None:
            raise self._error

    def run_due(self) -> None:
        """Runs the actions whose appends are confirmed."""
        self._barriers.run_due()

    def flush(self) -> None:
        """Waits until the log has all appends."""
        self._producer.flush(APPEND_WAIT_MS / 1_000)

    def close(self) -> None:
        """Ends the producer."""
        self._producer.close()

    def _in_time(self, append: Callable[[int], object]) -> None:
        number = self._barriers.begin()
        try:
            self._once_there_is_room(partial(append, number))
        except RecordTooLarge:
            self._barriers.end(number)
            raise

    def _once_there_is_room(self, append: Callable[[], T]) -> T:
        deadline_ms: int | None = None
        while True:
            try:
                return append()
            except LogFull:
                now_ms = monotonic_ms()
                deadline_ms = now_ms + APPEND_WAIT_MS if deadline_ms is None else deadline_ms
                if now_ms > deadline_ms:
                    raise
                self._beat()
                self._producer.poll(0.05)

    def _appended(self, number: int, error: Exception | None, _offset: int) -> None:
        if error is not None:
            self._error = error
        else:
            self._barriers.end(number)
