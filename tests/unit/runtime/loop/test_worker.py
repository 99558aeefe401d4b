"""The loop that carries out effects: their order, and its reaction to a log that refuses."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from sirocco.model.errors import DeadlineExceeded, Unavailable
from sirocco.protocol.contract.control_records import CheckpointTaken
from sirocco.protocol.contract.effects import (
    Answer,
    Append,
    ChangeRequest,
    ChangeRequests,
    Committed,
    ControlRead,
    Discard,
    Draining,
    Effect,
    Event,
    Fence,
    Follow,
    Load,
    Loaded,
    Outcome,
    Polled,
    SaveCheckpoint,
    Sweep,
    Transact,
    Unfollow,
)
from sirocco.protocol.contract.messages import (
    CONTROL,
    DELIVERIES,
    INTAKE,
    PARTIALS,
    SLOTS,
)
from sirocco.protocol.contract.partition_ownership import checkpoint_name, checkpoint_prefix
from sirocco.runtime.loop import worker as worker_module
from sirocco.runtime.loop.limits import LoopLimits
from sirocco.runtime.loop.worker import Worker
from sirocco.runtime.process.clock import now_ms
from sirocco.transport.archive import MemoryArchive
from sirocco.transport.errors import (
    AppendFailed,
    OffsetOutOfRange,
    TransportUnavailable,
)
from sirocco.transport.memory_log import MemoryLog
from tests.support.scripted_machine import (
    CONTROL_READ,
    ELECTED,
    TO_ANOTHER,
    WAIT_S,
    Acknowledging,
    LeavingLog,
    Script,
    append,
    fill,
    messages,
    on,
    progress,
    running,
)
from tests.support.values import taken_of
from tests.support.waiting import eventually


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


def test_small_records_are_handled_by_the_thousand(log: MemoryLog) -> None:
    """The cost is that of turns, not of records."""
    append(log, CONTROL, ELECTED)
    for number in range(worker_module.TURN_RECORDS_MAX + 10):
        append(log, INTAKE, taken_of(1, number + 1, []))
    script = Script(on(ControlRead, Follow(INTAKE, 0, 0)))
    with running(log, script, limits=LoopLimits(turn_decoding_cpu_s=100.0)):
        first, second = script.wait(Polled, 2)
    assert len(first.entries) == worker_module.TURN_RECORDS_MAX
    assert [entry.offset for entry in (*first.entries, *second.entries)] == list(
        range(worker_module.TURN_RECORDS_MAX + 10)
    )


def test_a_turn_takes_more_after_a_cheap_one(log: MemoryLog) -> None:
    append(log, CONTROL, ELECTED)
    for number in range(3 * worker_module.TURN_RECORDS_MAX + 10):
        append(log, INTAKE, taken_of(1, number + 1, []))
    script = Script(on(ControlRead, Follow(INTAKE, 0, 0)))
    with running(
        log, script, limits=LoopLimits(turn_cpu_s_wanted=100.0, turn_decoding_cpu_s=100.0)
    ):
        polled = script.wait(Polled, 3)
    counts = [len(each.entries) for each in polled]
    assert counts == [worker_module.TURN_RECORDS_MAX, 2 * worker_module.TURN_RECORDS_MAX, 10]


def test_large_records_wait_for_the_next_turn(log: MemoryLog) -> None:
    append(log, CONTROL, ELECTED)
    for number in range(worker_module.POLL_RECORDS_MAX + 10):
        append(log, INTAKE, taken_of(1, number + 1, []))
    script = Script(on(ControlRead, Follow(INTAKE, 0, 0)))
    with running(log, script, limits=LoopLimits(turn_bytes_wanted=1)):
        first, second = script.wait(Polled, 2)
    assert [len(first.entries), len(second.entries)] == [worker_module.POLL_RECORDS_MAX, 10]


def test_records_that_take_long_to_decode_wait_for_the_next_turns(log: MemoryLog) -> None:
    """512 changes with the hardest expressions took 3.6 s of one turn."""
    append(log, CONTROL, ELECTED)
    for number in range(100):
        append(log, INTAKE, taken_of(1, number + 1, []))
    script = Script(on(ControlRead, Follow(INTAKE, 0, 0)))
    with running(log, script, limits=LoopLimits(turn_decoding_cpu_s=0.0)):
        assert eventually(lambda: sum(len(each.entries) for each in script.wait(Polled)) == 100)
    polled = script.wait(Polled)
    assert max(len(each.entries) for each in polled) < 10
    assert [entry.offset for each in polled for entry in each.entries] == list(range(100))


def test_what_is_left_of_a_partition_is_not_taken_after_it_is_followed_anew(log: MemoryLog) -> None:
    append(log, CONTROL, ELECTED)
    for number in range(100):
        append(log, INTAKE, taken_of(1, number + 1, []))
    taken: list[list[int]] = []

    def anew(event: Event) -> list[Effect]:
        if not isinstance(event, Polled):
            return []
        taken.append([entry.offset for entry in event.entries])
        return [Unfollow(INTAKE, 0), Follow(INTAKE, 0, 0)] if len(taken) == 1 else []

    script = Script(on(ControlRead, Follow(INTAKE, 0, 0)), anew)
    with running(log, script, limits=LoopLimits(turn_decoding_cpu_s=0.0)):
        assert eventually(lambda: taken and taken[-1][-1] == 99)
    assert len(taken[0]) < 10
    assert [offset for each in taken[1:] for offset in each] == list(range(100))


def test_an_ending_loop_does_not_wait_for_an_unreachable_log(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = threading.Event()

    def bounds(log: MemoryLog, topic: str, partition: int) -> tuple[int, int]:
        asked.set()
        raise TransportUnavailable("away")

    monkeypatch.setattr(MemoryLog, "bounds", bounds)
    worker = Worker("m", Script(), log, MemoryArchive())
    worker.start()
    assert asked.wait(WAIT_S)
    assert worker.stop(3)


class Timed(Script):
    """Keeps the time of its last step."""

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
        # Once the wall clock has caught up, it counts again.
        set_back_ns[0] = 0
        eventually(lambda: abs(machine.now_ms - now_ms()) < 20)


def test_a_log_whose_topics_have_no_leader_yet_is_tried_again(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(log, CONTROL, ELECTED)
    script = Script()
    leaving = LeavingLog(monkeypatch)
    leaving.is_away = True
    with running(log, script) as worker:
        script.wait(ControlRead)
        assert worker.failure is None
    assert not leaving.is_away


def test_what_is_let_go_is_polled_no_more(log: MemoryLog) -> None:
    script = Script(
        on(ControlRead, Follow(INTAKE, 0, 0), Follow(INTAKE, 1, 0)),
        on(ChangeRequests, Unfollow(INTAKE, 0), Unfollow(SLOTS, 1)),
    )
    append(log, CONTROL, ELECTED)
    with running(log, script) as worker:
        worker.caught_up.wait(WAIT_S)
        worker.post(ChangeRequests(1, 0, ()))
        script.wait(ChangeRequests)
        append(log, INTAKE, taken_of(1, 1, []), 0)
        append(log, INTAKE, taken_of(2, 1, []), 1)
        (polled,) = script.wait(Polled)
    assert [entry.partition for entry in polled.entries] == [1]


def test_a_process_that_stood_still_while_its_successor_truncated_learns_of_its_loss(
    log: MemoryLog,
) -> None:
    # init: the log begins after the followed offset
    append(log, CONTROL, ELECTED)
    for session in (1, 2, 3):
        append(log, INTAKE, taken_of(session, 1, []))
    log.truncate(INTAKE, 0, 2)
    script = Script(
        lambda e: [Follow(INTAKE, 0, 0), Follow(INTAKE, 1, 0)] if e == CONTROL_READ else [],
        lambda e: [Unfollow(INTAKE, 0)] if e == ControlRead(1, TO_ANOTHER) else [],
    )
    with running(log, script) as worker:
        eventually(lambda: worker._out_of_range or worker.failure)

        # test: a record of `control` that it needs arrives only now
        append(log, CONTROL, TO_ANOTHER)
        script.wait(ControlRead, 2)
        append(log, INTAKE, taken_of(4, 1, []), 1)

        # check: it continues with the others
        (polled,) = script.wait(Polled)
        assert [entry.partition for entry in polled.entries] == [1]
        assert worker.failure is None
        eventually(lambda: not worker._out_of_range)


def test_an_owner_whose_place_the_log_lacks_ends(log: MemoryLog) -> None:
    append(log, CONTROL, ELECTED)
    append(log, INTAKE, taken_of(1, 1, []))
    log.truncate(INTAKE, 0, 1)
    script = Script(on(ControlRead, Follow(INTAKE, 0, 0)))
    with running(log, script, limits=LoopLimits(gone_ms=50)) as worker:
        eventually(lambda: worker.failure)
        assert isinstance(worker.failure, OffsetOutOfRange)


def test_barriers_wait_for_every_append_before_them(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    # init: an answer and a checkpoint after two appends that the log has not acknowledged.
    acks, archive = Acknowledging(monkeypatch), MemoryArchive()
    reported = Append(INTAKE, 0, taken_of(1, 1, []))
    state = {"a": np.arange(3)}

    def answer(event: Event) -> list[Effect]:
        if not isinstance(event, ChangeRequests):
            return []
        outcome = Answer(event.token, (Outcome(7),))
        return [
            reported,
            reported,
            outcome,
            SaveCheckpoint(topic=INTAKE, partition=1, epoch=5, offset=9, state=state),
        ]

    script = Script(answer)
    with running(log, script, archive) as worker:
        # test
        future = worker.change_queries(
            0, [ChangeRequest(action="unregister", id="q", query=None, subscriber="", start_ms=0)]
        )
        settled = worker.settled()
        eventually(lambda: len(acks.held) == 2)
        # The loop has turned since.
        worker.post(CONTROL_READ)
        script.wait(ControlRead)
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


def test_a_caller_that_hangs_up_does_not_disturb_the_loop(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    acks = Acknowledging(monkeypatch)

    def answer(event: Event) -> list[Effect]:
        if not isinstance(event, ChangeRequests):
            return []
        return [Append(INTAKE, 0, taken_of(1, 1, [])), Answer(event.token, (Outcome(7),))]

    async def hang_up(waited_for: Future[Any]) -> None:
        waiting = asyncio.wrap_future(waited_for)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting

    with running(log, Script(answer)) as worker:
        answered = worker.change_queries(
            0, [ChangeRequest(action="unregister", id="q", query=None, subscriber="", start_ms=0)]
        )
        settled = worker.settled()
        eventually(lambda: acks.held)
        for future in (answered, settled):
            asyncio.run(hang_up(future))
        acks.release()
        assert answered.result(WAIT_S) == (Outcome(7),)
        settled.result(WAIT_S)
        # The next request is served.
        again = worker.change_queries(
            0, [ChangeRequest(action="unregister", id="q", query=None, subscriber="", start_ms=0)]
        )
        eventually(lambda: acks.held)
        acks.release()
        assert again.result(WAIT_S) == (Outcome(7),)
        assert worker.failure is None


class Held:
    """Keeps a worker's loop from its inbox until it is released."""

    def __init__(self, worker: Worker) -> None:
        self._go = threading.Event()
        reached = threading.Event()

        def hold() -> list[Effect]:
            reached.set()
            assert self._go.wait(WAIT_S)
            return []

        worker._inbox.put(hold)
        assert reached.wait(WAIT_S)

    def let_go(self) -> None:
        self._go.set()


