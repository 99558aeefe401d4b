"""The embedded log: one process, no servers, the same contract as Kafka.

Records are made once, at `append`, and every consumer gets the same objects; values are never
copied. Only `truncate` drops records: an embedded cluster truncates below its checkpoints as a real
one does, and `bytes_total` shows the memory in use.

One lock guards all topics. Under the interpreter's own lock finer ones would gain nothing, and a
transaction over several Kafka partitions becomes visible in one step.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from sirocco.transport.errors import (
    Closed,
    FencedError,
    OffsetOutOfRange,
    RecordTooLarge,
    TopicMismatch,
    UnknownTopic,
)
from sirocco.transport.log import (
    APPEND_WAIT_S,
    RECORD_BYTES_MAX,
    Headers,
    OnAck,
    Record,
    TopicPartition,
    TopicSpec,
    WaitingAppends,
    record_bytes,
)

# Memory of a record besides its bytes: the Record, its ints, its place in the list.
_RECORD_OVERHEAD_BYTES: Final = 200

# Callback, error, and offset; of records that were appended together, how many.
_Ack: TypeAlias = tuple[OnAck | None, Exception | None, int]


class _Partition:
    """One Kafka partition: a list of records from offset `low` on; None for offsets without one."""

    __slots__ = ("low", "open_from", "readers", "records")

    def __init__(self) -> None:
        self.low = 0
        self.records: list[Record | None] = []
        # Producers with an open transaction here → offset of their first record in it.
        self.open_from: dict[MemoryProducer, int] = {}
        self.readers: list[MemoryConsumer] = []

    @property
    def end(self) -> int:
        return self.low + len(self.records)

    @property
    def stable(self) -> int:
        """Last stable offset: consumers read committed records below it."""
        return min(self.open_from.values()) if self.open_from else self.end

    def wake(self) -> None:
        for reader in self.readers:
            reader.wake()


class MemoryLog:
    """`Log` in lists. Thread-safe."""

    def __init__(self) -> None:
        self.lock: Final = threading.Lock()
        self._topics: dict[str, list[_Partition]] = {}
        self._owners: dict[str, MemoryProducer] = {}
        self._clients: list[MemoryProducer | MemoryConsumer] = []
        self._bytes = 0

    @property
    def bytes_total(self) -> int:
        """Memory held by records that were not truncated, bytes (keys, values, headers)."""
        return self._bytes

    def create_topics(self, specs: Sequence[TopicSpec]) -> None:
        """See `Log.create_topics`. Does not compact: compaction may happen at any time or never."""
        with self.lock:
            for spec in specs:
                found = self._topics.get(spec.name)
                if found is None:
                    self._topics[spec.name] = [_Partition() for _ in range(spec.partitions)]
                elif len(found) != spec.partitions:
                    raise TopicMismatch(spec.name, spec.partitions, len(found))

    def partitions(self, topic: str) -> int:
        """See `Log.partitions`."""
        found = self._topics.get(topic)
        if found is None:
            raise UnknownTopic(topic)
        return len(found)

    def producer(
        self,
        name: str,
        *,
        transactional_id: str | None = None,
        append_wait_s: float = APPEND_WAIT_S,
    ) -> MemoryProducer:
        """See `Log.producer`."""
        made = MemoryProducer(self, name, transactional_id)
        with self.lock:
            self._clients.append(made)
        return made

    def consumer(self, name: str) -> MemoryConsumer:
        """See `Log.consumer`."""
        made = MemoryConsumer(self, name)
        with self.lock:
            self._clients.append(made)
        return made

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """See `Log.bounds`."""
        with self.lock:
            found = self.find(topic, partition)
            return found.low, found.stable

    def waiting_appends(self) -> list[WaitingAppends]:
        """See `Log.waiting_appends`: nothing, as memory answers at once."""
        return []

    def is_in_sync(self, topic: str, partition: int) -> bool:
        """See `Log.is_in_sync`."""
        with self.lock:
            self.find(topic, partition)
        return True

    def truncate(self, topic: str, partition: int, before_offset: int) -> None:
        """See `Log.truncate`."""
        with self.lock:
            found = self.find(topic, partition)
            if before_offset > found.stable:
                raise OffsetOutOfRange(topic, partition, before_offset, found.low)
            count = before_offset - found.low
            if count <= 0:
                return
            for record in found.records[:count]:
                self._bytes -= _held_bytes(record)
            del found.records[:count]
            found.low = before_offset

    def close(self) -> None:
        """See `Log.close`."""
        with self.lock:
            clients = list(self._clients)
        for client in clients:
            client.close()

    def find(self, topic: str, partition: int) -> _Partition:
        """Returns the Kafka partition of that name; the lock is held or not needed.

        Raises:
            UnknownTopic: there is none.
        """
        found = self._topics.get(topic)
        if found is None or not 0 <= partition < len(found):
            raise UnknownTopic(f"{topic}/{partition}")
        return found[partition]

    def put(self, partition: _Partition, record: Record | None, size: int = 0) -> None:
        """Adds a record of `size` bytes, or the mark of a transaction's end; the lock is held."""
        partition.records.append(record)
        self._bytes += size + _RECORD_OVERHEAD_BYTES if record else _held_bytes(None)

    def put_many(self, partition: _Partition, records: Sequence[Record], size: int) -> None:
        """Adds records of `size` bytes together; the lock is held."""
        partition.records += records
        self._bytes += size + _RECORD_OVERHEAD_BYTES * len(records)

    def blank(self, partition: _Partition, offset: int) -> None:
        """Makes an aborted record invisible; the lock is held."""
        row = offset - partition.low
        self._bytes += _held_bytes(None) - _held_bytes(partition.records[row])
        partition.records[row] = None

    def take_over(self, producer: MemoryProducer, transactional_id: str) -> None:
        """Makes `producer` the only live one of its id and aborts its predecessor's transaction."""
        with self.lock:
            elder = self._owners.get(transactional_id)
            self._owners[transactional_id] = producer
            if elder is not None and elder is not producer:
                elder.fence()

    def forget(self, client: MemoryProducer | MemoryConsumer) -> None:
        """Takes a closed client off the list; the lock is held."""
        if client in self._clients:
            self._clients.remove(client)


