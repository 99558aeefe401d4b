"""The simulated shell: carries out a machine's effects, as `runtime.loop.worker` does.

Effects in order; `SaveCheckpoint`, `Answer`, `Truncate` wait for all earlier appends; a rejected
append ends the process; the result of slow work returns as an event. A paused node does nothing
and then continues as if nothing had happened: a zombie.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import numpy as np

from sirocco.codec.checkpoint import read_state, write_state
from sirocco.codec.slices import read_slice, write_slice
from sirocco.index.store.slices import SealedSlice
from sirocco.model.errors import Unavailable
from sirocco.protocol.contract.control_records import CheckpointTaken, Declaration
from sirocco.protocol.contract.effects import (
    Answer,
    Append,
    AppendChanges,
    ChangeRequest,
    ChangeRequests,
    ColumnRequests,
    Committed,
    Compute,
    Computed,
    ControlRead,
    Declare,
    Discard,
    Draining,
    Effect,
    EndsFound,
    Entry,
    Event,
    Fence,
    Fenced,
    FindEnds,
    Follow,
    Load,
    Loaded,
    LoadSlices,
    Outcome,
    Polled,
    ProposedMap,
    RebalanceRequest,
    SaveCheckpoint,
    SetAside,
    SlicesLoaded,
    State,
    Sweep,
    Tick,
    Transact,
    Truncate,
    Unfollow,
    Written,
)
from sirocco.protocol.contract.messages import (
    CONTROL,
    DELIVERIES,
    NO_REVISION,
    PARTIALS,
    REGISTRY,
    SLOTS,
    Change,
    Message,
    Progress,
)
from sirocco.protocol.contract.partition_ownership import checkpoint_name
from sirocco.protocol.evaluator.slot.archived_slices import slice_names
from sirocco.runtime.loop.progress import merger_start
from sirocco.runtime.loop.worker import POLL_RECORDS_MAX, Machine
from sirocco.runtime.process.membership import LEASE_TIMES, LEASES, LEAVING
from sirocco.transport import errors as transport
from tests.simulation.checkpoint_steps import Saver
from tests.simulation.log import OutOfRangeError, Partition, Producer, SimLog, Stored
from tests.simulation.store import SimArchive, SimStore
from tests.simulation.terms import TERMS
from tests.support.change_columns import column_entries, column_requests

# Virtual time 0, as the machines see it.
EPOCH_MS = 1_700_000_000_000

# Between attempts to write a checkpoint while the archive has no room.
RETRY_MS = 5_000.0

TICK = Tick()

# How long an idle node sleeps. The runtime's loop turns more often; machines must not depend on it.
IDLE_MS = (50.0, 300.0)

# The share of loads of slices that take seconds.
LATE_SLICES = 0.3

# Share of the transactions of several parts that the log aborts, after any of them. One that is
# begun again has twenty parts in some worlds: were each part a risk, it would hardly ever end.
ABORTED_TRANSACTIONS = 0.2


@dataclass(frozen=True, slots=True)
class Planted:
    """Bugs in the shell that a test plants, to see that the simulator finds them."""

    skips_barriers: bool = False
    acknowledges_early: bool = False
    never_fences: bool = False
    declares_early: bool = False
    forgets_failures: bool = False


SOUND = Planted()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Shared by all nodes; `clock_ms`: the step of their clocks."""

    log: SimLog
    store: SimStore
    archive: SimArchive
    planted: Planted
    clock_ms: int = 1
    # (topic, Kafka partition, offset) of records that went to `dead-letters`.
    set_aside: set[tuple[str, int, int]] = field(default_factory=set)
    # (slot, begin, end) of records → how many evaluators ended or paused while processing them.
    ended_during: Counter[tuple[int, int, int]] = field(default_factory=Counter)


@dataclass(slots=True)
class Reading:
    """A Kafka partition that a node reads.

    Attributes:
        log: checked in every turn.
        offset: of the next record.
        fetched_ms: when the first records arrive: to fetch them takes a while.
    """

    log: Partition
    offset: int
    fetched_ms: float


