"""Limits of a tenant when its bulk requests name an id several times, or are many at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry
from sirocco_api.v1 import query_pb2
from sirocco_api.v1 import query_service_pb2 as pb

from sirocco.internal_api.v1.owner_service_pb2 import CountQueriesRequest, CountQueriesResponse
from sirocco.model.access import Grant, Limits
from sirocco.model.errors import AlreadyExists
from sirocco.model.query import Query, fingerprint_of, query_handle
from sirocco.model.quotas.footprint import compiled_bytes
from sirocco.model.quotas.step_load import step_load
from sirocco.protocol.contract.effects import ChangeRequest, Outcome
from sirocco.protocol.contract.messages import NO_REVISION
from sirocco.runtime.grpc.authentication import EVERYBODY, Caller
from sirocco.services.router import queries
from sirocco.services.router.changes import tenant_room
from sirocco.services.router.limits import TIMES, FrontTimes
from sirocco.services.router.owners import Owners
from sirocco.services.router.queries import QueryFront
from sirocco.telemetry.metrics.router import RouterMetrics
from tests.support.plain_client import query_message
from tests.support.waiting import until

LARGE = " OR ".join(f"word{n}" for n in range(200))


class Registry:
    """Owners that apply changes, and report only what they held when they were first asked."""

    def __init__(self) -> None:
        self.live: dict[str, Query] = {}
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def apply(
        self, _partition: int, requests: Sequence[ChangeRequest]
    ) -> tuple[Outcome, ...]:
        await self.go_on.wait()
        return tuple(map(self._applied, requests))

    def _applied(self, change: ChangeRequest) -> Outcome:
        assert change.query is not None
        if change.action == "register" and change.id in self.live:
            if self.live[change.id] != change.query:
                return Outcome(NO_REVISION, AlreadyExists("another", field="id"))
        else:
            self.live[change.id] = change.query
        return Outcome(1)

    async def count(self, request: CountQueriesRequest) -> CountQueriesResponse:
        response = CountQueriesResponse()
        if request.id_prefix:
            if request.partition == 0:
                response.queries = len(self.live)
                response.bytes = self.bytes
                response.steps_per_s = sum(map(step_load, self.live.values()))
            return response
        live = {(query_handle(n), fingerprint_of(n)): query for n, query in self.live.items()}
        for key in zip(request.handles, request.fingerprints, strict=True):
            if key in live:
                response.live_handles.append(key[0])
                response.live_fingerprints.append(key[1])
                if request.amounts_of:
                    assert request.amounts_of == "a:"
                    response.live_bytes.append(compiled_bytes(live[key], "a:s"))
                    response.live_steps_per_s.append(step_load(live[key]))
        return response

    @property
    def bytes(self) -> int:
        return sum(map(compiled_bytes, self.live.values()))


class Tenant(Caller):
    """A caller of the tenant `a` with given limits."""

    def __init__(self, **limits: int) -> None:
        super().__init__(Grant("t", "a", frozenset({"query"})))
        self.given = Limits(**limits)  # type: ignore[arg-type]

    @property
    def limits(self) -> Limits:
        return self.given


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Any:
    def as_tenant(**limits: int) -> None:
        monkeypatch.setattr(queries, "caller", lambda: Tenant(**limits))

    return as_tenant


def front(
    registry: Registry, times: FrontTimes = TIMES, tenant_steps: float | None = None
) -> QueryFront:
    metrics = RouterMetrics(CollectorRegistry())
    return QueryFront(cast(Owners, registry), 2, metrics, times=times, tenant_steps=tenant_steps)


async def errors(front: QueryFront, action: str, *rows: tuple[str, str]) -> list[str]:
    """Returns the codes of a bulk request's rows, each an id and a text."""
    message = pb.RegisterQueriesRequest(
        queries=[query_message(name, "s", text=text) for name, text in rows]
    )
    outcomes = (await front._bulk(action, message)).outcomes
    return ["" if each.error is None else each.error.code for each in outcomes]


