"""Many streams of notifications in one call: each with its own place, credit, error and end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from sirocco_api.v1 import receive_service_pb2 as pb

from sirocco.runtime.settings import ClusterSettings, MergerFrontLimits
from sirocco.services.merger import receive_many
from sirocco.services.merger.receive import ReceiveFront
from sirocco.telemetry.metrics.merger import MergerMetrics
from sirocco.transport.memory_log import MemoryLog
from tests.support.waiting import until
from tests.unit.services.merger.test_hostile_subscribers import Served
from tests.unit.services.merger.test_slow_subscribers import write

WAIT_S = 20.0


@pytest.fixture
def log() -> Iterator[MemoryLog]:
    made = MemoryLog()
    made.create_topics(ClusterSettings(partials_partitions=1).topics())
    yield made
    made.close()


def front_of(log: MemoryLog, streams_max: int = 100) -> ReceiveFront:
    limits = MergerFrontLimits(streams_max=streams_max)
    return ReceiveFront(log, 1, MergerMetrics(CollectorRegistry()), limits)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), WAIT_S))


def opening(number: int, subscriber: str, matches: int = 100, cursor: str = "") -> Any:
    opened = pb.Open(subscriber=subscriber, matches=matches, cursor=cursor, from_earliest=True)
    return pb.NumberedReceive(number=number, request=pb.ReceiveRequest(open=opened))


def credit(number: int, matches: int) -> Any:
    return pb.NumberedReceive(
        number=number, request=pb.ReceiveRequest(credit=pb.Credit(matches=matches))
    )


class Reader:
    """Reads a call: the ids of objects and the errors by the number of their stream."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.found: dict[int, list[int]] = {}
        self.errors: dict[int, pb.NumberedReceived] = {}
        self.messages = 0

    async def send(self, *streams: Any) -> None:
        await self.call.write(pb.ReceiveManyRequest(streams=streams))

    async def upto(self, condition: Callable[[], bool]) -> None:
        while not condition():
            message = await self.call.read()
            self.messages += 1
            for each in message.streams:
                assert each.number not in self.errors
                if each.HasField("error"):
                    self.errors[each.number] = each
                ids = np.frombuffer(each.response.objects.ids, "<u8").tolist()
                self.found.setdefault(each.number, []).extend(ids)


def test_streams_share_a_call_and_each_gets_its_own(log: MemoryLog) -> None:
    async def test() -> None:
        front = front_of(log)
        async with Served(front) as served:
            reader = Reader(served.connection().ReceiveMany())
            # init: as many messages as streams would be, had each its own call
            names = [f"s{number}" for number in range(20)]
            for number, name in enumerate(names):
                await asyncio.to_thread(write, log, range(number, number + 1), subscriber=name)
            # test
            await reader.send(*(opening(number, name) for number, name in enumerate(names)))
            wanted = {number: [number] for number in range(20)}
            await reader.upto(lambda: reader.found == wanted)
            # check: one message at most for the beginnings, and some for the notifications
            assert reader.messages < 20
            assert len(front._streams) == 20
            # A stream that is closed gives its place back; others go on.
            await reader.send(*(pb.NumberedReceive(number=number) for number in range(1, 20)))
            await until(lambda: len(front._streams) == 1)
            await asyncio.to_thread(write, log, range(50, 51), subscriber="s0")
            await asyncio.to_thread(write, log, range(51, 52), subscriber="s1")
            await asyncio.to_thread(write, log, range(52, 53), subscriber="s0")
            await reader.upto(lambda: reader.found[0] == [0, 50, 52])
            assert reader.found[1] == [1]
            # With the call all of them end.
            reader.call.cancel()
            await until(lambda: not front._streams and not front._places.taken)
            assert not front._calls.taken

    run(test)