def test_an_abandoned_request_is_not_carried_out(log: MemoryLog) -> None:
    # A client that gave up may have asked for the contrary since, at another router.
    def answer(event: Event) -> list[Effect]:
        return [Answer(event.token, (Outcome(7),))] if isinstance(event, ChangeRequests) else []

    script = Script(answer)
    removed = ChangeRequest(action="unregister", id="gone", query=None, subscriber="", start_ms=0)
    late = ChangeRequest(action="unregister", id="late", query=None, subscriber="", start_ms=0)
    kept = ChangeRequest(action="unregister", id="kept", query=None, subscriber="", start_ms=0)
    with running(log, script) as worker:
        held = Held(worker)
        given_up = worker.change_queries(0, [removed])
        too_late = worker.change_queries(0, [late], deadline_ms=now_ms() - 1)
        in_time = worker.change_queries(0, [kept], deadline_ms=now_ms() + 60_000)
        assert given_up.cancel()
        held.let_go()
        with pytest.raises(DeadlineExceeded):
            too_late.result(WAIT_S)
        assert in_time.result(WAIT_S) == (Outcome(7),)
        assert not in_time.cancel()
        (taken_up,) = script.wait(ChangeRequests)
        assert taken_up.requests == (kept,)
        assert worker.failure is None


