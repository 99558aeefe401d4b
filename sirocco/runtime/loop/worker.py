"""The loop that carries out what a state machine asks for, on a real log and a real archive.

One thread owns the machine. It polls `control` and the owned Kafka partitions, gives the records to
`machine.step`, and carries the effects out in order. Appends go through `append_queue`. What takes
long (transactions, archive reads and writes) runs in the threads of `background_jobs` and returns
as events. Requests of other threads arrive through `loop_inbox`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Protocol, TypeVar

from sirocco.model.term_hashing import WIRE_TERMS, TermHashing
from sirocco.protocol.contract.control_records import (
    CheckpointTaken,
    Declaration,
    Granted,
    LeaderElected,
)
from sirocco.protocol.contract.effects import (
    Answer,
    Append,
    AppendChanges,
    ChangeRequest,
    ChangeRequests,
    ColumnRequests,
    Compute,
    ControlRead,
    Declare,
    Discard,
    Draining,
    Effect,
    EndsFound,
    Entry,
    Event,
    Fence,
    FindEnds,
    Follow,
    Load,
    Loaded,
    LoadSlices,
    Outcome,
    PlainRequests,
    Polled,
    ProposedMap,
    Publish,
    RebalanceRequest,
    RemovalRequests,
    SaveCheckpoint,
    SetAside,
    SlicesLoaded,
    Sweep,
    Tick,
    Transact,
    Truncate,
    Unfollow,
)
from sirocco.protocol.contract.messages import CONTROL, SLOTS
from sirocco.runtime.loop.append_queue import APPEND_WAIT_MS, AppendQueue
from sirocco.runtime.loop.background_jobs import BackgroundJobs
from sirocco.runtime.loop.checkpoints import (
    SLICES,
    UNUSABLE,
    Checkpoints,
    Fetch,
    Loads,
    Saves,
    subject,
)
from sirocco.runtime.loop.hops import DeadLetter, HopReader
from sirocco.runtime.loop.limits import LOOP, LoopLimits
from sirocco.runtime.loop.log_truncation import LogTruncation
from sirocco.runtime.loop.loop_inbox import LoopInbox
from sirocco.runtime.loop.traced_records import TracedRecords
from sirocco.runtime.loop.transactions import Transactions
from sirocco.runtime.loop.turn_size import TurnSize
from sirocco.runtime.process.clock import Steady, monotonic_ms
from sirocco.runtime.process.retries import retried
from sirocco.telemetry.logging import event
from sirocco.transport.archive import Archive
from sirocco.transport.errors import OffsetOutOfRange, TransportUnavailable, UnknownTopic
from sirocco.transport.log import Log, Record

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Records of one poll; the log's own bound on bytes in flight keeps large ones from piling up.
POLL_RECORDS_MAX = 512

# Records of one turn, at first; see `LoopLimits`.
TURN_RECORDS_MAX = 4 * POLL_RECORDS_MAX

# How long a poll waits for the first record when nothing is due; change requests wait as long.
POLL_MS_MAX = 10

TICK_MS = 5

# Interval between checks of what is still under way while the process ends.
DRAIN_LOOK_S = 0.005

# Interval between measurements of the readers' lag: finer than any scrape.
LAG_INTERVAL_MS = 1_000


class Machine(Protocol):
    """The pure core of a service."""

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Takes an event; returns what to do, in order."""

    def deadline_ms(self) -> int | None:
        """Returns when the next `Tick` is needed at the latest, if anything waits."""


