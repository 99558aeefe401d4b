"""A stream that is cancelled while it opens its consumer leaves nothing behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from sirocco_api.v1.receive_service_pb2 import Open

from sirocco.runtime.loop.delivery_tail import TailRecord
from sirocco.runtime.loop.log_readers import LogReaders
from sirocco.runtime.settings import ClusterSettings
from sirocco.services.merger.credit import Credit
from sirocco.services.merger.receive import ReceiveFront, _Stream
from sirocco.telemetry.metrics.merger import MergerMetrics
from sirocco.transport.memory_log import MemoryConsumer, MemoryLog
from tests.support.random_messages import delivered as random_delivered

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


def test_spans_end_where_a_client_leaves_with_its_last_notification(log: Slow) -> None:
    """They were lost, and with them the end of a trace."""
    log.go.set()
    record = random_delivered(np.random.default_rng(4), 6)
    (subscriber, *_) = record.queries.subscribers
    ended: list[int] = []

    class Span:
        def end(self) -> None:
            ended.append(1)

    class Traces:
        def begin(self, *_: object) -> list[Span]:
            return [Span()]

    async def after(*_: object) -> tuple[list[TailRecord], int, bool]:
        headers = (("method", b""), ("traceparent", b""))
        return [TailRecord(0, 1, record, 1, headers)], 1, True

    async def run() -> None:
        traces: Any = Traces()
        front = ReceiveFront(log, 1, MergerMetrics(CollectorRegistry()), traces=traces)
        front._after = after  # type: ignore[method-assign,assignment]
        credit = Credit.of(Open(subscriber=subscriber, matches=100))
        responses = front._stream(Open(subscriber=subscriber), _Stream(credit))
        await anext(responses)
        assert (await anext(responses)).matches.objects
        await responses.aclose()  # type: ignore[attr-defined]
        await asyncio.to_thread(front.close)

    asyncio.run(run())
    assert ended == [1]