def test_a_failed_append_ends_the_loop_and_barriers_never_release(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    acks = Acknowledging(monkeypatch)
    acks.error = AppendFailed("refused")

    def answer(event: Event) -> list[Effect]:
        if not isinstance(event, ChangeRequests):
            return []
        return [Append(INTAKE, 0, taken_of(1, 1, [])), Answer(event.token, (Outcome(7),))]

    with running(log, Script(answer)) as worker:
        future = worker.change_queries(
            0, [ChangeRequest(action="unregister", id="q", query=None, subscriber="", start_ms=0)]
        )
        with pytest.raises(Unavailable):
            future.result(WAIT_S)
        eventually(lambda: not worker.is_alive)
        assert worker.failure is acks.error
        # Later callers get the reason, too.
        with pytest.raises(Unavailable):
            worker.change_queries(0, []).result(WAIT_S)


def test_callers_of_a_loop_that_ends_first_receive_an_error(log: MemoryLog) -> None:
    with running(log, Script()) as worker:
        held = Held(worker)
        worker.fail(RuntimeError("a defect"))
        found, settled = worker.look(lambda: 1), worker.settled()
        held.let_go()
        for future in (found, settled):
            with pytest.raises(Unavailable):
                future.result(WAIT_S)
        eventually(lambda: not worker.is_alive)
        with pytest.raises(Unavailable):
            worker.settled().result(WAIT_S)


def test_an_unexpected_error_of_the_machine_ends_the_loop(log: MemoryLog) -> None:
    def fail(event: Event) -> list[Effect]:
        raise RuntimeError("a defect")

    append(log, CONTROL, ELECTED)
    with running(log, Script(fail)) as worker:
        eventually(lambda: worker.failure)
        assert str(worker.failure) == "a defect"


def test_draining_ends_what_is_under_way_also_what_follows_from_it(log: MemoryLog) -> None:
    # A window is being committed when the process has to end; the next one follows it.
    append(log, CONTROL, ELECTED)
    follow: dict[int, list[Effect]] = {1: [Transact(0, 2, (progress(2),))], 2: []}
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
    fill(log, SLOTS, 1, 40)
    first = Script(
        on(Draining, SaveCheckpoint(topic=SLOTS, partition=1, epoch=3, offset=40, state=state))
    )
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
