"""The memory that streams of notifications hold for slow subscribers."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from sirocco_api.v1.receive_service_pb2 import Open, ReceiveResponse

from sirocco.model.query import query_handle
from sirocco.protocol.contract.columns import EventColumns, MatchColumns, QueryNames
from sirocco.protocol.contract.messages import DELIVERIES, Delivered
from sirocco.runtime.loop.delivery_tail import POLL_RECORDS_MAX, Tail, TailRecord
from sirocco.runtime.loop.hops import HopWriter
from sirocco.runtime.loop.limits import TailLimits
from sirocco.runtime.settings import MERGER_FRONT, ClusterSettings
from sirocco.services.merger.credit import Credit
from sirocco.services.merger.receive import ReceiveFront, _Stream
from sirocco.telemetry.metrics.merger import MergerMetrics
from sirocco.transport.memory_log import MemoryConsumer, MemoryLog
from tests.support.values import columns_of
from tests.support.waiting import until

WAIT_S = 120.0


@pytest.fixture
def log() -> Iterator[MemoryLog]:
    made = MemoryLog()
    made.create_topics(ClusterSettings(partials_partitions=1).topics())
    yield made
    made.close()


@pytest.fixture
def front(log: MemoryLog) -> Iterator[ReceiveFront]:
    made = ReceiveFront(log, 1, MergerMetrics(CollectorRegistry()))
    yield made
    made.close()


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), WAIT_S))


def write(
    log: MemoryLog,
    numbers: range,
    window: str | None = None,
    *,
    text: str = "word",
    subscriber: str = "s",
) -> None:
    """Writes one record with one match of each object; as one transaction, if named."""
    producer = log.producer("merger", transactional_id=window)
    if window is not None:
        producer.init_transactions()
        producer.begin()
    writer = HopWriter(producer, lambda *_: None)
    one = np.ones(1, np.uint64)
    row = np.zeros(1, np.uint32)
    names = QueryNames(
        np.array([query_handle("q")], np.uint64),
        np.frombuffer(b"q", np.uint8),
        np.array([0, 1], np.int64),
        row,
        (subscriber,),
    )
    for number in numbers:
        objects = columns_of([{"id": number, "lon": 1.0, "lat": 1.0, "text": text}])
        events = EventColumns(one, one * np.uint64(number + 1), np.zeros(1, np.int64))
        bounds = np.array([0, 1], np.int64)
        message = Delivered(
            objects=objects,
            events=events,
            queries=names,
            matches=MatchColumns(row, row),
            match_offsets=bounds,
        )
        writer.append(DELIVERIES, 0, message, 0)
    if window is not None:
        producer.commit()
    producer.close()


def stream(
    front: ReceiveFront,
    credit: Credit,
    cursor: str = "",
    subscriber: str = "s",
    *,
    joined: bool = False,
) -> Any:
    opened = Open(subscriber=subscriber, cursor=cursor, joined=joined)
    return front._stream(opened, _Stream(credit))


@asynccontextmanager
async def asked(
    responses: AsyncIterator[ReceiveResponse],
) -> AsyncIterator[asyncio.Future[ReceiveResponse]]:
    """Awaits the next response; a stream can be closed once no task waits for it."""
    next_routing = asyncio.ensure_future(anext(responses))
    try:
        yield next_routing
    finally:
        next_routing.cancel()
        await asyncio.wait([next_routing])


def readers(log: MemoryLog) -> list[str]:
    """Returns the open consumers."""
    return [each.name for each in log._clients if isinstance(each, MemoryConsumer)]


def ids(response: ReceiveResponse) -> list[int]:
    return np.frombuffer(response.objects.ids, "<u8").tolist()


def pieces(besides: Iterable[TailRecord] = ()) -> list[TailRecord]:
    """Returns records of `deliveries` in memory, besides those of other tests' clusters."""
    gc.collect()
    others = {id(each) for each in besides}
    found = [each for each in gc.get_objects() if isinstance(each, TailRecord)]
    return [each for each in found if id(each) not in others]


