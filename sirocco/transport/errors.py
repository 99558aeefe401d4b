"""What can go wrong between a process and the log, the map store or the archive.

Named after the condition, as gRPC status codes are, so that the table that maps errors to
codes reads one to one. Adapters turn every error of their client library into one of these;
nothing outside an adapter sees a `KafkaException` or a `RedisError`.
"""

# ruff: noqa: N818 -- conditions, see above

from __future__ import annotations


class TransportError(Exception):
    """The root of this layer.

    Attributes:
        retriable: whether the same call may succeed later without any change.
    """

    retriable = False


class Unavailable(TransportError):
    """The other side did not answer in time, or cannot be reached; the outcome is unknown."""

    retriable = True


class ResourceExhausted(TransportError):
    """A bounded queue stayed full for as long as the call may wait; nothing was taken."""

    retriable = True


class Closed(TransportError):
    """The object was closed before the call, or while it waited."""


class RecordTooLarge(TransportError):
    """A record is over the limit of the log; it was not taken.

    Args:
        topic: where it was to go.
        size_bytes: of key, value and headers.
        limit_bytes: the greatest size that is taken.
    """

    def __init__(self, topic: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"{topic}: a record of {size_bytes} bytes, the limit is {limit_bytes}")
        self.topic = topic
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class UnknownTopic(TransportError):
    """No such topic, or no such Kafka partition of it."""


class TopicMismatch(TransportError):
    """A topic exists with another number of Kafka partitions than asked for."""

    def __init__(self, topic: str, wanted: int, found: int) -> None:
        super().__init__(f"{topic}: {wanted} Kafka partitions wanted, {found} found")
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

    def __init__(self, topic: str, partition: int, offset: int, earliest: int) -> None:
        super().__init__(f"{topic}/{partition}: offset {offset} not in the log, from {earliest}")
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.earliest = earliest


class FencedError(TransportError):
    """A newer producer with the same transactional id exists; this one must end."""


class TransactionAborted(TransportError):
    """The open transaction cannot be committed; `abort` it and begin again."""


class AppendFailed(TransportError):
    """The log refused a record for good, or the producer was closed before it was sent."""


class BlobNotFound(TransportError):
    """No blob of that name in the archive."""


class BlobExists(TransportError):
    """A blob of that name exists with other contents; blobs are immutable."""
