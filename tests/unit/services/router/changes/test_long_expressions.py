"""Expressions that may take long are read in threads, never in the loop of all clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from sirocco_api.v1 import query_pb2
from sirocco_api.v1 import query_service_pb2 as pb
from sirocco_api.v1 import search_service_pb2 as search_pb

from sirocco.model.access import EVERYTHING
from sirocco.protocol.contract.effects import Outcome
from sirocco.services.merger.search import SearchFront
from sirocco.services.router.changes.query_checks import Lifetime
from sirocco.services.router.queries import QueryFront
from sirocco.telemetry.metrics.router import RouterMetrics

# Two pairs of alternatives, which are multiplied; and many words without any.
ENTANGLED = "(a OR b) (c OR d)"
TEXTS = ["a OR b", ENTANGLED, "NOT (a b) c", " ".join(f"word{n}" for n in range(200))]
LIGHT = [True, False, False, False]


class Pool:
    """Notes how many jobs it is given, and runs them at once."""

    def __init__(self) -> None:
        self.jobs = 0

    async def run(self, job: Callable[[], Any]) -> Any:
        self.jobs += 1
        return job()

    async def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        self.jobs += len(items)
        return [function(item) for item in items]


class Owners:
    """Takes every change."""

    async def apply(self, partition: int, changes: Sequence[Any]) -> list[Outcome]:
        return [Outcome(1)] * len(changes)


def message_of(text: str, mode: Any = query_pb2.QUERY_MODE_CONTINUOUS) -> query_pb2.Query:
    return query_pb2.Query(id="q", subscriber="s", mode=mode, range=query_pb2.RangeKind(text=text))


@pytest.mark.parametrize(("text", "is_light"), list(zip(TEXTS, LIGHT, strict=True)))
def test_a_query_that_may_take_long_is_read_elsewhere(text: str, is_light: bool) -> None:
    pool = Pool()
    front = QueryFront(Owners(), 1, RouterMetrics(CollectorRegistry()), pool=pool)  # type: ignore[arg-type]
    lifetime = Lifetime(0, -1, False)
    read = front._checks.read("register", message_of(text), lifetime, EVERYTHING)
    change, _ = asyncio.run(read)
    assert change.id == "q"
    assert pool.jobs == (not is_light)


def test_queries_in_bulk_are_read_elsewhere() -> None:
    pool = Pool()
    front = QueryFront(Owners(), 1, RouterMetrics(CollectorRegistry()), pool=pool)  # type: ignore[arg-type]

    async def requests() -> AsyncIterator[Any]:
        yield pb.RegisterQueriesRequest(queries=[message_of(text) for text in TEXTS], past_ms=1_000)

    async def test() -> None:
        async for answer in front._answered(requests(), lambda each: front._bulk("register", each)):
            assert len(answer.outcomes) == len(TEXTS)

    asyncio.run(test())
    assert pool.jobs == len(TEXTS)


@pytest.mark.parametrize(("text", "is_light"), list(zip(TEXTS, LIGHT, strict=True)))
def test_a_search_that_may_take_long_is_read_elsewhere(text: str, is_light: bool) -> None:
    front, pool = SearchFront.__new__(SearchFront), Pool()
    front._pool = pool  # type: ignore[assignment]
    front._read = lambda request, left_s: request  # type: ignore[assignment, method-assign, return-value]
    request = search_pb.SearchRequest(query=message_of(text, query_pb2.QUERY_MODE_SNAPSHOT))
    assert asyncio.run(front._read_search(request, None)) is request  # type: ignore[comparison-overlap]
    assert pool.jobs == (not is_light)
