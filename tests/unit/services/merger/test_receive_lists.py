"""Lists in the receive stream: only the subscriber's own, each counted as one of the credit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import grpc.aio
import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from sirocco_api.v1.receive_service_pb2 import Credit, Open, ReceiveRequest
from sirocco_api.v1.receive_service_pb2_grpc import (
    ReceiveServiceStub,
    add_ReceiveServiceServicer_to_server,
)
from sirocco_client import Client, Delivery, KnnChange, Notification, Subscription

from sirocco.protocol.contract.messages import DELIVERIES, Delivered
from sirocco.runtime.loop.hops import HopWriter
from sirocco.runtime.settings import ClusterSettings
from sirocco.services.merger.receive import ReceiveFront
from sirocco.telemetry.metrics.merger import MergerMetrics
from sirocco.transport.memory_log import MemoryLog
from tests.support.list_records import ListVersion, Match, found_of, knn_spec
from tests.support.merger_cluster import MergerCluster

WAIT_S = 120.0


@pytest.fixture
def log() -> Iterator[MemoryLog]:
    made = MemoryLog()
    made.create_topics(ClusterSettings(slots=1, partials_partitions=1).topics())
    yield made
    made.close()


@pytest.fixture
def address(log: MemoryLog) -> Iterator[str]:
    """Starts a merger's front on a port of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    front = ReceiveFront(log, 1, MergerMetrics(CollectorRegistry()))

    async def start() -> tuple[grpc.aio.Server, int]:
        server = grpc.aio.server()
        add_ReceiveServiceServicer_to_server(front, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        return server, port

    server, port = asyncio.run_coroutine_threadsafe(start(), loop).result(WAIT_S)
    yield f"127.0.0.1:{port}"
    asyncio.run_coroutine_threadsafe(server.stop(None), loop).result(WAIT_S)
    front.close()
    loop.call_soon_threadsafe(loop.stop)
    thread.join(WAIT_S)
    loop.close()


def deliver(log: MemoryLog) -> None:
    """Writes six windows: each a match of ann's and a list of ann's and of bob's."""
    near = {
        name: ListVersion(f"{name}'s", knn_spec(f"{name}'s", 1), name) for name in ("ann", "bob")
    }
    founds = [
        found_of(
            [(0, i, i + 1, 0)],
            [(0, i, Match(asked, i, 50.0 - i)) for asked in near.values()]
            + [(0, i, Match(ListVersion("plain", "", "ann"), i))],
        )
        for i in range(6)
    ]
    cluster = MergerCluster(log=founds, slots=1)
    writer = HopWriter(log.producer("w"), lambda *_: None)
    for end in range(1, 7):
        cluster.read(end, np.random.default_rng(0))
        cluster.commit()
    for message in cluster.written:
        if isinstance(message, Delivered):
            writer.append(DELIVERIES, 0, message, 0)


def take(subscription: Subscription, count: int) -> list[Delivery]:
    found: list[Delivery] = []
    with subscription:
        for each in subscription:
            found.append(each)
            if len(found) == count:
                break
    return found


def test_each_subscriber_gets_its_own_lists(log: MemoryLog, address: str) -> None:
    deliver(log)
    with Client("127.0.0.1:1", mergers=[address]) as client:
        bobs = take(client.subscribe("bob", from_earliest=True, credit=2), 6)
        anns = take(client.subscribe("ann", from_earliest=True), 12)
        held: tuple[int | str, ...] = ()
        for i, each in enumerate(bobs):
            assert isinstance(each, KnnChange)
            assert (each.query, each.entries) == ("bob's", ((i, 50.0 - i),))
            assert (each.removed, [one.text for one in each.added]) == (held, [f"text of {i}"])
            held = (i,)
        assert sum(isinstance(each, KnnChange) for each in anns) == 6
        matches = [each.object.id for each in anns if isinstance(each, Notification)]
        assert matches == list(range(6))
        # The cursor of a list resumes after it.
        again = take(client.subscribe("bob", bobs[2].cursor), 3)
        assert again == bobs[3:]


def test_a_list_takes_one_of_the_credit(log: MemoryLog, address: str) -> None:
    deliver(log)
    with grpc.insecure_channel(address) as channel:
        requests = iter(
            [
                ReceiveRequest(open=Open(subscriber="bob", from_earliest=True, matches=2)),
                ReceiveRequest(credit=Credit(matches=1)),
            ]
        )
        call = ReceiveServiceStub(channel).Receive(requests, timeout=4.0)
        got: list[int] = []
        with pytest.raises(grpc.RpcError) as caught:
            got.extend(len(response.lists.queries) // 4 for response in call)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert sum(got) == 3
