"""What a loop appends: in order, with what has to wait until the log has it.

A failed append ends the loop: a gap is never left behind, the successor repeats from the
checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from sirocco.protocol.contract.messages import Message, without_content
from sirocco.runtime.loop.barriers import Barriers
from sirocco.runtime.loop.hops import DeadLetter, HopWriter
from sirocco.runtime.process.clock import monotonic_ms
from sirocco.telemetry.logging import event
from sirocco.transport.errors import LogFull, RecordTooLarge
from sirocco.transport.log import Log

logger = logging.getLogger(__name__)

# An append may wait this long for room in the producer's queue before the process gives up: longer
# than a broker's restart (about 10 s), shorter than a lease would be renewed for a dead loop.
APPEND_WAIT_MS = 30_000


class Appends:
    """The producer of one loop, in whose thread all is called.

    Attributes:
        rejected_total: dead letters so far.
    """

    def __init__(self, member: str, log: Log, beat: Callable[[], None]) -> None:
        self.rejected_total = 0
        self._beat = beat
        self._barriers = Barriers()
        self._producer = log.producer(member)
        self._writer = HopWriter(self._producer, self._appended)
        self._error: Exception | None = None

    @property
    def unacknowledged(self) -> int:
        """Appends that the log has not confirmed."""
        return self._barriers.unacknowledged

    def after_all(self, action: Callable[[], None]) -> None:
        """Does something in the loop when the log has all that was appended before."""
        self._barriers.after_all(action)

    def append(self, topic: str, partition: int, message: Message) -> None:
        """Appends a message; waits for room.

        One that the log will never take would end this process and each successor at the same
        place. It goes to `dead-letters`, and the positions that it covers are covered without it.

        Raises:
            ResourceExhausted: There was none for `APPEND_WAIT_MS`.
        """
        try:
            self._in_time(partial(self._writer.append, topic, partition, message))
        except RecordTooLarge as error:
            self.reject(DeadLetter.unwritten(topic, partition, message, str(error)))
            rest = without_content(message)
            if rest is not None:
                self._in_time(partial(self._writer.append, topic, partition, rest))

    def reject(self, letter: DeadLetter) -> None:
        """Puts a record aside that cannot be processed; waits for room, as `append`."""
        extra = event(
            "record_rejected",
            topic=letter.topic,
            partition=letter.partition,
            offset=letter.offset,
            reason=letter.reason,
        )
        logger.warning("record rejected", extra=extra)
        self.rejected_total += 1
        self._in_time(partial(self._writer.dead_letter, letter))

    def hear(self) -> None:
        """Hears which appends the log has.

        Raises:
            Exception: One of them failed.
        """
        self._producer.poll(0)
        if self._error is not None:
            raise self._error

    def run_due(self) -> None:
        """Does what waited for those."""
        self._barriers.run_due()

    def flush(self) -> None:
        """Waits until the log has all."""
        self._producer.flush(APPEND_WAIT_MS / 1_000)

    def close(self) -> None:
        """Ends the producer."""
        self._producer.close()

    def _in_time(self, append: Callable[[int], object]) -> None:
        number = self._barriers.begin()
        deadline_ms: int | None = None
        while True:
            try:
                append(number)
                return
            except RecordTooLarge:
                self._barriers.end(number)
                raise
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
