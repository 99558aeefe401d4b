"""Receiving from a server that fails as scripted; the same on both clients."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from sirocco_api.v1.errors_pb2 import Error
from sirocco_client import (
    CursorExpired,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    NotificationBatch,
    PermissionDenied,
    Retry,
    Unavailable,
)
from sirocco_client.connection.endpoints import preferred_order

from tests.support.drivers import QUICK
from tests.support.fake_cluster import Failure, FakeCluster, ReceivePlan
from tests.support.seeds import drawn_seed
from tests.support.waiting import eventually

MATCHES = [(f"q{i % 3}", i if i % 5 else f"näme {i}") for i in range(1, 101)]


def take(subscription: Any, count: int) -> list[tuple[str, int | str]]:
    """Returns the next matches as pairs; closes the subscription."""
    found: list[tuple[str, int | str]] = []
    for batch in subscription.batches():
        found += batch.pairs()
        if len(found) >= count:
            break
    subscription.close()
    return found


def test_from_now_on(cluster: FakeCluster, client: Any) -> None:
    cluster.deliver(("old", 1))
    with client.subscribe("s") as subscription:
        assert subscription.cursor == "1"
        cluster.deliver(*MATCHES)
        assert take(subscription, 100) == MATCHES
    assert cluster.opened[0].subscriber == "s"
    assert cluster.opened[0].matches == 10_000


def test_from_the_earliest_and_from_a_cursor(cluster: FakeCluster, client: Any) -> None:
    cluster.deliver(*MATCHES)
    assert take(client.subscribe("s", from_earliest=True), 100) == MATCHES
    assert take(client.subscribe("s", "90"), 10) == MATCHES[90:]


def test_items(cluster: FakeCluster, client: Any) -> None:
    cluster.deliver(*MATCHES[:10])
    subscription = client.subscribe("s", "0")
    found = []
    for item in subscription:
        found.append(item)
        if len(found) == 10:
            break
    subscription.close()
    assert [(each.query, each.object.id) for each in found] == MATCHES[:10]
    assert [each.cursor for each in found] == ["0"] * 6 + ["7"] * 3 + ["10"]
    first = found[0]
    assert (first.object.lon, first.object.lat, first.object.text) == (1.5, 2.5, "tëxt 1")
    assert (first.object.ts_ms, first.object.attributes) == (None, {"a": 1})
    assert (first.event, first.arrival_ms) == ((7, 1), 1_000)


@pytest.mark.parametrize("credit", [1, 2, 5, 40])
def test_credit_is_kept_and_given_back(cluster: FakeCluster, client: Any, credit: int) -> None:
    with client.subscribe("s", credit=credit) as subscription:
        cluster.deliver(*MATCHES)
        assert take(subscription, 100) == MATCHES
    assert cluster.uncredited_most <= credit


def test_a_consumer_that_stops_gets_no_more_than_its_credit(
    cluster: FakeCluster, client: Any
) -> None:
    subscription = client.subscribe("s", credit=20)
    subscription.open()
    cluster.deliver(*MATCHES)
    batches = subscription.batches()
    assert len(next(batches)) == 7
    cluster.await_that(lambda: cluster.uncredited_most == 20)
    rest = sum(len(each) for each, _ in zip(batches, range(2), strict=False))
    assert rest == 13
    subscription.close()


@pytest.mark.parametrize(
    "plans",
    [
        [ReceivePlan(0), ReceivePlan(0)],
        [ReceivePlan(7)],
        [ReceivePlan(10), ReceivePlan(1), ReceivePlan(50)],
        [ReceivePlan(3, Failure(grpc.StatusCode.CANCELLED))],
        [ReceivePlan(3, Failure(grpc.StatusCode.INTERNAL))],
    ],
    ids=["at once", "once", "often", "cancelled", "reset"],
)
def test_breaks_miss_and_repeat_nothing(
    cluster: FakeCluster, client: Any, plans: list[ReceivePlan]
) -> None:
    cluster.receive_plans += plans
    with client.subscribe("s") as subscription:
        cluster.deliver(*MATCHES)
        assert take(subscription, 100) == MATCHES


def test_random_breaks_miss_and_repeat_nothing(cluster: FakeCluster, client: Any) -> None:
    seed = drawn_seed()
    rng = random.Random(seed)
    cluster.receive_plans += [ReceivePlan(rng.randrange(1, 30)) for _ in range(30)]
    wanted = [("q", i) for i in range(1_000)]
    with client.subscribe("s", credit=rng.randrange(1, 60)) as subscription:
        cluster.deliver(*wanted)
        assert take(subscription, 1_000) == wanted, f"seed {seed}"


def test_a_break_before_the_first_match_misses_nothing(cluster: FakeCluster, client: Any) -> None:
    # The stream begins after the present end, and breaks before anything arrives; the next one
    # receives the deliveries made meanwhile.
    cluster.deliver(("old", 1))
    cluster.receive_plans.append(ReceivePlan(1))
    with client.subscribe("s") as subscription:
        cluster.deliver(("new", 2), ("new", 3))
        assert take(subscription, 2) == [("new", 2), ("new", 3)]
    assert [each.cursor for each in cluster.opened] == ["", "2"]


def test_an_expired_cursor_names_the_earliest(cluster: FakeCluster, client: Any) -> None:
    cluster.deliver(*MATCHES)
    cluster.earliest = 40
    with pytest.raises(CursorExpired) as caught:
        client.subscribe("s", "12").open()
    assert caught.value.earliest == "40"
    with pytest.raises(CursorExpired):
        take(client.subscribe("s", "12"), 1)
    assert take(client.subscribe("s", caught.value.earliest), 60) == MATCHES[40:]


def test_it_gives_up_in_the_end(cluster: FakeCluster, client: Any) -> None:
    cluster.receive_plans += [ReceivePlan(0)] * QUICK.attempts
    with pytest.raises(Unavailable):
        client.subscribe("s").open()
    assert len(cluster.opened) == QUICK.attempts


def test_what_will_not_pass_is_not_tried_again(cluster: FakeCluster, client: Any) -> None:
    error = Error(code="PERMISSION_DENIED", message="not yours", field="subscriber")
    failure = Failure(grpc.StatusCode.PERMISSION_DENIED, error)
    cluster.receive_plans.append(ReceivePlan(0, failure))
    with pytest.raises(PermissionDenied) as caught:
        client.subscribe("s").open()
    assert caught.value.field == "subscriber"
    assert len(cluster.opened) == 1


def test_closing_from_another_thread_ends_the_iteration(cluster: FakeCluster, client: Any) -> None:
    subscription = client.subscribe("s")
    subscription.open()
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.extend(subscription))
    reader.start()
    cluster.deliver(("q", 1))
    eventually(lambda: found)
    subscription.close()
    reader.join(120.0)
    assert not reader.is_alive()
    assert [each.object.id for each in found] == [1]
    assert subscription.next_batch() is None


def test_open_waits_no_longer_than_its_timeout(
    cluster: FakeCluster, connect: Callable[..., Any]
) -> None:
    removed = FakeCluster()
    removed.stop()
    client = connect(cluster.router, mergers=[removed.router], retry=None)
    with pytest.raises(DeadlineExceeded):
        client.subscribe("s").open(timeout_s=0.3)


def test_the_cursor_moves_when_a_batch_is_dealt_with(cluster: FakeCluster, client: Any) -> None:
    subscription = client.subscribe("s")
    subscription.open()
    cluster.deliver(*MATCHES[:10])
    batches = subscription.batches()
    first: NotificationBatch = next(batches)
    assert (first.begin_cursor, first.cursor, subscription.cursor) == ("0", "7", "0")
    second = next(batches)
    assert (second.cursor, subscription.cursor) == ("10", "7")
    subscription.close()


def test_another_merger_takes_over(cluster: FakeCluster, connect: Callable[..., Any]) -> None:
    others = [FakeCluster() for _ in range(2)]
    fleet = [cluster, *others]
    cluster.mergers[:] = [each.router for each in fleet]
    try:
        client = connect(cluster.router)
        order = preferred_order(cluster.mergers, "s")
        by_address = {each.router: each for each in fleet}
        preferred = by_address[order[0]]
        for each in fleet:
            # The first one lacks these, so they cannot come from it, however late it is stopped.
            each.deliver(*(MATCHES[:20] if each is preferred else MATCHES))
        subscription = client.subscribe("s", from_earliest=True)
        subscription.open()
        assert len(preferred.opened) == 1
        batches = subscription.batches()
        found = list(next(batches).pairs())
        assert found == MATCHES[:7]
        if preferred is not cluster:
            preferred.stop()
        else:
            preferred.receive_plans.append(ReceivePlan(0))
            with preferred.lock:
                preferred.is_stopping = True
                preferred.lock.notify_all()
        while len(found) < 100:
            found += next(batches).pairs()
        assert found == MATCHES
        # The next one, or, if a busy machine did not reach it in time, the third.
        (successor, *_) = (each for one in order[1:] if (each := by_address[one]).opened)
        assert successor.opened[0].cursor
        subscription.close()
    finally:
        for each in others:
            each.stop()


def test_mergers_may_be_given(cluster: FakeCluster, connect: Callable[..., Any]) -> None:
    client = connect("127.0.0.1:1", mergers=[cluster.router])
    cluster.deliver(*MATCHES)
    assert take(client.subscribe("s", from_earliest=True), 100) == MATCHES
    assert cluster.describes == 0


def test_bad_arguments(client: Any) -> None:
    with pytest.raises(InvalidArgument) as caught:
        client.subscribe("")
    assert caught.value.field == "subscriber"
    with pytest.raises(InvalidArgument) as caught:
        client.subscribe("s", credit=0)
    assert caught.value.field == "credit"


@pytest.mark.parametrize("state", ["waiting", "between batches", "retrying"])
def test_closing_the_client_ends_its_open_subscriptions(
    state: str, cluster: FakeCluster, connect: Callable[..., Any]
) -> None:
    pause = Retry(initial_ms=60_000, longest_ms=60_000, jitter=0)
    client = connect(cluster.router, retry=pause, timeout_s=120.0)
    subscription = client.subscribe("s", "0")
    cluster.deliver(*MATCHES[:3])
    if state == "retrying":
        cluster.receive_plans.append(ReceivePlan(3))
    found: list[tuple[str, int | str]] = []
    has_read, may_go_on = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def read() -> None:
        try:
            for batch in subscription.batches():
                found.extend(batch.pairs())
                has_read.set()
                assert may_go_on.wait(120.0)
        except BaseException as failure:
            failures.append(failure)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    assert has_read.wait(120.0)
    if state != "between batches":
        may_go_on.set()
        # By now it waits for the server, or for the next try.
        inner = getattr(subscription, "inner", subscription)
        eventually(lambda: "not connected" in repr(inner) or state == "waiting")
    client.close()
    may_go_on.set()
    reader.join(120.0)
    assert not reader.is_alive()
    assert not failures
    assert found == MATCHES[:3]
    assert subscription.next_batch() is None


def test_an_unopened_subscription_raises_that_its_client_is_closed(
    cluster: FakeCluster, client: Any
) -> None:
    """Otherwise a `with` block around the wrong lines would look like a silent cluster."""
    subscription = client.subscribe("s")
    client.close()
    with pytest.raises(FailedPrecondition, match="the client is closed"):
        next(iter(subscription))
