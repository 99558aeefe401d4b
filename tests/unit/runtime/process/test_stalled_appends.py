"""Appends without an answer: when a process has to end for them, and when it must not."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from sirocco.runtime.process.stalled_appends import (
    STALLED_CHECKS_MAX,
    WARNED_CHECKS,
    AppendWatch,
    StallCounts,
)
from sirocco.transport.errors import TransportUnavailable
from sirocco.transport.log import WaitingAppends

WAIT_S = 120.0


def waiting(*, answered: int = 5, polls: int, partition: int = 4) -> WaitingAppends:
    return WaitingAppends("router-1", "slots", partition, answered, polls)


def in_sync(_topic: str, _partition: int) -> bool:
    return True


def test_checks_without_an_answer_are_counted() -> None:
    counts = StallCounts()
    assert counts.note([waiting(polls=1)], in_sync) == {}
    for check in range(1, 40):
        one = waiting(polls=1 + check)
        assert counts.note([one], in_sync) == {one: check}


@pytest.mark.parametrize(
    "between",
    [
        pytest.param([waiting(answered=6, polls=9)], id="an answer"),
        pytest.param([], id="all answered"),
    ],
)
def test_an_answer_ends_the_count(between: list[WaitingAppends]) -> None:
    counts = StallCounts()
    for check in range(5):
        counts.note([waiting(polls=check)], in_sync)
    assert counts.note(between, in_sync) == {}
    assert max(counts.note([waiting(answered=6, polls=10)], in_sync).values(), default=0) <= 1


def test_a_process_that_takes_no_answers_counts_nothing() -> None:
    counts = StallCounts()
    counts.note([waiting(polls=1)], in_sync)
    one = waiting(polls=2)
    assert counts.note([one], in_sync) == {one: 1}
    for _ in range(40):
        assert counts.note([one], in_sync) == {one: 1}


def test_a_partition_that_takes_nothing_from_anybody_counts_nothing() -> None:
    counts = StallCounts()
    for check in range(40):
        beside = waiting(polls=check, partition=5)
        stalled = counts.note([waiting(polls=check), beside], lambda _, partition: partition == 5)
        assert stalled == ({beside: check} if check else {})


def test_after_an_outage_for_all_the_count_begins_anew() -> None:
    def away(_topic: str, _partition: int) -> bool:
        raise TransportUnavailable("no answer")

    counts = StallCounts()
    for check in range(20):
        counts.note([waiting(polls=check)], in_sync)
    with pytest.raises(TransportUnavailable):
        counts.note([waiting(polls=20)], away)
    assert counts.note([waiting(polls=21)], in_sync) == {}


class FakeLog:
    """A log of which one Kafka partition gives a producer no answer."""

    def __init__(self) -> None:
        self.checks = 0
        self.in_sync = True

    def waiting_appends(self) -> list[WaitingAppends]:
        self.checks += 1
        return [waiting(polls=self.checks)]

    def is_in_sync(self, _topic: str, _partition: int) -> bool:
        return self.in_sync


def test_a_process_whose_appends_stand_still_ends_once(caplog: pytest.LogCaptureFixture) -> None:
    log: Any = FakeLog()
    reported: list[Exception] = []
    ended = threading.Event()

    def end(error: Exception) -> None:
        reported.append(error)
        ended.set()

    watch = AppendWatch(log, "router-1", end, check_s=0.001)
    watch.start()
    assert ended.wait(WAIT_S)
    watch.stop()
    assert not threading.Event().wait(0.1)
    assert [str(error) for error in reported] == [
        "appends to slots/4 get no answer, and the log could take them; the process exits"
    ]
    assert log.checks == STALLED_CHECKS_MAX + 1
    logged = [(record.levelname, vars(record)["fields"]["checks"]) for record in caplog.records]
    assert logged == [("WARNING", WARNED_CHECKS), ("ERROR", STALLED_CHECKS_MAX)]


def test_a_process_waits_for_a_partition_that_takes_nothing() -> None:
    log: Any = FakeLog()
    log.in_sync = False
    ended = threading.Event()
    watch = AppendWatch(log, "router-1", lambda _: ended.set(), check_s=0.001)
    watch.start()
    while log.checks < 2 * STALLED_CHECKS_MAX:
        assert not ended.wait(0.001)
    watch.stop()
    assert not ended.is_set()
