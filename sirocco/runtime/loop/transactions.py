"""Transactions on `deliveries`: one producer a Kafka partition, whose id fences its predecessor."""

from __future__ import annotations

import logging

from sirocco.protocol.contract.effects import Committed, Fenced, Transact, Written
from sirocco.protocol.contract.messages import DELIVERIES, Message
from sirocco.runtime.loop.append_queue import APPEND_WAIT_MS
from sirocco.runtime.loop.hops import DeadLetter, HopWriter
from sirocco.runtime.loop.traced_records import TracedRecords
from sirocco.runtime.process.retries import RETRIES_MAX, retried
from sirocco.telemetry.logging import event
from sirocco.transport.errors import (
    Closed,
    FencedError,
    RecordTooLarge,
    TransactionAborted,
    TransportUnavailable,
)
from sirocco.transport.log import Log, Producer

logger = logging.getLogger(__name__)


class Transactions:
    """The transactional producers of one process.

    Args:
        member: this process.
        log: what is written to.
        prefix: of the producers' transactional ids, the same for all members of a cluster.
        traced: which records carry places in traces; None: none does.
    """

    def __init__(
        self, member: str, log: Log, prefix: str, traced: TracedRecords | None = None
    ) -> None:
        self._member = member
        self._log = log
        self._prefix = prefix
        self._traced = traced
        self._producers: dict[int, Producer] = {}

    def fence(self, partition: int) -> None:
        """Opens a producer; from now on no other process can write to the Kafka partition."""
        former = self._producers.pop(partition, None)
        if former is not None:
            former.close()
        name = f"{self._prefix}-deliveries-{partition}"
        producer = self._log.producer(
            f"{self._member}-{partition}",
            transactional_id=name,
            append_wait_s=APPEND_WAIT_MS / 1_000,
        )
        retried(producer.init_transactions)
        self._producers[partition] = producer

    def producer(self, partition: int) -> Producer:
        """Returns the present producer: a later `fence` makes another."""
        return self._producers[partition]

    def transact(self, effect: Transact, producer: Producer) -> Committed | Written | Fenced:
        """Writes the messages of a transaction, or a part; takes long, and is called in any thread.

        Raises:
            Unavailable: the transaction was aborted repeatedly, or its outcome is unknown.
        """
        try:
            return _committed(effect, producer, self._traced)
        except (FencedError, Closed):
            # By another process, or by this one when the Kafka partition was granted to it anew.
            logger.info("fenced", extra=event("fenced", member=self._member))
            return Fenced(effect.partition, effect.number)

    def close(self) -> None:
        """Closes all producers."""
        for producer in self._producers.values():
            producer.close()


# Numbers of appends whose offsets show where `deliveries` ends, and of dead letters.
_DELIVERED, _ASIDE = 0, 1


def _committed(
    effect: Transact, producer: Producer, traced: TracedRecords | None
) -> Committed | Written | Fenced:
    end = 0

    def appended(number: int, error: Exception | None, offset: int) -> None:
        nonlocal end
        if error is None and number == _DELIVERED:
            end = offset + 1

    writer = HopWriter(producer, appended, traced)
    for _ in range(RETRIES_MAX):
        if effect.is_first:
            producer.begin()
        try:
            size = sum(_written(writer, effect.partition, message) for message in effect.messages)
            if not effect.is_last:
                # It is kept until the log has it, or has failed, which the last part finds out.
                producer.flush(APPEND_WAIT_MS / 1_000)
                return Written(effect.partition, effect.number, size)
            # An unknown outcome is asked for again, not written again.
            retried(producer.commit)
        except TransactionAborted:
            retried(producer.abort)
            if effect.is_first:
                continue
            # The parts before it are gone: the machine begins again at the last progress.
            extra = event("transaction_aborted", partition=effect.partition)
            logger.warning("a transaction of several parts was aborted", extra=extra)
            return Fenced(effect.partition, effect.number)
        return Committed(effect.partition, effect.number, size, end)
    raise TransportUnavailable(
        f"deliveries {effect.partition}: the transaction was aborted repeatedly"
    )


def _written(writer: HopWriter, partition: int, message: Message) -> int:
    """Appends a message; one that the log will never take is set aside, without an error."""
    try:
        return writer.append(DELIVERIES, partition, message, _DELIVERED)
    except RecordTooLarge as error:
        letter = DeadLetter.unwritten(DELIVERIES, partition, message, str(error))
        extra = event("record_rejected", topic=DELIVERIES, partition=partition, reason=str(error))
        logger.warning("record cannot be processed; it is in dead-letters", extra=extra)
        writer.dead_letter(letter, _ASIDE)
        return 0
