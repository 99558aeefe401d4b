"""The loop that carries out effects: their order, and what happens when the log refuses."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sirocco.codec.checkpoint import state_pieces
from sirocco.codec.hops import HOPS, read_record
from sirocco.codec.slices import write_slice
from sirocco.index.sealing import seal
from sirocco.model.errors import DeadlineExceeded, Unavailable
from sirocco.protocol.declarations import CheckpointTaken, Granted, LeaderElected, MapActivated
from sirocco.protocol.effects import (
    Answer,
    Append,
    Committed,
    ControlRead,
    Discard,
    Draining,
    Effect,
    EndsFound,
    Event,
    Fence,
    Fenced,
    FindEnds,
    Follow,
    Load,
    Loaded,
    Outcome,
    Polled,
    SaveCheckpoint,
    SetAside,
    Sweep,
    Tick,
    Transact,
    Unfollow,
    Wish,
    Wished,
)
from sirocco.protocol.messages import (
    CONTROL,
    DEAD_LETTERS,
    DELIVERIES,
    INTAKE,
    PARTIALS,
    SLOTS,
    Progress,
    Routed,
)
from sirocco.protocol.owned import checkpoint_name, checkpoint_prefix
from sirocco.runtime import checkpoints
from sirocco.runtime import worker as worker_module
from sirocco.runtime.appends import APPEND_WAIT_MS
from sirocco.runtime.checkpoints import Loads
from sirocco.runtime.clock import now_ms
from sirocco.runtime.hops import HopReader, HopWriter
from sirocco.runtime.retries import RETRIES_MAX
from sirocco.runtime.settings import ClusterSettings
from sirocco.runtime.worker import Worker
from sirocco.transport.archive import MemoryArchive
from sirocco.transport.calls import METHOD_HEADER
from sirocco.transport.errors import (
    AppendFailed,
    BlobExists,
    OffsetOutOfRange,
    ResourceExhausted,
    TransactionAborted,
)
from sirocco.transport.errors import Unavailable as LogUnavailable
from sirocco.transport.log import APPEND_WAIT_S, Log, OnAck
from sirocco.transport.memory_log import MemoryLog, MemoryProducer
from tests.unit.codec.test_slice_files import made
from tests.unit.protocol.values import installed_of, map_activated, routed_of, taken_of

WAIT_S = 20.0
ELECTED = LeaderElected("c")
HEARD = ControlRead(0, ELECTED)
TO_ANOTHER = Granted(0, INTAKE, 0, "another")


class Script:
    """A machine that answers events by what it is told to, and remembers them."""

    def __init__(self, *answers: Callable[[Event], list[Effect]]) -> None:
        self.answers = list(answers)
        self.events: list[Event] = []
        self._seen = threading.Condition()

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        if isinstance(event, Tick):
            return []
        effects = [effect for answer in self.answers for effect in answer(event)]
        with self._seen:
            self.events.append(event)
            self._seen.notify_all()
        return effects

    def deadline_ms(self) -> int | None:
        return None

    def wait(self, kind: type[Event], count: int = 1) -> list[Any]:
        """The events of a kind, once there are so many."""

        def found() -> list[Event]:
            return [event for event in self.events if isinstance(event, kind)]

        with self._seen:
            assert self._seen.wait_for(lambda: len(found()) >= count, WAIT_S), self.events
            return found()


def on(kind: type[Event], *effects: Effect) -> Callable[[Event], list[Effect]]:
    return lambda event: list(effects) if isinstance(event, kind) else []


@pytest.fixture
def log() -> Iterator[MemoryLog]:
    made = MemoryLog()
    made.create_topics(ClusterSettings(slots=2).topics())
    yield made
    made.close()


@contextmanager
def running(
    log: Log, script: Script, archive: MemoryArchive | None = None, member: str = "m"
) -> Iterator[Worker]:
    worker = Worker(member, script, log, archive or MemoryArchive())
    worker.start()
    try:
        yield worker
    finally:
        assert worker.stop(WAIT_S)


def append(log: Log, topic: str, message: Any, partition: int = 0) -> None:
    HopWriter(log.producer("test"), lambda *_: None).append(topic, partition, message, 0)


def messages(log: Log, topic: str, partition: int = 0) -> list[Any]:
    consumer = log.consumer("look")
    consumer.assign({(topic, partition): log.bounds(topic, partition)[0]})
    records = consumer.poll(1_000, 0)
    consumer.close()
    return [entry.message for entry in HopReader(lambda *_: None).entries(records)]


def eventually(condition: Callable[[], Any]) -> Any:
    """What the condition gives once it holds."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.005)
    raise AssertionError("never came to hold")


