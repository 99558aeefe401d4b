"""The loop that carries out what a state machine asks for, on a real log and a real archive.

One thread owns the machine: it polls `control` and the owned Kafka partitions, hands what comes to
`machine.step`, and carries the effects out in order. What takes long (transactions, archive reads
and writes) runs in a few threads beside it and comes back as events. Any failed append ends the
process: a gap is never left behind, the successor repeats from the checkpoint.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, TypeVar

from sirocco.model import errors
from sirocco.protocol.declarations import (
    CheckpointTaken,
    Granted,
    LeaderElected,
    MapActivated,
    MapCopied,
    MapPrepared,
    MapSwitched,
)
from sirocco.protocol.effects import (
    Answer,
    Append,
    Compute,
    Computed,
    ControlRead,
    Declare,
    Discard,
    Draining,
    Effect,
    Entry,
    Event,
    Fence,
    Follow,
    Load,
    Outcome,
    Polled,
    Proposed,
    Publish,
    Rebalanced,
    SaveCheckpoint,
    Sweep,
    Tick,
    Transact,
    Truncate,
    Unfollow,
    Wish,
    Wished,
)
from sirocco.protocol.messages import CONTROL, Message
from sirocco.runtime.barriers import Barriers
from sirocco.runtime.checkpoints import Checkpoints, Saves
from sirocco.runtime.clock import monotonic_ms, now_ms
from sirocco.runtime.hops import DeadLetter, HopReader, HopWriter
from sirocco.runtime.interpreter import step_back
from sirocco.runtime.retries import retried
from sirocco.runtime.transactions import Transactions
from sirocco.telemetry.logging import event
from sirocco.transport.archive import Archive
from sirocco.transport.errors import (
    ResourceExhausted,
    UnknownTopic,
)
from sirocco.transport.log import Log

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Records of one poll. Registrations are small records that are worth handling by the hundred; the
# log's own bound on bytes in flight keeps large ones from piling up.
POLL_RECORDS_MAX = 512

# How long a poll waits for the first record when nothing is due; wishes of clients wait as long.
POLL_MS_MAX = 10

TICK_MS = 5

# Between looks at what is still under way while the process ends.
DRAIN_LOOK_S = 0.005

# Truncating is housekeeping by an admin call: the last wish of a Kafka partition counts, and it is
# carried out at most this often.
TRUNCATE_INTERVAL_MS = 5_000

# Between looks at how far behind the readers are: finer than any scrape.
LAG_INTERVAL_MS = 1_000

# An append may wait this long for room in the producer's queue before the process gives up: longer
# than a broker's restart (about 10 s), shorter than a lease would be renewed for a dead loop.
APPEND_WAIT_MS = 30_000


class Machine(Protocol):
    """The pure core of a service."""

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Takes an event; returns what to do, in order."""

    def deadline_ms(self) -> int | None:
        """When the next `Tick` is wanted at the latest, if anything waits."""