def _entries(key: tuple[str, int], found: Sequence[Stored]) -> list[Entry]:
    """Returns what a machine reads; changes of queries, every other poll, as columns."""
    entries: list[Entry] = []
    records: list[tuple[int, Change]] = []
    for stored in found:
        if isinstance(stored.message, Change) and found[0].offset % 2:
            records.append((stored.offset, stored.message))
            continue
        if records:
            entries += column_entries(key[1], records)
            records = []
        entries.append(Entry(*key, stored.offset, stored.message))
    return entries + (column_entries(key[1], records) if records else [])


class Node:
    """One process with one machine.

    Attributes:
        is_alive: until it is killed, refused or drained.
        is_paused: it does nothing.
        ended: why it ended.
        log_ends: Kafka partition → the end of its log at the last load here.
    """

    def __init__(
        self, parts: Parts, service: str, member: str, machine: Machine, skew_ms: float
    ) -> None:
        self.parts = parts
        self.service = service
        self.member = member
        self.machine = machine
        self.is_alive = True
        self.is_paused = False
        self.ended = ""
        self.scheduler = parts.log.scheduler
        self._skew_ms = skew_ms
        self._producers = [Producer(parts.log)]
        self._readings: dict[tuple[str, int], Reading] = {}
        self._inbox: deque[Callable[[], None]] = deque()
        self._turn_ms = float("inf")
        self._appended = 0
        self._acknowledged: set[int] = set()
        self._settled = 0
        self._barriers: deque[tuple[int, Callable[[], None]]] = deque()
        self._answers: dict[int, Callable[[Sequence[Outcome]], None]] = {}
        self._tokens = 0
        self._slow = 0
        self._generations: dict[int, int] = {}
        # Messages of the transactions that are written in parts, and those the log will abort.
        self._begun: dict[int, list[Message]] = {}
        self._doomed: set[int] = set()
        self.log_ends: dict[int, int] = {}
        self._is_draining = False
        self._saver = Saver(self, self._later, lambda taken: self._append(CONTROL, 0, taken))
        self._control_end = parts.log.partition(CONTROL, 0).high
        self._follow(CONTROL, 0, 0)
        self._renew()
        self.wake(self.scheduler.now_ms + self.scheduler.between(1, 30))

    @property
    def now_ms(self) -> int:
        """The wall clock of this node."""
        now_ms = int(self.scheduler.now_ms + self._skew_ms)
        return EPOCH_MS + now_ms - now_ms % self.parts.clock_ms

    @property
    def has_caught_up(self) -> bool:
        """Whether it has read all records that `control` had when it started."""
        return self._readings[CONTROL, 0].offset >= self._control_end

    # --- faults

    def kill(self, why: str) -> None:
        """Ends the process at once."""
        if self.is_alive:
            self.is_alive = False
            self.ended = why
            for producer in self._producers:
                producer.kill()
            self._stop_reading()

    def fail(self, why: str) -> None:
        """Ends the process by an error that is unrelated to its input."""
        self.kill(why)
        with suppress(transport.TransportUnavailable):
            self.parts.store.acquire(LEAVING + self.member, self.member, LEASE_TIMES.leaving_ms)

    def pause(self) -> None:
        """Pauses the process."""
        self.is_paused = True
        for producer in self._producers:
            producer.pause()

    def resume(self) -> None:
        """Continues with its former state."""
        if not self.is_paused:
            return
        self.is_paused = False
        if self.is_alive:
            for producer in self._producers:
                producer.resume()
            for reading in self._readings.values():
                reading.fetched_ms = self._fetch_ms()
            self.wake(self.scheduler.now_ms)

    def heal(self) -> None:
        """Ends all faults: continues if it was paused."""
        self.resume()
        self._saver.heal()
        for producer in self._producers:
            producer.heal()

    @property
    def is_doomed(self) -> bool:
        """Whether it will end by an earlier fault."""
        return self.is_alive and any(producer.is_refused for producer in self._producers)

    def drain(self) -> None:
        """Asks the process to end in good order."""

        def begin() -> None:
            self._is_draining = True
            self._stop_reading()
            self._step(Draining())

        self.post(begin)

    def refuse_append(self) -> None:
        """Makes the log reject one of its next appends."""
        self.scheduler.dice.choice(self._producers).refuse()

    def strike_during(
        self, kinds: tuple[type, ...], strike: Callable[[], None], appends_max: int = 8
    ) -> None:
        """Calls back while the process is appending a batch."""
        # The machine's producer, or now and then that of a front.
        is_machine = self.scheduler.dice.random() < 0.75
        producer = self._producers[0 if is_machine else -1]
        producer.arm(kinds, self.scheduler.dice.randint(1, appends_max), strike)

    def strike_save(self, blobs: int, strike: Callable[[], None]) -> None:
        """Calls back while the process is writing a checkpoint."""
        self._saver.arm(blobs, strike)

    # --- calls from outside

    def attach(self, producer: Producer) -> None:
        """Makes another producer of this process share its faults."""
        self._producers.append(producer)

    def post(self, action: Callable[[], None]) -> None:
        """Runs an action at the node's next turn."""
        if self.is_alive:
            self._inbox.append(action)
            self.wake(self.scheduler.now_ms)

    def sends(self, event: Event) -> None:
        """Makes the machine take an event at its next turn."""
        self.post(lambda: self._step(event))

    def change_queries(
        self,
        partition: int,
        requests: tuple[ChangeRequest, ...],
        answered: Callable[[Sequence[Outcome]], None],
    ) -> None:
        """Passes change requests to the machine; to be called in a turn."""
        if self._is_draining:
            error = Unavailable("this process is ending; try another one")
            answered((Outcome(NO_REVISION, error),) * len(requests))
            return
        self._tokens += 1
        self._answers[self._tokens] = answered
        # Every other one as columns, if it can be.
        columns = column_requests(requests) if self._tokens % 2 else None
        if columns is None:
            self._step(ChangeRequests(self._tokens, partition, requests))
        else:
            self._step(ColumnRequests(self._tokens, partition, columns))

    def propose(self, partition_map: bytes, answered: Callable[[Sequence[Outcome]], None]) -> None:
        """Passes a proposed map to the machine; to be called in a turn."""
        self._tokens += 1
        self._answers[self._tokens] = answered
        self._step(ProposedMap(self._tokens, partition_map))

    def rebalance(
        self,
        moves: Mapping[int, tuple[str, str]],
        answered: Callable[[Sequence[Outcome]], None],
    ) -> None:
        """Passes slots that should change owners to the machine; to be called in a turn."""
        self._tokens += 1
        self._answers[self._tokens] = answered
        self._step(RebalanceRequest(self._tokens, moves))

    def wake(self, time_ms: float) -> None:
        """Wakes the loop at a time."""
        if time_ms < self._turn_ms and self.is_alive:
            self._turn_ms = time_ms
            self.scheduler.at(time_ms, partial(self._turn, time_ms))

    # --- the loop

    def _turn(self, time_ms: float) -> None:
        if not self.is_alive or self.is_paused or time_ms != self._turn_ms:
            if self.is_paused:
                self._turn_ms = float("inf")
            return
        self._turn_ms = float("inf")
        if not self._is_draining:
            try:
                self._poll()
            except OutOfRangeError as error:
                self.fail(f"out of range: {error}")
                return
        while self._inbox and self.is_alive:
            self._inbox.popleft()()
        if not self.is_alive:
            return
        if self._is_draining:
            self._run_barriers()
            if self._settled == self._appended and not self._slow and not self._inbox:
                self.is_alive = False
                self.ended = "drained"
                self._release()
                return
        else:
            self._step(TICK)
            self._saver.save_again()
            if self._barriers:
                self._run_barriers()
        self._sleep()

    def _poll(self) -> None:
        log, now_ms = self.parts.log, self.scheduler.now_ms
        # Most have no new record: then only the end of their log is checked.
        keys = [
            key
            for key, reading in self._readings.items()
            if reading.log.high > reading.offset and reading.fetched_ms <= now_ms
        ]
        if not keys:
            return
        self.scheduler.dice.shuffle(keys)
        entries: list[Entry] = []
        control: list[Stored] = []
        room = POLL_RECORDS_MAX
        for key in keys:
            reading = self._readings[key]
            found, reading.offset = log.read(*key, reading.offset, room)
            room -= len(found)
            if key == (CONTROL, 0):
                control = found
            else:
                entries += _entries(key, found)
            if room <= 0:
                break
        for stored in control:
            self._step(ControlRead(stored.offset, cast(Declaration, stored.message)))
        if entries:
            self._step(Polled(tuple(entries)))

    def _sleep(self) -> None:
        now_ms = self.scheduler.now_ms
        wake_ms = now_ms + self.scheduler.between(*IDLE_MS)
        deadline_ms = self.machine.deadline_ms()
        if deadline_ms is not None:
            wake_ms = min(wake_ms, max(now_ms + 1, deadline_ms - EPOCH_MS - self._skew_ms + 1))
        for key, reading in self._readings.items():
            if reading.log.high <= reading.offset:
                continue
            seen_ms = self.parts.log.next_seen_ms(*key, reading.offset)
            if seen_ms is not None:
                read_ms = max(seen_ms, now_ms, reading.fetched_ms)
                wake_ms = min(wake_ms, read_ms + self.scheduler.between(0.1, 4))
        self.wake(wake_ms)

    def _seen(self, seen_ms: float) -> None:
        self.wake(seen_ms + self.scheduler.between(0.1, 4))

    # --- effects

    def _step(self, event: Event) -> None:
        if effects := self.machine.step(event, self.now_ms):
            self.carry_out(effects)

    def _carry_out_append(self, effect: Append | AppendChanges) -> None:
        if isinstance(effect, Append):
            self._append(effect.topic, effect.partition, effect.message)
            return
        for row in range(len(effect.changes)):
            self._append(REGISTRY, effect.partition, effect.changes.change(row))

    def carry_out(self, effects: list[Effect]) -> None:
        """Carries out effects, in order; published views are not used here."""
        for effect in effects:
            match effect:
                case Append() | AppendChanges():
                    self._carry_out_append(effect)
                case Follow(topic, partition, offset):
                    self._follow(topic, partition, offset)
                case Unfollow(topic, partition):
                    self._unfollow(topic, partition)
                case Declare(declaration):
                    self._after_all(partial(self._append, CONTROL, 0, declaration))
                case Load() | LoadSlices() | FindEnds():
                    self._fetch(effect)
                case SaveCheckpoint():
                    self._after_all(partial(self._save, effect))
                case Answer(token, outcomes):
                    self._after_all(partial(self._answers.pop(token), outcomes))
                case Compute(key, job):
                    computed = Computed(key, job())
                    self._later(self._archive_ms(), partial(self.sends, computed))
                case Discard(name):
                    self._later(self._archive_ms(), partial(self._discard, name))
                case Sweep():
                    self._later(self._archive_ms(), partial(self._sweep, effect))
                case SetAside(topic, partition, offset):
                    self.parts.set_aside.add((topic, partition, offset))
                case Truncate(topic, partition, before):
                    self._after_all(partial(self._truncate, topic, partition, before))
                case Transact():
                    self._transact(effect)
                case Fence(partition):
                    generation = self.parts.log.producer_generations.get(partition, 0)
                    generation += not self.parts.planted.never_fences
                    self.parts.log.producer_generations[partition] = generation
                    self._generations[partition] = generation

    def _append(self, topic: str, partition: int, message: Message) -> None:
        number = self._appended
        self._appended += 1

        def acknowledged(_offset: int) -> None:
            self.post(lambda: self._end(number))

        refused = partial(self.post, lambda: self.fail("an append was refused"))
        self._producers[0].append(topic, partition, message, acknowledged, refused)

    def _end(self, number: int) -> None:
        self._acknowledged.add(number)
        while self._settled in self._acknowledged:
            self._acknowledged.remove(self._settled)
            self._settled += 1

    def _after_all(self, action: Callable[[], None]) -> None:
        self._barriers.append((self._appended, action))

    def _run_barriers(self) -> None:
        while self._barriers and (
            self._barriers[0][0] <= self._settled or self.parts.planted.skips_barriers
        ):
            self._barriers.popleft()[1]()

    def _follow(self, topic: str, partition: int, offset: int) -> None:
        key = topic, partition
        assert key not in self._readings, f"{self.member} follows {key} twice"
        log = self.parts.log.partition(topic, partition)
        self._readings[key] = Reading(log, offset, self._fetch_ms())
        log.watchers[self._seen] = None
        if not self._is_draining:
            self._seen(self.scheduler.now_ms)

    def _fetch_ms(self) -> float:
        least_ms, most_ms = self.parts.log.delays.call
        return self.scheduler.now_ms + self.scheduler.between(least_ms, 20 * most_ms)

    def _unfollow(self, topic: str, partition: int) -> None:
        reading = self._readings.pop((topic, partition), None)
        if reading is not None:
            reading.log.watchers.pop(self._seen, None)

    def _stop_reading(self) -> None:
        for reading in self._readings.values():
            reading.log.watchers.pop(self._seen, None)

    # --- slow effects

    def _later(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Schedules work beside the loop: it pauses and ends with the process."""
        self._slow += 1

        def run() -> None:
            if self.is_paused and self.is_alive:
                self.scheduler.after(self.scheduler.between(50, 500), run)
            elif self.is_alive:
                self._slow -= 1
                action()
                self.wake(self.scheduler.now_ms)

        self.scheduler.after(delay_ms, run)

    def _fetch(self, effect: Load | LoadSlices | FindEnds) -> None:
        match effect:
            case Load():
                self._load(effect)
            case LoadSlices():
                self._load_slices(effect)
            case FindEnds():
                self._later(self._call_ms(), partial(self._find_ends, effect))

    def _load(self, effect: Load) -> None:
        topic, partition, epoch = effect.topic, effect.partition, effect.epoch

        def read() -> None:
            state: State | None = None
            slices: tuple[SealedSlice, ...] | None = ()
            offset = 0
            if effect.name and effect.name not in self.parts.archive.blobs:
                self.kill("a checkpoint is gone")
                return
            if effect.name:
                state, offset = read_state(self.parts.archive.blobs[effect.name]), effect.offset
                if topic == SLOTS and (names := slice_names(partition, state)):
                    slices = self._slices(names) if effect.is_whole else None
            if topic == PARTIALS:
                found = self._last_progress(partition)
                end = self.parts.log.partition(DELIVERIES, partition).high
                low = self.parts.log.partition(PARTIALS, partition).low
                progress = None if found is None else (found, end)
                checkpoint = None if state is None else (state, offset)
                offset, state = merger_start(progress, checkpoint, low)
            log_end = self.log_ends[partition] = self.parts.log.partition(topic, partition).high
            loaded = Loaded(
                topic=topic,
                partition=partition,
                epoch=epoch,
                offset=offset,
                state=state,
                slices=slices,
                log_end=log_end,
            )
            self._later(self._archive_ms(), lambda: self.sends(loaded))

        self._later(self._archive_ms(), read)

    def _load_slices(self, effect: LoadSlices) -> None:
        def read() -> None:
            loaded = SlicesLoaded(effect.slot, effect.epoch, self._slices(effect.names))
            if self.is_alive:
                self.sends(loaded)

        # At times long after the log was read, when checkpoints are due, or the slot is lost again.
        is_late = self.scheduler.between(0, 1) < LATE_SLICES
        late_ms = self.scheduler.between(1_000, 20_000) if is_late else 0
        self._later(self._archive_ms() + late_ms, read)

    def _slices(self, names: Sequence[str]) -> tuple[SealedSlice, ...]:
        blobs = self.parts.archive.blobs
        if any(name not in blobs for name in names):
            self.kill("a slice is gone")
            return ()
        return tuple(read_slice(blobs[name], TERMS) for name in names)

    def _last_progress(self, partition: int) -> Progress | None:
        stored = self.parts.log.partition(DELIVERIES, partition)
        for record in reversed(stored.records):
            if record.offset < stored.low:
                return None
            if isinstance(record.message, Progress):
                return record.message
        return None

    def _save(self, effect: SaveCheckpoint) -> None:
        if self.parts.archive.is_slow:
            self._saver.save(effect)
            return
        topic, partition, epoch, offset = (
            effect.topic,
            effect.partition,
            effect.epoch,
            effect.offset,
        )
        name = checkpoint_name(topic, partition, offset, epoch)
        # The state at the moment when the machine handed it over.
        blob = write_state(effect.state)
        slices = {name_: bytes(write_slice(slice_)) for name_, slice_ in effect.slices}

        def written() -> None:
            if self.scheduler.now_ms < self.parts.archive.full_until_ms:
                self._later(RETRY_MS, written)
                return
            for slice_name, contents in slices.items():
                self.parts.archive.write(slice_name, contents)
            self.parts.archive.write(name, blob)
            taken = CheckpointTaken(topic, partition, epoch, offset, name, effect.map_version)
            self.post(lambda: self.carry_out([Append(CONTROL, 0, taken)]))

        self._later(self._archive_ms(), written)

    def _find_ends(self, effect: FindEnds) -> None:
        keys = [(effect.topic, partition) for partition in range(effect.partitions)]
        found = EndsFound(np.array([self.parts.log.high(key) for key in keys], np.int64))
        self._later(self._call_ms(), lambda: self.sends(found))

    def _discard(self, name: str) -> None:
        self.parts.archive.blobs.pop(name, None)

    def _sweep(self, effect: Sweep) -> None:
        blobs = self.parts.archive.blobs
        for name in [each for each in blobs if each.startswith(effect.prefix)]:
            if name < effect.before_name:
                del blobs[name]

    def _truncate(self, topic: str, partition: int, before: int) -> None:
        delay_ms = self.scheduler.between(0, 5_000)
        self._later(
            0 if self._is_draining else delay_ms,
            lambda: self.parts.log.truncate(topic, partition, before),
        )

    def _transact(self, effect: Transact) -> None:
        log = self.parts.log
        generation = self._generations[effect.partition]
        dice = self.scheduler.dice
        if effect.is_first:
            self._begun[effect.partition] = []
            self._doomed.discard(effect.partition)
            if not effect.is_last and dice.random() < ABORTED_TRANSACTIONS:
                self._doomed.add(effect.partition)
        messages = self._begun[effect.partition]
        messages += effect.messages
        # The log may abort a transaction of several parts, whose first ones nobody has any more.
        is_aborted = effect.partition in self._doomed and (effect.is_last or dice.random() < 0.5)

        def answered(end: int) -> None:
            size = 100 * len(effect.messages)
            self.sends(Committed(effect.partition, effect.number, size, end))

        def commit() -> None:
            if log.producer_generations[effect.partition] != generation or is_aborted:
                # Fenced: the written part takes offsets that no reader sees.
                log.skip(DELIVERIES, effect.partition, len(messages) + 1)
                fenced = Fenced(effect.partition, effect.number)
                self._later(self.scheduler.between(*log.delays.call), lambda: self.sends(fenced))
                return
            if not effect.is_last:
                written = Written(effect.partition, effect.number, 100 * len(effect.messages))
                self._later(self.scheduler.between(*log.delays.call), lambda: self.sends(written))
                return
            log.put(DELIVERIES, effect.partition, messages)
            log.skip(DELIVERIES, effect.partition, 1)
            end = log.partition(DELIVERIES, effect.partition).high
            self._later(self.scheduler.between(*log.delays.call), lambda: answered(end))

        delay_ms = self.scheduler.between(*log.delays.call)
        if self.scheduler.dice.random() < 0.5:
            self._later(delay_ms, commit)
        else:
            # The broker has the request: it is carried out whatever happens to the process.
            self._slow += 1

            def carried_out() -> None:
                self._slow -= 1
                commit()

            self.scheduler.after(delay_ms, carried_out)

    def _call_ms(self) -> float:
        return self.scheduler.between(*self.parts.log.delays.call)

    def _archive_ms(self) -> float:
        return self.scheduler.between(*self.parts.log.delays.archive) / 2

    # --- the lease

    def _renew(self) -> None:
        if not self.is_alive:
            return
        if not self.is_paused:
            with suppress(transport.TransportUnavailable):
                self.parts.store.acquire(LEASES + self.member, self.member, LEASE_TIMES.lease_ms)
        self.scheduler.after(LEASE_TIMES.renew_ms + self.scheduler.between(0, 20), self._renew)

    def _release(self) -> None:
        with suppress(transport.TransportUnavailable):
            self.parts.store.acquire(LEAVING + self.member, self.member, LEASE_TIMES.leaving_ms)
            self.parts.store.release(LEASES + self.member, self.member)
