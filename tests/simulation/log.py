"""The simulated log: does to records exactly what Kafka may do.

Appends of one producer to one Kafka partition land in order, each after a random time; those of
different producers interleave. A landed record is acknowledged later, and visible to readers later
still. Of a killed process's appends in flight a prefix lands. Nothing is deleted here: truncation
and compaction only hide records from readers, so that the ledger sees all of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from sirocco.codec.hops import decode, encode, key_of
from sirocco.protocol.contract.control_records import (
    CheckpointTaken,
    Granted,
    MapActivated,
    MapPrepared,
    MapSwitched,
)
from sirocco.protocol.contract.messages import CONTROL, REGISTRY, Message
from tests.simulation.registry_truth import unpublished
from tests.simulation.scheduler import Scheduler

# Least age of a record that compaction may remove (`min.compaction.lag.ms`, an hour in the
# cluster): longer than any pause, and than a void record stays the newest.
COMPACTION_LAG_MS = 15_000.0

TopicPartition = tuple[str, int]


class OutOfRangeError(Exception):
    """A reader's offset is below the first one kept."""


@dataclass(slots=True)
class Stored:
    """One record in the log."""

    offset: int
    message: Message
    landed_ms: float
    seen_ms: float
    is_hidden: bool = False


@dataclass(slots=True)
class Partition:
    """One Kafka partition."""

    records: list[Stored] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    low: int = 0
    high: int = 0
    seen_ms: float = 0.0
    # In order of registration: chance must not depend on addresses in memory.
    watchers: dict[Callable[[float], None], None] = field(default_factory=dict)


@dataclass(slots=True)
class Delays:
    """Durations, ms: (least, greatest) of uniform draws."""

    land: tuple[float, float] = (0.5, 4.0)
    acknowledge: tuple[float, float] = (0.3, 3.0)
    see: tuple[float, float] = (0.2, 5.0)
    call: tuple[float, float] = (0.3, 4.0)
    archive: tuple[float, float] = (2.0, 40.0)