class Acknowledging:
    """Lets a test hold back what the log has acknowledged to a worker's own producer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str = "m") -> None:
        self.held: list[tuple[OnAck, int]] = []
        self.error: Exception | None = None
        original = MemoryProducer.append

        def append(producer: MemoryProducer, *args: Any, on_ack: Any = None, **more: Any) -> None:
            if producer.name != name or on_ack is None:
                original(producer, *args, on_ack=on_ack, **more)
            elif self.error is not None:
                error = self.error
                producer._acks.append((on_ack, error, -1))
            else:
                original(
                    producer,
                    *args,
                    on_ack=lambda _error, offset: self.held.append((on_ack, offset)),
                    **more,
                )

        monkeypatch.setattr(MemoryProducer, "append", append)

    def release(self) -> None:
        while self.held:
            on_ack, offset = self.held.pop(0)
            on_ack(None, offset)


def test_control_is_read_first_and_what_is_followed_is_polled(log: MemoryLog) -> None:
    append(log, CONTROL, ELECTED)
    append(log, INTAKE, taken_of(1, 1, []))
    append(log, INTAKE, taken_of(2, 1, []))
    script = Script(on(ControlRead, Follow(INTAKE, 0, 1)))
    with running(log, script) as worker:
        (polled,) = script.wait(Polled)
        assert worker.caught_up.wait(WAIT_S)
    assert script.events[0] == ControlRead(0, ELECTED)
    assert [(e.offset, e.message.session) for e in polled.entries] == [(1, 2)]
    assert isinstance(script.events[-1], Draining)


def test_a_loop_that_is_told_to_end_does_not_wait_for_a_log_that_is_away(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = threading.Event()

    def bounds(log: MemoryLog, topic: str, partition: int) -> tuple[int, int]:
        asked.set()
        raise LogUnavailable("away")

    monkeypatch.setattr(MemoryLog, "bounds", bounds)
    worker = Worker("m", Script(), log, MemoryArchive())
    worker.start()
    assert asked.wait(WAIT_S)
    assert worker.stop(3)


class Timed(Script):
    """Remembers what time it was at its last step."""

    now_ms = 0

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        assert now_ms >= self.now_ms
        self.now_ms = now_ms
        return super().step(event, now_ms)


def test_a_clock_that_is_set_back_holds_nothing_up(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall_ns, set_back_ns = time.time_ns, [0]
    monkeypatch.setattr(time, "time_ns", lambda: wall_ns() - set_back_ns[0])
    machine = Timed()
    with running(log, machine) as worker:
        eventually(lambda: machine.now_ms)
        set_back_ns[0] = 3_600_000_000_000
        before_ms = machine.now_ms
        eventually(lambda: machine.now_ms > before_ms + 30 or worker.failure)
        assert worker.failure is None
        # When the clock on the wall is there again it counts.
        set_back_ns[0] = 0
        eventually(lambda: abs(machine.now_ms - now_ms()) < 20)


def test_a_log_whose_topics_have_no_leader_yet_is_asked_again(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(log, CONTROL, ELECTED)
    script = Script()
    leaving = Leaving(monkeypatch)
    leaving.is_away = True
    with running(log, script) as worker:
        script.wait(ControlRead)
        assert worker.failure is None
    assert not leaving.is_away


def test_what_is_let_go_is_polled_no_more(log: MemoryLog) -> None:
    script = Script(
        on(ControlRead, Follow(INTAKE, 0, 0), Follow(INTAKE, 1, 0)),
        on(Wished, Unfollow(INTAKE, 0), Unfollow(SLOTS, 1)),
    )
    append(log, CONTROL, ELECTED)
    with running(log, script) as worker:
        worker.caught_up.wait(WAIT_S)
        worker.tell(Wished(1, 0, ()))
        script.wait(Wished)
        append(log, INTAKE, taken_of(1, 1, []), 0)
        append(log, INTAKE, taken_of(2, 1, []), 1)
        (polled,) = script.wait(Polled)
    assert [entry.partition for entry in polled.entries] == [1]


def test_who_stood_still_until_its_successor_truncated_learns_that_it_lost_that(
    log: MemoryLog,
) -> None:
    # init: the log begins behind the place that is followed
    append(log, CONTROL, ELECTED)
    for session in (1, 2, 3):
        append(log, INTAKE, taken_of(session, 1, []))
    log.truncate(INTAKE, 0, 2)
    script = Script(
        lambda e: [Follow(INTAKE, 0, 0), Follow(INTAKE, 1, 0)] if e == HEARD else [],
        lambda e: [Unfollow(INTAKE, 0)] if e == ControlRead(1, TO_ANOTHER) else [],
    )
    with running(log, script) as worker:
        eventually(lambda: worker._gone or worker.failure)

        # test: what it has to read of `control` comes only now
        append(log, CONTROL, TO_ANOTHER)
        script.wait(ControlRead, 2)
        append(log, INTAKE, taken_of(4, 1, []), 1)

        # check: it goes on with the others
        (polled,) = script.wait(Polled)
        assert [entry.partition for entry in polled.entries] == [1]
        assert worker.failure is None
        eventually(lambda: not worker._gone)


def test_an_owner_whose_place_the_log_lacks_ends(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "GONE_MS", 50)
    append(log, CONTROL, ELECTED)
    append(log, INTAKE, taken_of(1, 1, []))
    log.truncate(INTAKE, 0, 1)
    with running(log, Script(on(ControlRead, Follow(INTAKE, 0, 0)))) as worker:
        eventually(lambda: worker.failure)
        assert isinstance(worker.failure, OffsetOutOfRange)


def test_barriers_wait_for_every_append_before_them(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    # init: an answer and a checkpoint behind two appends that the log has not acknowledged.
    acks, archive = Acknowledging(monkeypatch), MemoryArchive()
    said = Append(INTAKE, 0, taken_of(1, 1, []))
    state = {"a": np.arange(3)}

    def answer(event: Event) -> list[Effect]:
        if not isinstance(event, Wished):
            return []
        outcome = Answer(event.token, (Outcome(7),))
        return [said, said, outcome, SaveCheckpoint(INTAKE, 1, 5, 9, state)]

    with running(log, Script(answer), archive) as worker:
        # test
        future = worker.wish(0, [Wish("unregister", "q", None, "", 0)])
        settled = worker.settled()
        eventually(lambda: len(acks.held) == 2)
        time.sleep(0.03)
        assert not future.done()
        assert not settled.done()
        assert archive.list("") == []
        acks.release()

        # check
        assert future.result(WAIT_S) == (Outcome(7),)
        settled.result(WAIT_S)
        (name,) = eventually(lambda: archive.list(""))
        eventually(lambda: len(acks.held) == 1)
        assert messages(log, CONTROL) == [CheckpointTaken(INTAKE, 1, 5, 9, name)]
        acks.release()


def test_who_hangs_up_does_not_disturb_the_loop(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    acks = Acknowledging(monkeypatch)

    def answer(event: Event) -> list[Effect]:
        if not isinstance(event, Wished):
            return []
        return [Append(INTAKE, 0, taken_of(1, 1, [])), Answer(event.token, (Outcome(7),))]

    async def hang_up(waited_for: Future[Any]) -> None:
        waiting = asyncio.wrap_future(waited_for)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting

    with running(log, Script(answer)) as worker:
        answered = worker.wish(0, [Wish("unregister", "q", None, "", 0)])
        settled = worker.settled()
        eventually(lambda: acks.held)
        for future in (answered, settled):
            asyncio.run(hang_up(future))
        acks.release()
        assert answered.result(WAIT_S) == (Outcome(7),)
        settled.result(WAIT_S)
        # The next one is served.
        again = worker.wish(0, [Wish("unregister", "q", None, "", 0)])
        eventually(lambda: acks.held)
        acks.release()
        assert again.result(WAIT_S) == (Outcome(7),)
        assert worker.failure is None


class Held:
    """Keeps a worker's loop from its inbox until it is let go."""

    def __init__(self, worker: Worker) -> None:
        self._go = threading.Event()
        reached = threading.Event()

        def hold() -> list[Effect]:
            reached.set()
            assert self._go.wait(WAIT_S)
            return []

        worker._asking.put(hold)
        assert reached.wait(WAIT_S)

    def let_go(self) -> None:
        self._go.set()


