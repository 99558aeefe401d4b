"""Subscribers that ask for much and read nothing: their cost for a merger and for others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, suppress
from typing import Any

import grpc.aio
import pytest
from prometheus_client import CollectorRegistry
from sirocco_api.v1.receive_service_pb2 import Credit as AddCredit
from sirocco_api.v1.receive_service_pb2 import Open, ReceiveRequest, ReceiveResponse
from sirocco_api.v1.receive_service_pb2_grpc import (
    ReceiveServiceStub,
    add_ReceiveServiceServicer_to_server,
)

from sirocco.model.errors import InvalidArgument, ResourceExhausted, SiroccoError
from sirocco.runtime.grpc.edge import REQUEST_S
from sirocco.runtime.grpc.unread_streams import LOOKS, ReadingWatch
from sirocco.runtime.loop.limits import TailLimits
from sirocco.runtime.loop.log_readers import READERS_MAX
from sirocco.runtime.settings import MERGER_FRONT, ClusterSettings, MergerFrontLimits
from sirocco.services.merger.credit import Credit
from sirocco.services.merger.receive import ReceiveFront, _Stream
from sirocco.telemetry.metrics.merger import MergerMetrics
from sirocco.transport.memory_log import MemoryConsumer, MemoryLog
from tests.support.waiting import until
from tests.unit.services.merger.test_slow_subscribers import asked, ids, pieces, readers, write

WAIT_S = 60.0
STREAMS = 200
RECORDS = 60


@pytest.fixture
def log() -> Iterator[MemoryLog]:
    made = MemoryLog()
    made.create_topics(ClusterSettings(partials_partitions=1).topics())
    yield made
    made.close()


def front_of(
    log: MemoryLog, limits: MergerFrontLimits = MERGER_FRONT, begin_s: float = REQUEST_S
) -> ReceiveFront:
    return ReceiveFront(log, 1, MergerMetrics(CollectorRegistry()), limits, begin_s)


def run(test: Callable[[], Any]) -> None:
    asyncio.run(asyncio.wait_for(test(), WAIT_S))


def stream(front: ReceiveFront, credit: Credit, cursor: str) -> Any:
    return front._stream(Open(subscriber="s", cursor=cursor), _Stream(credit))


def test_subscribers_without_credit_read_nothing_and_hold_no_client(log: MemoryLog) -> None:
    async def test() -> None:
        others = pieces()
        write(log, range(RECORDS))
        front = front_of(log)
        async with AsyncExitStack() as stack:
            waiting = []
            for _ in range(STREAMS):
                responses = stream(front, Credit(0), "0.0")
                await stack.enter_async_context(aclosing(responses))
                await anext(responses)
                waiting.append(await stack.enter_async_context(asked(responses)))
            # They wait for credit; another one receives all records that follow meanwhile.
            async with aclosing(stream(front, Credit(1_000), f"0.{RECORDS}")) as responses:
                await anext(responses)
                write(log, range(RECORDS, RECORDS + 10))
                found: list[int] = []
                while len(found) < 10:
                    found += ids(await anext(responses))
            assert set(readers(log)) <= {"tails"}
            assert min(piece.offset for piece in pieces(others)) >= RECORDS
            assert not any(task.done() for task in waiting)
        await asyncio.to_thread(front.close)

    run(test)


@pytest.mark.parametrize("credit", [1, 7, 1_000])
def test_lagging_subscribers_share_few_readers_and_miss_nothing(
    log: MemoryLog, credit: int
) -> None:
    async def test() -> None:
        write(log, range(RECORDS))
        front = front_of(log)
        most = 0

        async def receive(begin: int) -> list[int]:
            nonlocal most
            have = Credit(credit)
            found: list[int] = []
            async with aclosing(stream(front, have, f"0.{begin}")) as responses:
                while len(found) < RECORDS + 10 - begin:
                    response = await anext(responses)
                    found += ids(response)
                    have.add(len(ids(response)) or 1)
                    most = max(most, len([name for name in readers(log) if name != "tails"]))
            return found

        tasks = [asyncio.create_task(receive(i % RECORDS)) for i in range(STREAMS)]
        await until(lambda: most)
        await asyncio.to_thread(write, log, range(RECORDS, RECORDS + 10))
        for begin, found in enumerate(await asyncio.gather(*tasks)):
            assert found == list(range(begin % RECORDS, RECORDS + 10))
        assert 1 <= most <= READERS_MAX
        # No stream lags any more: the clients end.
        await until(lambda: readers(log) == ["tails"])
        await asyncio.to_thread(front.close)

    run(test)


def test_the_tails_of_all_partitions_are_one_client_and_bounded_together() -> None:
    log = MemoryLog()
    log.create_topics(ClusterSettings(partials_partitions=32).topics())
    limits = TailLimits(kept_bytes_total=32)

    async def test() -> None:
        front = ReceiveFront(log, 32, MergerMetrics(CollectorRegistry()), tail_limits=limits)
        tails = [await front._tail(partition) for partition in range(32)]
        await asyncio.to_thread(write, log, range(20))
        await until(lambda: tails[0].end == 20)
        assert readers(log) == ["tails"]
        assert len(tails[0]._pieces) == 1
        await asyncio.to_thread(front.close)

    run(test)
    log.close()


def test_streams_that_wait_for_the_log_leave_threads_to_others(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While Kafka is away they had all threads, in which searches add up their answers."""
    is_back = threading.Event()
    bounds = log.bounds

    def wait(topic: str, partition: int) -> tuple[int, int]:
        is_back.wait(WAIT_S)
        return bounds(topic, partition)

    async def test() -> None:
        front = front_of(log)
        responses = [stream(front, Credit(1), "") for _ in range(STREAMS)]
        await anext(responses[0])
        monkeypatch.setattr(log, "bounds", wait)
        opening = [asyncio.ensure_future(anext(each)) for each in responses[1:]]
        for _ in range(10):
            await asyncio.sleep(0)
        try:
            assert await asyncio.wait_for(asyncio.to_thread(lambda: 7), WAIT_S / 4) == 7
        finally:
            is_back.set()
        await asyncio.gather(*opening)
        for each in responses:
            await each.aclose()
        await asyncio.to_thread(front.close)

    run(test)


