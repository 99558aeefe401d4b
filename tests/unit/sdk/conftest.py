"""A scripted cluster and a client of it, sync and asyncio in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.drivers import DRIVERS, QUICK
from tests.support.fake_cluster import FakeCluster


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    found = FakeCluster()
    yield found
    found.stop()


@pytest.fixture(params=list(DRIVERS))
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Opens clients, which are closed at the end."""
    opened: list[Any] = []

    def open_client(router: str, **options: Any) -> Any:
        client = DRIVERS[request.param](router, **{"retry": QUICK, "timeout_s": 20.0} | options)
        opened.append(client)
        return client

    yield open_client
    for client in opened:
        client.__exit__(None, None, None)


@pytest.fixture
def client(cluster: FakeCluster, connect: Callable[..., Any]) -> Any:
    return connect(cluster.router)
