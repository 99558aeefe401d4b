"""Publishing against a server that fails as scripted; the same on both clients."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from sirocco_api.v1.columns_pb2 import ObjectColumns
from sirocco_api.v1.errors_pb2 import Error
from sirocco_client import (
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    Object,
    ObjectsRejected,
    PublishFailed,
    PublishFlow,
    Unauthenticated,
    Unavailable,
)
from sirocco_client.publishing.outbox import LINGER_MS_MAX

from tests.support.drivers import QUICK
from tests.support.fake_cluster import Failure, FakeCluster, PublishPlan, fill_objects
from tests.support.seeds import drawn_seed

SMALL = PublishFlow(batch_objects=10, linger_ms=1.0)


def objects(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [
        {"id": i, "lon": 1.0, "lat": 2.0, "text": f"text {i}"} for i in range(first, first + count)
    ]


def test_objects_arrive_in_order(cluster: FakeCluster, client: Any) -> None:
    with client.publisher(SMALL) as publisher:
        assert publisher.publish(objects(1)[0]) == 1
        assert publisher.publish_many(objects(34, 1)) == 34
        assert publisher.publish_many(iter(objects(5, 35))) == 5
        assert publisher.publish(Object("a name", 1, 2, attributes={"a": None})) == 41
        result = publisher.flush()
    assert cluster.ids == [*range(40), "a name"]
    assert [each[1] for each in cluster.log] == list(range(1, 42))
    assert (result.acknowledged, result.rejected, result.position_token) == (41, 0, "0.41")


def test_a_lone_object_does_not_wait_for_more(cluster: FakeCluster, client: Any) -> None:
    with client.publisher() as publisher:
        publisher.publish(objects(1)[0])
        cluster.await_that(lambda: len(cluster.log) == 1)


def test_a_stream_begins_with_its_first_request(cluster: FakeCluster, client: Any) -> None:
    """A router ends a stream that stays without one."""
    with client.publisher(PublishFlow(linger_ms=LINGER_MS_MAX)) as publisher:
        publisher.publish(objects(1)[0])
        # Meanwhile a stream would have begun.
        for _ in range(3):
            client.describe()
        assert not cluster.publish_metadata
        publisher.flush()
        assert len(cluster.log) == len(cluster.publish_metadata) == 1


def test_columns_are_cut_to_requests(cluster: FakeCluster, client: Any) -> None:
    columns = ObjectColumns()
    fill_objects(columns, [*range(40_000), "last"])
    with client.publisher() as publisher:
        publisher.publish_many(objects(3, 100))
        assert publisher.publish_columns(columns) == 40_001
    assert cluster.ids == [100, 101, 102, *range(40_000), "last"]
    assert max(last - first for _, first, last in cluster.publish_requests) < 16_384


@pytest.mark.parametrize(
    "plans",
    [
        [PublishPlan(requests=0)],
        [PublishPlan(requests=3)],
        [PublishPlan(requests=3, answered=1)],
        [PublishPlan(requests=2, answered=0), PublishPlan(requests=1, answered=0)],
        [PublishPlan(requests=2, partial=4), PublishPlan(requests=1, partial=3)],
        [PublishPlan(requests=2, failure=Failure(grpc.StatusCode.UNKNOWN))],
        [PublishPlan(requests=2, failure=Failure(grpc.StatusCode.CANCELLED))],
    ],
    ids=["at once", "mid-stream", "lost answers", "nothing answered", "partial", "odd", "cancel"],
)
def test_breaks_lose_and_double_nothing(
    cluster: FakeCluster, client: Any, plans: list[PublishPlan]
) -> None:
    cluster.publish_plans += plans
    with client.publisher(SMALL) as publisher:
        publisher.publish_many(objects(95))
    assert cluster.ids == list(range(95))


def test_random_breaks_lose_and_double_nothing(cluster: FakeCluster, client: Any) -> None:
    seed = drawn_seed()
    rng = random.Random(seed)
    for _ in range(40):
        requests = rng.randrange(1, 6)
        answered = rng.choice([None, rng.randrange(requests + 1)])
        partial = rng.choice([None, rng.randrange(1, 10)])
        cluster.publish_plans.append(PublishPlan(requests, answered, partial))
    # Plans that answer nothing come in sequence; they must not use up the tries.
    cluster.publish_plans = type(cluster.publish_plans)(
        plan if i % 4 else PublishPlan(requests=2) for i, plan in enumerate(cluster.publish_plans)
    )
    with client.publisher(SMALL) as publisher:
        publisher.publish_many(objects(2_000))
    assert cluster.ids == list(range(2_000)), f"seed {seed}"


def test_idle_breaks_are_no_failures(cluster: FakeCluster, client: Any) -> None:
    cluster.publish_plans += [PublishPlan(requests=1)] * 20
    with client.publisher(SMALL) as publisher:
        for i in range(20):
            publisher.publish_many(objects(10, 10 * i))
            publisher.flush()
    assert cluster.ids == list(range(200))


def test_publishing_pauses_while_too_much_is_outstanding(cluster: FakeCluster, client: Any) -> None:
    hold = threading.Event()
    cluster.publish_plans.append(PublishPlan(hold=hold))
    flow = PublishFlow(batch_objects=10, linger_ms=0, outstanding_objects_max=50)
    with client.publisher(flow) as publisher:
        publisher.publish_many(objects(50))
        late = threading.Thread(target=publisher.publish_many, args=(objects(30, 50),))
        late.start()
        with pytest.raises(DeadlineExceeded, match="50 objects"):
            publisher.flush(timeout_s=0.3)
        assert late.is_alive()
        hold.set()
        late.join(120.0)
        assert not late.is_alive()
    assert cluster.ids == list(range(80))


def reject_multiples_of_ten(found: int | str) -> Error | None:
    if isinstance(found, int) and found % 10 == 0:
        return Error(code="INVALID_ARGUMENT", message=f"{found} is round", field="id")
    return None


def test_refused_objects_are_raised_once_at_flush(cluster: FakeCluster, client: Any) -> None:
    cluster.reject = reject_multiples_of_ten
    cluster.publish_plans += [PublishPlan(requests=2, answered=1), PublishPlan(requests=2)]
    flow = PublishFlow(batch_objects=25, linger_ms=1, rejections_max=3)
    with client.publisher(flow) as publisher:
        publisher.publish_many(objects(100))
        with pytest.raises(ObjectsRejected, match="10 objects were refused") as caught:
            publisher.flush()
        assert caught.value.count == 10
        kept = caught.value.rejections
        assert [(each.number, each.object) for each in kept] == [(1, 0), (11, 10), (21, 20)]
        assert str(kept[1].error) == "id: 10 is round"
        publisher.publish_many(objects(1, 101))
        assert publisher.flush().rejected == 10
    assert cluster.ids == [i for i in range(102) if i % 10]


def test_refused_objects_are_reported_once_each(cluster: FakeCluster, client: Any) -> None:
    cluster.reject = reject_multiples_of_ten
    cluster.publish_plans += [
        PublishPlan(requests=2, answered=1),
        PublishPlan(requests=1, answered=0),
        PublishPlan(requests=3, partial=4),
    ]
    received: list[Any] = []
    with client.publisher(SMALL, on_rejected=received.append) as publisher:
        publisher.publish_many(objects(100, 5))
        result = publisher.flush()
        assert [each.object for each in received] == list(range(10, 105, 10))
        assert [each.number for each in received] == [each.object - 4 for each in received]
    assert result.rejected == 10


def test_it_gives_up_with_what_is_unacknowledged(cluster: FakeCluster, client: Any) -> None:
    cluster.publish_plans.append(PublishPlan(requests=2, answered=1))
    cluster.publish_plans += [PublishPlan(requests=0)] * QUICK.attempts
    publisher = client.publisher(SMALL)
    publisher.publish_many(objects(30))
    with pytest.raises(PublishFailed) as caught:
        publisher.flush()
    assert (caught.value.acknowledged, caught.value.unacknowledged) == (10, 20)
    assert isinstance(caught.value.cause, Unavailable)
    assert "numbers 11 to 30" in str(caught.value)
    with pytest.raises(PublishFailed):
        publisher.publish(objects(1)[0])
    with pytest.raises(PublishFailed):
        publisher.close()


def test_what_will_not_pass_is_not_tried_again(cluster: FakeCluster, client: Any) -> None:
    error = Error(code="UNAUTHENTICATED", message="who are you")
    failure = Failure(grpc.StatusCode.UNAUTHENTICATED, error)
    cluster.publish_plans += [PublishPlan(requests=0, failure=failure)] * QUICK.attempts
    with pytest.raises(PublishFailed) as caught, client.publisher(SMALL) as publisher:
        publisher.publish_many(objects(3))
    assert isinstance(caught.value.cause, Unauthenticated)
    assert cluster.log == []
    # gRPC's asyncio client loses the status if a write meets the end of the stream ("Internal error
    # from Core"), and only that is retried: rare, so hardly ever twice in a row.
    assert len(cluster.publish_metadata) < QUICK.attempts


def test_the_server_gives_the_time_to_wait(cluster: FakeCluster, client: Any) -> None:
    error = Error(code="RESOURCE_EXHAUSTED", message="full", retry_after_ms=300)
    failure = Failure(grpc.StatusCode.RESOURCE_EXHAUSTED, error)
    cluster.publish_plans.append(PublishPlan(requests=1, answered=0, failure=failure))
    with client.publisher(SMALL) as publisher:
        publisher.publish_many(objects(10))
        cluster.await_that(lambda: len(cluster.publish_requests) == 1)
        with pytest.raises(DeadlineExceeded):
            publisher.flush(timeout_s=0.15)
        publisher.flush()
    assert cluster.ids == list(range(10))


def test_bad_objects_are_refused_by_the_client(cluster: FakeCluster, client: Any) -> None:
    with client.publisher(SMALL) as publisher:
        with pytest.raises(InvalidArgument) as caught:
            publisher.publish({"id": 1, "lon": "west", "lat": 2.0})
        assert caught.value.field == "lon"
        with pytest.raises(InvalidArgument) as caught:
            publisher.publish_many([*objects(12), {"id": -1, "lon": 1.0, "lat": 2.0}])
        assert caught.value.field == "objects[12].id"
        broken = ObjectColumns()
        fill_objects(broken, [1, 2, 3])
        broken.lon = broken.lon[:-1]
        with pytest.raises(InvalidArgument) as caught:
            publisher.publish_columns(broken)
        assert caught.value.field == "lon"
    assert cluster.ids == list(range(12))


def test_what_comes_before_a_bad_object_is_sent_without_asking(
    cluster: FakeCluster, client: Any
) -> None:
    with client.publisher(SMALL) as publisher:
        for first in (0, 3):
            with pytest.raises(InvalidArgument):
                publisher.publish_many([*objects(3, first), {"id": -1, "lon": 1.0, "lat": 2.0}])
            cluster.await_that(lambda count=first + 3: len(cluster.log) == count)
    assert cluster.ids == list(range(6))


def test_closing(cluster: FakeCluster, client: Any) -> None:
    publisher = client.publisher(SMALL)
    publisher.publish_many(objects(7))
    publisher.close()
    publisher.close()
    assert cluster.ids == list(range(7))
    with pytest.raises(FailedPrecondition):
        publisher.publish(objects(1)[0])


def test_the_error_of_the_body_wins(cluster: FakeCluster, client: Any) -> None:
    cluster.reject = reject_multiples_of_ten

    def work() -> None:
        with client.publisher(SMALL) as publisher:
            publisher.publish_many(objects(3))
            raise KeyError("body")

    with pytest.raises(KeyError) as caught:
        work()
    assert cluster.ids == [1, 2]
    assert "refused" in caught.value.__notes__[0]


def test_another_router_takes_over(cluster: FakeCluster, connect: Callable[..., Any]) -> None:
    other = FakeCluster()
    client = connect(f"{cluster.router},{other.router}")
    try:
        with client.publisher(SMALL) as publisher:
            publisher.publish_many(objects(10))
            publisher.flush()
            cluster.stop()
            # It does not know the session, as after a long time; numbers continue.
            publisher.publish_many(objects(10, 10))
        assert cluster.ids == list(range(10))
        assert other.ids == list(range(10, 20))
        assert [each[1] for each in other.log] == list(range(11, 21))
    finally:
        other.stop()


def test_the_token_goes_with_every_call(cluster: FakeCluster, connect: Callable[..., Any]) -> None:
    client = connect(cluster.router, token="secret")
    with client.publisher(SMALL) as publisher:
        publisher.publish_many(objects(1))
    assert cluster.publish_metadata[0]["authorization"] == "Bearer secret"


def test_a_failing_callback_reaches_the_caller(cluster: FakeCluster, client: Any) -> None:
    cluster.reject = reject_multiples_of_ten

    def fail(_rejected: object) -> None:
        raise ZeroDivisionError

    publisher = client.publisher(SMALL, on_rejected=fail)
    publisher.publish_many(objects(3))
    with pytest.raises(PublishFailed, match="ZeroDivisionError"):
        publisher.flush()
