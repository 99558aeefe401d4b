"""The log: every hop between services writes to it and reads from it.

Two logs implement this contract and share its tests: `memory_log` (one process, no servers) and
`kafka_log`. The terms are Kafka's. The rest of Sirocco relies on this:

- Per Kafka partition, records keep the order in which one producer appended them, also over
  retries, and a producer leaves no gap: the records of one producer in the log are a prefix of
  what it appended.
- Consumers read committed records only, from exact offsets that the caller keeps. There are
  no consumer groups, no stored offsets, and no silent resets.
- Offsets rise but have holes: ends of transactions and aborted or compacted records take
  offsets that no consumer sees. `Consumer.positions` skips them, so the position of a consumer
  that has read everything is the high bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

Headers: TypeAlias = tuple[tuple[str, bytes], ...]
TopicPartition: TypeAlias = tuple[str, int]
OnAck: TypeAlias = Callable[[Exception | None, int], None]

# The greatest key + value + headers of one record. Publishes are split at the edge far below it (a
# batch of 1,000 objects is about 100 kB). A broker's default of 1 MiB would refuse a batch of long
# texts that the model allows; more would let one record block a Kafka partition.
RECORD_BYTES_MAX = 4 * 1024 * 1024

# How long `append` waits for room by default. Longer than a broker's leader election on one machine
# would let the caller's loop miss its lease renewals (every 2 s); without a wait each short burst
# would be an error.
APPEND_WAIT_S = 1.0


class Record(NamedTuple):
    """One record as read from the log; a tuple, because there are millions of them.

    Attributes:
        topic: its topic.
        partition: the Kafka partition.
        offset: its offset there.
        timestamp_ms: Unix time that the producer gave, or its clock at `append`.
        key: for compaction and for readers with other tools.
        value: the payload; empty on a compacted topic = the key is deleted.
        headers: in the order given.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic as the cluster needs it; never expired by time or size, only truncated.

    Attributes:
        name: of the topic.
        partitions: number of Kafka partitions, fixed for the life of the topic.
        compacted: keep only the last record of each key (in time, not at once).
    """

    name: str
    partitions: int
    compacted: bool = False


class WaitingAppends(NamedTuple):
    """Appends to one Kafka partition that have no answer yet.

    Attributes:
        producer: its name.
        topic, partition: where they go.
        answered: how many earlier appends there had an answer.
        polls: how often the producer was polled. Answers are only taken then.
    """

    producer: str
    topic: str
    partition: int
    answered: int
    polls: int


class Producer(Protocol):
    """Appends records: idempotent, acknowledged by all replicas, in order per Kafka partition.

    A fenced producer gets an error at its next `commit` at the latest, and from every call after
    that. Callbacks must not call the producer.

    `append` may be called from several threads; everything else from one.
    """

    def append(
        self,
        topic: str,
        partition: int,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        on_ack: OnAck | None = None,
    ) -> None:
        """Queues one record; returns before the log has it.

        Args:
            topic: an existing topic.
            partition: the Kafka partition, always the caller's choice.
            value: the payload; it is not copied by the memory log and must not change.
            key: see `Record`.
            headers: see `Record`.
            timestamp_ms: Unix time; now if missing.
            on_ack: called once, with (None, offset) when the log has the record or with (error, -1)
                when it never will. In order per Kafka partition; only from inside `poll`, `flush`,
                `commit`, `abort`, `close` and, while the queue is full, `append`.

        Raises:
            LogFull: the queue stayed full for the producer's `append_wait_s`; nothing was taken.
            RecordTooLarge: over `RECORD_BYTES_MAX`.
            UnknownTopic: no such topic or Kafka partition.
            FencedError: a newer producer has taken over.
            TransactionAborted: the open transaction has failed meanwhile; call `abort`.
            AppendFailed: the log has refused an earlier record for good; as leaving it out would be
                a gap, this producer takes no more.
            Closed: after `close`.
        """

    def append_many(
        self,
        topic: str,
        partition: int,
        records: Sequence[tuple[bytes, bytes]],
        *,
        headers: Headers = (),
        on_ack: OnAck | None = None,
    ) -> int:
        """Queues records, as many calls of `append` would; returns how many there was room for.

        Args:
            topic, partition, headers: of all of them.
            records: key and value of each.
            on_ack: called with (None, n) when the log has n more of those that were taken, with
                (error, 1) when it never will have one of them; as with `append` otherwise.

        Raises:
            LogFull: not even one was taken; all other errors as `append`.
        """

    def poll(self, timeout_s: float) -> None:
        """Runs the callbacks that are due; waits up to `timeout_s` for the first."""

    def flush(self, timeout_s: float) -> int:
        """Waits until all is acknowledged and its callbacks have run.

        Returns:
            The number of records still unacknowledged at the end of the time.
        """

    @property
    def pending(self) -> int:
        """Number of appended records whose acknowledgement was not yet passed to the caller."""

    def init_transactions(self) -> None:
        """Fences every older producer of this transactional id and ends its transaction.

        Raises:
            TransportUnavailable: the log did not answer; may be called again.
        """

    def begin(self) -> None:
        """Opens a transaction; the appends that follow belong to it.

        Raises:
            FencedError: a newer producer has taken over.
        """

    def commit(self) -> None:
        """Waits for all appends of the transaction and makes them visible, all or none.

        Raises:
            TransactionAborted: it cannot be committed; call `abort`.
            FencedError: a newer producer has taken over; nothing became visible.
            TransportUnavailable: the outcome is unknown; call again to learn it.
        """

    def abort(self) -> None:
        """Drops the open transaction; its records are never seen.

        Raises:
            FencedError: a newer producer has taken over.
            TransportUnavailable: call again.
        """

    def close(self) -> None:
        """Gives up what is not acknowledged (callbacks get `AppendFailed`), frees the rest."""


class Consumer(Protocol):
    """Reads committed records from exact positions. For one thread, except `close`."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Replaces the whole assignment; reading starts at exactly these offsets.

        Raises:
            UnknownTopic: one does not exist; nothing changed.
            TransportUnavailable: the log did not answer; nothing changed.
        """

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        """Adds Kafka partitions; those already assigned are not disturbed.

        Raises:
            ValueError: one is assigned already; nothing changed.
            UnknownTopic: one does not exist; nothing changed.
            TransportUnavailable: the log did not answer; nothing changed.
        """

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Stops reading these; no record of them is returned any more.

        Raises:
            ValueError: one is not assigned.
        """

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Continues at another offset of an assigned Kafka partition.

        Raises:
            ValueError: it is not assigned.
        """

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stops returning records of these until `resume`; positions stay."""

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Ends `pause`."""

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        """Takes available records, at most `max_records`; waits only while there are none.

        Returns:
            Records in order per Kafka partition, interleaved in any way between them.

        Raises:
            OffsetOutOfRange: for one Kafka partition, after everything before it was returned. That
                one stops until `seek` or `remove`; others continue.
            TransportError: the log refuses to be read, for example for missing rights.
            Closed: after `close`.
        """

    def positions(self) -> dict[TopicPartition, int]:
        """Returns for each assigned Kafka partition the offset at which reading continues."""

    def lag(self) -> dict[str, int]:
        """Returns for each topic how many offsets are between the positions and the known ends.

        For metrics: the ends are those of the last answers, without a request.
        """

    def close(self) -> None:
        """Ends reading; a waiting `poll` returns or raises `Closed`."""


class Log(Protocol):
    """A set of topics. Thread-safe."""

    def create_topics(self, specs: Sequence[TopicSpec]) -> None:
        """Creates missing topics; may be repeated, also by several processes at once.

        Raises:
            TopicMismatch: one exists with another number of Kafka partitions.
            TransportUnavailable: the log did not answer.
        """

    def partitions(self, topic: str) -> int:
        """Returns the number of Kafka partitions of a topic.

        Raises:
            UnknownTopic: there is no such topic.
            TransportUnavailable: the log did not answer.
        """

    def producer(
        self,
        name: str,
        *,
        transactional_id: str | None = None,
        append_wait_s: float = APPEND_WAIT_S,
    ) -> Producer:
        """Returns a new producer.

        Args:
            name: shows up in the broker's logs and quotas.
            transactional_id: makes it one of transactions.
            append_wait_s: how long its `append` waits for room in a full queue.
        """

    def consumer(self, name: str) -> Consumer:
        """Returns a new consumer without an assignment."""

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """Returns the first offset that can be read, and the one after the last committed.

        Records after an open transaction are not yet within the bounds.

        Raises:
            UnknownTopic: no such topic or Kafka partition.
            TransportUnavailable: the log did not answer.
        """

    def waiting_appends(self) -> list[WaitingAppends]:
        """Returns what the producers of this log still wait for; without a request.

        Left out are producers whose answers the log delays because of a quota.
        """

    def is_in_sync(self, topic: str, partition: int) -> bool:
        """Whether a Kafka partition has a leader and all its replicas, so that it takes appends.

        It is not the producers that are asked.

        Raises:
            UnknownTopic: there is no such topic or Kafka partition.
            TransportUnavailable: the log did not answer.
        """

    def truncate(self, topic: str, partition: int, before_offset: int) -> None:
        """Deletes the records below `before_offset`; a lower one than before is ignored.

        Raises:
            OffsetOutOfRange: `before_offset` is above the high bound.
            UnknownTopic: no such topic or Kafka partition.
            TransportUnavailable: the log did not answer.
        """

    def close(self) -> None:
        """Closes every producer and consumer that it has made."""


def record_bytes(key: bytes | None, value: bytes, headers: Headers) -> int:
    """Returns the size of a record as the limit counts it, bytes."""
    size = len(value)
    if key is not None:
        size += len(key)
    for name, content in headers:
        size += len(name) + len(content)
    return size
