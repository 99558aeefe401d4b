"""Tenants whose changes append more to slots than they may wait, and others do not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest
from prometheus_client import CollectorRegistry
from sirocco_api.v1 import query_service_pb2 as pb

from sirocco.internal_api.v1.owner_service_pb2 import CountQueriesRequest, CountQueriesResponse
from sirocco.model.access import Grant, Limits
from sirocco.model.errors import ResourceExhausted
from sirocco.model.query import parse_query
from sirocco.protocol.contract.effects import ChangeRequest, Outcome
from sirocco.runtime.grpc.authentication import EVERYBODY, Caller
from sirocco.runtime.process.clock import now_ms as clock_ms
from sirocco.services.router import queries
from sirocco.services.router.changes import change_rates
from sirocco.services.router.changes.change_rates import ChangeRates, change_bytes, slots_met
from sirocco.services.router.changes.query_checks import lifetime_of
from sirocco.services.router.limits import FrontTimes
from sirocco.services.router.owners import Owners
from sirocco.services.router.queries import QueryFront
from sirocco.services.router.quotas import TenantFigures
from sirocco.telemetry.metrics.router import RouterMetrics
from tests.support.plain_client import query_message
from tests.support.values import uniform_routing

ROUTING = uniform_routing(16, 64)

# 12 bytes a term and 24 a conjunction, in each of the 16 slots.
LARGE = " OR ".join(f"word{n}" for n in range(200))


class Clock:
    """The time of buckets, which passes when somebody waits."""

    def __init__(self) -> None:
        self.now_ms = 0

    async def sleep(self, pause_s: float) -> None:
        self.now_ms += round(1_000 * pause_s)
        await asyncio.sleep(0)


class Tenant(Caller):
    """A caller of a tenant, with a rate of its own or the usual one."""

    def __init__(self, name: str, rate: float | None = None) -> None:
        super().__init__(Grant("t", name, frozenset({"query"})))
        self.given = Limits(change_bytes_per_s=rate)

    @property
    def limits(self) -> Limits:
        return self.given


class Applied:
    """Owners that apply all changes, and count the rows of each call."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    async def apply(
        self, _partition: int, requests: Sequence[ChangeRequest]
    ) -> tuple[Outcome, ...]:
        self.calls.append(len(requests))
        return (Outcome(1),) * len(requests)

    async def count(self, request: CountQueriesRequest) -> CountQueriesResponse:
        return CountQueriesResponse()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(change_rates, "monotonic_ms", lambda: clock.now_ms)
    timing = SimpleNamespace(sleep=clock.sleep, CancelledError=asyncio.CancelledError)
    monkeypatch.setattr(change_rates, "asyncio", timing)
    return clock


def rates_of(usual: float | None, held_up_ms: int = 20_000) -> ChangeRates:
    figures = TenantFigures(RouterMetrics(CollectorRegistry()))
    return ChangeRates(
        lambda: ROUTING, figures, FrontTimes(changes_held_up_ms_max=held_up_ms), usual
    )


async def waited_ms(rates: ChangeRates, clock: Clock, client: Caller, size: int) -> int:
    begin_ms = clock.now_ms
    await rates.room(client, size, rates.deadline_ms())
    return clock.now_ms - begin_ms


def test_a_tenant_over_its_rate_waits_and_others_do_not(clock: Clock) -> None:
    rates = rates_of(1_000)

    async def run() -> None:
        assert await waited_ms(rates, clock, Tenant("a"), 900) == 0
        assert await waited_ms(rates, clock, Tenant("a"), 5_100) == 0
        # A debt of five seconds.
        waiting = asyncio.ensure_future(waited_ms(rates, clock, Tenant("a"), 1))
        assert await waited_ms(rates, clock, Tenant("b"), 900) == 0
        assert await waited_ms(rates, clock, EVERYBODY, 10**9) == 0
        assert await waited_ms(rates, clock, Tenant("c", rate=10**9), 10**9 - 1) == 0
        assert 5_000 <= await waiting <= 5_002
        # A limit of the tenant's own comes first.
        assert await waited_ms(rates, clock, Tenant("a", rate=10**9), 1) <= 1

    asyncio.run(run())


def test_who_would_wait_too_long_is_refused_with_a_time(clock: Clock) -> None:
    rates = rates_of(1_000)

    async def run() -> None:
        assert await waited_ms(rates, clock, Tenant("a"), 30_000) == 0
        with pytest.raises(ResourceExhausted, match="change_bytes_per_s") as caught:
            await waited_ms(rates, clock, Tenant("a"), 1)
        assert clock.now_ms == 0
        assert caught.value.retry_after_ms is not None
        assert 29_000 <= caught.value.retry_after_ms <= 29_002

    asyncio.run(run())


