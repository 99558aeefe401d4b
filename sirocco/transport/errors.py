"""Errors between a process and the log, the map store or the archive.

Named after the condition, as gRPC status codes are, so that the table that maps errors to codes
reads one to one. Adapters turn every error of their client library into one of these; nothing
outside an adapter sees a `KafkaException` or a `RedisError`.
"""

# ruff: noqa: N818 -- conditions, see above

from __future__ import annotations

from sirocco.model import errors as model


class TransportError(model.SiroccoError):
    """The root of this layer; `code` and `retryable` are those of the model's errors."""


class TransportUnavailable(TransportError, model.Unavailable):
    """The other side did not answer in time, or cannot be reached; the outcome is unknown."""


class AccessRefused(TransportUnavailable):
    """The other side does not take what this process shows, or is not whom it trusts.

    Nothing changes until `field`, the setting, does, or the other side: trying again is of no use.
    """


class LogFull(TransportError, model.ResourceExhausted):
    """A bounded queue stayed full for as long as the call may wait; nothing was taken."""


class Closed(TransportError, model.FailedPrecondition):
    """The object was closed before the call, or while it waited."""


class RecordTooLarge(TransportError, model.InvalidArgument):
    """A record is over the limit of the log; it was not taken.

    Args:
        topic: where it was to be appended.
        size_bytes: of key, value and headers.
        limit_bytes: the greatest size that is taken.
    """

    def __init__(self, topic: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"{topic}: a record of {size_bytes} bytes, the limit is {limit_bytes}")
        self.topic = topic
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class UnknownTopic(TransportError, model.NotFound):
    """No such topic, or no such Kafka partition of it."""


class TopicMismatch(TransportError, model.FailedPrecondition):
    """A topic exists with another number of Kafka partitions than asked for."""

    def __init__(self, topic: str, wanted: int, found: int) -> None:
        super().__init__(f"{topic}: {wanted} Kafka partitions needed, {found} found")
        self.topic = topic
        self.wanted = wanted
        self.found = found


class OffsetOutOfRange(TransportError):
    """A consumer's position is not in the log (any more); it is never reset silently.

    Args:
        topic: of the position.
        partition: the Kafka partition.
        offset: the position that was asked for.
        earliest: the first offset that can be read.
    """

    code = "OUT_OF_RANGE"

    def __init__(self, topic: str, partition: int, offset: int, earliest: int) -> None:
        super().__init__(f"{topic}/{partition}: offset {offset} not in the log, from {earliest}")
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.earliest = earliest


class FencedError(TransportError, model.FailedPrecondition):
    """A newer producer with the same transactional id exists; this one must end."""


class TransactionAborted(TransportError, model.FailedPrecondition):
    """The open transaction cannot be committed; `abort` it and begin again."""


class AppendFailed(TransportError, model.Internal):
    """The log refused a record for good, or the producer was closed before it was sent."""


class BlobNotFound(TransportError, model.NotFound):
    """No blob of that name in the archive."""


class BlobExists(TransportError, model.AlreadyExists):
    """A blob of that name exists with other contents; blobs are immutable."""
