"""Searches, with a merger that fails as scripted; the same on both clients."""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import grpc
import pytest
from sirocco_api.v1.errors_pb2 import Error
from sirocco_api.v1.search_service_pb2 import NumberedResponse, SearchManyResponse
from sirocco_client import (
    DeadlineExceeded,
    Internal,
    InvalidArgument,
    KnnQuery,
    PartialResult,
    RangeQuery,
    RankedQuery,
    ResourceExhausted,
    Retry,
    TermsQuery,
    Unavailable,
)
from sirocco_client.calls.many_searches import ManySearches
from sirocco_client.calls.searching import Searching

from tests.support.drivers import QUICK
from tests.support.fake_cluster import Failure, FakeCluster
from tests.support.fake_merger import (
    FakeMerger,
    Plan,
    end_response,
    objects_response,
    terms_response,
)
from tests.support.search_ways import STREAMS, WAYS, take

RANGE = RangeQuery(id="r", subscriber="", mode="snapshot", text="coffee", window="1h")
KNN = KnnQuery(id="k", subscriber="", mode="snapshot", lon=1.0, lat=2.0, k=3)
TERMS = TermsQuery(id="t", subscriber="", mode="snapshot", k=2)
RANKED = RankedQuery(
    id="b", subscriber="", mode="snapshot", lon=1.0, lat=2.0, radius_m=9.0, k=3, keywords=("a",)
)
BROKEN = Failure()


@pytest.fixture(params=[*WAYS, "older merger"])
def merger(
    cluster: FakeCluster, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeMerger]:
    way = request.param
    take(way if way in WAYS else STREAMS, monkeypatch)
    found = FakeMerger(has_streams=way in WAYS)
    cluster.mergers[:] = [found.address]
    yield found
    found.stop()


def test_a_range_answer_is_in_the_order_of_ids(merger: FakeMerger, client: Any) -> None:
    merger.plans.append(
        Plan([objects_response([9, 3], numbers=[4, 2]), objects_response([5, 3]), end_response()])
    )
    answer = client.search(RANGE, now_ms=77, position_token="0.5")
    assert answer.ids == [3, 3, 5, 9]
    assert [one.event for one in answer] == [(7, 2), (7, 2), (7, 1), (7, 4)]
    assert [one.object.id for one in answer] == [one.id for one in answer.objects] == answer.ids
    assert {one.distance_m for one in answer} == {one.score for one in answer} == {None}
    assert answer.members() == {"query": "r", "objects": [3, 3, 5, 9]}
    assert (answer.now_ms, answer.slots, len(answer), answer.is_partial) == (123, 4, 4, False)
    (request,) = merger.requests
    assert (request.now_ms, request.position_token, request.allow_partial) == (77, "0.5", False)
    assert request.query.range.text == "coffee"
    assert 0 < request.timeout_ms <= 20_000
    client.search(RANGE, timeout_s=3)
    assert not merger.requests[1].HasField("now_ms")
    assert merger.requests[1].timeout_ms <= 3_000


def test_named_objects_of_a_range_answer_stand_where_their_hashes_do(
    merger: FakeMerger, client: Any
) -> None:
    parts = [objects_response([9, "x"]), objects_response([3, "y"])]
    parts[0].objects.ids = array("Q", [9, 5]).tobytes()
    parts[1].objects.ids = array("Q", [3, 2**64 - 1]).tobytes()
    merger.plans.append(Plan([*parts, end_response()]))
    answer = client.search(RANGE)
    assert answer.ids == [3, "x", 9, "y"]
    assert [one.object.id for one in answer] == answer.ids


def test_other_answers_stay_in_their_order(merger: FakeMerger, client: Any) -> None:
    parts = [objects_response([9, "x"], [1.5, 2.0]), objects_response([3], [7.25]), end_response()]
    merger.plans.append(Plan(parts))
    nearest = client.search(KNN)
    assert nearest.members() == {
        "query": "k",
        "objects": [9, "x", 3],
        "distance_m": [1.5, 2.0, 7.25],
    }
    assert [one.distance_m for one in nearest] == nearest.distances_m == [1.5, 2.0, 7.25]
    best = client.search(RANKED)
    assert best.members() == {"query": "b", "objects": [9, "x", 3], "score": [1.5, 2.0, 7.25]}
    assert [one.score for one in best] == best.scores
    assert best.distances_m == []
    merger.plans[0] = Plan([terms_response({"fire": 5}), terms_response({"Öl": 4}), end_response()])
    terms = client.search(TERMS)
    assert terms.terms == (("fire", 5), ("Öl", 4))
    assert terms.members() == {"query": "t", "terms": [["fire", 5], ["Öl", 4]], "at": 123}
    assert len(terms) == 2


