"""Whether a process still hears the log: by itself, and as others say of themselves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from sirocco.runtime import hearing
from sirocco.runtime.clock import monotonic_ms
from sirocco.runtime.hearing import (
    DEAF_LOOKS,
    HEARD,
    HEARD_LOOKS_MIN,
    SILENT,
    SILENT_LOOKS_MAX,
    Hearing,
    is_cut_off,
)
from sirocco.runtime.membership import LeaseKeeper, MemberInfo
from sirocco.transport.errors import Unavailable
from sirocco.transport.memory_map_store import MemoryMapStore

WAIT_S = 10.0
HEARS = {SILENT: 0.0, HEARD: float(HEARD_LOOKS_MIN)}


@pytest.mark.parametrize(
    ("silent", "others", "expected"),
    [
        (SILENT_LOOKS_MAX, [HEARS], True),
        (SILENT_LOOKS_MAX - 1, [HEARS], False),
        # The log is away for all.
        (60, [{SILENT: 60.0, HEARD: 0.0}, {SILENT: 59.0, HEARD: 0.0}], False),
        # It has just come back, and one heard it first.
        (60, [{SILENT: 0.0, HEARD: 2.0}, {SILENT: 59.0, HEARD: 0.0}], False),
        # One that heard for long, and hears no more.
        (60, [{SILENT: float(DEAF_LOOKS), HEARD: 100.0}], False),
        # Others that say nothing of it, and none at all.
        (60, [{}], False),
        (60, [], False),
        (SILENT_LOOKS_MAX, [{}, {SILENT: 60.0}, HEARS], True),
    ],
)
def test_only_who_hears_nothing_while_others_do_is_cut_off(
    silent: int, others: list[dict[str, float]], expected: bool
) -> None:
    assert is_cut_off(silent, others) is expected


class FakeLog:
    """A log that is there or not."""

    def __init__(self) -> None:
        self.is_away = False

    def bounds(self, _topic: str, _partition: int) -> tuple[int, int]:
        if self.is_away:
            raise Unavailable("no answer")
        return 0, 1


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryMapStore]:
    """With another living process that hears the log."""
    monkeypatch.setattr(hearing, "LOOK_S", 0.01)
    made = MemoryMapStore()
    info = MemberInfo("router-2", "router", "a:1", "a:2", 0, HEARS)
    keeper = LeaseKeeper(made, lambda: info, monotonic_ms)
    keeper.start()
    yield made
    keeper.stop()


def test_who_is_cut_off_is_told_once(store: MemoryMapStore) -> None:
    # init
    log: Any = FakeLog()
    told: list[Exception] = []
    ended = threading.Event()

    def end(error: Exception) -> None:
        told.append(error)
        ended.set()

    heard = Hearing(log, store, "router-1", end)
    heard.start()

    # test: it hears, it does not
    while not heard.figures()[HEARD]:
        assert not ended.wait(0.001)
    log.is_away = True
    assert ended.wait(WAIT_S)
    heard.stop()

    # check
    assert not threading.Event().wait(0.1)
    assert len(told) == 1
    assert heard.figures()[SILENT] >= SILENT_LOOKS_MAX


def test_a_process_alone_waits_for_the_log(store: MemoryMapStore) -> None:
    log: Any = FakeLog()
    log.is_away = True
    ended = threading.Event()
    heard = Hearing(log, store, "router-2", lambda _: ended.set())
    heard.start()
    assert not ended.wait(0.3)
    heard.stop()