class Worker:
    """Runs one machine.

    Attributes:
        failure: why the loop ended, when it ended by an error.
        cpu_seconds: CPU time of the loop's thread.
        lag: topic → its records that are in the log and not yet read, when measured last.
        beat_ms: monotonic time of the last turn of the loop; a stuck loop stops renewing leases.
    """

    def __init__(
        self,
        member: str,
        machine: Machine,
        log: Log,
        archive: Archive,
        *,
        publish: Callable[[Publish], None] | None = None,
        transaction_prefix: str = "sirocco",
        hashing: TermHashing = WIRE_TERMS,
        limits: LoopLimits = LOOP,
        traced: TracedRecords | None = None,
    ) -> None:
        self._limits = limits
        self._traced = traced
        self.member = member
        self.machine = machine
        self.failure: BaseException | None = None
        self.beat_ms = monotonic_ms()
        self.caught_up = threading.Event()
        self.cpu_seconds = 0.0
        self.lag: Mapping[str, int] = {}
        self._lag_seen_ms = self.beat_ms
        self._turn_size = TurnSize(
            TURN_RECORDS_MAX, limits.turn_bytes_wanted, limits.turn_cpu_s_wanted
        )
        self._is_full = False
        # Records of the last poll that the turn has not decoded: the next turn begins with them.
        self._left: list[Record] = []
        self._clock = Steady()
        self._log = log
        self._checkpoints = Checkpoints(log, archive, hashing)
        self._saves = Saves(limits)
        self._loads = Loads(limits)
        self._publish = publish
        self._stopping = threading.Event()
        self._inbox = LoopInbox(
            lambda event: machine.step(event, self._clock.now_ms()),
            lambda: self.is_alive and not self._stopping.is_set(),
        )
        self._jobs = BackgroundJobs(member, self._inbox)
        self._truncation = LogTruncation(log, limits.truncate_interval_ms)
        self._transactions = Transactions(member, log, transaction_prefix, traced)
        self._consumer = log.consumer(member)
        self._appends = AppendQueue(member, log, self._beat, traced)
        self._reader = HopReader(self._appends.reject, in_columns=True)
        self._void_grants = 0
        self._term = 0
        # Followed partitions that wait because the log lacks their offset; and since when.
        self._out_of_range: dict[tuple[str, int], tuple[OffsetOutOfRange, int]] = {}
        self._control_end = 0
        self._thread = threading.Thread(target=self._run, name=f"{member}-loop", daemon=True)

    # --- from other threads

    def start(self) -> None:
        """Starts to follow `control`, and so to work."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Drains: saves checkpoints and ends; returns whether it ended in time."""
        self._stopping.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def fail(self, error: Exception) -> None:
        """Ends the loop at its next turn, as an error of its own would."""
        self._inbox.fail(error)

    @property
    def is_alive(self) -> bool:
        """Whether the loop runs."""
        return self._thread.is_alive()

    @property
    def unusable(self) -> int:
        """Number of Kafka partitions that wait because their state is missing or damaged."""
        return self._loads.unusable_total

    @property
    def unsaved(self) -> int:
        """Number of Kafka partitions whose last checkpoint could not be written."""
        return self._saves.failed

    @property
    def unacknowledged(self) -> int:
        """Number of appends that the log has not confirmed."""
        return self._appends.unacknowledged

    @property
    def rejected_total(self) -> int:
        """Number of records that could not be processed, and of grants of missing partitions."""
        return self._appends.rejected_total + self._void_grants

    def settled(self) -> Future[None]:
        """Returns a future that ends when the log has all that was appended up to now."""
        return self._inbox.settled(self._appends.after_all)

    def change_queries(
        self, partition: int, requests: Sequence[ChangeRequest], deadline_ms: int | None = None
    ) -> Future[Sequence[Outcome]]:
        """Gives change requests for queries to the machine; the future has their outcomes.

        They are dropped if the future is cancelled, or `deadline_ms` (epoch) has passed, before the
        machine takes them: done late, they would undo what the client did since.
        """
        return self._inbox.ask(
            lambda token: ChangeRequests(token, partition, tuple(requests)), deadline_ms
        )

    def change_in_columns(
        self,
        partition: int,
        requests: PlainRequests | RemovalRequests,
        deadline_ms: int | None = None,
    ) -> Future[Sequence[Outcome]]:
        """As `change_queries`, for requests that are columns."""
        return self._inbox.ask(
            lambda token: ColumnRequests(token, partition, requests), deadline_ms
        )

    def look(self, at: Callable[[], T]) -> Future[T]:
        """Calls a function in the loop, between two steps; the future has what it returns."""
        return self._inbox.look(at)

    def rebalance(self, moves: Mapping[int, tuple[str, str]]) -> Future[Sequence[Outcome]]:
        """Gives the machine slots that are to change their owner."""
        return self._inbox.ask(lambda token: RebalanceRequest(token, moves), None)

    def propose(self, partition_map: bytes) -> Future[Sequence[Outcome]]:
        """Gives the machine a map to put in force; the outcome's revision is its version."""
        return self._inbox.ask(lambda token: ProposedMap(token, partition_map), None)

    def warm(self, taken: CheckpointTaken) -> None:
        """Loads the slices of a slot's checkpoint, which will be granted soon; takes seconds.

        Raises:
            TransportUnavailable: The archive does not answer.
        """
        self._checkpoints.warm(taken)

    def post(self, event: Event) -> None:
        """Makes the machine take an event at its next turn."""
        self._inbox.post(event)

    # --- the loop

    def _run(self) -> None:
        try:
            bounds = partial(self._log.bounds, CONTROL, 0)
            low, self._control_end = retried(bounds, self._stopping)
            self._consumer.assign({(CONTROL, 0): low})
            while not self._stopping.is_set():
                self._turn()
            self._drain()
        except BaseException as error:
            self.failure = error
            logger.exception("loop failed", extra=event("loop_failed", member=self.member))
        finally:
            self._close()

    def _beat(self) -> None:
        self.beat_ms = monotonic_ms()

    def _turn(self) -> None:
        self._beat()
        records = self._left or self._poll()
        begin_s = time.thread_time()
        if self._traced is not None and not self._left:
            self._traced.read(records)
        entries: list[Entry] = []
        decoded, self._left = self._reader.entries_within(records, self._limits.turn_decoding_cpu_s)
        for entry in decoded:
            if entry.topic != CONTROL:
                entries.append(entry)
                continue
            assert isinstance(entry.message, Declaration)
            if isinstance(entry.message, Granted):
                if not self._exists(entry.message):
                    self._void(entry.offset, entry.message)
                    continue
                self._granted(entry.message)
            elif isinstance(entry.message, LeaderElected):
                self._term = entry.offset
            self._step(ControlRead(entry.offset, entry.message))
            if isinstance(entry.message, CheckpointTaken):
                self._load_newer(entry.message)
        if entries:
            self._step(Polled(tuple(entries)))
        for effects in self._inbox.take_up():
            self._carry_out(effects)
        self._step(Tick())
        self._appends.take_results()
        self._appends.run_due()
        if (truncate := self._truncation.due()) is not None:
            self._jobs.tidy(truncate)
        for save in self._saves.due(monotonic_ms()):
            self._save(save)
        for load in self._loads.due(monotonic_ms()):
            self._load(load)
        self.cpu_seconds = time.thread_time()
        self._turn_size.note(self.cpu_seconds - begin_s, was_full=self._is_full)
        if self.beat_ms - self._lag_seen_ms >= LAG_INTERVAL_MS:
            self._checkpoints.drop_unused()
            self._lag_seen_ms, self.lag = self.beat_ms, self._consumer.lag()
        if not self.caught_up.is_set() and not self._left:
            position = self._consumer.positions().get((CONTROL, 0), 0)
            if position >= self._control_end:
                self.caught_up.set()

    def _poll(self) -> list[Record]:
        """Takes the records that are there.

        Raises:
            OffsetOutOfRange: The log lacks records that this process owns.
        """
        for error, since_ms in self._out_of_range.values():
            if self.beat_ms - since_ms > self._limits.gone_ms:
                raise error
        records = more = self._polled(self._poll_s())
        taken_bytes = 0
        size = self._turn_size
        while len(more) == POLL_RECORDS_MAX and len(records) < size.records_max:
            taken_bytes += sum([len(record.value) for record in more])
            if taken_bytes >= size.bytes_wanted:
                break
            more = self._polled(0.0)
            records = records + more
        self._is_full = len(more) == POLL_RECORDS_MAX
        return records

    def _polled(self, wait_s: float) -> list[Record]:
        try:
            return self._consumer.poll(POLL_RECORDS_MAX, wait_s)
        except OffsetOutOfRange as error:
            if error.topic == CONTROL:
                raise
            self._out_of_range[error.topic, error.partition] = error, self.beat_ms
            return []

    def _exists(self, granted: Granted) -> bool:
        try:
            count = retried(partial(self._log.partitions, granted.topic))
        except UnknownTopic:
            return False
        return 0 <= granted.partition < count

    def _void(self, offset: int, granted: Granted) -> None:
        """Skips a grant of a missing partition, which would end every process that took it."""
        where = f"{granted.topic}/{granted.partition}"
        extra = event("grant_void", member=self.member, offset=offset, granted=where)
        logger.warning(
            "a grant names a Kafka partition that does not exist; it is ignored", extra=extra
        )
        self._void_grants += 1

    def _granted(self, granted: Granted) -> None:
        # As for the machine, a grant of a leader that another one has replaced is void.
        if granted.term < self._term:
            return
        self._term = granted.term
        if granted.member != self.member:
            self._saves.lost(granted.topic, granted.partition)
            if granted.topic == SLOTS:
                self._loads.ended(SLICES, granted.partition)

    def _poll_s(self) -> float:
        if self._inbox.has_more:
            return 0.0
        deadline_ms = self.machine.deadline_ms()
        wait_ms = POLL_MS_MAX if self._appends.unacknowledged == 0 else TICK_MS
        if deadline_ms is not None:
            wait_ms = max(0, min(wait_ms, deadline_ms - self._clock.now_ms()))
        return wait_ms / 1_000

    def _drain(self) -> None:
        self._step(Draining())
        deadline_ms = monotonic_ms() + APPEND_WAIT_MS
        # Archive writes and transactions put their declarations and further work into the inbox.
        while monotonic_ms() < deadline_ms:
            self._beat()
            self._appends.take_results()
            for effects in self._inbox.take_up():
                self._carry_out(effects)
            self._appends.run_due()
            if self._inbox.has_more:
                continue
            if not self._jobs.under_way and not self._appends.unacknowledged:
                break
            time.sleep(DRAIN_LOOK_S)
        self._jobs.finish()
        self._appends.flush()

    def _close(self) -> None:
        self._jobs.close()
        self._consumer.close()
        self._appends.close()
        self._transactions.close()
        if self._traced is not None:
            self._traced.close()
        self._inbox.close()

    # --- effects

    def _step(self, event: Event) -> None:
        self._carry_out(self.machine.step(event, self._clock.now_ms()))

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Append() | AppendChanges():
                    self._append(effect)
                case Follow(topic, partition, offset):
                    self._consumer.add({(topic, partition): offset})
                case Unfollow(topic, partition):
                    # Follows the machine: a grant that is void for it takes nothing away.
                    self._loads.ended(topic, partition)
                    self._out_of_range.pop((topic, partition), None)
                    # It is followed again from what the machine has taken.
                    at = topic, partition
                    self._left = [r for r in self._left if (r.topic, r.partition) != at]
                    if (topic, partition) in self._consumer.positions():
                        self._consumer.remove([(topic, partition)])
                case Load() | LoadSlices() | FindEnds():
                    # A draining process takes nothing up any more.
                    if not self._stopping.is_set():
                        self._loads.begun(effect)
                        self._load(effect)
                case SaveCheckpoint() | Declare() | Answer() | Truncate():
                    self._appends.after_all(self._after_appends(effect))
                case Compute():
                    self._jobs.compute(effect)
                case SetAside():
                    self._appends.reject(DeadLetter.of(effect))
                case Discard(name):
                    self._jobs.tidy(partial(self._checkpoints.discard, name))
                case Sweep():
                    self._jobs.tidy(partial(self._checkpoints.sweep, effect))
                case Transact(partition):
                    # The present producer: a later Fence makes another, which must not write this.
                    producer = self._transactions.producer(partition)
                    # Never retried as a whole: it may have been committed when something fails.
                    self._jobs.begin(partial(self._transactions.transact, effect, producer))
                case Fence(partition):
                    # In the loop, and before the Load after it in the list goes to the pool.
                    self._transactions.fence(partition)
                case Publish():
                    if self._publish is not None:
                        self._publish(effect)

    def _append(self, effect: Append | AppendChanges) -> None:
        if isinstance(effect, Append):
            self._appends.append(effect.topic, effect.partition, effect.message)
        else:
            self._appends.append_changes(effect.partition, effect.changes)

    def _after_appends(
        self, effect: SaveCheckpoint | Declare | Answer | Truncate
    ) -> Callable[[], None]:
        """Returns what to do once the log has all that was appended before."""
        match effect:
            case SaveCheckpoint():
                return partial(self._save, effect)
            case Declare(declaration):
                return partial(self._appends.append, CONTROL, 0, declaration)
            case Answer(token, outcomes):
                return partial(self._inbox.answer, token, outcomes)
            case Truncate(topic, partition, before):
                return partial(self._truncation.request, topic, partition, before)

    def _load_newer(self, taken: CheckpointTaken) -> None:
        """Loads a former owner's newer checkpoint, where its earlier one is unusable."""
        if (load := self._loads.newer(taken)) is not None:
            self._loads.begun(load)
            self._load(load)

    def _load(self, effect: Fetch) -> None:
        # One try, as with a save.
        def load() -> None:
            found: Loaded | SlicesLoaded | EndsFound | Exception
            try:
                found = self._checkpoints.fetch(effect)
            except Exception as error:
                found = error
            self._inbox.put(partial(self._loaded, effect, found))

        if isinstance(effect, LoadSlices):
            self._jobs.load_late(load)
        else:
            self._jobs.load(load)

    def _loaded(
        self, effect: Fetch, found: Loaded | SlicesLoaded | EndsFound | Exception
    ) -> list[Effect]:
        if self._stopping.is_set() or not self._loads.is_wanted(effect):
            return []
        topic, partition = subject(effect)
        if isinstance(found, TransportUnavailable):
            reason = str(found)
            extra = event("not_loaded", topic=topic, partition=partition, reason=reason)
            logger.warning("state not loaded; trying again", extra=extra)
            self._loads.failed(effect, monotonic_ms())
            return []
        if isinstance(found, UNUSABLE) and isinstance(effect, Load | LoadSlices):
            self._note_unusable(effect, found)
            return []
        if isinstance(found, Exception):
            raise found
        self._loads.ended(topic, partition)
        return self.machine.step(found, self._clock.now_ms())

    def _note_unusable(self, effect: Load | LoadSlices, error: Exception) -> None:
        """Logs what is missing or damaged, and looks again later: it may be restored."""
        topic, partition = subject(effect)
        reason = f"{type(error).__name__}: {error}"
        # The next owner would fail in the same way. Only this partition waits.
        if isinstance(effect, Load):
            message = "state missing or damaged; this Kafka partition is not processed"
            at = {"blob": effect.name, "offset": effect.offset}
        else:
            message = "past objects missing or damaged; this slot is matched, but not searched"
            at = {}
        extra = event("state_unusable", topic=topic, partition=partition, reason=reason, **at)
        logger.error(message, extra=extra)
        self._loads.unusable(effect, monotonic_ms())

    def _save(self, effect: SaveCheckpoint) -> None:
        # One try: another save follows anyway, and saves of other partitions wait for this one.
        self._saves.begun(effect)

        def save() -> None:
            self._inbox.put(partial(self._saved, effect, self._checkpoints.tried(effect)))

        self._jobs.begin_late(save)

    def _saved(self, effect: SaveCheckpoint, taken: CheckpointTaken | None) -> list[Effect]:
        self._saves.ended(effect, taken is not None, monotonic_ms())
        return [] if taken is None else [Append(CONTROL, 0, taken)]
