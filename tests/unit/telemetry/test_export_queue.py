"""A collector that is away or slow stops nobody; what is lost is counted."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from sirocco.telemetry.export_queue import BATCH_MAX, ExportQueue
from tests.support.waiting import eventually


def test_what_ends_is_handed_over_in_order() -> None:
    taken: list[int] = []

    def export(batch: list[int]) -> bool:
        assert len(batch) <= BATCH_MAX
        taken.extend(batch)
        return True

    queue = ExportQueue(export)
    for number in range(2 * BATCH_MAX + 3):
        queue.put(number)
    queue.close()
    assert taken == list(range(2 * BATCH_MAX + 3))
    assert (queue.dropped, queue.failed) == (0, 0)


def test_a_collector_that_hangs_blocks_nobody() -> None:
    hangs, released = threading.Event(), threading.Event()

    def export(_: list[int]) -> bool:
        hangs.set()
        return released.wait()

    queue = ExportQueue(export, BATCH_MAX)
    for number in range(BATCH_MAX):
        queue.put(number)
    hangs.wait()
    for number in range(BATCH_MAX + 7):
        queue.put(number)
    assert queue.dropped == 7
    released.set()
    queue.close()
    assert queue.failed == 0


def test_failures_are_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    answers: Iterator[bool | OSError] = iter([False, OSError("away"), False, True, False])

    def export(_: list[int]) -> bool:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    queue = ExportQueue(export)
    with caplog.at_level(logging.WARNING):
        for wanted in range(1, 4):
            for number in range(BATCH_MAX):
                queue.put(number)
            eventually(lambda wanted=wanted: queue.failed == wanted * BATCH_MAX, "failures")
        assert len(caplog.records) == 1
    queue.put(0)
    queue.close()
    assert queue.failed == 3 * BATCH_MAX