def _held_bytes(record: Record | None) -> int:
    if record is None:
        return 8
    return record_bytes(record.key, record.value, record.headers) + _RECORD_OVERHEAD_BYTES


class MemoryProducer:
    """`Producer` of a `MemoryLog`. Every append succeeds at once; acks wait for `poll`."""

    def __init__(self, log: MemoryLog, name: str, transactional_id: str | None) -> None:
        self.name: Final = name
        self._log = log
        self._transactional_id = transactional_id
        self._acks: deque[_Ack] = deque()
        # Records of the open transaction; None outside one.
        self._open: list[tuple[_Partition, int]] | None = None
        self._ready = False
        self._fenced = False
        self._closed = False

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
        """See `Producer.append`."""
        size = record_bytes(key, value, headers)
        if size > RECORD_BYTES_MAX:
            raise RecordTooLarge(topic, size, RECORD_BYTES_MAX)
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        log = self._log
        with log.lock:
            self._check_live()
            if self._transactional_id is not None and self._open is None:
                raise RuntimeError("append of a transactional producer outside a transaction")
            target = log.find(topic, partition)
            offset = target.end
            record = Record(
                topic=topic,
                partition=partition,
                offset=offset,
                timestamp_ms=timestamp_ms,
                key=key,
                value=value,
                headers=headers,
            )
            log.put(target, record, size)
            self._acks.append((on_ack, None, offset))
            if self._open is None:
                target.wake()
            else:
                target.open_from.setdefault(self, offset)
                self._open.append((target, offset))

    def append_many(
        self,
        topic: str,
        partition: int,
        records: Sequence[tuple[bytes, bytes]],
        *,
        headers: Headers = (),
        on_ack: OnAck | None = None,
    ) -> int:
        """See `Producer.append_many`; there is always room."""
        sizes = [len(key) + len(value) for key, value in records]
        each = record_bytes(None, b"", headers)
        largest = each + max(sizes, default=0)
        if largest > RECORD_BYTES_MAX:
            raise RecordTooLarge(topic, largest, RECORD_BYTES_MAX)
        timestamp_ms = time.time_ns() // 1_000_000
        log = self._log
        with log.lock:
            self._check_live()
            if self._transactional_id is not None:
                raise RuntimeError("append_many of a transactional producer")
            target = log.find(topic, partition)
            log.put_many(
                target,
                [
                    Record(topic, partition, offset, timestamp_ms, key, value, headers)
                    for offset, (key, value) in enumerate(records, target.end)
                ],
                sum(sizes) + each * len(records),
            )
            if records:
                self._acks.append((on_ack, None, len(records)))
            target.wake()
        return len(records)

    def poll(self, timeout_s: float) -> None:
        """See `Producer.poll`; never waits, as there is nothing to wait for."""
        while self._acks:
            on_ack, error, offset = self._acks.popleft()
            if on_ack is not None:
                on_ack(error, offset)

    def flush(self, timeout_s: float) -> int:
        """See `Producer.flush`."""
        self.poll(timeout_s)
        return len(self._acks)

    @property
    def pending(self) -> int:
        """See `Producer.pending`."""
        return len(self._acks)

    def init_transactions(self) -> None:
        """See `Producer.init_transactions`."""
        if self._transactional_id is None:
            raise RuntimeError("no transactional id")
        if self._fenced:
            raise FencedError(self._transactional_id)
        self._log.take_over(self, self._transactional_id)
        self._ready = True

    def begin(self) -> None:
        """See `Producer.begin`."""
        with self._log.lock:
            self._check_live()
            if not self._ready or self._open is not None:
                raise RuntimeError("begin needs init_transactions and no open transaction")
            self._open = []

    def commit(self) -> None:
        """See `Producer.commit`."""
        with self._log.lock:
            self._check_live()
            self._end(seen=True)
        self.poll(0.0)

    def abort(self) -> None:
        """See `Producer.abort`."""
        with self._log.lock:
            self._check_live()
            self._end(seen=False)
        self.poll(0.0)

    def fence(self) -> None:
        """Ends the open transaction, as a newer producer of this id exists; the lock is held."""
        self._fenced = True
        if self._open is not None:
            self._end(seen=False)

    def close(self) -> None:
        """See `Producer.close`; an open transaction is aborted."""
        with self._log.lock:
            if self._closed:
                return
            if self._open is not None:
                self._end(seen=False)
            self._closed = True
            self._log.forget(self)
        self.poll(0.0)

    def _check_live(self) -> None:
        if self._closed:
            raise Closed(self.name)
        if self._fenced:
            raise FencedError(str(self._transactional_id))

    def _end(self, *, seen: bool) -> None:
        """Ends the open transaction; its mark takes one offset per Kafka partition, as in Kafka."""
        if self._open is None:
            raise RuntimeError("no open transaction")
        touched = {partition: None for partition, _ in self._open}
        if not seen:
            for partition, offset in self._open:
                self._log.blank(partition, offset)
        for partition in touched:
            del partition.open_from[self]
            self._log.put(partition, None)
            partition.wake()
        self._open = None