def test_an_empty_answer_is_an_answer(merger: FakeMerger, client: Any) -> None:
    merger.plans.append(Plan([end_response()]))
    assert client.search(RANGE).ids == []
    assert list(client.search_parts(RANGE)) == []


def test_parts_come_before_the_end(merger: FakeMerger, client: Any) -> None:
    merger.plans.append(Plan([objects_response([2, 1]), objects_response([3]), end_response()]))
    assert [part.object_ids for part in client.search_parts(RANGE)] == [[2, 1], [3]]


def test_a_partial_answer_has_what_was_found(merger: FakeMerger, client: Any) -> None:
    error = Error(code="PARTIAL_RESULT", message="slots 3", missing_slots=[3], retry_after_ms=100)
    failure = Failure(grpc.StatusCode.UNAVAILABLE, error)
    merger.plans.append(Plan([objects_response([2, 1]), end_response([3])], failure))
    with pytest.raises(PartialResult) as caught:
        client.search(RANGE)
    assert caught.value.missing_slots == (3,)
    assert caught.value.answer is not None
    assert caught.value.answer.ids == [1, 2]
    assert caught.value.answer.missing_slots == (3,)
    # Its time is used up: it is not asked again.
    assert len(merger.requests) == 1
    merger.plans[0] = Plan([objects_response([2, 1]), end_response([3])])
    allowed = client.search(RANGE, allow_partial=True)
    assert merger.requests[1].allow_partial
    assert allowed.members() == {"query": "r", "objects": [1, 2], "missing_slots": [3]}


def test_a_broken_search_is_repeated_and_nothing_is_doubled(
    merger: FakeMerger, client: Any
) -> None:
    merger.plans += [
        Plan([objects_response([2, 1])], BROKEN),
        Plan([objects_response([2])]),
        Plan([objects_response([2, 1]), end_response()]),
    ]
    assert client.search(RANGE).ids == [1, 2]
    assert len(merger.requests) == 3


def test_parts_that_were_handed_out_do_not_come_again(merger: FakeMerger, client: Any) -> None:
    merger.plans += [
        Plan(failure=BROKEN),
        Plan([objects_response([2, 1])], BROKEN),
        Plan([end_response()]),
    ]
    parts = client.search_parts(RANGE)
    assert next(parts).object_ids == [2, 1]
    with pytest.raises(Unavailable):
        next(parts)
    assert len(merger.requests) == 2


def test_another_merger_is_tried_and_the_cluster_lists_new_ones(
    merger: FakeMerger, cluster: FakeCluster, connect: Callable[..., Any]
) -> None:
    other = FakeMerger()
    try:
        cluster.mergers.append(other.address)
        merger.plans.append(Plan(failure=BROKEN))
        other.plans.append(Plan([end_response()]))
        for _ in range(4):
            assert connect(cluster.router).search(RANGE).ids == []
        assert len(other.requests) == 4
        # Clients begin with one or the other.
        client = connect(cluster.router)
        cluster.mergers[:] = [merger.address]
        with pytest.raises(Unavailable):
            client.search(RANGE)
        described = cluster.describes
        cluster.mergers[:] = [other.address]
        assert client.search(RANGE).ids == []
        assert cluster.describes > described
    finally:
        other.stop()


def test_a_cluster_without_mergers_is_described_again_until_it_has_one(
    merger: FakeMerger, cluster: FakeCluster, connect: Callable[..., Any]
) -> None:
    merger.plans.append(Plan([end_response()]))
    cluster.mergers.clear()
    client = connect(cluster.router)
    with pytest.raises(Unavailable, match="no merger"):
        client.search(RANGE)
    assert cluster.describes == QUICK.attempts
    # It appears while the search is running.
    cluster.merger_comes = cluster.describes + 3, merger.address
    assert client.search(RANGE).ids == []
    assert cluster.describes == QUICK.attempts + 3
    # No longer than the search may take.
    cluster.mergers.clear()
    slow = connect(cluster.router, retry=Retry(attempts=1_000, initial_ms=50))
    with pytest.raises((Unavailable, DeadlineExceeded)):
        slow.search(RANGE, timeout_s=0.2)


