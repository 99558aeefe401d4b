"""Features of only one of the clients: threads that share one, cancelled tasks; and TLS."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from sirocco_client import (
    AsyncClient,
    AsyncSubscription,
    Client,
    FailedPrecondition,
    PublishFlow,
    RangeQuery,
    Retry,
    Tls,
    Unavailable,
)

from tests.support.drivers import QUICK
from tests.support.fake_cluster import FakeCluster, PublishPlan


def item(i: int) -> dict[str, Any]:
    return {"id": i, "lon": 1.0, "lat": 2.0}


def test_threads_share_a_publisher(cluster: FakeCluster) -> None:
    cluster.publish_plans += [PublishPlan(requests=3, answered=1), PublishPlan(requests=2)]
    flow = PublishFlow(batch_objects=16, linger_ms=1, outstanding_objects_max=64)
    numbers: list[int] = []
    with Client(cluster.router, retry=QUICK) as client, client.publisher(flow) as publisher:

        def work(worker: int) -> None:
            for i in range(500):
                numbers.append(publisher.publish(item(1_000 * worker + i)))
                if i % 100 == worker:
                    publisher.flush()

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(120.0)
    assert sorted(numbers) == list(range(1, 2_001))
    assert len(cluster.ids) == 2_000
    for worker in range(4):
        own = [each for each in cluster.ids if isinstance(each, int) and each // 1_000 == worker]
        assert own == [1_000 * worker + i for i in range(500)]


def test_no_thread_outlives_the_client(cluster: FakeCluster) -> None:
    with Client(cluster.router) as client:
        with client.publisher() as publisher:
            publisher.publish(item(1))
        with client.subscribe("s"):
            pass
        assert not [each for each in threading.enumerate() if each.name == "sirocco-publisher"]


def test_a_cancelled_task_loses_no_notification(cluster: FakeCluster) -> None:
    async def main() -> list[Any]:
        found: list[Any] = []
        async with (
            AsyncClient(cluster.router, retry=QUICK) as client,
            client.subscribe("s") as subscription,
        ):
            for i in range(5):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(subscription.next_batch(), 0.02)
                cluster.deliver(("q", i))
                batch = await subscription.next_batch()
                assert batch is not None
                found += batch.pairs()
        return found

    assert asyncio.run(main()) == [("q", i) for i in range(5)]


def test_a_subscription_that_is_closed_while_it_looks_for_a_merger_opens_no_stream(
    cluster: FakeCluster,
) -> None:
    async def main() -> None:
        async with AsyncClient(cluster.router, retry=QUICK) as client:
            subscription = client.subscribe("s")
            with cluster.lock:  # no description of the cluster meanwhile
                waiting = asyncio.create_task(subscription.next_batch())
                await asyncio.sleep(0)
                await subscription.close()
            assert await asyncio.wait_for(waiting, 20) is None
            # No call would end it.
            assert not cluster.opened

    asyncio.run(main())


class ClosedDuringWrites:
    """A call whose subscription is closed while a request is on its way."""

    def __init__(self, subscription: AsyncSubscription) -> None:
        self._subscription = subscription
        self._call: Any = subscription._call

    async def write(self, request: Any) -> None:
        writing = asyncio.ensure_future(self._call.write(request))
        await asyncio.sleep(0)
        await self._subscription.close()
        await writing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)


def test_a_subscription_that_is_closed_while_it_gives_credit_ends(cluster: FakeCluster) -> None:
    cluster.deliver(*(("q", i) for i in range(10)))

    async def main() -> None:
        async with AsyncClient(cluster.router, retry=QUICK) as client:
            # Some requests have been sent by then.
            for _ in range(20):
                subscription = client.subscribe("s", from_earliest=True, credit=1)
                assert await subscription.next_batch() is not None
                subscription._call = ClosedDuringWrites(subscription)
                # Not a cancellation: the task should not end.
                assert await subscription.next_batch() is None

    asyncio.run(main())


def test_registering_many_raises_that_the_client_was_closed(cluster: FakeCluster) -> None:
    queries = [RangeQuery(id=f"q{i}", subscriber="s") for i in range(3)]

    async def main() -> None:
        client = AsyncClient(cluster.router, retry=QUICK)
        with cluster.lock:  # no registration meanwhile
            waiting = asyncio.ensure_future(anext(client.register_many(queries)))
            await asyncio.wait([waiting], timeout=0.2)
            await client.close()
        # Not a cancellation, as if the task should have ended.
        with pytest.raises(FailedPrecondition):
            await asyncio.wait_for(waiting, 20)

    asyncio.run(main())


def test_a_cancelled_publisher_does_not_hang(cluster: FakeCluster) -> None:
    hold = threading.Event()
    cluster.publish_plans.append(PublishPlan(hold=hold))

    async def main() -> None:
        async with AsyncClient(cluster.router, retry=QUICK) as client:
            publisher = client.publisher()
            await publisher.publish(item(1))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await publisher.close()

    asyncio.run(main())
    hold.set()


def test_asynchronous_sources(cluster: FakeCluster) -> None:
    async def items() -> AsyncIterator[dict[str, Any]]:
        for i in range(25):
            await asyncio.sleep(0)
            yield item(i)

    async def queries() -> AsyncIterator[RangeQuery]:
        for i in range(25):
            yield RangeQuery(id=f"q{i}", subscriber="s")

    async def main() -> None:
        async with AsyncClient(cluster.router) as client:
            async with client.publisher() as publisher:
                assert await publisher.publish_many(items()) == 25
            results = [each.id async for each in client.register_many(queries(), batch=10)]
            assert results == [f"q{i}" for i in range(25)]

    asyncio.run(main())
    assert cluster.ids == list(range(25))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """Returns a key and a self-signed certificate for localhost."""
    here: Path = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    command += ["-keyout", str(here / "key.pem"), "-out", str(here / "cert.pem")]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no openssl to make a certificate with")
    return (here / "key.pem").read_bytes(), (here / "cert.pem").read_bytes()


def test_mutual_tls(certificate: tuple[bytes, bytes], connect: Callable[..., Any]) -> None:
    key, chain = certificate
    credentials = grpc.ssl_server_credentials([(key, chain)], chain, require_client_auth=True)
    cluster = FakeCluster(credentials)
    try:
        tls = Tls(chain, certificate_chain=chain, private_key=key, server_name="localhost")
        # A handshake may be slow on a busy machine, and the next one has to wait then.
        patient = Retry(attempts=100, initial_ms=10, longest_ms=500)
        client = connect(cluster.router, tls=tls, token="secret", retry=patient)
        with client.publisher() as publisher:
            publisher.publish(item(1))
        assert cluster.ids == [1]
        assert cluster.publish_metadata[0]["authorization"] == "Bearer secret"
        stranger = connect(cluster.router, tls=Tls(chain, server_name="localhost"))
        with pytest.raises(Unavailable):
            stranger.describe()
    finally:
        cluster.stop()