class MemoryConsumer:
    """`Consumer` of a `MemoryLog`; a waiting `poll` wakes as soon as a record is visible."""

    def __init__(self, log: MemoryLog, name: str) -> None:
        self.name: Final = name
        self._log = log
        self._arrived = threading.Condition(log.lock)
        self._waiting = False
        self._closed = False
        self._positions: dict[TopicPartition, int] = {}
        self._sources: dict[TopicPartition, _Partition] = {}
        self._paused: set[TopicPartition] = set()
        # Order of turns: each poll begins one further, so that no partition starves.
        self._turn: deque[TopicPartition] = deque()
        self._stuck: set[TopicPartition] = set()

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """See `Consumer.assign`."""
        for topic, partition in positions:
            self._log.find(topic, partition)
        self.remove(list(self._positions))
        self.add(positions)

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        """See `Consumer.add`."""
        with self._log.lock:
            sources = {at: self._log.find(*at) for at in positions}
            if not self._positions.keys().isdisjoint(positions):
                raise ValueError(f"assigned already: {self._positions.keys() & positions.keys()}")
            for at, source in sources.items():
                self._positions[at] = positions[at]
                self._sources[at] = source
                self._turn.append(at)
                source.readers.append(self)
            self.wake()

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """See `Consumer.remove`."""
        with self._log.lock:
            wanted = list(partitions)
            self._check_assigned(wanted)
            for at in wanted:
                self._sources.pop(at).readers.remove(self)
                del self._positions[at]
                self._turn.remove(at)
                self._paused.discard(at)
                self._stuck.discard(at)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """See `Consumer.seek`."""
        with self._log.lock:
            self._check_assigned([(topic, partition)])
            self._positions[topic, partition] = offset
            self._stuck.discard((topic, partition))
            self.wake()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """See `Consumer.pause`."""
        with self._log.lock:
            wanted = list(partitions)
            self._check_assigned(wanted)
            self._paused.update(wanted)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """See `Consumer.resume`."""
        with self._log.lock:
            wanted = list(partitions)
            self._check_assigned(wanted)
            self._paused.difference_update(wanted)
            self.wake()

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        """See `Consumer.poll`."""
        deadline: float | None = None
        with self._log.lock:
            while True:
                if self._closed:
                    raise Closed(self.name)
                taken = self._take(max_records)
                if taken or timeout_s <= 0:
                    return taken
                now = time.monotonic()
                deadline = now + timeout_s if deadline is None else deadline
                if now >= deadline:
                    return []
                self._waiting = True
                self._arrived.wait(deadline - now)
                self._waiting = False

    def positions(self) -> dict[TopicPartition, int]:
        """See `Consumer.positions`."""
        with self._log.lock:
            return dict(self._positions)

    def lag(self) -> dict[str, int]:
        """See `Consumer.lag`."""
        lag: dict[str, int] = {}
        with self._log.lock:
            for (topic, partition), position in self._positions.items():
                end = self._sources[topic, partition].stable
                lag[topic] = lag.get(topic, 0) + max(0, end - position)
        return lag

    def wake(self) -> None:
        """Lets a waiting `poll` check again; the lock is held."""
        if self._waiting:
            self._arrived.notify()

    def close(self) -> None:
        """See `Consumer.close`."""
        with self._log.lock:
            if self._closed:
                return
            self._closed = True
            for source in self._sources.values():
                source.readers.remove(self)
            self._sources.clear()
            self._positions.clear()
            self._turn.clear()
            self._log.forget(self)
            self.wake()

    def _check_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        for at in partitions:
            if at not in self._positions:
                raise ValueError(f"not assigned: {at[0]}/{at[1]}")

    def _take(self, max_records: int) -> list[Record]:
        """Takes available records, one round over the Kafka partitions; the lock is held."""
        taken: list[Record] = []
        self._turn.rotate(-1)
        for at in self._turn:
            if at in self._paused or at in self._stuck:
                continue
            source, position = self._sources[at], self._positions[at]
            end = source.low + len(source.records)
            if position == end:
                continue
            if not source.low <= position <= end:
                if taken:
                    break
                self._stuck.add(at)
                raise OffsetOutOfRange(*at, position, source.low)
            room = max_records - len(taken)
            row, stop = position - source.low, source.stable - source.low
            while row < stop and room > 0:
                upto = min(stop, row + room)
                # Marks of transactions are None.
                found = [each for each in source.records[row:upto] if each is not None]
                taken += found
                row, room = upto, room - len(found)
            self._positions[at] = source.low + row
            if room <= 0:
                break
        return taken
