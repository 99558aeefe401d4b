"""Reading from Kafka: committed records, from exact offsets."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from confluent_kafka import Consumer, KafkaError, TopicPartition

from sirocco.transport.errors import Closed, OffsetOutOfRange, TransportError, TransportUnavailable
from sirocco.transport.kafka_errors import GROUP, LOGGER, OUT_OF_RANGE, made, typed
from sirocco.transport.kafka_settings import consumer_config
from sirocco.transport.kafka_topics import KafkaTopics
from sirocco.transport.log import Record
from sirocco.transport.log import TopicPartition as At

# The client types every part of a message as optional; of a record only the key is.
_Message: TypeAlias = Any

# Used instead of a Kafka partition for errors of the whole consumer.
_WHOLE: Final[At] = ("", -1)


class KafkaConsumer:
    """`Consumer` on Kafka."""

    def __init__(self, log: KafkaTopics, name: str) -> None:
        self.name: Final = name
        self._log = log
        self._closed = False
        # Held by the thread inside `poll`, so that `close` never frees what it reads.
        self._busy = threading.Lock()
        self._positions: dict[At, int] = {}
        self._paused: set[At] = set()
        # What the next `poll` raises; records before it are returned first.
        self._failed: dict[At, TransportError] = {}
        # Partitions whose offset the client was refused, until the log reports its bounds.
        self._refused: set[At] = set()
        config = consumer_config(log.settings, name)
        self._consumer = made(lambda: Consumer(config, logger=LOGGER), name)

    def assign(self, positions: Mapping[At, int]) -> None:
        """See `Consumer.assign`."""
        for topic, partition in positions:
            self._log.check(topic, partition)
        self._consumer.assign(self._outer(positions))
        self._positions = dict(positions)
        self._paused.clear()
        self._failed.clear()
        self._refused.clear()

    def add(self, positions: Mapping[At, int]) -> None:
        """See `Consumer.add`."""
        for topic, partition in positions:
            self._log.check(topic, partition)
        if not self._positions.keys().isdisjoint(positions):
            raise ValueError(f"assigned already: {self._positions.keys() & positions.keys()}")
        self._consumer.incremental_assign(self._outer(positions))
        self._positions.update(positions)

    def remove(self, partitions: Iterable[At]) -> None:
        """See `Consumer.remove`."""
        wanted = self._assigned(partitions)
        self._consumer.incremental_unassign(self._outer(wanted))
        for at in wanted:
            del self._positions[at]
            self._paused.discard(at)
            self._failed.pop(at, None)
            self._refused.discard(at)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """See `Consumer.seek`.

        The client's own seek fails on a Kafka partition whose offset was out of range, so the
        partition is removed and added again.
        """
        at = (topic, partition)
        paused = at in self._paused
        self.remove([at])
        self.add({at: offset})
        if paused:
            self.pause([at])

    def pause(self, partitions: Iterable[At]) -> None:
        """See `Consumer.pause`."""
        wanted = self._assigned(partitions)
        self._consumer.pause(self._outer(wanted))
        self._paused.update(wanted)

    def resume(self, partitions: Iterable[At]) -> None:
        """See `Consumer.resume`."""
        wanted = self._assigned(partitions)
        self._consumer.resume(self._outer(wanted))
        self._paused.difference_update(wanted)

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        """See `Consumer.poll`."""
        deadline = time.monotonic() + timeout_s
        with self._busy:
            while True:
                if self._closed:
                    raise Closed(self.name)
                for at in tuple(self._refused):
                    self._check_offset(at)
                if self._failed:
                    raise self._failed.pop(next(iter(self._failed)))
                messages: list[_Message] = self._consumer.consume(max_records, 0)
                if not messages:
                    # `consume` waits until its batch is full; one `poll` returns with the first.
                    first = self._consumer.poll(max(0.0, deadline - time.monotonic()))
                    if first is None:
                        return []
                    messages = [first]
                    if max_records > 1:
                        messages += self._consumer.consume(max_records - 1, 0)
                records = self._accept(messages)
                if records:
                    return records

    def positions(self) -> dict[At, int]:
        """See `Consumer.positions`."""
        return dict(self._positions)

    def lag(self) -> dict[str, int]:
        """See `Consumer.lag`."""
        lag: dict[str, int] = {}
        for (topic, partition), position in self.positions().items():
            end = self._end(topic, partition)
            lag[topic] = lag.get(topic, 0) + max(0, end - position)
        return lag

    def _end(self, topic: str, partition: int) -> int:
        """Returns the end from the last fetch; 0 before the first one."""
        at = TopicPartition(self._log.outer(topic), partition)
        found = self._consumer.get_watermark_offsets(at, cached=True)
        return max(0, found[1]) if found else 0

    def close(self) -> None:
        """See `Consumer.close`; waits for a `poll` in another thread to return."""
        self._closed = True
        with self._busy:
            self._log.forget(self)
            self._consumer.close()

    def _accept(self, messages: Sequence[_Message]) -> list[Record]:
        """Returns records of messages; moves positions, keeps errors for the next `poll`."""
        records = []
        positions = self._positions
        for message in messages:
            if message.topic() is None:
                self._fail_whole(message.error())
                continue
            at = (self._log.inner(message.topic()), message.partition())
            position = positions.get(at)
            if position is None:  # removed while this was on its way
                continue
            error = message.error()
            if error is not None:
                self._fail(at, position, message, error)
                continue
            offset = message.offset()
            if offset < position:
                continue
            positions[at] = offset + 1
            records.append(
                Record(
                    *at,
                    offset,
                    message.timestamp()[1],
                    message.key(),
                    message.value() or b"",
                    tuple(message.headers() or ()),
                )
            )
        return records

    def _fail(
        self,
        at: At,
        position: int,
        message: _Message,
        error: KafkaError,
    ) -> None:
        """Handles an event instead of a record: the end of the partition, or a real error."""
        if error.code() == KafkaError._PARTITION_EOF:
            self._positions[at] = max(position, message.offset())
        elif error.code() in OUT_OF_RANGE:
            self._refused.add(at)
            self._check_offset(at)
        else:
            self._refuse(at, typed(error, f"{at[0]}/{at[1]}"))

    def _check_offset(self, at: At) -> None:
        """Checks a refused offset against the log: the client refuses it once, and then stops."""
        position = self._positions[at]
        try:
            low, high = self._log.bounds(*at)
        except TransportUnavailable:
            return
        self._refused.discard(at)
        if low <= position <= high:
            # The refusal was of an earlier offset: the client has been moved meanwhile.
            self.seek(*at, position)
        else:
            self._failed[at] = OffsetOutOfRange(*at, position, low)

    def _fail_whole(self, error: KafkaError) -> None:
        """Handles an error of the client, not of a Kafka partition."""
        # Without a right to its group the client still reads what it was assigned.
        if error.code() not in GROUP:
            self._refuse(_WHOLE, typed(error, self.name))

    def _refuse(self, at: At, failure: TransportError) -> None:
        # The client also reports transient errors, and fetches again by itself.
        if not isinstance(failure, TransportUnavailable):
            self._failed[at] = failure

    def _assigned(self, partitions: Iterable[At]) -> dict[At, int]:
        try:
            return {at: self._positions[at] for at in partitions}
        except KeyError as error:
            raise ValueError(f"not assigned: {error.args[0]}") from error

    def _outer(self, positions: Mapping[At, int]) -> list[TopicPartition]:
        return [
            TopicPartition(self._log.outer(topic), partition, offset)
            for (topic, partition), offset in positions.items()
        ]