def test_a_slow_subscriber_holds_few_records_once_others_need_them_no_more(
    log: MemoryLog, front: ReceiveFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        # init: a stream that lags far, all of it in memory, and without credit.
        others = pieces()
        credit = Credit(0)
        async with aclosing(stream(front, credit)) as responses:
            await anext(responses)
            tail = front._known[0]
            write(log, range(200))
            await until(lambda: tail.end == 200)
            async with asked(responses) as next_routing:
                await until(lambda: credit.changed._waiters)

                # test: more arrives than is kept.
                monkeypatch.setattr(front._tails, "_limits", TailLimits(kept_bytes=1))
                write(log, range(200, 210))
                await until(lambda: tail.end == 210)

                # check: it holds nothing while it waits, only the tail's last read is left; it
                # misses nothing.
                assert len(pieces(others)) <= POLL_RECORDS_MAX
                credit.add(1_000)
                found = ids(await next_routing)
            while len(found) < 210:
                found += ids(await anext(responses))
            assert found == list(range(210))

    run(test)


def test_joined_records_exceed_the_credit_by_one_response(
    log: MemoryLog, front: ReceiveFront
) -> None:
    async def test() -> None:
        # init: two of the records fit one response
        credit = Credit(1)
        async with aclosing(stream(front, credit, joined=True)) as responses:
            await anext(responses)
            tail = front._known[0]
            write(log, range(5), text="word " + "x" * 30_000)
            await until(lambda: tail.end == 5)

            # test and check
            assert ids(await anext(responses)) == [0, 1]
            for wanted in ([2, 3], [4]):
                assert credit.matches == -1
                async with asked(responses) as following:
                    await until(lambda: credit.changed._waiters)
                    credit.add(1)
                    credit.add(1)
                    assert ids(await following) == wanted

    run(test)


def test_matches_bring_their_cursor_and_none_alone_follows_each(log: MemoryLog) -> None:
    limits = replace(MERGER_FRONT, cursor_ms=3_600_000)
    front = ReceiveFront(log, 1, MergerMetrics(CollectorRegistry()), limits)

    async def test() -> None:
        async with aclosing(stream(front, Credit(1_000))) as responses:
            await anext(responses)
            tail = front._known[0]
            for number in range(5):
                write(log, range(number, number + 1))
                write(log, range(100, 101), subscriber="another")
                end = 2 * number + 2
                await until(lambda end=end: tail.end == end)
                assert ids(await anext(responses)) == [number]
            # Once the log is quiet, what others got moves the cursor.
            last = await anext(responses)
            assert (ids(last), last.cursor) == ([], "0.10")

    run(test)
    front.close()


def test_a_quiet_subscriber_receives_no_message_for_each_window_of_others(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = replace(MERGER_FRONT, cursor_ms=3_600_000)
    front = ReceiveFront(log, 1, MergerMetrics(CollectorRegistry()), limits)
    settled = 0
    settle = Tail._settle

    def counted(tail: Tail) -> None:
        nonlocal settled
        settle(tail)
        settled += not tail.is_settling

    monkeypatch.setattr(Tail, "_settle", counted)

    async def test() -> None:
        # init
        async with aclosing(stream(front, Credit(1_000), subscriber="quiet")) as responses:
            cursors = [(await anext(responses)).cursor]

            async def take() -> None:
                while True:
                    cursors.append((await anext(responses)).cursor)

            taking = asyncio.create_task(take())

            # test: windows arrive, each soon after the one before.
            tail = front._known[0]
            for number in range(50):
                write(log, range(number, number + 1), "window")
                await until(lambda end=2 * number + 2: tail.end == end)

            # check: soon after the last one, it still knows the end, whose mark that is. Where the
            # machine made pauses, it was sent a cursor in them too.
            await until(lambda: cursors[-1] == "0.100")
            assert len(cursors) <= 3 + 2 * settled
            taking.cancel()
            await asyncio.wait([taking])

    run(test)
    front.close()


def test_a_stream_that_has_caught_up_reads_the_log_no_more_by_itself(
    log: MemoryLog, front: ReceiveFront
) -> None:
    async def test() -> None:
        # init: the stream begins with records from before this merger had any.
        write(log, range(40))
        async with aclosing(stream(front, Credit(1_000), cursor="0.0")) as responses:
            found: list[int] = []
            while len(found) < 40:
                found += ids(await anext(responses))
            assert set(readers(log)) == {"tails", "deliveries-reader"}

            # test
            next_routing = asyncio.ensure_future(anext(responses))
            await until(lambda: readers(log) == ["tails"])

            # check
            write(log, range(40, 41))
            assert ids(await next_routing) == [40]

    run(test)


def test_a_subscriber_that_leaves_while_its_reader_opens_leaves_no_reader(
    log: MemoryLog, front: ReceiveFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    making, may_go_on, made = (threading.Event() for _ in range(3))
    consumer = log.consumer

    def slow(name: str) -> MemoryConsumer:
        if name == "tails":
            return consumer(name)
        making.set()
        may_go_on.wait(WAIT_S)
        try:
            return consumer(name)
        finally:
            made.set()

    async def test() -> None:
        # init
        write(log, range(40))
        monkeypatch.setattr(log, "consumer", slow)
        responses = stream(front, Credit(1_000), cursor="0.0")
        await anext(responses)
        next_routing = asyncio.ensure_future(anext(responses))
        await until(making.is_set)

        # test: the thread that creates it does not learn that the stream has ended.
        next_routing.cancel()
        await asyncio.wait([next_routing], timeout=0.1)
        may_go_on.set()
        await until(made.is_set)
        with suppress(asyncio.CancelledError):
            await next_routing

        # check
        await until(lambda: readers(log) == ["tails"])

    run(test)
