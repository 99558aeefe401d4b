"""A stream that is cancelled while it opens its consumer leaves nothing behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from sirocco.runtime.loop.log_readers import LogReaders
from sirocco.runtime.settings import ClusterSettings
from sirocco.services.merger.receive import ReceiveFront
from sirocco.telemetry.metrics.merger import MergerMetrics
from sirocco.transport.memory_log import MemoryConsumer, MemoryLog

WAIT_S = 120.0


class Slow(MemoryLog):
    """Returns consumers only on request."""

    def __init__(self) -> None:
        super().__init__()
        self.create_topics(ClusterSettings(slots=2).topics())
        self.asked, self.go = threading.Event(), threading.Event()
        self.consumers: list[MemoryConsumer] = []

    def consumer(self, name: str) -> MemoryConsumer:
        self.asked.set()
        assert self.go.wait(WAIT_S)
        self.consumers.append(super().consumer(name))
        return self.consumers[-1]


@pytest.fixture
def log() -> Iterator[Slow]:
    made = Slow()
    yield made
    made.go.set()
    made.close()


async def cancelled(task: asyncio.Task[Any], log: Slow) -> None:
    """Cancels a task while it waits for a consumer."""
    assert await asyncio.to_thread(log.asked.wait, WAIT_S)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def test_one_tail_is_opened_though_its_first_stream_is_gone(log: Slow) -> None:
    async def run() -> None:
        front = ReceiveFront(log, 1, MergerMetrics(CollectorRegistry()))
        await cancelled(asyncio.create_task(front._tail(0)), log)
        log.go.set()
        await front._tail(0)
        await asyncio.to_thread(front.close)

    asyncio.run(run())
    assert [each._closed for each in log.consumers] == [True]


def test_what_is_read_for_a_stream_is_closed_though_it_was_just_being_opened(log: Slow) -> None:
    async def run() -> None:
        readers = LogReaders(log)
        await cancelled(asyncio.create_task(readers.read(0, 0)), log)
        closing = asyncio.create_task(asyncio.to_thread(readers.close))
        await asyncio.wait([closing], timeout=0.1)
        log.go.set()
        await closing

    # Ends when the blocked threads have ended.
    asyncio.run(run())
    assert [each._closed for each in log.consumers] == [True]
