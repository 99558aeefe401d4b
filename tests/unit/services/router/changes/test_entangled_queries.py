"""Expressions that take long to read are read beside the event loop, where others wait for none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from sirocco_api.v1 import query_service_pb2, search_service_pb2
from sirocco_api.v1.query_pb2 import QUERY_MODE_SNAPSHOT

from sirocco.codec import queries as reader
from sirocco.model.access import EVERYTHING
from sirocco.protocol.contract.effects import ChangeRequest, Outcomes
from sirocco.runtime.grpc.work_pool import WorkPool
from sirocco.runtime.settings import ClusterSettings
from sirocco.services.merger import search
from sirocco.services.router.changes import query_checks
from sirocco.services.router.changes.query_checks import Lifetime
from sirocco.services.router.owners import Owners
from sirocco.services.router.queries import QueryFront
from sirocco.telemetry.metrics.router import RouterMetrics
from tests.support.plain_client import query_message

# As long as it takes: what counts is its form, of alternatives within parentheses.
TEXT = "(a OR b) NOT (c OR d)"
ROWS = 20


class Accepting:
    """Owners that accept every change."""

    async def apply(self, partition: int, requests: Sequence[ChangeRequest]) -> Outcomes:
        return Outcomes(np.ones(len(requests), np.int64))


@pytest.fixture
def read_on(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns the threads in which queries are read, one for each."""
    threads: list[int] = []

    def read_query(*given: Any, **named: Any) -> Any:
        threads.append(threading.get_ident())
        return reader.read_query(*given, **named)

    for module in (query_checks, search):
        monkeypatch.setattr(module, "read_query", read_query)
    return threads


@pytest.mark.parametrize(
    "way", ["RegisterQuery", "RegisterQueries", "RegisterQueries beside a plain one", "Search"]
)
def test_entangled_expressions_are_read_beside_the_loop(way: str, read_on: list[int]) -> None:
    pool = WorkPool("queries")

    async def run() -> int:
        front = QueryFront(
            cast(Owners, Accepting()), 2, RouterMetrics(CollectorRegistry()), pool=pool
        )
        entangled = [query_message(f"q{i}", "s", text=TEXT) for i in range(ROWS)]
        if way == "RegisterQuery":
            for each in entangled:
                await front._checks.read("register", each, Lifetime(0, 0, False), EVERYTHING)
        elif way.startswith("RegisterQueries"):
            plain = [query_message("plain", "s")] if way.endswith("plain one") else []
            request = query_service_pb2.RegisterQueriesRequest(queries=[*plain, *entangled])
            answer = await front._bulk("register", request)
            assert [outcome.revision for outcome in answer.outcomes] == [1] * (ROWS + len(plain))
        else:
            # What reads a search alone: the rest of the service needs a cluster.
            searches = object.__new__(search.SearchFront)
            searches._pool = pool
            searches._settings = ClusterSettings(cluster="entangled")
            searches._limits = searches._settings.merger
            for each in entangled:
                each.mode, each.subscriber = QUERY_MODE_SNAPSHOT, ""
                await searches._read_search(search_service_pb2.SearchRequest(query=each), None)
        return threading.get_ident()

    try:
        loop = asyncio.run(run())
    finally:
        pool.close()
    assert len(read_on) == ROWS
    assert loop not in read_on