class SimLog:
    """All topics.

    Attributes:
        listeners: called for every record that lands: (topic, Kafka partition, stored).
        is_coded: write every message as bytes and read it back, as the real hops do.
        producer_generations: for transactions, by `deliveries` partition.
        slow_until_ms: Kafka partition → until when its appends are slow.
    """

    def __init__(self, scheduler: Scheduler, delays: Delays, *, is_coded: bool) -> None:
        self.scheduler = scheduler
        self.delays = delays
        self.is_coded = is_coded
        self.listeners: list[Callable[[str, int, Stored], None]] = []
        self.producer_generations: dict[int, int] = {}
        self.slow_until_ms: dict[TopicPartition, float] = {}
        self._partitions: dict[TopicPartition, Partition] = {}

    def partition(self, topic: str, number: int) -> Partition:
        """Returns one Kafka partition; creates it at its first use."""
        key = topic, number
        if key not in self._partitions:
            self._partitions[key] = Partition()
        return self._partitions[key]

    def high(self, key: TopicPartition) -> int:
        """Returns the end of a Kafka partition's log; 0 while it is not in use."""
        partition = self._partitions.get(key)
        return 0 if partition is None else partition.high

    def keys(self) -> list[TopicPartition]:
        """Returns all Kafka partitions in use."""
        return sorted(self._partitions)

    def put(self, topic: str, number: int, messages: list[Message]) -> int:
        """Lands records together; returns the offset of the first."""
        partition = self.partition(topic, number)
        now_ms = self.scheduler.now_ms
        seen_ms = max(partition.seen_ms, now_ms + self.scheduler.between(*self.delays.see))
        partition.seen_ms = seen_ms
        first = partition.high
        for message in messages:
            stored = Stored(partition.high, self._carried(message), now_ms, seen_ms)
            partition.records.append(stored)
            partition.offsets.append(stored.offset)
            partition.high += 1
            for listener in self.listeners:
                listener(topic, number, stored)
        for wake in list(partition.watchers):
            wake(seen_ms)
        return first

    def skip(self, topic: str, number: int, count: int) -> None:
        """Uses up offsets that no reader sees: ends of transactions, aborted records."""
        self.partition(topic, number).high += count

    def read(
        self, topic: str, number: int, offset: int, records_max: int
    ) -> tuple[list[Stored], int]:
        """Returns the visible records from an offset on, and the offset to continue from.

        Raises:
            OutOfRangeError: the offset is below what is kept.
        """
        partition = self.partition(topic, number)
        if offset < partition.low:
            raise OutOfRangeError(f"{topic} {number}: {offset} is below {partition.low}")
        found: list[Stored] = []
        place = bisect_left(partition.offsets, offset)
        while place < len(partition.records) and len(found) < records_max:
            stored = partition.records[place]
            if stored.seen_ms > self.scheduler.now_ms:
                break
            offset = stored.offset + 1
            if not stored.is_hidden:
                found.append(stored)
            place += 1
        return found, offset

    def next_seen_ms(self, topic: str, number: int, offset: int) -> float | None:
        """Returns when the record at or after an offset can be read; None if there is none."""
        partition = self.partition(topic, number)
        place = bisect_left(partition.offsets, offset)
        return partition.records[place].seen_ms if place < len(partition.records) else None

    def truncate(self, topic: str, number: int, before: int) -> None:
        """Hides the records below an offset."""
        partition = self.partition(topic, number)
        assert before <= partition.high, "truncated beyond the end"
        partition.low = max(partition.low, before)

    def compact_control(self) -> None:
        """Hides records replaced by newer ones of the same key, sooner than brokers do.

        Brokers wait for an hour, in which a leader, or the owner of the subject, republishes the
        valid record. So a checkpoint stays while the newest record is a lesser one that came late,
        and what a leader declared while the newest record is that of an earlier one, and young.
        """
        newest: dict[bytes | None, Stored] = {}
        before_ms = self.scheduler.now_ms - COMPACTION_LAG_MS
        for stored in reversed(self.partition(CONTROL, 0).records):
            last = newest.setdefault(key_of(stored.message), stored)
            stored.is_hidden = (
                last is not stored
                and not _is_lesser(last.message, stored.message)
                and not (last.landed_ms > before_ms and _is_earlier(last.message, stored.message))
            )

    def is_control_true(self) -> bool:
        """Returns whether the newest records of all checkpoints name the farthest ones."""
        farthest: dict[bytes | None, int] = {}
        newest: dict[bytes | None, int] = {}
        for stored in self.partition(CONTROL, 0).records:
            if isinstance(stored.message, CheckpointTaken):
                key, offset = key_of(stored.message), stored.message.offset
                farthest[key] = max(offset, farthest.get(key, 0))
                newest[key] = offset
        return newest == farthest

    def compact_registry(self) -> None:
        """Hides records replaced long ago, where the newest of these is true."""
        for topic, number in self.keys():
            if topic != REGISTRY:
                continue
            before_ms = self.scheduler.now_ms - COMPACTION_LAG_MS
            records = self.partition(topic, number).records
            old = [stored for stored in records if stored.landed_ms < before_ms]
            # The remaining case of ADR 5: a void record is the newest that compaction reaches. A
            # broker's compaction ends at a segment's end; the republished record may be after that.
            if unpublished([stored.message for stored in old]):
                continue
            newest = {key_of(stored.message): stored for stored in old}
            for stored in old:
                stored.is_hidden = newest[key_of(stored.message)] is not stored

    def _carried(self, message: Message) -> Message:
        return decode(encode(message)[1]) if self.is_coded else message


def _is_lesser(newer: Message, older: Message) -> bool:
    return (
        isinstance(newer, CheckpointTaken)
        and isinstance(older, CheckpointTaken)
        and newer.offset < older.offset
    )


def _is_earlier(newer: Message, older: Message) -> bool:
    """Returns whether a record is of an earlier leader than the one that it replaces."""
    kinds = Granted | MapActivated | MapPrepared | MapSwitched
    return isinstance(newer, kinds) and isinstance(older, kinds) and newer.term < older.term


@dataclass(slots=True, eq=False)
class Append:
    """One append in flight."""

    message: Message
    acknowledged: Callable[[int], None]
    refused: Callable[[], None]
    is_cancelled: bool = False
    is_refused: bool = False


@dataclass(slots=True)
class Lane:
    """The appends of one producer to one Kafka partition."""

    in_flight: deque[Append] = field(default_factory=deque)
    held: deque[Append] = field(default_factory=deque)
    landed_ms: float = 0.0
    acknowledged_ms: float = 0.0


