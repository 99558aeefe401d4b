"""Transactions of a loop: whole, fenced, written again after failures."""

from __future__ import annotations

from typing import Any

import pytest

from sirocco.protocol.contract.effects import (
    ChangeRequests,
    Committed,
    ControlRead,
    Fence,
    Fenced,
    Load,
    Loaded,
    Transact,
    Written,
)
from sirocco.protocol.contract.messages import (
    CONTROL,
    DELIVERIES,
    PARTIALS,
)
from sirocco.runtime.loop.append_queue import APPEND_WAIT_MS
from sirocco.transport.errors import (
    TransactionAborted,
)
from sirocco.transport.log import APPEND_WAIT_S
from sirocco.transport.memory_log import MemoryLog, MemoryProducer
from tests.support.scripted_machine import (
    ELECTED,
    WAIT_S,
    LeavingLog,
    Script,
    append,
    fill,
    messages,
    on,
    progress,
    running,
)
from tests.support.waiting import eventually


def test_r5_a_transaction_is_there_as_a_whole_and_the_successor_finds_its_progress(
    log: MemoryLog,
) -> None:
    append(log, CONTROL, ELECTED)
    fill(log, PARTIALS, 0, 8)
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


def test_r5_a_committed_transaction_is_not_written_again_when_the_log_goes_away(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(log, CONTROL, ELECTED)
    script = Script(on(ControlRead, Fence(0), Transact(0, 1, (progress(5),))))
    leaving = LeavingLog(monkeypatch)
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


def parts_of(*offsets: int) -> list[Transact]:
    last = len(offsets) - 1
    return [
        Transact(0, 1, (progress(offset),), is_first=i == 0, is_last=i == last)
        for i, offset in enumerate(offsets)
    ]


def test_r5_parts_of_a_transaction_are_there_together(log: MemoryLog) -> None:
    append(log, CONTROL, ELECTED)
    first, second, last = parts_of(3, 5, 8)
    seen: list[int] = []

    def then(effect: Transact) -> Any:
        def answer(event: Any) -> list[Any]:
            seen.append(len(messages(log, DELIVERIES)))
            return [effect]

        return answer

    answers = iter([then(second), then(last)])
    script = Script(
        on(ControlRead, Fence(0), first),
        lambda event: next(answers)(event) if isinstance(event, Written) else [],
    )
    with running(log, script) as worker:
        (committed,) = script.wait(Committed)
        assert worker.failure is None
    assert seen == [0, 0]
    assert committed.end_offset == 3
    assert [message.input_offset for message in messages(log, DELIVERIES)] == [3, 5, 8]


def test_r5_a_transaction_that_is_aborted_after_its_first_part_is_given_up(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, last = parts_of(3, 5)
    script = Script(
        on(ControlRead, Fence(0), first),
        on(Written, last),
        on(Fenced, Fence(0), Transact(0, 2, (progress(4),))),
    )
    original, failures = MemoryProducer.append, [TransactionAborted("refused")]

    def fail(producer: MemoryProducer, topic: str, *args: Any, **more: Any) -> None:
        has_begun = any(isinstance(each, Written) for each in script.events)
        if topic == DELIVERIES and has_begun and failures:
            raise failures.pop()
        original(producer, topic, *args, **more)

    monkeypatch.setattr(MemoryProducer, "append", fail)
    append(log, CONTROL, ELECTED)
    with running(log, script) as worker:
        script.wait(Committed)
        assert worker.failure is None
    assert [message.input_offset for message in messages(log, DELIVERIES)] == [4]


def test_records_of_a_transaction_wait_for_room_as_long_as_others(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A merger's backlog after an outage of its leader may exceed a producer's queue.
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
        on(ChangeRequests, Transact(0, 1, (progress(99),))),
    )
    successor = Script(on(ControlRead, Fence(0), Transact(0, 1, (progress(5),))))
    with running(log, zombie, member="zombie") as late:
        late.caught_up.wait(WAIT_S)
        zombie.wait(ControlRead)
        with running(log, successor, member="successor"):
            successor.wait(Committed)
            late.post(ChangeRequests(1, 0, ()))
            (fenced,) = zombie.wait(Fenced)
            assert (fenced.partition, fenced.number) == (0, 1)
            assert late.failure is None
    assert [message.input_offset for message in messages(log, DELIVERIES)] == [5]
