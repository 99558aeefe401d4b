"""Kafka's errors as the errors of this layer, and where the client library logs."""

from __future__ import annotations

import logging
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from sirocco.transport.errors import (
    AppendFailed,
    FencedError,
    TransactionAborted,
    TransportError,
    Unavailable,
    UnknownTopic,
)

LOGGER: Final = logging.getLogger("sirocco.transport.kafka")
# The client warns at each start that a setting we rely on (and test) is experimental.
LOGGER.addFilter(lambda record: not record.getMessage().startswith("CONFWARN"))

_FENCED: Final = frozenset(
    (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
)
UNKNOWN: Final = frozenset(
    (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    )
)
# What passes while leaders move or a topic is new.
_TRANSIENT: Final = frozenset(
    (
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.NOT_CONTROLLER,
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
OUT_OF_RANGE: Final = frozenset((KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE))


def typed(error: KafkaError, what: str) -> TransportError:
    """The error of this layer for one of the client's."""
    code, text = error.code(), f"{what}: {error.name()}: {error.str()}"
    if code in _FENCED:
        return FencedError(text)
    if code in UNKNOWN:
        return UnknownTopic(text)
    if error.txn_requires_abort():
        return TransactionAborted(text)
    if code in _AWAY or error.retriable():
        return Unavailable(text)
    return AppendFailed(text)


def cause_of(exception: KafkaException) -> KafkaError:
    """What the client's exception carries."""
    cause: KafkaError = exception.args[0]
    return cause
