"""Subscriptions that share a call: each resumes, fails and ends by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from sirocco_api.v1.receive_service_pb2 import ReceiveResponse
from sirocco_client import AsyncClient, InvalidArgument, RangeQuery
from sirocco_client.notifications.async_subscription import AsyncSubscription
from sirocco_client.notifications.shared_calls import SharedStream

from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster
from tests.support.drivers import QUICK
from tests.support.fake_cluster import FakeCluster

SETTINGS = ClusterSettings(slots=4, leaves=8, intake_partitions=2, registry_partitions=2)


@pytest.fixture(scope="module")
def running() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(SETTINGS) as found:
        yield found


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))


async def publish(client: AsyncClient, word: str, ids: range) -> None:
    async with client.publisher() as publisher:
        await publisher.publish_many(
            [{"id": i, "lon": 1, "lat": 1, "text": word} for i in ids],
        )


async def take(subscription: AsyncSubscription, count: int) -> list[int | str]:
    found: list[int | str] = []
    while len(found) < count:
        batch = await subscription.next_batch()
        assert batch is not None
        found += [one for _, one in batch.pairs()]
    return found


def calls_of(client: AsyncClient) -> int:
    return len(client._shared_calls._calls)


def test_each_gets_its_own_and_resumes_at_its_cursor(running: EmbeddedCluster) -> None:
    async def test() -> None:
        async with AsyncClient(running.router_address) as client:
            names = [f"shared{number}" for number in range(8)]
            for name in names:
                await client.register(RangeQuery(id=name, subscriber=name, text="both"))
            # A little credit: it comes back many times.
            opened = [client.subscribe(name, credit=2, shared=True) for name in names]
            for each in opened:
                await each.open()
            assert calls_of(client) == 1
            await publish(client, "both", range(20))
            for each in opened:
                assert await take(each, 20) == list(range(20))
            # One ends; the others go on. Nobody else's place is lost.
            cursor = opened[0]._state.position
            await opened[0].close()
            assert await opened[0].next_batch() is None
            await publish(client, "both", range(20, 25))
            assert await take(opened[1], 5) == list(range(20, 25))
            again = client.subscribe(names[0], cursor, shared=True)
            assert await take(again, 5) == list(range(20, 25))
            assert calls_of(client) == 1
            for each in (again, *opened):
                await each.close()
            assert calls_of(client) == 0

    run(test)


def test_one_that_is_not_read_holds_back_nobody(running: EmbeddedCluster) -> None:
    async def test() -> None:
        async with AsyncClient(running.router_address) as client:
            for name in ("lazy", "eager"):
                await client.register(RangeQuery(id=name, subscriber=name, text="lazyword"))
            lazy, eager = (
                client.subscribe(name, credit=1, shared=True) for name in ("lazy", "eager")
            )
            await lazy.open()
            await eager.open()
            for begin in range(0, 300, 100):
                await publish(client, "lazyword " + "x" * 5_000, range(begin, begin + 100))
                await take(eager, 100)
            call = next(iter(client._shared_calls._calls.values()))
            waiting = [each for stream in call._streams.values() for each in stream._arrived]
            # What came before its credit ended: records of one publication.
            assert sum(len(each.matches.objects) // 4 for each in waiting) <= 100
            assert await take(lazy, 300) == list(range(300))

    run(test)


def test_places_that_are_not_read_replace_each_other() -> None:
    """A merger sends one each second: of a subscriber that did not read they filled the memory."""

    async def test() -> None:
        calls: Any = None
        stream = SharedStream(calls, 1)
        full = ReceiveResponse(cursor="0.5")
        full.matches.objects = full.matches.queries = bytes(4)
        lists = ReceiveResponse(cursor="0.12")
        lists.lists.queries = bytes(4)
        for number in range(5):
            stream.put(ReceiveResponse(cursor=f"0.{number}"))
        stream.put(full)
        for number in range(6, 12):
            stream.put(ReceiveResponse(cursor=f"0.{number}"))
        stream.put(lists)
        read = [await stream.read() for _ in range(len(stream._arrived))]
        assert [each.cursor for each in read] == ["0.4", "0.5", "0.11", "0.12"]

    run(test)


def test_an_error_is_of_one_alone(running: EmbeddedCluster) -> None:
    async def test() -> None:
        async with AsyncClient(running.router_address) as client:
            await client.register(RangeQuery(id="well", subscriber="well", text="wellword"))
            well = client.subscribe("well", shared=True)
            await well.open()
            ill = client.subscribe("ill", "7.nonsense", shared=True)
            with pytest.raises(InvalidArgument) as refused:
                await ill.next_batch()
            assert refused.value.field == "open.cursor"
            await publish(client, "wellword", range(3))
            assert await take(well, 3) == [0, 1, 2]

    run(test)


def test_a_broken_call_is_begun_again_by_each(running: EmbeddedCluster) -> None:
    async def test() -> None:
        async with AsyncClient(running.router_address, retry=QUICK) as client:
            opened = []
            for name in ("broken1", "broken2"):
                await client.register(RangeQuery(id=name, subscriber=name, text="brokenword"))
                opened.append(client.subscribe(name, shared=True))
                await opened[-1].open()
            await publish(client, "brokenword", range(5))
            assert await take(opened[0], 5) == list(range(5))
            # The second one has not taken what has arrived for it.
            call = next(iter(client._shared_calls._calls.values()))
            call._call.cancel()
            await publish(client, "brokenword", range(5, 9))
            assert await take(opened[0], 4) == list(range(5, 9))
            assert await take(opened[1], 9) == list(range(9))
            assert next(iter(client._shared_calls._calls.values())) is not call

    run(test)


def test_a_reader_that_is_cancelled_loses_nothing(running: EmbeddedCluster) -> None:
    async def test() -> None:
        async with AsyncClient(running.router_address, retry=QUICK) as client:
            await client.register(RangeQuery(id="turn", subscriber="turn", text="turnword"))
            opened = client.subscribe("turn", shared=True)
            await opened.open()
            reading = asyncio.create_task(opened.next_batch())
            await asyncio.sleep(0)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            await publish(client, "turnword", range(4))
            assert await take(opened, 4) == list(range(4))

    run(test)


def test_an_older_merger_gets_a_call_for_each(cluster: FakeCluster) -> None:
    """Mergers and clients may be restarted in any order."""

    async def test() -> None:
        cluster.deliver(("q", 1), ("q", 2))
        async with AsyncClient(cluster.router, retry=QUICK) as client:
            opened = [client.subscribe("s", from_earliest=True, shared=True) for _ in range(3)]
            for each in opened:
                assert await take(each, 2) == [1, 2]
            assert len(cluster.opened) == 3
            assert calls_of(client) == 0

    run(test)
