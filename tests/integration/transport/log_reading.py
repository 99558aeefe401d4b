"""Reads a log in tests: waits for conditions, not for fixed times."""

from __future__ import annotations

import time
from collections.abc import Callable

from sirocco.transport.log import Consumer, Log, Record


def take(consumer: Consumer, count: int, timeout_s: float = 120.0) -> list[Record]:
    """Polls until there are `count` records; fails when the time is over."""
    taken: list[Record] = []
    deadline = time.monotonic() + timeout_s
    while len(taken) < count:
        taken += consumer.poll(count - len(taken), 0.2)
        assert time.monotonic() < deadline, f"{len(taken)} of {count} records"
    return taken


def until(condition: Callable[[], bool], what: str, timeout_s: float = 120.0) -> None:
    """Waits for a condition; fails when the time is over."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


def at_head(log: Log, consumer: Consumer) -> bool:
    """Returns whether the consumer has read all committed records; polls and drops nothing."""
    assert consumer.poll(1, 0.01) == []
    return all(offset == log.bounds(*at)[1] for at, offset in consumer.positions().items())