def test_changes_count_in_each_slot_that_they_meet() -> None:
    whole = {"west": -180, "south": 1, "east": 180, "north": 1.001}
    tiny = {"west": 1, "south": 1, "east": 1.001, "north": 1.001}
    common: dict[str, object] = {"id": "q", "mode": "continuous"}
    asked: list[dict[str, object]] = [
        {"kind": "range", "region": {"rect": tiny}},
        {"kind": "range", "region": {"rect": whole}},
        {"kind": "range", "text": "a"},
        {"kind": "range", "region": {"rect": tiny}, "track": "ship"},
        {"kind": "knn", "point": {"lon": 1, "lat": 1}, "k": 3},
    ]
    read = [parse_query(common | each) for each in asked]
    met = slots_met(read, ROUTING).tolist()
    assert met[0] == 1
    assert 1 < met[1] < 16
    assert met[2:] == [16, 16, 16]
    # The end of a query is reported in every slot, wherever the query is.
    plain = parse_query(common | {"kind": "range", "region": {"rect": tiny}})
    ending = parse_query(common | {"kind": "range", "region": {"rect": tiny}, "events": ["ended"]})
    assert change_bytes(plain, "s")[1] == 0
    assert change_bytes(ending, "s") > (300, 64)
    large = parse_query(common | {"kind": "range", "text": LARGE})
    assert 200 * 36 < change_bytes(large, "s")[0] < 25_000


def updates(count: int) -> pb.UpdateQueriesRequest:
    return pb.UpdateQueriesRequest(
        queries=[query_message(f"q{n}", "s", text=LARGE) for n in range(count)]
    )


def front(applied: Applied, usual: float, held_up_ms: int = 20_000) -> QueryFront:
    return QueryFront(
        cast(Owners, applied),
        1,
        RouterMetrics(CollectorRegistry()),
        times=FrontTimes(changes_held_up_ms_max=held_up_ms),
        tenant_change_bytes=usual,
        routing=lambda: ROUTING,
    )


def test_a_bulk_request_is_applied_in_parts_as_far_as_its_time_goes(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some 260 KB that one tenant updates appended 13 MB, again and again."""
    monkeypatch.setattr(queries, "caller", lambda: Tenant("a"))

    async def run() -> None:
        applied = Applied()
        serving = front(applied, 1 << 20, 5_000)
        outcomes = (await serving._bulk("update", updates(100))).outcomes
        errors = [each.error for each in outcomes]
        done = errors.count(None)
        # 1 MiB at once and 1 MiB a second for 5 s, where each takes 16 times 10 to 25 KB.
        assert 6 * (1 << 20) / (16 * 25_000) - 1 < done < 7 * (1 << 20) / (16 * 7_000)
        assert all(isinstance(each, ResourceExhausted) for each in errors[done:])
        assert sum(applied.calls) == done
        assert max(applied.calls) <= 2

    asyncio.run(run())


def test_searches_of_the_past_count_in_each_slot(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slot takes no objects while it searches: 500 queries of one request kept it for 15 s."""
    monkeypatch.setattr(queries, "caller", lambda: Tenant("a"))

    async def run() -> None:
        applied = Applied()
        serving = front(applied, 64 << 20)
        asked = [query_message(f"q{n}", "s", text="a") for n in range(500)]
        request = pb.RegisterQueriesRequest(queries=asked, past_ms=1)
        outcomes = (await serving._bulk("register", request)).outcomes
        done = [each.error for each in outcomes].count(None)
        # 64 slots at once and 64 a second for 20 s, each query in 16 of them.
        assert 80 <= done <= 90
        assert sum(applied.calls) == done

    asyncio.run(run())


def test_steps_of_the_past_count_in_each_slot(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slot takes no objects before it has reported the steps that are due."""
    monkeypatch.setattr(queries, "caller", lambda: Tenant("a"))
    members = {"kind": "terms", "k": 1, "step": "1m", "window": "1h"}

    async def run() -> None:
        applied = Applied()
        serving = front(applied, 64 << 20)
        asked = [query_message(f"q{n}", "s", **members) for n in range(100)]
        start_ms = clock_ms() - 1_000 * 60_000
        request = pb.RegisterQueriesRequest(queries=asked, start_ms=start_ms)
        outcomes = (await serving._bulk("register", request)).outcomes
        done = [each.error for each in outcomes].count(None)
        # A thousand steps each, 4,096 a second of all slots, and each query in 16 of them.
        assert 4 <= done <= 7
        assert sum(applied.calls) == done

    asyncio.run(run())


def test_usual_bulk_requests_are_applied_at_once(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "caller", lambda: Tenant("a"))

    async def run() -> None:
        applied = Applied()
        outcomes = (await front(applied, 64 << 20)._bulk("update", updates(20))).outcomes
        assert [each.error for each in outcomes] == [None] * 20
        assert applied.calls == [20]
        assert clock.now_ms == 0

    asyncio.run(run())


def test_single_changes_wait_and_are_refused_like_many(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Tenant("a")
    monkeypatch.setattr(queries, "caller", lambda: client)

    async def run() -> None:
        serving = front(Applied(), 1_000, 100)

        async def update() -> None:
            change, _ = await serving._checks.read(
                "update",
                query_message("q", "s", text=LARGE),
                lifetime_of(pb.UpdateQueryRequest()),
                client.grant,
            )
            await serving._changes.apply(change, client)

        await update()
        with pytest.raises(ResourceExhausted) as caught:
            await update()
        assert caught.value.retry_after_ms is not None

    asyncio.run(run())