def test_errors_of_the_caller_are_raised_at_once(merger: FakeMerger, client: Any) -> None:
    error = Error(code="INVALID_ARGUMENT", message="is no region", field="region")
    merger.plans.append(Plan(failure=Failure(grpc.StatusCode.INVALID_ARGUMENT, error)))
    with pytest.raises(InvalidArgument) as caught:
        client.search(RANGE)
    assert caught.value.field == "region"
    assert len(merger.requests) == 1
    with pytest.raises(InvalidArgument):
        client.search("coffee")


def test_a_silent_merger_is_not_waited_for_longer(
    merger: FakeMerger, connect: Callable[..., Any]
) -> None:
    merger.plans.append(Plan())
    gate = merger.gate = threading.Barrier(2)
    client = connect("127.0.0.1:1", mergers=[merger.address])
    with pytest.raises(DeadlineExceeded):
        client.search(RANGE, timeout_s=0.1)
    gate.abort()
    assert len(merger.requests) <= 1


def test_the_next_search_asks_another_merger(
    merger: FakeMerger, connect: Callable[..., Any]
) -> None:
    merger.plans.append(Plan(failure=Failure(grpc.StatusCode.DEADLINE_EXCEEDED)))
    other = FakeMerger(deque([Plan([end_response()])]))
    # Each client has an order of its own.
    while not merger.requests:
        client = connect("127.0.0.1:1", mergers=[merger.address, other.address])
        with suppress(DeadlineExceeded):
            client.search(RANGE)
    asked = len(merger.requests)
    assert client.search(RANGE).ids == []
    assert len(merger.requests) == asked
    other.stop()


@pytest.mark.parametrize("damage", ["values", "objects.lon", "objects.ids", "events.numbers"])
def test_damage_raises_an_error(damage: str, merger: FakeMerger, client: Any) -> None:
    response = objects_response([1, 2], [1.0, 2.0])
    message, _, name = damage.rpartition(".")
    part = getattr(response, message) if message else response
    setattr(part, name, getattr(part, name)[:-1])
    merger.plans.append(Plan([response, end_response()]))
    with pytest.raises(Internal):
        [one.object for one in client.search(KNN)]


# --- more than was asked for


@pytest.mark.parametrize(
    ("query", "response"),
    [
        (KNN, objects_response([1, 2], [1.0, 2.0])),
        (RANKED, objects_response([1, 2], [1.0, 2.0])),
        (TERMS, terms_response({"a": 1, "b": 2})),
        (TERMS, objects_response([1])),
        (RANGE, terms_response({"a": 1})),
    ],
)
def test_more_than_was_asked_for_is_an_error(
    merger: FakeMerger, client: Any, query: Any, response: Any
) -> None:
    # A server that never ends its answer would fill the memory until the time limit.
    merger.plans.append(Plan([response] * 1_000))
    with pytest.raises(Internal, match="more than was asked for"):
        client.search(query)
    merger.plans.append(Plan([response] * 1_000))
    with pytest.raises(Internal, match="more than was asked for"):
        list(client.search_parts(query))


def test_an_answer_is_kept_as_far_as_there_is_room() -> None:
    response = objects_response(list(range(100)))
    arguments = None, None, False
    state = Searching(RANGE, *arguments, answer_bytes_max=3 * response.ByteSize())
    for _ in range(3):
        state.received(response)
    with pytest.raises(ResourceExhausted, match="search_parts"):
        state.received(response)
    assert len(state.answer()) == 0
    taken = Searching(RANGE, *arguments, keeps=False, answer_bytes_max=1)
    assert [taken.received(response) is not None for _ in range(9)] == [True] * 9


def test_one_of_many_searches_with_a_large_answer_fails_alone() -> None:
    response = objects_response(list(range(100)))
    arguments = None, None, False
    large, small = (Searching(RANGE, *arguments, answer_bytes_max=size) for size in (9, 1 << 20))
    searches = ManySearches([large, small], arguments, 9.0, 2, QUICK, lambda: 0.5)
    assert searches.next_request(0.0) is not None
    for number, part in [(0, response), (0, response), (1, response), (0, end_response())]:
        searches.received(numbered(number, part), 0.0)
    searches.received(numbered(1, end_response()), 0.0)
    first, second = searches.results()
    assert isinstance(first.error, ResourceExhausted)
    assert len(second.get()) == 100
    # It has ended: nothing more of it can be meant.
    with pytest.raises(Internal, match="not asked"):
        searches.received(numbered(0, end_response()), 0.0)


def numbered(number: int, response: Any) -> SearchManyResponse:
    return SearchManyResponse(responses=[NumberedResponse(number=number, response=response)])