class Worker:
    """Runs one machine.

    Attributes:
        failure: why the loop ended, when it ended by an error.
        cpu_seconds: what the loop's thread has used.
        lag: topic → records of it that are in the log and not yet read, at the last look.
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
    ) -> None:
        self.member = member
        self.machine = machine
        self.failure: BaseException | None = None
        self.beat_ms = monotonic_ms()
        self.caught_up = threading.Event()
        self.rejected_total = 0
        self.cpu_seconds = 0.0
        self.lag: Mapping[str, int] = {}
        self._lag_seen_ms = self.beat_ms
        self._log = log
        self._checkpoints = Checkpoints(log, archive)
        self._saves = Saves()
        self._publish = publish
        self._barriers = Barriers()
        self._inbox: queue.SimpleQueue[Callable[[], list[Effect]]] = queue.SimpleQueue()
        self._answers: dict[int, Future[tuple[Outcome, ...]]] = {}
        self._settling: set[Future[None]] = set()
        self._tokens = 0
        self._token_lock = threading.Lock()
        self._truncates: dict[tuple[str, int], int] = {}
        self._truncated_ms = monotonic_ms()
        self._transactions = Transactions(member, log, transaction_prefix)
        self._pool = ThreadPoolExecutor(4, thread_name_prefix=f"{member}-slow")
        # What nobody waits for: Parquet is written, slices are merged.
        self._background = ThreadPoolExecutor(2, f"{member}-background", step_back)
        self._pools = self._pool, self._background
        self._stopping = threading.Event()
        self._consumer = log.consumer(member)
        self._producer = log.producer(member)
        self._writer = HopWriter(self._producer, self._appended)
        self._reader = HopReader(self._rejected)
        self._append_error: Exception | None = None
        # Slow effects under way; counted in the loop alone.
        self._slow = 0
        self._control_end = 0
        self._thread = threading.Thread(target=self._run, name=f"{member}-loop", daemon=True)

    # --- from other threads

    def start(self) -> None:
        """Begins to follow `control` and, with it, to work."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Drains: leaves checkpoints behind and ends; returns whether it ended in time."""
        self._stopping.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def fail(self, error: Exception) -> None:
        """Ends the loop at its next turn, as an error of its own would."""
        self._inbox.put(partial(_raise, error))

    @property
    def is_alive(self) -> bool:
        """Whether the loop runs."""
        return self._thread.is_alive()

    @property
    def unsaved(self) -> int:
        """Kafka partitions whose last checkpoint could not be written."""
        return self._saves.failed

    @property
    def unacknowledged(self) -> int:
        """Appends that the log has not confirmed."""
        return self._barriers.unacknowledged

    def settled(self) -> Future[None]:
        """The future ends when the log has all that was appended up to now."""
        done: Future[None] = Future()
        # Whoever waits may hang up, but a cancelled future could not be fulfilled in the loop.
        done.set_running_or_notify_cancel()
        self._settling.add(done)

        def settle() -> None:
            self._settling.discard(done)
            done.set_result(None)

        def wait() -> list[Effect]:
            self._barriers.after_all(settle)
            return []

        self._inbox.put(wait)
        return done

    def wish(
        self, partition: int, wishes: Sequence[Wish], deadline_ms: int | None = None
    ) -> Future[tuple[Outcome, ...]]:
        """Hands changes of queries to the machine; the future has their outcomes.

        Nothing happens any more when the future is cancelled, or `deadline_ms` (epoch) has passed,
        before the machine takes them up: done late, they would undo what the client did since.
        """
        return self._asked(lambda token: Wished(token, partition, tuple(wishes)), deadline_ms)

    def look(self, at: Callable[[], T]) -> Future[T]:
        """Calls a function in the loop, between two steps; the future has what it returns."""
        found: Future[T] = Future()

        def call() -> list[Effect]:
            if found.set_running_or_notify_cancel():
                try:
                    found.set_result(at())
                except Exception as error:
                    found.set_exception(error)
            return []

        if self._stopping.is_set() or not self.is_alive:
            found.set_exception(errors.Unavailable("this process is ending; ask another"))
        else:
            self._inbox.put(call)
        return found

    def rebalance(self, moves: Mapping[int, tuple[str, str]]) -> Future[tuple[Outcome, ...]]:
        """Hands slots that are to change hands to the machine."""
        return self._asked(lambda token: Rebalanced(token, moves), None)

    def propose(self, partition_map: bytes) -> Future[tuple[Outcome, ...]]:
        """Hands a map that is to follow to the machine; the outcome's revision is its version."""
        return self._asked(lambda token: Proposed(token, partition_map), None)

    def _asked(
        self, event_of: Callable[[int], Event], deadline_ms: int | None
    ) -> Future[tuple[Outcome, ...]]:
        with self._token_lock:
            self._tokens += 1
            token = self._tokens
        answer: Future[tuple[Outcome, ...]] = Future()
        if self._stopping.is_set() or not self.is_alive:
            answer.set_exception(errors.Unavailable("this process is ending; ask another"))
            return answer

        def take_up() -> list[Effect]:
            if not answer.set_running_or_notify_cancel():
                del self._answers[token]
                return []
            if deadline_ms is not None and now_ms() > deadline_ms:
                late = errors.DeadlineExceeded("the owner came to it too late; nothing was changed")
                self._answers.pop(token).set_exception(late)
                return []
            return self.machine.step(event_of(token), now_ms())

        self._answers[token] = answer
        self._inbox.put(take_up)
        return answer

    def tell(self, event: Event) -> None:
        """Has the machine take an event at its next turn."""
        self._inbox.put(lambda: self.machine.step(event, now_ms()))

    # --- the loop

    def _run(self) -> None:
        try:
            low, self._control_end = retried(partial(self._log.bounds, CONTROL, 0))
            self._consumer.assign({(CONTROL, 0): low})
            while not self._stopping.is_set():
                self._turn()
            self._drain()
        except BaseException as error:
            self.failure = error
            logger.exception("loop failed", extra=event("loop_failed", member=self.member))
        finally:
            self._close()

    def _turn(self) -> None:
        self.beat_ms = monotonic_ms()
        records = self._consumer.poll(POLL_RECORDS_MAX, self._poll_s())
        entries: list[Entry] = []
        for entry in self._reader.entries(records):
            if entry.topic != CONTROL:
                entries.append(entry)
                continue
            assert isinstance(
                entry.message,
                LeaderElected
                | Granted
                | MapActivated
                | MapPrepared
                | MapCopied
                | MapSwitched
                | CheckpointTaken,
            )
            if isinstance(entry.message, Granted) and not self._exists(entry.message):
                self._void(entry.offset, entry.message)
                continue
            self._step(ControlRead(entry.offset, entry.message))
        if entries:
            self._step(Polled(tuple(entries)))
        while not self._inbox.empty():
            self._carry_out(self._inbox.get()())
        self._step(Tick())
        self._producer.poll(0)
        if self._append_error is not None:
            raise self._append_error
        self._barriers.run_due()
        self._truncate()
        for save in self._saves.due(monotonic_ms()):
            self._save(save)
        self.cpu_seconds = time.thread_time()
        if self.beat_ms - self._lag_seen_ms >= LAG_INTERVAL_MS:
            self._lag_seen_ms, self.lag = self.beat_ms, self._consumer.lag()
        if not self.caught_up.is_set():
            position = self._consumer.positions().get((CONTROL, 0), 0)
            if position >= self._control_end:
                self.caught_up.set()

    def _exists(self, granted: Granted) -> bool:
        try:
            count = retried(partial(self._log.partitions, granted.topic))
        except UnknownTopic:
            return False
        return 0 <= granted.partition < count

    def _void(self, offset: int, granted: Granted) -> None:
        """Passes over a grant of what is not there: whoever took it up would die of it for ever."""
        where = f"{granted.topic}/{granted.partition}"
        extra = event("grant_void", member=self.member, offset=offset, granted=where)
        logger.warning("a grant names a Kafka partition that does not exist", extra=extra)
        self.rejected_total += 1

    def _poll_s(self) -> float:
        deadline_ms = self.machine.deadline_ms()
        wait_ms = POLL_MS_MAX if self._barriers.unacknowledged == 0 else TICK_MS
        if deadline_ms is not None:
            wait_ms = max(0, min(wait_ms, deadline_ms - now_ms()))
        return wait_ms / 1_000

    def _drain(self) -> None:
        self._step(Draining())
        deadline_ms = monotonic_ms() + APPEND_WAIT_MS
        # Archive writes and transactions hand their declarations and further work to the inbox.
        while monotonic_ms() < deadline_ms:
            self.beat_ms = monotonic_ms()
            self._producer.poll(0)
            if self._append_error is not None:
                raise self._append_error
            while not self._inbox.empty():
                self._carry_out(self._inbox.get()())
            self._barriers.run_due()
            if not self._slow and not self._barriers.unacknowledged:
                break
            time.sleep(DRAIN_LOOK_S)
        for pool in self._pools:
            pool.shutdown(wait=True)
        self._producer.flush(APPEND_WAIT_MS / 1_000)

    def _close(self) -> None:
        for pool in self._pools:
            pool.shutdown(wait=False, cancel_futures=True)
        self._consumer.close()
        self._producer.close()
        self._transactions.close()
        gone = errors.Unavailable("this process has ended; ask another")
        waiters: list[Future[Any]] = [*self._answers.values(), *self._settling]
        for waiter in waiters:
            if waiter.running() or (not waiter.done() and waiter.set_running_or_notify_cancel()):
                waiter.set_exception(gone)

    # --- effects

    def _step(self, event: Event) -> None:
        self._carry_out(self.machine.step(event, now_ms()))

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Append(topic, partition, message):
                    self._append(topic, partition, message)
                case Follow(topic, partition, offset):
                    self._consumer.add({(topic, partition): offset})
                case Unfollow(topic, partition):
                    if (topic, partition) in self._consumer.positions():
                        self._consumer.remove([(topic, partition)])
                case Load():
                    self._later(partial(self._checkpoints.load, effect))
                case SaveCheckpoint() | Declare() | Answer() | Truncate():
                    self._barriers.after_all(self._behind_all(effect))
                case Compute():
                    self._later(partial(self._compute, effect), self._background)
                case Discard(name):
                    self._pool.submit(self._checkpoints.discard, name)
                case Sweep():
                    self._pool.submit(self._checkpoints.sweep, effect)
                case Transact(partition):
                    # The producer of now: a later Fence brings another, which must not write this.
                    producer = self._transactions.producer(partition)
                    # Never again as a whole: it may have been committed when something fails.
                    self._later(partial(self._transactions.transact, effect, producer), again=False)
                case Fence(partition):
                    # In the loop, and before the Load behind it in the list goes to the pool.
                    self._transactions.fence(partition)
                case Publish():
                    if self._publish is not None:
                        self._publish(effect)

    def _behind_all(
        self, effect: SaveCheckpoint | Declare | Answer | Truncate
    ) -> Callable[[], None]:
        """What is done when the log has all that was appended before."""
        match effect:
            case SaveCheckpoint():
                return partial(self._save, effect)
            case Declare(declaration):
                return partial(self._append, CONTROL, 0, declaration)
            case Answer(token, outcomes):
                return partial(self._answer, token, outcomes)
            case Truncate(topic, partition, before):
                return partial(self._truncates.__setitem__, (topic, partition), before)

    def _answer(self, token: int, outcomes: tuple[Outcome, ...]) -> None:
        self._answers.pop(token).set_result(outcomes)

    def _append(self, topic: str, partition: int, message: Message) -> None:
        number = self._barriers.begin()
        deadline_ms = monotonic_ms() + APPEND_WAIT_MS
        while True:
            try:
                self._writer.append(topic, partition, message, number)
                return
            except ResourceExhausted:
                if monotonic_ms() > deadline_ms:
                    raise
                self.beat_ms = monotonic_ms()
                self._producer.poll(0.05)

    def _appended(self, number: int, error: Exception | None, _offset: int) -> None:
        if error is not None:
            self._append_error = error
        else:
            self._barriers.end(number)

    def _rejected(self, letter: DeadLetter) -> None:
        extra = event(
            "record_rejected",
            topic=letter.topic,
            partition=letter.partition,
            offset=letter.offset,
            reason=letter.reason,
        )
        logger.warning("record rejected", extra=extra)
        self.rejected_total += 1
        self._writer.dead_letter(letter, self._barriers.begin())

    def _truncate(self) -> None:
        if not self._truncates or monotonic_ms() - self._truncated_ms < TRUNCATE_INTERVAL_MS:
            return
        self._truncated_ms = monotonic_ms()
        due, self._truncates = self._truncates, {}

        def truncate() -> None:
            for (topic, partition), before in due.items():
                self._log.truncate(topic, partition, before)

        # Housekeeping: what fails now is wished again by the next checkpoint.
        self._pool.submit(truncate)

    # --- slow effects, in the pool

    def _later(
        self,
        action: Callable[[], Event | None],
        pool: ThreadPoolExecutor | None = None,
        *,
        again: bool = True,
    ) -> None:
        def ended() -> list[Effect]:
            self._slow -= 1
            return []

        def run() -> None:
            try:
                attempt()
            finally:
                self._inbox.put(ended)

        def attempt() -> None:
            try:
                result = retried(action) if again else action()
            except Exception as error:
                self._inbox.put(partial(_raise, error))
                return
            if result is not None:
                self.tell(result)

        self._slow += 1
        (pool or self._pool).submit(run)

    @staticmethod
    def _compute(effect: Compute) -> Computed:
        return Computed(effect.key, effect.job())

    def _save(self, effect: SaveCheckpoint) -> None:
        # One try: another comes later by itself, and others' saves wait behind this one.
        self._saves.begun(effect)

        def save() -> None:
            self._inbox.put(partial(self._saved, effect, self._checkpoints.tried(effect)))

        self._later(save, self._background, again=False)

    def _saved(self, effect: SaveCheckpoint, taken: CheckpointTaken | None) -> list[Effect]:
        self._saves.ended(effect, taken is not None, monotonic_ms())
        return [] if taken is None else [Append(CONTROL, 0, taken)]


def _raise(error: Exception) -> list[Effect]:
    raise error
