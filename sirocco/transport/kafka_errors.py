"""Turns Kafka's errors into those of this layer, and sets where the client library logs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

from confluent_kafka import KafkaError, KafkaException

from sirocco.transport.errors import (
    FencedError,
    TransactionAborted,
    TransportError,
    TransportUnavailable,
    UnknownTopic,
)

_T = TypeVar("_T")

LOGGER: Final = logging.getLogger("sirocco.transport.kafka")


# A broker that is away gives one line per client thread in this time, not one a second.
_REPEAT_S: Final = 30.0


class _Calm(logging.Filter):
    """Drops log lines that the client writes too often.

    At each start it warns that a setting we rely on (and test) is experimental, and each attempt to
    reach a broker that is away is an error of its own.
    """

    def __init__(self) -> None:
        super().__init__()
        self._logged: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is to be logged."""
        text = record.getMessage()
        if text.startswith("CONFWARN"):
            return False
        if not text.startswith("FAIL"):
            return True
        source, now = text.split(": ", 1)[0], time.monotonic()
        if now - self._logged.get(source, -_REPEAT_S) < _REPEAT_S:
            return False
        self._logged[source] = now
        return True


LOGGER.addFilter(_Calm())

_FENCED: Final = frozenset(
    (
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        # The broker does not know the client's transaction: its outage was longer than the
        # transaction's timeout, and began during it. The client calls this fatal; a new producer of
        # the same id takes over, as it would from a predecessor.
        KafkaError.INVALID_TXN_STATE,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
    )
)
UNKNOWN: Final = frozenset(
    (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    )
)
# What a leader is that the client knows from before.
MOVED: Final = frozenset(
    (
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    )
)
# Errors that pass while leaders move or a topic is new.
_TRANSIENT: Final = frozenset(
    (
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.NOT_CONTROLLER,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.REPLICA_NOT_AVAILABLE,
        # A new leader does not know yet how far the log is replicated; the client passes this on.
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError._NOENT,  # "no leaders found"
    )
)
_AWAY: Final = _TRANSIENT | frozenset(
    (
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_ENOUGH_REPLICAS,
    )
)
# Errors of the consumer group that the client looks for, although none is ever joined.
GROUP: Final = frozenset(
    (
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.INVALID_GROUP_ID,
    )
)
OUT_OF_RANGE: Final = frozenset((KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE))


def made(make: Callable[[], _T], what: str) -> _T:
    """Returns a client; refused settings, such as an unreadable certificate, raise typed errors."""
    try:
        return make()
    except KafkaException as error:
        raise typed(cause_of(error), what) from error


def typed(error: KafkaError, what: str) -> TransportError:
    """Returns the error of this layer for one of the client's."""
    code, text = error.code(), f"{what}: {error.name()}: {error.str()}"
    if code in _FENCED:
        return FencedError(text)
    if code in UNKNOWN:
        return UnknownTopic(text)
    if error.txn_requires_abort():
        return TransactionAborted(text)
    if code in _AWAY or error.retriable():
        return TransportUnavailable(text)
    return TransportError(text)


def cause_of(exception: KafkaException) -> KafkaError:
    """Returns the error that the client's exception carries."""
    cause: KafkaError = exception.args[0]
    return cause