def test_credit_is_of_each_stream(log: MemoryLog) -> None:
    async def test() -> None:
        async with Served(front_of(log)) as served:
            await asyncio.to_thread(write, log, range(5), subscriber="slow")
            await asyncio.to_thread(write, log, range(5), subscriber="fast")
            reader = Reader(served.connection().ReceiveMany())
            await reader.send(opening(1, "slow", matches=2), opening(2, "fast"))
            await reader.upto(lambda: reader.found.get(2) == [0, 1, 2, 3, 4])
            await reader.upto(lambda: reader.found.get(1) == [0, 1])
            # Credit for streams that have ended, or never were, is passed over.
            await reader.send(credit(9, 1), credit(1, 1))
            await reader.upto(lambda: reader.found[1] == [0, 1, 2])

    run(test)


@pytest.mark.parametrize(
    ("second", "field"),
    [
        (credit(2, 0), "credit.matches"),
        (opening(2, "s"), "open"),
        (pb.NumberedReceive(number=2, request=pb.ReceiveRequest()), "request"),
        (opening(3, ""), "open.subscriber"),
        (opening(3, "s", cursor="0.99"), "open.cursor"),
        (opening(3, "s", cursor="nonsense"), "open.cursor"),
        (opening(3, "s", matches=-1), "open.matches"),
    ],
)
def test_an_invalid_request_ends_its_stream_alone(log: MemoryLog, second: Any, field: str) -> None:
    async def test() -> None:
        async with Served(front_of(log)) as served:
            reader = Reader(served.connection().ReceiveMany())
            await reader.send(opening(1, "s"), opening(2, "s", matches=0))
            await asyncio.to_thread(write, log, range(1))
            await reader.upto(lambda: reader.found.get(1) == [0])
            await reader.send(second)
            await reader.upto(lambda: second.number in reader.errors)
            assert reader.errors[second.number].error.code == "INVALID_ARGUMENT"
            assert reader.errors[second.number].error.field == field
            await asyncio.to_thread(write, log, range(1, 2))
            await reader.upto(lambda: reader.found[1] == [0, 1])

    run(test)


def test_a_stream_without_a_place_is_refused_alone(log: MemoryLog) -> None:
    async def test() -> None:
        async with Served(front_of(log, streams_max=8)) as served:
            reader = Reader(served.connection().ReceiveMany())
            await reader.send(*(opening(number, "s") for number in range(30)))
            await reader.upto(lambda: len(reader.found) == 30)
            assert len(reader.errors) >= 22
            assert {each.error.code for each in reader.errors.values()} == {"RESOURCE_EXHAUSTED"}
            await asyncio.to_thread(write, log, range(1))
            served_ones = [number for number in range(30) if number not in reader.errors]
            await reader.upto(lambda: all(reader.found[number] == [0] for number in served_ones))

    run(test)


def test_a_call_that_is_not_read_holds_little(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[receive_many.ManyStreams] = []

    class Noted(receive_many.ManyStreams):
        def __init__(self, front: receive_many.Front) -> None:
            super().__init__(front)
            made.append(self)

    monkeypatch.setattr("sirocco.services.merger.receive.ManyStreams", Noted)

    async def test() -> None:
        front = front_of(log)
        async with Served(front) as served:
            # init: far more for one subscriber than the windows of a connection and what waits hold
            await asyncio.to_thread(write, log, range(400), text="word " * 10_000)
            call = served.connection().ReceiveMany()
            await call.write(pb.ReceiveManyRequest(streams=[opening(1, "s", matches=1 << 40)]))
            # test: the client does not read
            await until(lambda: made and made[0]._is_full)
            # check: it stops at one response beyond the bound
            assert made[0]._waiting_bytes < receive_many.WAITING_BYTES_MAX + 60_000
            reader = Reader(call)
            await reader.upto(lambda: len(reader.found.get(1, ())) == 400)
            assert reader.found[1] == list(range(400))

    run(test)


def test_a_call_ends_with_its_requests(log: MemoryLog) -> None:
    async def test() -> None:
        front = front_of(log)
        async with Served(front) as served:
            call = served.connection().ReceiveMany()
            await call.write(pb.ReceiveManyRequest(streams=[opening(1, "s")]))
            await call.read()
            await call.done_writing()
            while await call.read() is not grpc.aio.EOF:
                pass
            assert await call.code() is grpc.StatusCode.OK
            await until(lambda: not front._streams)

    run(test)