def test_a_wish_is_not_carried_out_when_nobody_waits_for_it_any_more(log: MemoryLog) -> None:
    # A client that gave up may have wished the contrary since, at another router.
    def answer(event: Event) -> list[Effect]:
        return [Answer(event.token, (Outcome(7),))] if isinstance(event, Wished) else []

    script = Script(answer)
    gone = Wish("unregister", "gone", None, "", 0)
    late = Wish("unregister", "late", None, "", 0)
    kept = Wish("unregister", "kept", None, "", 0)
    with running(log, script) as worker:
        held = Held(worker)
        given_up = worker.wish(0, [gone])
        too_late = worker.wish(0, [late], deadline_ms=now_ms() - 1)
        in_time = worker.wish(0, [kept], deadline_ms=now_ms() + 60_000)
        assert given_up.cancel()
        held.let_go()
        with pytest.raises(DeadlineExceeded):
            too_late.result(WAIT_S)
        assert in_time.result(WAIT_S) == (Outcome(7),)
        assert not in_time.cancel()
        (taken_up,) = script.wait(Wished)
        assert taken_up.wishes == (kept,)
        assert worker.failure is None


def test_a_failed_append_ends_the_loop_and_barriers_never_speak(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    acks = Acknowledging(monkeypatch)
    acks.error = AppendFailed("refused")

    def answer(event: Event) -> list[Effect]:
        if not isinstance(event, Wished):
            return []
        return [Append(INTAKE, 0, taken_of(1, 1, [])), Answer(event.token, (Outcome(7),))]

    with running(log, Script(answer)) as worker:
        future = worker.wish(0, [Wish("unregister", "q", None, "", 0)])
        with pytest.raises(Unavailable):
            future.result(WAIT_S)
        eventually(lambda: not worker.is_alive)
        assert worker.failure is acks.error
        # Whoever comes later is told too.
        with pytest.raises(Unavailable):
            worker.wish(0, []).result(WAIT_S)


def test_who_asked_a_loop_that_ends_before_it_comes_to_that_is_told(log: MemoryLog) -> None:
    with running(log, Script()) as worker:
        held = Held(worker)
        worker.fail(RuntimeError("a defect"))
        found, settled = worker.look(lambda: 1), worker.settled()
        held.let_go()
        for future in (found, settled):
            with pytest.raises(Unavailable):
                future.result(2)
        eventually(lambda: not worker.is_alive)
        with pytest.raises(Unavailable):
            worker.settled().result(2)


def test_an_unexpected_error_of_the_machine_ends_the_loop(log: MemoryLog) -> None:
    def fail(event: Event) -> list[Effect]:
        raise RuntimeError("a defect")

    append(log, CONTROL, ELECTED)
    with running(log, Script(fail)) as worker:
        eventually(lambda: worker.failure)
        assert str(worker.failure) == "a defect"


@pytest.mark.parametrize("topic", [INTAKE, SLOTS, PARTIALS, CONTROL])
def test_garbage_is_dead_lettered_and_the_rest_goes_on(topic: str, log: MemoryLog) -> None:
    # init: bytes; an unknown method; a damaged request; a call of another topic; a good one.
    producer = log.producer("vandal")
    append(log, CONTROL, ELECTED)
    method = {
        INTAKE: "IntakeService/Take",
        SLOTS: "SlotService/Route",
        PARTIALS: "PartialService/Merge",
        CONTROL: "ControlService/Declare",
    }[topic]
    header = "x-sirocco-method"
    append(log, INTAKE, taken_of(5, 1, []), 1)
    consumer = log.consumer("header")
    consumer.assign({(INTAKE, 1): 0})
    ((header, _),) = [h for h in consumer.poll(1, 0)[0].headers if b"IntakeService" in h[1]]
    path = f"/sirocco.v1.{method}".encode()
    producer.append(topic, 0, b"\xff\x00 no call")
    producer.append(topic, 0, b"", headers=((header, b"/sirocco.v1.Nothing/Nothing"),))
    producer.append(topic, 0, b"\xff\xff\xff", headers=((header, path),))
    wrong = Progress(1, np.zeros(0, np.uint32), np.zeros(0, np.int64), np.zeros(0, np.int64))
    append(log, topic, wrong)
    good = {INTAKE: taken_of(1, 1, []), CONTROL: ELECTED}.get(topic)
    if good is not None:
        append(log, topic, good)

    # test
    follow = [] if topic == CONTROL else [Follow(topic, 0, 0)]
    script = Script(lambda e: follow if e == ControlRead(0, ELECTED) else [])
    with running(log, script) as worker:
        eventually(lambda: worker.rejected_total == 4)
        if topic == INTAKE:
            (polled,) = script.wait(Polled)
            assert [entry.message.session for entry in polled.entries] == [1]
        if topic == CONTROL:
            script.wait(ControlRead, 2)
        assert worker.failure is None

    # check
    consumer.assign({(DEAD_LETTERS, 0): 0})
    letters = [dict(record.headers) for record in consumer.poll(100, 0)]
    assert len(letters) == 4
    assert {letter["topic"] for letter in letters} == {topic.encode()}
    assert len({letter["offset"] for letter in letters}) == 4
    assert all(letter["reason"] for letter in letters)


def test_garbage_of_any_size_is_dead_lettered(log: MemoryLog) -> None:
    # Its reason quotes the method, in which each byte takes four.
    append(log, CONTROL, ELECTED)
    log.producer("vandal").append(INTAKE, 0, b"", headers=((METHOD_HEADER, b"\xff" * (2 << 20)),))
    with running(log, Script(on(ControlRead, Follow(INTAKE, 0, 0)))) as worker:
        eventually(lambda: worker.rejected_total or worker.failure)
        assert worker.failure is None
    consumer = log.consumer("letters")
    consumer.assign({(DEAD_LETTERS, 0): 0})
    (letter,) = [dict(record.headers) for record in consumer.poll(100, 0)]
    assert letter["reason"].startswith(b"unknown method")


def test_a_dead_letter_waits_for_room_in_the_queue_as_any_append(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, refusals = MemoryProducer.append, [ResourceExhausted("full")] * 3

    def refuse(producer: MemoryProducer, topic: str, *args: Any, **more: Any) -> None:
        if topic == DEAD_LETTERS and refusals:
            raise refusals.pop()
        original(producer, topic, *args, **more)

    monkeypatch.setattr(MemoryProducer, "append", refuse)
    append(log, CONTROL, ELECTED)
    log.producer("vandal").append(INTAKE, 0, b"no call")
    with running(log, Script(on(ControlRead, Follow(INTAKE, 0, 0)))) as worker:
        eventually(lambda: log.bounds(DEAD_LETTERS, 0)[1] or worker.failure)
        assert worker.failure is None
        assert worker.rejected_total == 1


def test_what_a_machine_sets_aside_is_dead_lettered_as_it_was_read(log: MemoryLog) -> None:
    append(log, CONTROL, ELECTED)
    routed = routed_of(0, 5, [{"id": 9, "lon": 1.0, "lat": 1.0, "text": "coffee"}], [1_000])
    aside = SetAside(SLOTS, 3, 70, routed, "two ended amid it")
    with running(log, Script(lambda e: [aside] if e == ControlRead(0, ELECTED) else [])) as worker:
        eventually(lambda: worker.rejected_total == 1)
    consumer = log.consumer("letters")
    consumer.assign({(DEAD_LETTERS, 0): 0})
    (letter,) = consumer.poll(100, 0)
    assert dict(letter.headers) == {
        "topic": SLOTS.encode(),
        "partition": b"3",
        "offset": b"70",
        "reason": b"two ended amid it",
    }
    read = read_record(HOPS[Routed].method_path, letter.value)
    assert isinstance(read, Routed)
    assert read.objects.ids.tolist() == [9]


def test_r4_a_map_that_cannot_be_read_is_dead_lettered_and_handed_on(log: MemoryLog) -> None:
    # The machine judges the same, see `ControlView`; a leader says again what is in force.
    garbage = MapActivated(0, 1, b"no map")
    for declaration in (ELECTED, garbage, map_activated(0)):
        append(log, CONTROL, declaration)
    script = Script()
    with running(log, script) as worker:
        read = [event.declaration for event in script.wait(ControlRead, 3)]
        assert worker.failure is None
    assert read == [ELECTED, garbage, map_activated(0)]
    consumer = log.consumer("letters")
    consumer.assign({(DEAD_LETTERS, 0): 0})
    (letter,) = [dict(record.headers) for record in consumer.poll(100, 0)]
    assert (letter["topic"], letter["offset"]) == (CONTROL.encode(), b"1")
    assert b"map" in letter["reason"]


def progress(offset: int) -> Progress:
    return Progress(offset, np.zeros(0, np.uint32), np.zeros(0, np.int64), np.zeros(0, np.int64))


def test_r5_a_transaction_is_there_as_a_whole_and_the_successor_finds_its_progress(
    log: MemoryLog,
) -> None:
    append(log, CONTROL, ELECTED)
    script = Script(
        on(ControlRead, Fence(0), Transact(0, 4, (progress(3), progress(8)))),
        on(Committed, Load(PARTIALS, 0, 2, "", 0)),
    )
    with running(log, script):
        (committed,) = script.wait(Committed)
        (loaded,) = script.wait(Loaded)
    assert (committed.partition, committed.number) == (0, 4)
    assert committed.end_offset == 2
    assert committed.bytes_total > 0
    assert (loaded.offset, loaded.epoch) == (8, 2)
    assert [message.input_offset for message in messages(log, DELIVERIES)] == [3, 8]


class Leaving:
    """A log that refuses the first question after a transaction was committed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_away = False
        commit, bounds = MemoryProducer.commit, MemoryLog.bounds

        def leave(producer: MemoryProducer) -> None:
            commit(producer)
            self.is_away = True

        def ask(log: MemoryLog, topic: str, partition: int) -> tuple[int, int]:
            if self.is_away:
                self.is_away = False
                raise LogUnavailable("away")
            return bounds(log, topic, partition)

        monkeypatch.setattr(MemoryProducer, "commit", leave)
        monkeypatch.setattr(MemoryLog, "bounds", ask)


def test_r5_a_committed_transaction_is_not_written_again_when_the_log_goes_away(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(log, CONTROL, ELECTED)
    script = Script(on(ControlRead, Fence(0), Transact(0, 1, (progress(5),))))
    leaving = Leaving(monkeypatch)
    with running(log, script) as worker:
        script.wait(Committed)
        assert worker.failure is None
    leaving.is_away = False
    assert [message.input_offset for message in messages(log, DELIVERIES)] == [5]


def test_r5_a_transaction_that_fails_while_it_is_written_is_written_again(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, failures = MemoryProducer.append, [TransactionAborted("refused")]

    def fail(producer: MemoryProducer, topic: str, *args: Any, **more: Any) -> None:
        if topic == DELIVERIES and failures:
            raise failures.pop()
        original(producer, topic, *args, **more)

    monkeypatch.setattr(MemoryProducer, "append", fail)
    append(log, CONTROL, ELECTED)
    script = Script(on(ControlRead, Fence(0), Transact(0, 1, (progress(3), progress(5)))))
    with running(log, script) as worker:
        eventually(lambda: worker.failure or any(isinstance(e, Committed) for e in script.events))
        assert worker.failure is None
    assert not failures
    assert [message.input_offset for message in messages(log, DELIVERIES)] == [3, 5]


def test_records_of_a_transaction_wait_for_room_as_long_as_others(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a merger gathered while its leader was away may be more than a producer's queue holds.
    original, waits_s = MemoryLog.producer, []

    def producer(log: MemoryLog, name: str, **options: Any) -> MemoryProducer:
        if options.get("transactional_id"):
            waits_s.append(options.get("append_wait_s", APPEND_WAIT_S) * 1_000)
        return original(log, name, **options)

    monkeypatch.setattr(MemoryLog, "producer", producer)
    append(log, CONTROL, ELECTED)
    script = Script(on(ControlRead, Fence(0), Transact(0, 1, (progress(3),))))
    with running(log, script):
        script.wait(Committed)
    assert waits_s == [APPEND_WAIT_MS]


def test_r5_what_a_zombie_writes_never_shows(log: MemoryLog) -> None:
    append(log, CONTROL, ELECTED)
    zombie = Script(
        on(ControlRead, Fence(0)),
        on(Wished, Transact(0, 1, (progress(99),))),
    )
    successor = Script(on(ControlRead, Fence(0), Transact(0, 1, (progress(5),))))
    with running(log, zombie, member="zombie") as late:
        late.caught_up.wait(WAIT_S)
        zombie.wait(ControlRead)
        with running(log, successor, member="successor"):
            successor.wait(Committed)
            late.tell(Wished(1, 0, ()))
            (fenced,) = zombie.wait(Fenced)
            assert (fenced.partition, fenced.number) == (0, 1)
            assert late.failure is None
    assert [message.input_offset for message in messages(log, DELIVERIES)] == [5]


def test_draining_ends_what_is_under_way_also_what_follows_from_it(log: MemoryLog) -> None:
    # A window is being committed when the process is told to end; the next one follows upon it.
    append(log, CONTROL, ELECTED)
    follow = {1: [Transact(0, 2, (progress(2),))], 2: []}
    script = Script(
        on(ControlRead, Fence(0)),
        on(Draining, Transact(0, 1, (progress(1),))),
        lambda e: follow[e.number] if isinstance(e, Committed) else [],  # type: ignore[return-value]
    )
    with running(log, script) as worker:
        worker.caught_up.wait(WAIT_S)
    assert worker.failure is None
    assert [message.input_offset for message in messages(log, DELIVERIES)] == [1, 2]


def test_draining_leaves_checkpoints_that_a_successor_loads(log: MemoryLog) -> None:
    archive, state = MemoryArchive(), {"rows": np.arange(5)}
    append(log, CONTROL, ELECTED)
    first = Script(on(Draining, SaveCheckpoint(SLOTS, 1, 3, 40, state)))
    with running(log, first, archive) as worker:
        worker.caught_up.wait(WAIT_S)
    (taken,) = [m for m in messages(log, CONTROL) if isinstance(m, CheckpointTaken)]
    assert (taken.topic, taken.partition, taken.epoch, taken.offset) == (SLOTS, 1, 3, 40)
    second = Script(
        lambda e: (
            [Load(SLOTS, 1, 9, taken.name, taken.offset)] if e == ControlRead(0, ELECTED) else []
        ),
        on(Loaded, Discard(taken.name)),
    )
    with running(log, second, archive):
        (loaded,) = second.wait(Loaded)
        eventually(lambda: not archive.list(""))
    assert (loaded.offset, loaded.epoch) == (40, 9)
    assert loaded.state["rows"].tolist() == [0, 1, 2, 3, 4]


class FullArchive(MemoryArchive):
    """One that has no room until it is told so."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = True
        self.tries = 0

    def write(self, name: str, *contents: bytes | memoryview) -> None:
        self.tries += 1
        if self.is_full:
            raise LogUnavailable("no space left on device")
        super().write(name, *contents)


def test_an_archive_without_room_ends_nothing_and_is_tried_again(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    # init: three states, two of the same Kafka partition
    monkeypatch.setattr(checkpoints, "SAVE_AGAIN_MS", 20)
    archive, state = FullArchive(), {"rows": np.arange(5)}
    append(log, CONTROL, ELECTED)
    saves = [SaveCheckpoint(SLOTS, *at, state) for at in ((1, 3, 40), (1, 3, 50), (0, 3, 7))]

    # test
    script = Script(lambda e: list(saves) if e == ControlRead(0, ELECTED) else [])
    with running(log, script, archive) as worker:
        eventually(lambda: archive.tries > 8 and worker.unsaved == 2)
        assert worker.failure is None
        archive.is_full = False
        eventually(lambda: not worker.unsaved and len(messages(log, CONTROL)) == 3)

    # check: of each Kafka partition the newest, once
    taken = [m for m in messages(log, CONTROL) if isinstance(m, CheckpointTaken)]
    assert sorted((each.partition, each.offset) for each in taken) == [(0, 7), (1, 50)]
    assert worker.failure is None


@pytest.mark.parametrize(("held", "is_taken"), [(300, True), (299, False)])
def test_a_slice_that_an_owner_of_another_version_left_is_as_good(
    log: MemoryLog, held: int, is_taken: bool
) -> None:
    # init: that owner wrote the slice and ended before it could save the state
    rows, archive = made(), MemoryArchive()
    sink = pa.BufferOutputStream()
    left = write_slice(seal(rows.take(np.arange(held))))
    pq.write_table(pq.read_table(pa.BufferReader(left)), sink, compression="gzip")
    archive.write("slices/a", sink.getvalue().to_pybytes())
    save = SaveCheckpoint(SLOTS, 1, 3, 40, {"rows": np.arange(5)}, (("slices/a", seal(rows)),))

    # test
    append(log, CONTROL, ELECTED)
    script = Script(lambda e: [save] if e == ControlRead(0, ELECTED) else [])
    with running(log, script, archive) as worker:
        eventually(lambda: len(messages(log, CONTROL)) == 2 or worker.failure)

    # check: objects that are others are not taken for these
    assert isinstance(worker.failure, BlobExists) is not is_taken
    taken = [m for m in messages(log, CONTROL) if isinstance(m, CheckpointTaken)]
    assert [each.offset for each in taken] == ([40] if is_taken else [])


def test_a_save_of_what_another_owns_by_now_is_not_tried_again(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It would hold the objects of its slot in memory for as long as the archive has no room.
    monkeypatch.setattr(checkpoints, "SAVE_AGAIN_MS", 20)
    archive = FullArchive()
    append(log, CONTROL, ELECTED)
    saves = [SaveCheckpoint(SLOTS, each, 3, 40, {"rows": np.arange(5)}) for each in (0, 1)]
    script = Script(lambda e: list(saves) if e == ControlRead(0, ELECTED) else [])
    with running(log, script, archive) as worker:
        eventually(lambda: worker.unsaved == 2)
        append(log, CONTROL, Granted(0, SLOTS, 0, "m"))
        append(log, CONTROL, ELECTED)
        # Void: another leads by now.
        append(log, CONTROL, Granted(0, SLOTS, 0, "another"))
        append(log, CONTROL, Granted(2, SLOTS, 1, "another"))
        script.wait(ControlRead, 5)
        eventually(lambda: worker.unsaved == 1)
        # One that was under way is behind these.
        tries = archive.tries
        eventually(lambda: archive.tries > tries + 3)
        archive.is_full = False
        eventually(lambda: not worker.unsaved)
    taken = [m for m in messages(log, CONTROL) if isinstance(m, CheckpointTaken)]
    assert [each.partition for each in taken] == [0]


def test_a_load_of_what_is_gone_ends_the_loop(log: MemoryLog) -> None:
    append(log, CONTROL, ELECTED)
    with running(log, Script(on(ControlRead, Load(SLOTS, 0, 1, "missing", 3)))) as worker:
        eventually(lambda: worker.failure)


def test_a_load_in_vain_does_not_keep_a_process_that_has_to_end(log: MemoryLog) -> None:
    append(log, CONTROL, ELECTED)
    script = Script(on(ControlRead, Load(SLOTS, 0, 1, "a", 3)))
    with running(log, script, AwayArchive(), member="loading") as worker:
        script.wait(ControlRead)
        worker.fail(AppendFailed("cut off"))
        eventually(lambda: not worker.is_alive)
        began = time.monotonic()
        eventually(
            lambda: not any(each.name.startswith("loading-") for each in threading.enumerate())
        )
        assert time.monotonic() - began < 3


class AwayArchive(MemoryArchive):
    """One that cannot be read until it is told so."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = True
        self.tries: Counter[str] = Counter()

    def read(self, name: str) -> bytes:
        self.tries[name] += 1
        if self.is_away:
            raise LogUnavailable("away")
        return super().read(name)


class SilentArchive(MemoryArchive):
    """One whose answers to reads do not come until it is told so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()
        self.answers = threading.Event()

    def read(self, name: str) -> bytes:
        self.asked.set()
        assert self.answers.wait(WAIT_S)
        raise LogUnavailable("no answer in time")


def saved(archive: MemoryArchive, name: str) -> None:
    archive.write(name, *state_pieces({"rows": np.arange(5)}))


def loads(count: int) -> Callable[[Event], list[Effect]]:
    """At the first election those of so many intake partitions."""
    wanted: list[Effect] = [Load(INTAKE, each, 7, f"state-{each}", 3) for each in range(count)]
    return lambda event: wanted if event == HEARD else []


def test_an_archive_that_is_away_ends_nothing_and_what_was_granted_is_loaded_afterwards(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # init: more loads than there are threads
    monkeypatch.setattr(checkpoints, "LOAD_AGAIN_MS_MAX", 20)
    archive = AwayArchive()
    for partition in range(6):
        saved(archive, f"state-{partition}")
    append(log, CONTROL, ELECTED)
    script = Script(loads(6), on(Wished, Fence(0), Transact(0, 1, (progress(5),))))
    with running(log, script, archive) as worker:
        # test: all have been tried more often than anything that is tried a number of times
        eventually(
            lambda: (
                worker.failure
                or all(archive.tries[f"state-{each}"] > 2 * RETRIES_MAX for each in range(6))
            )
        )
        assert worker.failure is None

        # check: others' work is done meanwhile, and this one's afterwards, once
        worker.tell(Wished(1, 0, ()))
        script.wait(Committed)
        archive.is_away = False
        loaded = script.wait(Loaded, 6)
        assert sorted((each.partition, each.offset, each.epoch) for each in loaded) == [
            (each, 3, 7) for each in range(6)
        ]
        tries = archive.tries.total()
        time.sleep(0.1)
        assert archive.tries.total() == tries
    assert worker.failure is None
    said = [record.__dict__ for record in caplog.records]
    fields = [each["fields"] for each in said if each.get("event") == "not_loaded"]
    assert {"topic": INTAKE, "partition": 5, "reason": "away"} in fields


def test_an_archive_that_does_not_answer_holds_up_loads_alone(log: MemoryLog) -> None:
    archive = SilentArchive()
    append(log, CONTROL, ELECTED)
    script = Script(loads(6), on(Wished, Fence(0), Transact(0, 1, (progress(5),))))
    with running(log, script, archive) as worker:
        assert archive.asked.wait(WAIT_S)
        worker.tell(Wished(1, 0, ()))
        script.wait(Committed)
        # Nor does a process that has to end wait for it.
        assert worker.stop(3)
        archive.answers.set()
    assert worker.failure is None


def test_a_load_of_what_was_lost_meanwhile_is_given_up(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "LOAD_AGAIN_MS_MAX", 20)
    archive = AwayArchive()
    append(log, CONTROL, ELECTED)
    again = Load(INTAKE, 0, 9, "newer", 4)
    script = Script(
        loads(2),
        lambda e: [Unfollow(INTAKE, 0)] if e == ControlRead(1, TO_ANOTHER) else [],
        lambda e: [again] if e == ControlRead(2, Granted(0, INTAKE, 0, "m")) else [],
    )
    with running(log, script, archive) as worker:
        # test: what it loads would be gone, which ends a process that has to have it
        eventually(lambda: archive.tries["state-0"] > 2)
        append(log, CONTROL, TO_ANOTHER)
        script.wait(ControlRead, 2)
        given_up = worker.look(lambda: archive.tries["state-0"]).result(WAIT_S)
        tries = archive.tries["state-1"]
        eventually(lambda: archive.tries["state-1"] > tries + 5)
        # One that was under way may count.
        assert archive.tries["state-0"] <= given_up + 1

        # check: granted again it is loaded anew
        saved(archive, "newer")
        saved(archive, "state-1")
        append(log, CONTROL, Granted(0, INTAKE, 0, "m"))
        eventually(lambda: archive.tries["newer"])
        archive.is_away = False
        loaded = script.wait(Loaded, 2)
        assert sorted((each.partition, each.epoch) for each in loaded) == [(0, 9), (1, 7)]
    assert worker.failure is None


def test_draining_gives_up_loads_and_leaves_checkpoints_all_the_same(log: MemoryLog) -> None:
    # init: one waits to be tried again, and one is under way that will find nothing
    class Half(SilentArchive):
        def read(self, name: str) -> bytes:
            if name == "state-0":
                raise LogUnavailable("away")
            self.asked.set()
            assert self.answers.wait(WAIT_S)
            return MemoryArchive.read(self, name)

    archive, state = Half(), {"rows": np.arange(5)}
    append(log, CONTROL, ELECTED)
    drained = on(Draining, SaveCheckpoint(SLOTS, 1, 3, 40, state), Load(INTAKE, 2, 7, "late", 3))
    script = Script(loads(2), drained)
    with running(log, script, archive) as worker:
        assert archive.asked.wait(WAIT_S)

        # test
        stopping = threading.Thread(target=worker.stop, args=(WAIT_S,))
        stopping.start()
        script.wait(Draining)
        archive.answers.set()
        stopping.join(3)
        assert not worker.is_alive

    # check
    assert worker.failure is None
    taken = [m for m in messages(log, CONTROL) if isinstance(m, CheckpointTaken)]
    assert [each.offset for each in taken] == [40]


def test_loads_are_tried_again_after_pauses_that_grow_up_to_a_bound() -> None:
    waiting, load, now = Loads(), Load(INTAKE, 0, 7, "a", 3), 0
    waiting.begun(load)
    pauses = []
    for _ in range(12):
        waiting.failed(load, now)
        began = now
        while not (due := waiting.due(now)):
            now += 10
        assert due == [load]
        assert not waiting.due(now + 60_000)
        pauses.append(now - began)
    assert pauses[0] <= 100
    assert all(2_500 <= pause <= 5_000 for pause in pauses[6:])
    # One that was begun anew is not the same, equal as it may be.
    newer = Load(INTAKE, 0, 7, "a", 3)
    waiting.begun(newer)
    assert waiting.is_wanted(newer)
    assert not waiting.is_wanted(load)
    waiting.failed(newer, now)
    waiting.ended(INTAKE, 0)
    assert not waiting.due(now + 60_000)


def test_a_log_that_is_away_is_asked_for_its_ends_until_it_is_back(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "LOAD_AGAIN_MS_MAX", 20)
    original, asked = MemoryLog.bounds, [0]

    def bounds(log: MemoryLog, topic: str, partition: int) -> tuple[int, int]:
        if topic == SLOTS:
            asked[0] += 1
            if asked[0] <= 2 * RETRIES_MAX:
                raise LogUnavailable("away")
        return original(log, topic, partition)

    monkeypatch.setattr(MemoryLog, "bounds", bounds)
    append(log, CONTROL, ELECTED)
    script = Script(on(ControlRead, FindEnds(SLOTS, 2)))
    with running(log, script) as worker:
        (found,) = script.wait(EndsFound)
        assert worker.failure is None
    assert found.ends.tolist() == [0, 0]


def test_how_far_logs_go_is_found(log: MemoryLog) -> None:
    for _ in range(3):
        append(log, SLOTS, installed_of(0, []), 1)
    append(log, CONTROL, ELECTED)
    script = Script(on(ControlRead, FindEnds(SLOTS, 2)))
    with running(log, script):
        (found,) = script.wait(EndsFound)
    assert found.ends.tolist() == [0, 3]


# --- what others have left, what makes no sense


def test_what_dead_owners_left_below_a_name_is_swept(log: MemoryLog) -> None:
    archive = MemoryArchive()
    names = [checkpoint_name(SLOTS, 1, offset, epoch) for offset, epoch in ((5, 2), (7, 1), (9, 3))]
    others = [checkpoint_name(SLOTS, 0, 1, 1), checkpoint_name(PARTIALS, 1, 1, 1)]
    for name in [*names, *others]:
        archive.write(name, b"state")
    append(log, CONTROL, ELECTED)
    script = Script(on(ControlRead, Sweep(checkpoint_prefix(SLOTS, 1), names[2])))
    with running(log, script, archive):
        eventually(lambda: archive.list(checkpoint_prefix(SLOTS, 1)) == names[2:])
    assert archive.list("checkpoints/") == sorted([*others, names[2]])


def test_grants_of_what_does_not_exist_are_void(log: MemoryLog) -> None:
    append(log, CONTROL, ELECTED)
    for topic, partition in ((SLOTS, 2), ("nowhere", 0), (SLOTS, 1)):
        append(log, CONTROL, Granted(0, topic, partition, "m"))
    script = Script()
    with running(log, script) as worker:
        read = script.wait(ControlRead, 2)
        worker.caught_up.wait(WAIT_S)
    assert [each.declaration for each in read] == [ELECTED, Granted(0, SLOTS, 1, "m")]
    assert worker.rejected_total == 2
    assert worker.failure is None