def test_rows_of_one_id_are_let_in_or_refused_together(limited: Any) -> None:
    """Only the last row was counted and refused; the others were registered beyond the limit."""
    limited(queries=2)

    async def run() -> None:
        registry = Registry()
        serving = front(registry)
        assert await errors(serving, "register", ("q1", "a"), ("q1", "a")) == ["", ""]
        found = await errors(serving, "register", *[("q2", "a")] * 2, *[("q3", "a")] * 2)
        assert found == ["", "", *["RESOURCE_EXHAUSTED"] * 2]
        assert await errors(serving, "register", ("q1", "a"), ("q2", "a")) == ["", ""]
        assert set(registry.live) == {"a:q1", "a:q2"}

    asyncio.run(run())


def test_bytes_of_many_rows_are_counted_beside_the_loop(
    limited: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """6,000 rows of 256 alternatives took 10 s of the loop that answers everybody."""
    limited(query_bytes=10_000_000)
    threads: set[int] = set()

    def counted(query: Query, subscriber: str) -> int:
        threads.add(threading.get_ident())
        return compiled_bytes(query, subscriber)

    monkeypatch.setattr(tenant_room, "compiled_bytes", counted)

    async def run() -> None:
        rows = [(f"q{number}", LARGE) for number in range(20)]
        assert await errors(front(Registry()), "register", *rows) == [""] * 20

    asyncio.run(run())
    assert threads
    assert threading.get_ident() not in threads


def test_a_request_without_a_good_row_has_an_answer(limited: Any) -> None:
    limited(queries=2, query_bytes=1_000, steps_per_s=1)

    async def run() -> None:
        nameless = query_pb2.Query()
        for rows in ([], [nameless]):
            message = pb.RegisterQueriesRequest(queries=rows)
            outcomes = (await front(Registry())._bulk("register", message)).outcomes
            assert [each.error is None for each in outcomes] == [False] * len(rows)

    asyncio.run(run())


@pytest.mark.parametrize("action", ["register", "update"])
@pytest.mark.parametrize("is_large_first", [True, False])
def test_the_largest_row_of_an_id_counts(is_large_first: bool, action: str, limited: Any) -> None:
    limit = 40_000
    limited(query_bytes=limit)
    texts = [LARGE, "a"] if is_large_first else ["a", LARGE]

    async def run() -> None:
        registry = Registry()
        serving = front(registry)
        rows = [(f"q{n}", text) for n in range(20) for text in texts]
        refused = await errors(serving, action, *rows)
        assert 0 < registry.bytes <= limit
        assert "RESOURCE_EXHAUSTED" in refused

    asyncio.run(run())


def test_requests_whose_outcome_is_unknown_count(limited: Any) -> None:
    """Eight streams of 4,000 rows registered 5,000 queries under a limit of 2,000."""
    limited(queries=5)
    times = FrontTimes(counted_at_limit_ms=-1, counted_ms=-1)

    async def run() -> None:
        registry = Registry()
        registry.go_on.clear()
        serving = front(registry, times)
        asked = [
            asyncio.create_task(
                errors(serving, "register", *((f"q{r}.{n}", "a") for n in range(4)))
            )
            for r in range(8)
        ]
        await until(lambda: serving._changes._tenants._quota._under_way["a"])
        # Two streams have let in five rows; all rows of the others are refused.
        await until(lambda: sum(each.done() for each in asked) == 6)
        registry.go_on.set()
        found = [code for each in await asyncio.gather(*asked) for code in each]
        assert len(registry.live) == found.count("") == 5
        assert not serving._changes._tenants._quota._under_way["a"]

    asyncio.run(run())


def test_the_changes_of_a_client_that_has_gone_count_for_a_while(limited: Any) -> None:
    limited(queries=5)
    times = FrontTimes(seek_s=0.2)

    async def run() -> None:
        registry = Registry()
        registry.go_on.clear()
        serving = front(registry, times)
        asked = asyncio.create_task(errors(serving, "register", ("q1", "a")))
        await until(lambda: serving._changes._tenants._quota._under_way["a"])
        asked.cancel()
        await asyncio.wait([asked])
        assert serving._changes._tenants._quota._under_way["a"] == 1
        async with asyncio.timeout(10):
            await until(lambda: not serving._changes._tenants._quota._under_way["a"])

    asyncio.run(run())


async def steps(front: QueryFront, action: str, *rows: tuple[str, str]) -> list[str]:
    """As `errors`, of terms queries whose steps count as three each: an id and the step."""
    members = {"kind": "terms", "k": 100, "window": "10m"}
    message = pb.RegisterQueriesRequest(
        queries=[query_message(name, "s", **members, step=step) for name, step in rows]
    )
    outcomes = (await front._bulk(action, message)).outcomes
    return [
        "" if each.error is None else f"{each.error.code} {each.error.field}" for each in outcomes
    ]


REFUSED = "RESOURCE_EXHAUSTED step"


@pytest.mark.parametrize("own", [{}, {"steps_per_s": 70}])
def test_steps_are_let_in_as_far_as_slots_keep_up(own: dict[str, int], limited: Any) -> None:
    """A tenant's steps of 100 ms, each a search of its window, held up everybody in its slots."""
    limited(**own)

    async def run() -> None:
        registry = Registry()
        # What a tenant's limits say comes before what the cluster's settings say.
        serving = front(registry, tenant_steps=70 if not own else 1)
        names = [f"q{number}" for number in range(10_000)]
        found = await steps(serving, "register", *((name, "100ms") for name in names))
        assert found == ["", "", *[REFUSED] * 9_998]
        # Slower ones still fit; what is registered already is not refused, and nothing without
        # steps counts.
        assert await steps(serving, "register", ("s1", "1s"), ("q0", "100ms")) == ["", ""]
        # Of 70, 63 are taken: an update counts as what it has more than the version before.
        assert await steps(serving, "update", ("q0", "200ms"), ("s1", "250ms")) == ["", REFUSED]
        assert await errors(serving, "register", ("r1", "a")) == [""]
        assert sum(map(step_load, registry.live.values())) == 48
        limited(steps_per_s=78)
        assert await steps(serving, "update", ("q0", "100ms")) == [""]

    asyncio.run(run())


def test_a_query_over_half_of_a_limit_can_be_updated(limited: Any) -> None:
    """It counted beside the version before, and was refused though nothing grew."""
    limited(query_bytes=40_000, steps_per_s=40)

    async def run() -> None:
        registry = Registry()
        serving = front(registry)
        assert await errors(serving, "register", ("q1", LARGE)) == [""]
        assert registry.bytes > 20_000
        assert await errors(serving, "update", ("q1", f"{LARGE} OR more")) == [""]
        assert await errors(serving, "update", ("q1", f"{LARGE} OR {LARGE.upper()}")) == [""]
        # What it has more is bounded as ever, in one update and in many.
        much = " OR ".join(f"{'other' * 40}{n}" for n in range(50))
        assert await errors(serving, "update", ("q1", f"{LARGE} OR {much}")) == [
            "RESOURCE_EXHAUSTED"
        ]
        assert await errors(serving, "update", ("q2", f"{LARGE}")) == ["RESOURCE_EXHAUSTED"]
        assert await steps(serving, "register", ("s1", "100ms")) == [""]
        assert await steps(serving, "update", ("s1", "100ms")) == [""]
        # A lower limit does not hold up what takes no more than before.
        limited(query_bytes=1_000, steps_per_s=1)
        assert await errors(serving, "update", ("q1", LARGE)) == [""]
        assert await steps(serving, "update", ("s1", "200ms")) == [""]

    asyncio.run(run())


def test_steps_of_callers_without_a_tenant_are_not_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queries, "caller", lambda: EVERYBODY)

    async def run() -> None:
        serving = front(Registry(), tenant_steps=1)
        assert await steps(serving, "register", ("q1", "100ms")) == [""]

    asyncio.run(run())
