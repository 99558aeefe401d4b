"""Bulk changes over real gRPC: a client that hangs up, and how many calls of owners they take."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import cast

import grpc
import numpy as np
from prometheus_client import CollectorRegistry
from sirocco_api.v1 import query_service_pb2 as pb
from sirocco_api.v1.query_service_pb2_grpc import (
    QueryServiceStub,
    add_QueryServiceServicer_to_server,
)

from sirocco.protocol.contract.effects import ChangeRequest, Outcome, Outcomes, PlainRequests
from sirocco.protocol.contract.messages import NO_REVISION
from sirocco.services.router.changes.bulk_calls import IN_FLIGHT_MAX
from sirocco.services.router.limits import FrontTimes
from sirocco.services.router.owners import Owners
from sirocco.services.router.queries import QueryFront
from sirocco.telemetry.metrics.router import RouterMetrics
from tests.support.plain_client import query_message
from tests.support.waiting import until


class Undecided:
    """Owners that never decide."""

    def __init__(self) -> None:
        self.begun = 0
        self.given_up = 0

    async def apply(self, partition: int, requests: Sequence[ChangeRequest]) -> tuple[Outcome, ...]:
        self.begun += 1
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.given_up += 1
        raise AssertionError("is never decided")


def test_what_was_under_way_when_the_client_hung_up_is_given_up() -> None:
    # One is being decided, some wait after it, and one more has been read.
    taken = IN_FLIGHT_MAX + 2

    async def requests() -> AsyncIterator[pb.RegisterQueriesRequest]:
        for number in range(taken + 5):
            yield pb.RegisterQueriesRequest(queries=[query_message(f"q{number}", "s")])

    async def run() -> None:
        owners = Undecided()
        front = QueryFront(cast(Owners, owners), 2, RouterMetrics(CollectorRegistry()))
        server = grpc.aio.server()
        add_QueryServiceServicer_to_server(front, server)
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        async with grpc.aio.insecure_channel(address) as channel:
            idle = len(asyncio.all_tasks())
            call = QueryServiceStub(channel).RegisterQueries(requests())
            await until(lambda: owners.begun == taken)
            call.cancel()
            await until(lambda: owners.given_up == taken)
            await until(lambda: len(asyncio.all_tasks()) <= idle)
            assert owners.begun == taken
        await server.stop(None)

    asyncio.run(run())


class Counted:
    """Owners that accept everything, and count the changes of each call."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    async def apply(
        self, partition: int, requests: PlainRequests | Sequence[ChangeRequest]
    ) -> Outcomes:
        rows = requests.queries if isinstance(requests, PlainRequests) else requests
        self.sizes.append(len(rows))
        return Outcomes(np.ones(len(rows), np.int64))


def test_many_updates_and_removals_take_a_call_of_each_owner() -> None:
    """One by one, 20,000 removals took seven minutes."""
    names = [f"q{number}" for number in range(600)]

    async def run() -> None:
        owners = Counted()
        front = QueryFront(cast(Owners, owners), 2, RouterMetrics(CollectorRegistry()))
        server = grpc.aio.server()
        add_QueryServiceServicer_to_server(front, server)
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        async with grpc.aio.insecure_channel(address) as channel:
            stub = QueryServiceStub(channel)
            updates = pb.UpdateQueriesRequest(queries=[query_message(name, "s") for name in names])
            removals = pb.UnregisterQueriesRequest(ids=names)
            for method, request in (
                (stub.UpdateQueries, updates),
                (stub.UnregisterQueries, removals),
            ):
                (answer,) = [each async for each in method(iter([request]))]
                assert [result.revision for result in answer.results] == [1] * len(names)
                assert len(owners.sizes) == 2
                assert sum(owners.sizes) == len(names)
                owners.sizes.clear()
        await server.stop(None)

    asyncio.run(run())


def test_a_bulk_call_without_messages_ends() -> None:
    times = FrontTimes(begin_s=0.2)

    async def run() -> None:
        metrics = RouterMetrics(CollectorRegistry())
        front = QueryFront(cast(Owners, Undecided()), 2, metrics, times=times)
        server = grpc.aio.server()
        add_QueryServiceServicer_to_server(front, server)
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        async with grpc.aio.insecure_channel(address) as channel:
            stub = QueryServiceStub(channel)
            for call in (stub.RegisterQueries(), stub.UpdateQueries(), stub.UnregisterQueries()):
                code = await asyncio.wait_for(call.code(), 10)
                assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        await server.stop(None)

    asyncio.run(run())


def test_removals_that_a_former_owner_has_done_are_answered_without_a_revision() -> None:
    """Their results are written singly: bytes of many results hold no negative number."""

    class Done:
        async def apply(self, partition: int, requests: Sequence[ChangeRequest]) -> list[Outcome]:
            return [Outcome(NO_REVISION if each.id == "q3" else 7) for each in requests]

    async def requests() -> AsyncIterator[pb.UnregisterQueriesRequest]:
        yield pb.UnregisterQueriesRequest(ids=[f"q{n}" for n in range(9)])

    async def run() -> list[int]:
        front = QueryFront(cast(Owners, Done()), 2, RouterMetrics(CollectorRegistry()))
        server = grpc.aio.server()
        add_QueryServiceServicer_to_server(front, server)
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        async with grpc.aio.insecure_channel(address) as channel:
            call = QueryServiceStub(channel).UnregisterQueries(requests())
            (answer,) = [each async for each in call]
        await server.stop(None)
        return [result.revision for result in answer.results]

    assert asyncio.run(run()) == [7, 7, 7, NO_REVISION, 7, 7, 7, 7, 7]
