"""More calls that stay open than a server takes of one connection, over real gRPC."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import grpc.aio
import pytest
from sirocco_api.v1.cluster_service_pb2 import DescribeClusterResponse
from sirocco_api.v1.cluster_service_pb2_grpc import (
    ClusterServiceServicer,
    add_ClusterServiceServicer_to_server,
)
from sirocco_api.v1.receive_service_pb2 import ReceiveRequest, ReceiveResponse
from sirocco_api.v1.receive_service_pb2_grpc import (
    ReceiveServiceServicer,
    add_ReceiveServiceServicer_to_server,
)
from sirocco_client import AsyncClient, Client, Retry
from sirocco_client.connection.connection import CHANNELS_MAX
from sirocco_client.connection.kept_calls import KeptCalls

# What the server takes of one connection, and how many of these may stay open.
CALLS_MAX = 4
KEPT_MAX = 3


class Merger(ReceiveServiceServicer, ClusterServiceServicer):
    """Streams begin, and stay open; the connections that they came by are noted."""

    def __init__(self) -> None:
        self.connections: set[str] = set()

    async def Receive(  # noqa: N802 -- the contract's name
        self, requests: AsyncIterator[ReceiveRequest], context: Any
    ) -> AsyncIterator[ReceiveResponse]:
        self.connections.add(context.peer())
        yield ReceiveResponse(cursor="0")
        async for _ in requests:
            pass

    async def DescribeCluster(  # noqa: N802 -- the contract's name
        self, request: Any, context: Any
    ) -> DescribeClusterResponse:
        return DescribeClusterResponse()


async def served(merger: Merger) -> tuple[grpc.aio.Server, str]:
    server = grpc.aio.server(options=(("grpc.max_concurrent_streams", CALLS_MAX),))
    add_ReceiveServiceServicer_to_server(merger, server)
    add_ClusterServiceServicer_to_server(merger, server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    return server, address


def test_subscriptions_of_a_process_take_further_connections() -> None:
    """The fifth of four waited in silence, and with it all other calls of all clients."""

    async def run() -> None:
        merger, kept = Merger(), KeptCalls(KEPT_MAX)
        server, address = await served(merger)
        # Clients of one process have one connection as long as it has room.
        clients = [AsyncClient(address, mergers=[address], timeout_s=20.0) for _ in range(2)]
        for client in clients:
            client._connection.kept = kept
        opened = [
            clients[n % 2].subscribe(f"s{n}", from_earliest=True) for n in range(2 * KEPT_MAX + 1)
        ]
        for each in opened:
            await each.open()
        await clients[0].describe()
        assert len(merger.connections) == 3
        assert [kept.take(address) for _ in range(2)] == [2, 2]
        for each in opened:
            await each.close()
        for client in clients:
            await client.close()
        await server.stop(None)

    asyncio.run(run())


def test_threads_take_further_connections() -> None:
    merger, kept = Merger(), KeptCalls(KEPT_MAX)

    async def run() -> None:
        server, address = await served(merger)

        def use() -> None:
            with Client(address, mergers=[address], timeout_s=20.0) as client:
                client._connection.kept = kept
                opened = [
                    client.subscribe(f"s{n}", from_earliest=True) for n in range(CALLS_MAX + 1)
                ]
                for each in opened:
                    each.open()
                client.describe()
                for each in opened:
                    each.close()

        with ThreadPoolExecutor(1) as pool:
            await asyncio.get_running_loop().run_in_executor(pool, use)
        await server.stop(None)

    asyncio.run(run())
    assert len(merger.connections) == 2


def test_places_are_given_back_once_when_calls_end_or_are_forgotten() -> None:
    class Call:
        def add_done_callback(self, callback: Any) -> None:
            self.done = callback

    async def run() -> None:
        client = AsyncClient("127.0.0.1:1")
        connection = client._connection
        kept = connection.kept = KeptCalls(2)
        first, second = (connection.kept_call("a:1", lambda _: Call()) for _ in range(2))
        first.done(first)
        del first
        # The loop of this one ended before it.
        del second
        gc.collect()
        assert [kept.take("a:1") for _ in range(3)] == [0, 0, 1]
        with pytest.raises(ZeroDivisionError):
            connection.kept_call("b:1", lambda _: 1 // 0)
        assert [kept.take("b:1") for _ in range(3)] == [0, 0, 1]
        await client.close()

    asyncio.run(run())


def used(connection: Any, count: int) -> list[str]:
    """Uses the channels of many servers, one after the other; returns those that are left."""
    kept = connection.kept = KeptCalls()
    assert kept.take("kept:1") == 0
    first = connection.channel("kept:1")
    for port in range(1, count + 1):
        connection.channel("often:1")
        connection.channel(f"server:{port}")
    assert connection.channel("kept:1") is first
    return [address for address, _ in connection._channels]


def test_channels_to_servers_of_former_times_are_closed() -> None:
    """Each restart of a server gives it another address: all that were ever known stayed open."""
    with Client("127.0.0.1:1") as client:
        left = used(client._connection, 200)
    assert len(left) == CHANNELS_MAX
    assert {"kept:1", "often:1", "server:200", "server:150"} <= {*left}

    async def run() -> list[str]:
        async with AsyncClient("127.0.0.1:1") as client:
            found = used(client._connection, 200)
            while client._connection._closing:
                await asyncio.sleep(0)
            return found

    assert asyncio.run(run()) == left


def test_a_channel_with_a_short_call_stays_open() -> None:
    """Another thread that used 64 other servers meanwhile ended the call of this one."""

    class Call:
        def add_done_callback(self, callback: Any) -> None:
            self.done = callback

    def left(connection: Any) -> list[str]:
        call = connection.stream("stream:1", lambda _: Call())
        with connection.using("short:1") as channel:
            for port in range(200):
                connection.channel(f"server:{port}")
            assert connection.channel("short:1") is channel
            found = [address for address, _ in connection._channels]
        assert {"short:1", "stream:1"} <= {*found}
        call.done(call)
        with pytest.raises(ZeroDivisionError):
            connection.stream("stream:1", lambda _: 1 // 0)
        assert not connection._users
        for port in range(200):
            connection.channel(f"server:{port}")
        return [address for address, _ in connection._channels]

    with Client("127.0.0.1:1") as client:
        assert not {"short:1", "stream:1"} & {*left(client._connection)}

    async def run() -> None:
        async with AsyncClient("127.0.0.1:1") as client:
            assert not {"short:1", "stream:1"} & {*left(client._connection)}
            while client._connection._closing:
                await asyncio.sleep(0)

    asyncio.run(run())


class SlowCluster(ClusterServiceServicer):
    """Answers once it may."""

    def __init__(self) -> None:
        self.has_begun, self.may_answer = threading.Event(), threading.Event()

    def DescribeCluster(self, request: Any, context: Any) -> DescribeClusterResponse:  # noqa: N802
        self.has_begun.set()
        assert self.may_answer.wait(20)
        return DescribeClusterResponse()


def test_a_call_of_another_thread_is_not_ended() -> None:
    slow = SlowCluster()
    server = grpc.server(ThreadPoolExecutor(2))
    add_ClusterServiceServicer_to_server(slow, server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    client = Client(address, timeout_s=30.0, retry=Retry(attempts=1))
    with client, ThreadPoolExecutor(1) as pool:
        described = pool.submit(client.describe)
        assert slow.has_begun.wait(20)
        for port in range(1, 200):
            client._connection.channel(f"127.0.0.1:{port}")
        slow.may_answer.set()
        assert described.result(20) is not None
    server.stop(None)