class Producer:
    """Appends records of one process.

    Attributes:
        is_refused: the log has rejected an append, and the process soon learns of it.
    """

    def __init__(self, log: SimLog) -> None:
        self._log = log
        self._scheduler = log.scheduler
        self._lanes: dict[TopicPartition, Lane] = {}
        self._is_dead = False
        self._is_paused = False
        self.is_refused = False
        self._refuses_next = False
        self._kinds: dict[type, None] = {}
        self._strike: tuple[type, int, Callable[[], None]] | None = None

    def arm(self, kinds: tuple[type, ...], appends: int, strike: Callable[[], None]) -> None:
        """Calls back right after some further appends of a kind: in the middle of a batch.

        Args:
            kinds: of messages; none for all kinds appended before.
            appends: how many.
            strike: the callback.
        """
        # Of one kind, since some are rare.
        among = kinds or tuple(self._kinds)
        if among:
            kind = self._scheduler.dice.choice(among)
            self._strike = kind, appends, strike

    def append(
        self,
        topic: str,
        partition: int,
        message: Message,
        acknowledged: Callable[[int], None],
        refused: Callable[[], None],
    ) -> None:
        """Sends a record; calls back once it is in the log, or once it will never be."""
        append = Append(message, acknowledged, refused)
        if self._refuses_next and self._scheduler.dice.random() < 0.3:
            self._refuses_next = False
            append.is_refused = True
        self._send((topic, partition), append)
        self._kinds[type(message)] = None
        if self._strike is not None and self._strike[0] is type(message):
            kind, left, strike = self._strike
            self._strike = (kind, left - 1, strike) if left > 1 else None
            if left <= 1:
                strike()

    def kill(self) -> None:
        """Ends the process: of its appends in flight a prefix of each lane lands."""
        self._is_dead = True
        for lane in self._lanes.values():
            for append in self._suffix(lane):
                append.is_cancelled = True
            lane.held.clear()

    def pause(self) -> None:
        """Pauses the process: a suffix of its appends in flight is still in its buffers."""
        self._is_paused = True
        for lane in self._lanes.values():
            suffix = self._suffix(lane)
            for append in suffix:
                append.is_cancelled = True
            lane.held.extend(Append(a.message, a.acknowledged, a.refused) for a in suffix)

    def resume(self) -> None:
        """Resumes the process: its buffers are sent."""
        self._is_paused = False
        for key, lane in self._lanes.items():
            held, lane.held = lane.held, deque()
            for append in held:
                self._send(key, append)

    def refuse(self) -> None:
        """Makes the log reject one of the next appends, while later ones may land."""
        self._refuses_next = True

    def heal(self) -> None:
        """Ends the faults, except those that have already begun."""
        self._refuses_next = False
        self._strike = None
        for lane in self._lanes.values():
            for append in lane.in_flight:
                append.is_refused = False

    def _suffix(self, lane: Lane) -> list[Append]:
        kept = self._scheduler.dice.randint(0, len(lane.in_flight))
        suffix = [lane.in_flight.pop() for _ in range(len(lane.in_flight) - kept)]
        return suffix[::-1]

    def _send(self, key: TopicPartition, append: Append) -> None:
        lane = self._lanes.setdefault(key, Lane())
        if self._is_dead:
            return
        if self._is_paused:
            lane.held.append(append)
            return
        lane.in_flight.append(append)
        delay_ms = self._scheduler.between(*self._log.delays.land)
        if self._log.slow_until_ms.get(key, 0.0) > self._scheduler.now_ms:
            delay_ms += self._scheduler.between(100, 1_500)
        lane.landed_ms = max(lane.landed_ms, self._scheduler.now_ms + delay_ms)
        self._scheduler.at(lane.landed_ms, lambda: self._land(key, lane, append))

    def _land(self, key: TopicPartition, lane: Lane, append: Append) -> None:
        if append.is_cancelled:
            return
        assert lane.in_flight.popleft() is append, "landed out of order"
        delay_ms = self._scheduler.between(*self._log.delays.acknowledge)
        if append.is_refused:
            # The producer retries for a while before it gives up; later appends land meanwhile.
            self.is_refused = True
            self._scheduler.after(delay_ms + self._scheduler.between(0, 1_000), append.refused)
            return
        offset = self._log.put(*key, [append.message])
        lane.acknowledged_ms = max(lane.acknowledged_ms, self._scheduler.now_ms + delay_ms)
        self._scheduler.at(lane.acknowledged_ms, lambda: append.acknowledged(offset))
