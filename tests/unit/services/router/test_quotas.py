"""Limits of tenants at a router: waits, refusals, counts, and when they are forgotten."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from sirocco.internal_api.v1.owner_service_pb2 import CountQueriesRequest
from sirocco.model.access import EVERYTHING, Grant, Limits
from sirocco.model.errors import InvalidArgument, ResourceExhausted, Unavailable
from sirocco.model.query import fingerprint_of, parse_query
from sirocco.model.quotas.footprint import QUERY_BYTES, compiled_bytes
from sirocco.protocol.contract.messages import Change
from sirocco.protocol.router.machine import RouterMachine
from sirocco.protocol.router.queries.live_queries import LiveQueries
from sirocco.runtime.grpc.authentication import Caller
from sirocco.services.router import quotas
from sirocco.services.router.limits import TIMES
from sirocco.services.router.quotas import (
    LABELS_MAX,
    OTHERS,
    PublishRates,
    QueryQuota,
    TenantFigures,
    TenantQueries,
)
from sirocco.services.router.registry_definitions import StoredQueries
from sirocco.telemetry.metrics.router import RouterMetrics


class Clock:
    """Stands still, except while somebody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ms = 1_000_000
        monkeypatch.setattr(quotas, "monotonic_ms", lambda: self.now_ms)
        monkeypatch.setattr(asyncio, "sleep", self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.now_ms += math.ceil(seconds * 1_000)


class Limited(Caller):
    """A caller of a tenant with given limits."""

    def __init__(self, tenant: str, **limits: float) -> None:
        super().__init__(Grant("t", tenant, frozenset({"publish", "query"})))
        self.given = Limits(**limits)  # type: ignore[arg-type]

    @property
    def limits(self) -> Limits:
        return self.given


async def publish(rates: PublishRates, who: Caller, objects: int, size: int) -> None:
    async with rates.room(who, objects, size):
        pass


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def figures(registry: CollectorRegistry) -> TenantFigures:
    return TenantFigures(RouterMetrics(registry))


def test_a_fast_tenant_waits_and_a_much_too_fast_one_is_refused(
    figures: TenantFigures, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates, clock = PublishRates(figures), Clock(monkeypatch)
    slow, other = Limited("slow", objects_per_s=100), Limited("other", objects_per_s=100)

    async def main() -> None:
        await publish(rates, slow, 120, 1)
        begin_ms = clock.now_ms
        await publish(rates, other, 1, 1)
        assert clock.now_ms == begin_ms
        await publish(rates, slow, 2_000, 1)
        # The debt of twenty.
        assert clock.now_ms - begin_ms == pytest.approx(200, abs=1)
        with pytest.raises(ResourceExhausted) as refused:
            await publish(rates, slow, 1, 1)
        assert 18_000 < (refused.value.retry_after_ms or 0) <= 20_001
        # A higher rate shortens the wait, and without one it ends at once.
        slow.given = Limits(objects_per_s=1_000_000)
        await publish(rates, slow, 1, 1)
        slow.given = Limits()
        await publish(rates, slow, 1_000_000, 1)

    asyncio.run(main())
    counted = registry.get_sample_value("sirocco_router_tenant_objects_total", {"tenant": "slow"})
    assert counted == 120 + 2_000 + 1 + 1_000_000
    labels = {"tenant": "slow", "limit": "objects_per_s"}
    assert registry.get_sample_value("sirocco_router_tenant_refusals_total", labels) == 1


def test_bytes_count_too_and_callers_without_a_tenant_are_not_limited(
    figures: TenantFigures,
) -> None:
    rates = PublishRates(figures)

    async def main() -> None:
        tenant = Limited("a", objects_per_s=1e9, bytes_per_s=10)
        await publish(rates, tenant, 1, 1_000)
        with pytest.raises(ResourceExhausted, match="bytes_per_s"):
            await publish(rates, tenant, 1, 1)
        for _ in range(3):
            await publish(rates, Caller(EVERYTHING), 1 << 40, 1 << 40)

    asyncio.run(main())


def test_what_is_shed_after_the_limits_is_not_the_tenants_to_pay(
    figures: TenantFigures, registry: CollectorRegistry
) -> None:
    rates = PublishRates(figures)
    tenant = Limited("a", objects_per_s=100, bytes_per_s=1_000)

    async def main() -> None:
        for _ in range(10):
            with pytest.raises(ResourceExhausted, match="overload"):
                async with rates.room(tenant, 10_000, 100_000):
                    raise ResourceExhausted("overload")
        await publish(rates, tenant, 10_000, 100_000)
        with pytest.raises(ResourceExhausted, match="more than its"):
            await publish(rates, tenant, 1, 1)

    asyncio.run(main())
    name = "sirocco_router_tenant_objects_total"
    assert registry.get_sample_value(name, {"tenant": "a"}) == 10_000


def test_figures_are_kept_of_so_many_tenants(
    figures: TenantFigures, registry: CollectorRegistry
) -> None:
    for number in range(LABELS_MAX + 5):
        figures.published(f"t{number}", 1, 1)
    name = "sirocco_router_tenant_objects_total"
    assert registry.get_sample_value(name, {"tenant": OTHERS}) == 5
    assert registry.get_sample_value(name, {"tenant": f"t{LABELS_MAX}"}) is None


def test_queries_are_let_in_up_to_the_limit(
    figures: TenantFigures, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = [0]
    monkeypatch.setattr(quotas, "monotonic_ms", lambda: now_ms[0])
    live, looks = [3], [0]

    async def counted(prefix: str) -> int:
        assert prefix == "a:"
        looks[0] += 1
        return live[0]

    async def main() -> None:
        quota, who = QueryQuota(counted, figures), Limited("a", queries=10)
        assert await quota.room(who, 5) == 5
        assert await quota.room(who, 5) == 2
        quota.settled(who, 7)
        # Admitted queries count here before the owners report them; these are not asked at once
        # again.
        assert await quota.room(who, 1) == 0
        assert looks[0] == 1
        now_ms[0] += TIMES.counted_at_limit_ms + 1
        live[0] = 9
        assert await quota.room(who, 2) == 1
        quota.settled(who, 1)
        assert looks[0] == 2
        # With room, it looks less often.
        now_ms[0] += TIMES.counted_at_limit_ms + 1
        live[0] = 0
        assert await quota.room(who, 1) == 1
        assert looks[0] == 3
        now_ms[0] += TIMES.counted_at_limit_ms + 1
        assert await quota.room(who, 1) == 1
        assert looks[0] == 3
        now_ms[0] += TIMES.counted_ms + 1
        assert await quota.room(who, 1) == 1
        assert looks[0] == 4
        assert await quota.room(Limited("b"), 1_000_000) == 1_000_000
        assert await quota.room(Limited("a", queries=0), 1) == 0

    asyncio.run(main())


def test_changes_under_way_count_beside_what_the_owners_report(
    figures: TenantFigures, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flood of bulk requests was admitted at every look, until the first were applied."""
    now_ms = [0]
    monkeypatch.setattr(quotas, "monotonic_ms", lambda: now_ms[0])
    live = 0

    async def counted(_prefix: str) -> int:
        return live

    async def main() -> None:
        nonlocal live
        quota, who = QueryQuota(counted, figures), Limited("a", queries=10)
        assert await quota.room(who, 20) == 10
        for _ in range(3):
            now_ms[0] += TIMES.counted_ms + 1
            assert await quota.room(who, 20) == 0
        # Half of them are applied: the owners may report them or not.
        quota.settled(who, 5)
        live = 5
        now_ms[0] += TIMES.counted_ms + 1
        assert await quota.room(who, 20) == 0
        # The others have failed.
        quota.settled(who, 5)
        now_ms[0] += TIMES.counted_ms + 1
        assert await quota.room(who, 20) == 5

    asyncio.run(main())


class Registered:
    """A registry partition and its log."""

    def __init__(self) -> None:
        self.live = LiveQueries()
        self.log: list[Change] = []
        self.read: list[int] = []
        self.registry = SimpleNamespace(partition=1, epoch=1, offset=0, live=self.live)

    def say(self, handle: int, name: str | None, **form: Any) -> None:
        """Appends a change that the machine has entered."""
        members = {"id": name, "kind": "range", "mode": "continuous", **form}
        query = None if name is None else parse_query(members)
        self.log.append(cast(Change, SimpleNamespace(handle=handle, subscriber="s", query=query)))
        self.registry.offset = len(self.log)
        if name is None:
            self.end(handle)
        else:
            self.enter(handle, name)

    def enter(self, handle: int, name: str, expires_ms: int = 8) -> None:
        marks = [fingerprint_of(name)]
        self.live.put(
            np.array([handle], np.uint64),
            [1],
            [1],
            np.array([expires_ms]),
            [()],
            fingerprints=marks,
        )

    def end(self, handle: int) -> None:
        self.live.drop(np.array([handle], np.uint64))

    def changes(self, _partition: int, begin: int, end: int) -> Any:
        for offset in range(begin, end):
            self.read.append(offset)
            yield offset, self.log[offset]


@pytest.fixture
def registered() -> Registered:
    return Registered()


@pytest.fixture
def tenants(registered: Registered) -> TenantQueries:
    machine = SimpleNamespace(
        registries={1: registered.registry}, lifetimes_ms=lambda now_ms: 7 if now_ms else 0
    )
    return TenantQueries(cast(StoredQueries, registered), cast(RouterMachine, machine))


@pytest.fixture
def count(tenants: TenantQueries) -> Callable[[str], int]:
    def counted(prefix: str) -> int:
        request = CountQueriesRequest(partition=1, id_prefix=prefix)
        return asyncio.run(tenants.answer(request)).queries

    return counted


def test_steps_are_counted_by_tenant(registered: Registered, tenants: TenantQueries) -> None:
    terms = {"kind": "terms", "k": 100, "window": "10m", "step": "100ms"}
    for handle, name in enumerate(["a:1", "a:2", "b:1"]):
        registered.say(handle, name, **terms)
    registered.say(3, "a:3")
    asked = CountQueriesRequest(partition=1, id_prefix="a:")
    assert asyncio.run(tenants.answer(asked)).steps_per_s == 60


def test_live_queries_are_counted_by_tenant(
    registered: Registered,
    tenants: TenantQueries,
    count: Callable[[str], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for handle, name in enumerate(["a:1", "a:2", "b:1", "plain", "ab:1"]):
        registered.say(handle, name)
    assert (count("a:"), count("b:"), count("ab:"), count("c:")) == (2, 1, 1, 0)
    asked = CountQueriesRequest(partition=1, id_prefix="a:")
    assert asyncio.run(tenants.answer(asked)).bytes > 2 * QUERY_BYTES
    registered.say(0, None)
    registered.say(1, "a:2")
    assert count("a:") == 1
    # Each record is read once.
    assert registered.read == list(range(7))
    # A query belongs to one tenant, whatever other ids have its handle.
    registered.say(2, "a:as-b:1")
    assert (count("a:"), count("b:")) == (2, 0)
    registered.say(2, "b:1")
    assert (count("a:"), count("b:")) == (1, 1)
    # The end of a lifetime has no record.
    registered.end(1)
    assert count("a:") == 0
    # A query that the machine is about to enter is not counted, nor lost as time passes.
    registered.say(9, "a:9")
    registered.end(9)
    monkeypatch.setattr(tenants, "_tidy_ms", 0)
    assert count("a:") == 0
    registered.enter(9, "a:9")
    assert count("a:") == 1
    # A query whose lifetime is over does not count while it waits for its removal.
    registered.enter(9, "a:9", expires_ms=7)
    assert count("a:") == 0
    registered.enter(9, "a:9")
    # Another ownership begins anew.
    registered.registry.epoch = 2
    assert count("a:") == 1
    assert registered.read.count(0) == 2


def test_an_owner_reports_what_each_query_of_a_tenant_takes(
    registered: Registered, tenants: TenantQueries
) -> None:
    terms = {"kind": "terms", "k": 100, "window": "10m", "step": "100ms"}
    registered.say(1, "a:1", text="fire")
    registered.say(2, "a:2", **terms)
    registered.say(3, "a:3")
    registered.say(3, None)
    registered.say(4, "b:1")
    registered.say(1, "a:1", text="fire " * 9 + "smoke")
    asked = CountQueriesRequest(partition=1, handles=[4, 3, 2, 1], amounts_of="a:")
    answer = asyncio.run(tenants.answer(asked))
    assert list(answer.live_handles) == [4, 2, 1]
    sizes = [
        compiled_bytes(each.query, "s")
        for each in (registered.log[1], registered.log[-1])
        if each.query is not None
    ]
    # Another tenant's take nothing of this one's limits.
    assert list(answer.live_bytes) == [0, *sizes]
    assert list(answer.live_steps_per_s) == [0, 30, 0]
    assert not answer.queries


def test_a_count_whose_caller_has_gone_is_not_done_twice_at_once(
    registered: Registered, tenants: TenantQueries, monkeypatch: pytest.MonkeyPatch
) -> None:
    for handle in range(10):
        registered.say(handle, f"a:{handle}")
    reading, may_go_on = threading.Event(), threading.Event()
    changes = registered.changes

    def slow(*span: int) -> Iterator[tuple[int, Change]]:
        for each in changes(*span):
            if each[0] == 5:
                reading.set()
                may_go_on.wait(120.0)
            yield each

    monkeypatch.setattr(registered, "changes", slow)
    request = CountQueriesRequest(partition=1, id_prefix="a:")

    async def main() -> int:
        removed = asyncio.ensure_future(tenants.answer(request))
        await asyncio.to_thread(reading.wait, 20)
        removed.cancel()
        again = asyncio.ensure_future(tenants.answer(request))
        await asyncio.wait([again], timeout=0.1)
        may_go_on.set()
        return (await again).queries

    assert asyncio.run(main()) == 10
    # Each record is read once.
    assert registered.read == list(range(10))


def test_what_is_gone_is_forgotten(
    registered: Registered,
    tenants: TenantQueries,
    count: Callable[[str], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tenants, "_tidy_ms", 0)
    for handle in range(100):
        registered.say(handle, f"a:{handle}")
        registered.say(handle, None)
    assert count("a:") == 0
    assert count("a:") == 0
    assert not tenants._read[1].handles["a:"]


def test_an_owner_reports_its_live_queries_and_others_report_that_they_own_none(
    registered: Registered, tenants: TenantQueries
) -> None:
    registered.say(2**64 - 1, "a:1")
    request = CountQueriesRequest(partition=1, handles=[5, 2**64 - 1])
    assert list(asyncio.run(tenants.answer(request)).live_handles) == [2**64 - 1]
    # Different ids with one handle can also be counted apart.
    for name, live in (("a:1", [2**64 - 1]), ("b:1", [])):
        marks = [fingerprint_of(name)]
        request = CountQueriesRequest(partition=1, handles=[2**64 - 1], fingerprints=marks)
        answer = asyncio.run(tenants.answer(request))
        assert list(answer.live_handles) == live
        assert list(answer.live_fingerprints) == marks[: len(live)]
    with pytest.raises(InvalidArgument):
        asyncio.run(
            tenants.answer(CountQueriesRequest(partition=1, handles=[1, 2], fingerprints=[3]))
        )
    assert registered.read == []
    with pytest.raises(Unavailable):
        asyncio.run(tenants.answer(CountQueriesRequest(partition=2)))


def test_bytes_of_queries_are_let_in_as_far_as_they_fit(
    figures: TenantFigures, registry: CollectorRegistry
) -> None:
    held = 0

    async def counted(prefix: str) -> int:
        assert prefix == "a:"
        return held

    quota = QueryQuota(counted, figures, "query_bytes")

    async def main() -> None:
        nonlocal held
        who = Limited("a", query_bytes=1_000)
        assert await quota.fitting(who, [400, 500, 200, 50]) == 2
        # A smaller query than the rest of the limit is admitted; another look brings ended ones.
        assert await quota.fitting(who, [100]) == 1
        assert await quota.fitting(who, [1]) == 0
        assert await quota.fitting(Limited("a"), [1 << 40]) == 1
        assert await quota.fitting(Caller(EVERYTHING), [1 << 40]) == 1
        assert "query_bytes" in str(QueryQuota.refusal_by_size(who, 7))

    asyncio.run(main())
    labels = {"tenant": "a", "limit": "query_bytes"}
    assert registry.get_sample_value("sirocco_router_tenant_refusals_total", labels) == 2