class Served:
    """A merger's front on a port, and clients of it."""

    def __init__(self, front: ReceiveFront) -> None:
        self._front = front

    async def __aenter__(self) -> Served:
        self._server = grpc.aio.server()
        add_ReceiveServiceServicer_to_server(self._front, self._server)
        self._address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        await self._server.start()
        self._channels: list[grpc.aio.Channel] = []
        return self

    async def __aexit__(self, *_: object) -> None:
        for channel in self._channels:
            await channel.close()
        await self._server.stop(0)
        await asyncio.to_thread(self._front.close)

    def connection(self) -> ReceiveServiceStub:
        """Returns a client on a connection of its own."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        channel = grpc.aio.insecure_channel(self._address, options=options)
        self._channels.append(channel)
        return ReceiveServiceStub(channel)

    async def open(self, stub: ReceiveServiceStub, credit: int = 0) -> Any:
        call = stub.Receive()
        request = Open(subscriber="s", from_earliest=True, matches=credit)
        await call.write(ReceiveRequest(open=request))
        return call


def test_streams_are_bounded_and_leave_places_to_others(log: MemoryLog) -> None:
    async def test() -> None:
        front = front_of(log, MergerFrontLimits(streams_max=8))
        async with Served(front) as served:
            hostile = served.connection()
            calls = [await served.open(hostile) for _ in range(30)]
            answers = await asyncio.gather(*(call.read() for call in calls), return_exceptions=True)
            refused = [each for each in answers if isinstance(each, grpc.aio.AioRpcError)]
            assert len(refused) == 26
            assert {each.code() for each in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
            other = await served.open(served.connection())
            assert (await other.read()).cursor == "0.0"

    run(test)


def test_a_stream_without_messages_ends(log: MemoryLog) -> None:
    """It has no place yet: there is no other bound of the number of such streams."""

    async def test() -> None:
        async with Served(front_of(log, begin_s=0.2)) as served:
            stub = served.connection()
            calls = [stub.Receive() for _ in range(3)]
            begun = await served.open(stub)
            assert (await begun.read()).cursor == "0.0"
            codes = [await asyncio.wait_for(call.code(), 10) for call in calls]
            assert set(codes) == {grpc.StatusCode.DEADLINE_EXCEEDED}
            # A stream that has begun may be silent for any time.
            await asyncio.to_thread(write, log, range(1))
            await begun.write(ReceiveRequest(credit=AddCredit(matches=1)))
            while not (found := ids(await begun.read())):
                pass
            assert found == [0]

    run(test)


@pytest.mark.parametrize(
    "error", [ResourceExhausted("no room for it"), InvalidArgument("is no credit")]
)
@pytest.mark.parametrize("credit", [0, 5])
def test_a_stream_whose_credit_cannot_be_read_ends_with_the_reason(
    log: MemoryLog, error: SiroccoError, credit: int
) -> None:
    """Its client would wait for ever for the records of its credit."""

    async def requests() -> AsyncIterator[ReceiveRequest]:
        yield ReceiveRequest(credit=AddCredit(matches=1))
        raise error

    async def test() -> None:
        front = front_of(log)
        opened = Open(subscriber="s", from_earliest=True, matches=credit)
        with front._one(Credit.of(opened), "ipv4:127.0.0.1:1") as stream:
            responses = front._responses(opened, stream, requests())
            with pytest.raises(type(error)):
                await asyncio.wait_for(_all(responses), 10)
        assert not front._streams
        await asyncio.to_thread(front.close)

    run(test)


async def _all(responses: AsyncIterator[ReceiveResponse]) -> None:
    async for _ in responses:
        pass


def test_a_stream_with_credit_that_is_not_read_ends(log: MemoryLog) -> None:
    async def test() -> None:
        # init: more than the windows of a connection hold.
        front = front_of(log, MergerFrontLimits(unread_ms=200))
        async with Served(front) as served:
            call = await served.open(served.connection(), 1 << 40)
            await call.read()
            await asyncio.to_thread(write, log, range(400), text="word " * 10_000)

            # test: the client does not read.
            await until(lambda: front._metrics.unread_answers._value.get() == 1)

            # check: nothing is held for it; later it gets the reason.
            await until(lambda: not front._streams and front._places.taken == 0)
            with suppress(grpc.aio.AioRpcError):
                while await call.read() is not grpc.aio.EOF:
                    pass
            assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    run(test)


def test_a_slow_client_that_reads_on_keeps_its_stream(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = 0
    check = ReadingWatch._look

    def counted(watch: ReadingWatch) -> None:
        nonlocal checks
        checks += 1
        check(watch)

    monkeypatch.setattr(ReadingWatch, "_look", counted)

    async def test() -> None:
        front = front_of(log, MergerFrontLimits(unread_ms=400))
        async with Served(front) as served:
            call = await served.open(served.connection(), 1)
            await call.read()
            await asyncio.to_thread(write, log, range(40))
            found: list[int] = []
            while len(found) < 40:
                found += ids(await call.read())
                # Waits for credit for any time: nothing is unread meanwhile.
                if len(found) == 1:
                    await until(lambda: checks > 2 * LOOKS)
                await call.write(ReceiveRequest(credit=AddCredit(matches=1)))
            assert found == list(range(40))
            assert front._metrics.unread_answers._value.get() == 0

    run(test)


def test_readers_that_fail_are_replaced(log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        write(log, range(RECORDS))
        front = front_of(log)
        poll, failures = MemoryConsumer.poll, [RuntimeError("broken")]

        def failing(self: MemoryConsumer, max_records: int, timeout_s: float) -> Any:
            # Of this log only: a cluster of other tests may run in this process.
            if self._log is log and self.name != "tails" and failures:
                raise failures.pop()
            return poll(self, max_records, timeout_s)

        monkeypatch.setattr(MemoryConsumer, "poll", failing)
        async with aclosing(stream(front, Credit(1_000), "0.0")) as responses:
            await anext(responses)
            with pytest.raises(RuntimeError):
                await anext(responses)
        assert "deliveries-reader" not in readers(log)
        async with aclosing(stream(front, Credit(1_000), "0.0")) as responses:
            await anext(responses)
            assert ids(await anext(responses)) == [0]
        await asyncio.to_thread(front.close)

    run(test)
