"""Queries and the cluster, with a server that fails as scripted; the same on both clients."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import grpc
import pytest
from sirocco_api.v1.errors_pb2 import Error
from sirocco_client import (
    AlreadyExists,
    Circle,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    Polygon,
    RangeQuery,
    Retry,
    Unavailable,
)

from tests.support.drivers import QUICK
from tests.support.fake_cluster import Failure, FakeCluster


def query(name: str, **members: Any) -> RangeQuery:
    return RangeQuery(id=name, **{"subscriber": "s", "text": "coffee"} | members)


def test_the_life_of_a_query(cluster: FakeCluster, client: Any) -> None:
    first = query("q", region=Circle(1, 2, 300), ttl=timedelta(hours=3), where={"a": {"in": [1]}})
    revision = client.register(first, start_ms=5)
    assert client.register(first, start_ms=5) == revision
    found = client.get("q")
    assert (found.query, found.revision, found.start_ms) == (first, revision, 5)
    with pytest.raises(AlreadyExists) as caught:
        client.register(query("q", text="tea"))
    assert caught.value.field == "id"
    assert client.update(query("q", text="tea")) > revision
    client.unregister("q")
    with pytest.raises(NotFound):
        client.get("q")
    with pytest.raises(NotFound):
        client.unregister("q")


def test_a_query_may_also_request_history(cluster: FakeCluster, client: Any) -> None:
    client.register(query("a"), past="2h")
    client.register(query("b"), past=timedelta(milliseconds=0))
    client.register(query("c"))
    client.update(query("c", text="tea"), past="all")
    assert len(list(client.register_many([query("d"), query("e")], past="1s"))) == 2
    list(client.register_many([query("f")]))
    assert cluster.pasts_ms == {"a": 7_200_000, "b": 0, "c": (1 << 63) - 1, "d": 1_000, "e": 1_000}
    for bad in ("yesterday", -5, timedelta(hours=-1)):
        with pytest.raises(InvalidArgument) as caught:
            client.register(query("g"), past=bad)
        assert caught.value.field == "past"


def test_listing_runs_over_pages(cluster: FakeCluster, client: Any) -> None:
    for i in range(7):
        client.register(query(f"q{i}", subscriber=f"s{i % 2}"))
    assert [each.query.id for each in client.list()] == [f"q{i}" for i in range(7)]
    assert [each.query.id for each in client.list("s1")] == ["q1", "q3", "q5"]
    assert list(client.list("nobody")) == []


def test_calls_are_tried_again(cluster: FakeCluster, client: Any) -> None:
    cluster.unary_failures += [Failure(), Failure(grpc.StatusCode.UNKNOWN)]
    client.register(query("q"))
    assert "q" in cluster.queries


def test_an_unregistration_whose_answer_was_lost_is_done(cluster: FakeCluster, client: Any) -> None:
    client.register(query("q"))
    cluster.unary_failures.append(Failure())
    client.unregister("q")
    assert cluster.queries == {}


def test_calls_are_given_up(cluster: FakeCluster, client: Any) -> None:
    cluster.unary_failures += [Failure()] * QUICK.attempts
    with pytest.raises(Unavailable):
        client.register(query("q"))
    error = Error(code="INVALID_ARGUMENT", message="is below 0", field="region.circle.radius_m")
    cluster.unary_failures.append(Failure(grpc.StatusCode.INVALID_ARGUMENT, error))
    with pytest.raises(InvalidArgument) as caught:
        client.register(query("q"))
    assert caught.value.field == "region.circle.radius_m"
    assert not cluster.unary_failures


def test_a_call_ends_in_time(cluster: FakeCluster, connect: Callable[..., Any]) -> None:
    client = connect(cluster.router, timeout_s=0.3, retry=Retry(attempts=1_000, initial_ms=50))
    cluster.unary_failures += [Failure()] * 1_000
    with pytest.raises((Unavailable, DeadlineExceeded)):
        client.register(query("q"))
    assert len(cluster.unary_failures) > 900


def test_the_next_call_asks_another_router(
    cluster: FakeCluster, connect: Callable[..., Any]
) -> None:
    late = FakeCluster()
    late.unary_failures += [Failure(grpc.StatusCode.DEADLINE_EXCEEDED)] * 3
    client = connect(f"{late.router},{cluster.router}")
    with pytest.raises(DeadlineExceeded):
        client.register(query("q"))
    client.register(query("q"))
    assert list(cluster.queries) == ["q"]
    assert len(late.unary_failures) == 2
    late.stop()


@pytest.mark.parametrize("plans", [[], [1], [2, 1, 1, 3], [6]])
def test_many_are_registered_over_breaks(
    cluster: FakeCluster, client: Any, plans: list[int]
) -> None:
    client.register(query("q17", text="other"))
    cluster.bulk_plans += plans
    wanted = [f"q{i}" for i in range(95)]
    results = list(client.register_many((query(name) for name in wanted), batch=10))
    assert [each.id for each in results] == wanted
    bad = [each for each in results if each.error is not None]
    assert [(each.id, type(each.error)) for each in bad] == [("q17", AlreadyExists)]
    assert sorted(cluster.queries) == sorted(wanted)


@pytest.mark.parametrize("plans", [[], [2, 1]])
def test_large_queries_go_in_messages_that_can_travel(
    cluster: FakeCluster, client: Any, plans: list[int]
) -> None:
    cluster.bulk_plans += plans
    corners = [(i / 100, 1.0) for i in range(1_400)]
    large = Polygon(((*corners, (7.0, 9.0), corners[0]),))
    # Two messages and more.
    wanted = [f"q{i}" for i in range(400)]
    results = list(client.register_many(query(name, region=large) for name in wanted))
    assert [each.id for each in results] == wanted
    assert not any(each.error for each in results)
    assert sorted(cluster.queries) == sorted(wanted)


def test_registering_none_and_leaving_early(cluster: FakeCluster, client: Any) -> None:
    assert list(client.register_many([])) == []
    results = client.register_many((query(f"q{i}") for i in range(1_000)), batch=10)
    assert next(iter(results)).id == "q0"
    cluster.await_that(lambda: len(cluster.queries) >= 10)
    assert len(cluster.queries) <= 60


def test_a_bad_query_among_many(cluster: FakeCluster, client: Any) -> None:
    large = query("large", where={"a": "x" * (5 << 20)})
    rows = [query("q"), query("bad", ttl="soon"), large, query("r"), "no query"]
    for change in (client.register_many, client.update_many):
        results = list(change(rows))
        assert [each.id for each in results] == ["q", "bad", "large", "r", ""]
        fields = [None if each.error is None else each.error.field for each in results]
        assert fields == [None, "ttl", "where", None, "query"]
    assert sorted(cluster.queries) == ["q", "r"]


@pytest.mark.parametrize("plans", [[], [1], [2, 1, 1, 3], [6]])
def test_many_are_updated_and_removed_over_breaks(
    cluster: FakeCluster, client: Any, plans: list[int]
) -> None:
    wanted = [f"q{i}" for i in range(95)]
    assert len(list(client.register_many(query(name) for name in wanted))) == 95
    cluster.bulk_plans += plans
    others = [query(name, text="tea") for name in [*wanted, "missing"]]
    results = list(client.update_many(others, batch=10, start_ms=7))
    assert [each.id for each in results] == [*wanted, "missing"]
    assert [(each.id, type(each.error)) for each in results if each.error is not None] == [
        ("missing", NotFound)
    ]
    assert {each.query.range.text for each in cluster.queries.values()} == {"tea"}
    assert {each.start_ms for each in cluster.queries.values()} == {7}
    cluster.bulk_plans += plans
    results = list(client.unregister_many((*wanted[:50], "\ud800", *wanted[50:]), batch=10))
    assert [each.id for each in results] == [*wanted[:50], "\ud800", *wanted[50:]]
    assert [(each.id, each.error.field) for each in results if each.error is not None] == [
        ("\ud800", "id")
    ]
    assert cluster.queries == {}


def test_a_missing_id_is_reported_unless_its_answer_was_lost(
    cluster: FakeCluster, client: Any
) -> None:
    (result,) = client.unregister_many(["q"])
    assert isinstance(result.error, NotFound)
    client.register(query("q"))
    cluster.bulk_plans.append(1)
    (result,) = client.unregister_many(["q"])
    assert result.error is None
    assert cluster.queries == {}


def test_a_batch_holds_one_at_least(client: Any) -> None:
    for change in (client.register_many, client.update_many, client.unregister_many):
        with pytest.raises(InvalidArgument) as caught:
            list(change([], batch=0))
        assert caught.value.field == "batch"


@pytest.mark.parametrize("plans", [[], [1, 1]])
def test_a_query_that_cannot_travel_is_answered_and_the_others_are_registered(
    cluster: FakeCluster, client: Any, plans: list[int]
) -> None:
    cluster.bulk_plans += plans
    vast = {"a": {"in": ["x" * (9 << 20)]}}
    rows = [query("a"), query("vast", where=vast), query("b"), query("long", text="x" * (9 << 20))]
    results = list(client.register_many([*rows, query("c")], batch=3))
    assert [each.id for each in results] == ["a", "vast", "b", "long", "c"]
    fields = [each.error.field if each.error else None for each in results]
    assert fields == [None, "where", None, "text", None]
    assert isinstance(results[1].error, InvalidArgument)
    assert sorted(cluster.queries) == ["a", "b", "c"]
    assert [each.error is not None for each in client.register_many(rows[1:2])] == [True]


BAD_NUMBERS: tuple[Any, ...] = (2**70, -(2**70), 1.5, "soon", True, float("nan"), [])


@pytest.mark.parametrize("value", BAD_NUMBERS, ids=repr)
def test_numbers_out_of_range_are_named(cluster: FakeCluster, client: Any, value: Any) -> None:
    snapshot = query("q", mode="snapshot")
    calls = {
        "start_ms": (
            lambda: client.register(query("q"), start_ms=value),
            lambda: client.update(query("q"), start_ms=value),
            lambda: list(client.register_many([query("q")], start_ms=value)),
        ),
        "batch": (lambda: list(client.register_many([query("q")], batch=value)),),
        "now_ms": (lambda: client.search(snapshot, now_ms=value),),
        "time_ms": (lambda: client.advance_time(value),),
        "credit": (lambda: client.subscribe("s", credit=value),),
    }
    if value != 1.5:
        calls["timeout_s"] = (
            lambda: client.describe(timeout_s=value),
            lambda: client.await_processed("0.7", timeout_s=value),
            lambda: client.search(snapshot, timeout_s=value),
        )
    for field, tries in calls.items():
        for call in tries:
            with pytest.raises(InvalidArgument) as caught:
                call()
            assert caught.value.field == field
    assert not cluster.queries


def test_bulk_gives_up(cluster: FakeCluster, client: Any) -> None:
    cluster.bulk_plans += [1] * QUICK.attempts
    with pytest.raises(Unavailable):
        list(client.register_many([query("q")]))


def test_describing(cluster: FakeCluster, client: Any) -> None:
    found = client.describe(leaves=True)
    assert (found.cluster, found.map_version, found.slot_count) == ("fake", 3, 16)
    assert found.addresses("merger") == (cluster.router,)
    assert found.members[1].loads == {"objects_per_s": 2.0}
    assert found.ownerships[0].epoch == 9
    assert (found.leaves[0].east, found.leaves[0].objects) == (180, 5)
    assert client.describe().leaves == ()
    assert client.await_processed("0.7") == ("0",)


def test_a_closed_client_raises_that_it_is_closed(cluster: FakeCluster, client: Any) -> None:
    client.describe()
    client.close()
    with pytest.raises(FailedPrecondition, match="closed"):
        client.describe()
