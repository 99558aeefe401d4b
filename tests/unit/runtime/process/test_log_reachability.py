"""Whether a process still reads the log: by its own reading, and by the reports of others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from sirocco.runtime.process import log_reachability
from sirocco.runtime.process.clock import monotonic_ms
from sirocco.runtime.process.log_reachability import (
    CONNECTED_S,
    CONNECTED_S_MIN,
    SILENT_CHECKS_MAX,
    LogReachability,
    is_cut_off,
)
from sirocco.runtime.process.membership import LeaseKeeper, MemberInfo
from sirocco.transport.errors import TransportUnavailable
from sirocco.transport.memory_map_store import MemoryMapStore

WAIT_S = 120.0
CONNECTED = {CONNECTED_S: CONNECTED_S_MIN}


@pytest.mark.parametrize(
    ("silent", "others", "expected"),
    [
        (SILENT_CHECKS_MAX, [CONNECTED], True),
        (SILENT_CHECKS_MAX - 1, [CONNECTED], False),
        # The log is away for all.
        (60, [{CONNECTED_S: 0.0}, {CONNECTED_S: 0.0}], False),
        # It has just returned, and one process read it first.
        (60, [{CONNECTED_S: 2.0}, {CONNECTED_S: 0.0}], False),
        # Others without a report, and no others.
        (60, [{}], False),
        (60, [], False),
        (SILENT_CHECKS_MAX, [{}, {CONNECTED_S: 0.0}, CONNECTED], True),
    ],
)
def test_only_a_process_that_reads_nothing_while_others_do_is_cut_off(
    silent: int, others: list[dict[str, float]], expected: bool
) -> None:
    assert is_cut_off(silent, others) is expected


def test_a_process_that_stood_still_does_not_prove_that_the_log_was_reachable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # init: read for a minute, then paused for another
    clock = Clock()
    monkeypatch.setattr(log_reachability, "monotonic_ms", clock)
    log: Any = FakeLog()
    received = LogReachability(log, MemoryMapStore(), "router-1", lambda _: None)
    for _ in range(60):
        clock.ms += 1_000
        received._note_answer(clock.ms)
    assert received.figures() == {CONNECTED_S: 60.0}
    clock.ms += 60_000

    # test and check: at once, and when it reads again
    assert received.figures() == {CONNECTED_S: 0.0}
    received._note_answer(clock.ms)
    assert received.figures() == {CONNECTED_S: 0.0}
    clock.ms += 1_000
    received._note_answer(clock.ms)
    assert received.figures() == {CONNECTED_S: 1.0}


class Clock:
    """Advances on request."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


class FakeLog:
    """A log that is present or absent."""

    def __init__(self) -> None:
        self.is_away = False
        self.asked = 0

    def bounds(self, _topic: str, _partition: int) -> tuple[int, int]:
        self.asked += 1
        if self.is_away:
            raise TransportUnavailable("no answer")
        return 0, 1


@pytest.fixture
def store() -> Iterator[MemoryMapStore]:
    """A store with another living process that reads the log."""
    made = MemoryMapStore()
    info = MemberInfo(
        id="router-2",
        service="router",
        address="a:1",
        http_address="a:2",
        started_ms=0,
        loads=CONNECTED,
    )
    keeper = LeaseKeeper(made, lambda: info, monotonic_ms)
    keeper.start()
    yield made
    keeper.stop()


def test_a_cut_off_process_is_reported_once(store: MemoryMapStore) -> None:
    # init
    log: Any = FakeLog()
    reported: list[Exception] = []
    ended = threading.Event()

    def end(error: Exception) -> None:
        reported.append(error)
        ended.set()

    received = LogReachability(log, store, "router-1", end, check_s=0.01)
    received.start()

    # test: it reads, it does not
    while not log.asked:
        assert not ended.wait(0.001)
    log.is_away = True
    assert ended.wait(WAIT_S)
    received.stop()

    # check
    assert not threading.Event().wait(0.1)
    assert len(reported) == 1


def test_a_process_alone_waits_for_the_log(store: MemoryMapStore) -> None:
    log: Any = FakeLog()
    log.is_away = True
    ended = threading.Event()
    received = LogReachability(log, store, "router-2", lambda _: ended.set(), check_s=0.01)
    received.start()
    assert not ended.wait(0.3)
    received.stop()
