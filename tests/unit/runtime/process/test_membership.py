"""Leases, health endpoints, pauses between tries."""

from __future__ import annotations

import http.client
import itertools
from functools import partial

import pytest
from prometheus_client import CollectorRegistry, Counter

from sirocco.protocol.contract.effects import Member
from sirocco.runtime.process import retries
from sirocco.runtime.process.clock import monotonic_ms
from sirocco.runtime.process.health import HealthServer
from sirocco.runtime.process.membership import (
    LeaseKeeper,
    LeaseTimes,
    MemberInfo,
    directory,
    living,
    new_member_id,
    seen,
)
from sirocco.transport.errors import TransactionAborted, TransportUnavailable
from sirocco.transport.memory_map_store import MemoryMapStore
from tests.support.waiting import eventually

WAIT_S = 120.0


class Store(MemoryMapStore):
    """A map store that can be away, and that can return empty."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = False
        self.asked = 0

    def acquire(self, name: str, holder: str, ttl_ms: int) -> bool:
        self.asked += 1
        if self.is_away:
            raise TransportUnavailable("the store is away")
        return super().acquire(name, holder, ttl_ms)

    def release(self, name: str, holder: str) -> bool:
        if self.is_away:
            raise TransportUnavailable("the store is away")
        return super().release(name, holder)

    def lose_all(self) -> None:
        self._leases.clear()
        self._values.clear()


def info(name: str = "router-1") -> MemberInfo:
    return MemberInfo(
        id=name,
        service="router",
        address="a:1",
        http_address="a:2",
        started_ms=5,
        loads={"x": 1.5},
        taken={"0": 7},
    )


@pytest.fixture
def store() -> Store:
    return Store()


SHORT = LeaseTimes(renew_ms=10, lease_ms=60)
# A busy machine may not renew a short one in time.
LONG = LeaseTimes(renew_ms=10, lease_ms=60_000)


def test_a_member_is_seen_from_its_start_to_its_stop(store: Store) -> None:
    keeper = LeaseKeeper(store, info, monotonic_ms, times=LONG)
    assert living(store) == ()
    keeper.start()
    (member,) = living(store)
    assert (member.id, member.service) == ("router-1", "router")
    assert directory(store) == {"router-1": info()}
    keeper.stop()
    assert (living(store), directory(store)) == ((), {})


def test_a_process_that_ended_without_harm_by_a_record_has_left(store: Store) -> None:
    for name, is_harmed in (("evaluator-1", False), ("evaluator-2", True)):
        keeper = LeaseKeeper(
            store,
            partial(
                MemberInfo,
                id=name,
                service="evaluator",
                address="",
                http_address="",
                started_ms=0,
            ),
            monotonic_ms,
            times=LONG,
        )
        keeper.start()
        keeper.leave()
        assert seen(store)[0] == (Member(name, "evaluator", is_leaving=True),)
        keeper.stop(is_harmed=is_harmed)
        assert seen(store) == ((), frozenset({"evaluator-1"}))


def test_a_lease_is_renewed_and_taken_again_after_the_store_was_lost(store: Store) -> None:
    keeper = LeaseKeeper(store, info, monotonic_ms, times=SHORT)
    keeper.start()
    store.lose_all()
    eventually(lambda: living(store))
    assert directory(store) == {"router-1": info()}
    keeper.stop()


@pytest.mark.parametrize(
    "value",
    [
        b"\xff{garbage",
        b"[1]",
        b"{}",
        b'{"id":5,"service":"evaluator","address":"a:1","http_address":"a:2","started_ms":5}',
        b'{"id":"evil","service":"evaluator","address":7,"http_address":"a:2","started_ms":5}',
        b'{"id":"evil","service":"router","address":"a","http_address":"a","started_ms":"x"}',
        b'{"id":"evil","service":"router","address":"a","http_address":"a","started_ms":5,"loads":[1]}',
        b'{"id":"router-1","service":"router","address":"a","http_address":"a","started_ms":5}',
    ],
)
def test_what_is_no_description_hides_no_other(store: Store, value: bytes) -> None:
    store.put("member/router-1", info().form())
    store.put("member/evil", value)
    assert directory(store) == {"router-1": info()}


def test_a_description_of_a_later_release_is_read(store: Store) -> None:
    store.put("member/router-1", info().form()[:-1] + b',"later":[1]}')
    assert directory(store) == {"router-1": info()}


def test_an_unforeseen_error_ends_no_renewal(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = LeaseKeeper(store, info, monotonic_ms, times=SHORT)
    keeper.start()
    with monkeypatch.context() as fails:
        fails.setattr(keeper, "_renew", [].pop)
        eventually(lambda: living(store) == (), WAIT_S)
    eventually(lambda: [one.id for one in living(store)] == ["router-1"], WAIT_S)
    keeper.stop()


def test_a_store_that_is_away_ends_nothing(store: Store) -> None:
    keeper = LeaseKeeper(store, info, monotonic_ms, times=SHORT)
    keeper.start()
    store.is_away = True
    asked = store.asked
    eventually(lambda: store.asked > asked + 3)
    store.is_away = False
    eventually(lambda: living(store))
    store.is_away = True
    keeper.stop()


def test_a_loop_that_stands_still_loses_its_lease(store: Store) -> None:
    beat_ms = monotonic_ms()
    keeper = LeaseKeeper(store, info, lambda: beat_ms, times=SHORT)
    keeper.start()
    eventually(lambda: living(store))
    beat_ms -= LONG.stuck_ms + 1_000
    eventually(lambda: not living(store))
    beat_ms = monotonic_ms()
    eventually(lambda: living(store))
    keeper.stop()


def test_ids_are_never_reused_and_hold_the_service() -> None:
    ids = {new_member_id("evaluator") for _ in range(100)}
    assert len(ids) == 100
    assert {each.rsplit("-", 1)[0] for each in ids} == {"evaluator"}


def test_ids_hold_the_process_and_no_other_service() -> None:
    for name, begin in (("router-0", "router-0."), ("geo-7c-x9", "router-geo.7c.x9.")):
        found = new_member_id("router", name)
        assert found.startswith(begin)
        assert found.rsplit("-", 1)[0] == "router"
        assert new_member_id("router", name) != found


def get(address: str, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address, timeout=WAIT_S)
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def test_health_reports_the_state_of_the_process() -> None:
    registry = CollectorRegistry()
    counter = Counter("asked", "how often", registry=registry)
    state = {"healthy": True, "ready": False}
    server = HealthServer(
        "127.0.0.1",
        0,
        registry,
        is_healthy=lambda: state["healthy"],
        is_ready=lambda: state["ready"],
        refresh=counter.inc,
    )
    try:
        assert [get(server.address, path)[0] for path in ("/healthz", "/readyz")] == [200, 503]
        state.update(healthy=False, ready=True)
        assert [get(server.address, path)[0] for path in ("/healthz", "/readyz")] == [503, 200]
        assert get(server.address, "/nothing")[0] == 404
        status, body = get(server.address, "/metrics")
        assert status == 200
        assert b"asked_total 1.0" in body
    finally:
        server.stop()


def test_pauses_grow_up_to_a_bound() -> None:
    pauses = list(itertools.islice(retries.pauses_s(), 40))
    assert 0 < pauses[0] <= 1.5 * retries.FIRST_S
    assert max(pauses) <= 1.5 * retries.GREATEST_S
    assert min(pauses[20:]) >= 0.5 * retries.GREATEST_S


def test_what_is_refused_for_the_moment_is_tried_again() -> None:
    tries: list[int] = []

    def action() -> str:
        tries.append(1)
        if len(tries) < 4:
            raise TransportUnavailable("for the moment")
        return "done"

    assert retries.retried(action, pause_ms=0.01) == "done"
    assert len(tries) == 4


@pytest.mark.parametrize(
    ("error", "tries"), [(TransportUnavailable("away"), 8), (TransactionAborted("x"), 1)]
)
def test_tries_end_and_what_will_not_help_is_not_tried(error: Exception, tries: int) -> None:
    made: list[int] = []

    def action() -> None:
        made.append(1)
        raise error

    with pytest.raises(type(error)):
        retries.retried(action, pause_ms=0.01)
    assert len(made) == tries
