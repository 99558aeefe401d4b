"""Many searches on one stream: each is answered, refused, partial or repeated by itself."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import grpc
import numpy as np
import pytest
from sirocco_api.v1 import search_service_pb2 as pb
from sirocco_api.v1.search_service_pb2_grpc import SearchServiceStub
from sirocco_client import (
    AsyncClient,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    PartialResult,
    RangeQuery,
    Rectangle,
    ResourceExhausted,
    Retry,
    query_from_json,
)
from sirocco_client.queries.query import write_query

from sirocco.protocol.search.limits import SearchLimits
from sirocco.services.merger import search_stream
from tests.end_to_end.random_queries import random_queries_of_all_kinds
from tests.oracle import agrees, arrivals_ms
from tests.support.search_cluster import SETTINGS, Searchable
from tests.support.seeds import drawn_seed
from tests.support.waiting import eventually
from tests.unit.services.merger.test_search_front import everywhere, posts


def box(seed: int) -> RangeQuery:
    rng = random.Random(seed)
    west, south = rng.uniform(-180, 160), rng.uniform(-90, 80)
    region = Rectangle(west, south, west + 20, south + 10)
    return RangeQuery(id=f"r{seed}", subscriber="", mode="snapshot", region=region)


@pytest.fixture
def filled() -> Iterator[Searchable]:
    with Searchable(3) as running:
        fill(running)
        yield running


def fill(cluster: Searchable) -> None:
    rng = random.Random(5)
    cluster.publish(
        [
            {"id": i, "lon": rng.uniform(-180, 180), "lat": rng.uniform(-90, 90), "text": "a"}
            for i in range(300)
        ],
        [1_000] * 300,
    )


def with_places(places: int) -> Any:
    return replace(SETTINGS, merger=replace(SETTINGS.merger, searches_max=places))


@pytest.mark.parametrize("in_flight", [1, 64])
def test_answers_are_those_of_brute_force(in_flight: int) -> None:
    seed = drawn_seed()
    objects = posts(2_000, seed)
    queries = [
        query
        for query in random_queries_of_all_kinds(objects, 800, seed)
        if query["mode"] == "snapshot"
    ]
    arrivals = arrivals_ms(objects)
    with Searchable(3) as cluster:
        cluster.publish(objects, arrivals)
        results = cluster.client.search_many(
            (query_from_json(query, "") for query in queries),
            now_ms=arrivals[-1],
            in_flight=in_flight,
        )
        lines = [result.get().members() for result in results]
    assert [line["query"] for line in lines] == [query["id"] for query in queries]
    received = agrees(lines, objects, queries)
    assert not received, f"seed {seed}: " + "\n".join(received[:5])


def test_both_clients_give_the_same(filled: Searchable) -> None:
    queries = [box(seed) for seed in range(150)]

    async def ask() -> list[list[int | str]]:
        async with AsyncClient("127.0.0.1:1", mergers=[filled.address]) as client:
            return [each.get().ids async for each in client.search_many(queries)]

    answers = [filled.client.search(query).ids for query in queries]
    assert [each.get().ids for each in filled.client.search_many(queries)] == answers
    assert asyncio.run(ask()) == answers


def test_a_refused_query_refuses_no_other(filled: Searchable) -> None:
    wrong = {"kind": "range", "region": {"rect": [0, 0, 1]}}
    refused_there = RangeQuery(id="x", subscriber="", mode="snapshot", text="AND AND")
    queries: list[Any] = [box(1), wrong, box(2), refused_there, box(3)]
    results = list(filled.client.search_many(queries))
    assert [result.query for result in results] == queries
    assert [type(result.error) for result in results] == [
        type(None), InvalidArgument, type(None), InvalidArgument, type(None),
    ]  # fmt: skip
    for seed, result in zip((1, 2, 3), results[::2], strict=True):
        assert result.get().ids == filled.client.search(box(seed)).ids
    with pytest.raises(InvalidArgument, match="rect"):
        results[1].get()


def test_places_count_searches_and_not_messages() -> None:
    """One message with more searches than places: those beyond them are refused, and come again."""
    with Searchable(2, settings=with_places(8)) as cluster:
        refused = cluster.metrics.search_refusals.labels(limit="share")
        client = cluster.new_client(retry=Retry(initial_ms=1.0, longest_ms=5.0))
        with client:
            results = list(client.search_many([box(seed) for seed in range(60)], in_flight=32))
        assert all(result.error is None for result in results)
        assert refused._value.get() > 0
        assert eventually(lambda: cluster.front._places.taken == 0)
        with cluster.new_client() as impatient:
            kept = list(impatient.search_many([box(seed) for seed in range(60)], in_flight=32))
        errors = {type(result.error) for result in kept}
        assert errors == {type(None), ResourceExhausted}
        assert eventually(lambda: cluster.front._places.taken == 0)


def test_a_search_of_a_stream_leaves_places_to_single_ones() -> None:
    gate = threading.Event()
    with Searchable(1, settings=with_places(8)) as cluster:
        for slot in cluster.slots.values():
            slot.gate = gate
        results = cluster.client.search_many([everywhere() for _ in range(8)], in_flight=8)
        waiting = threading.Thread(target=lambda: list(results))
        waiting.start()
        assert eventually(lambda: cluster.front._places.taken > 0)
        assert cluster.front._places.taken < 8
        gate.set()
        waiting.join(120.0)
        assert cluster.client.search(everywhere()).ids == []


def test_a_dead_evaluator_makes_only_its_searches_partial(filled: Searchable) -> None:
    dead = filled.evaluators["evaluator-1"]
    gone = set(dead.slots)
    dead.kill()
    queries = [box(seed) for seed in range(40)]
    needed = {
        query.id: bool(gone & set(filled.routing.route_boxes(*_boxes(query)).slots.tolist()))
        for query in queries
    }
    assert set(needed.values()) == {True, False}
    results = list(filled.client.search_many(queries, timeout_s=3.0))
    for result in results:
        assert isinstance(result.query, RangeQuery)
        if needed[result.query.id]:
            assert isinstance(result.error, PartialResult)
            assert set(result.error.missing_slots) <= gone
            assert result.error.answer is not None
        else:
            assert result.error is None
    allowed = list(filled.client.search_many(queries[:10], timeout_s=3.0, allow_partial=True))
    assert all(result.error is None for result in allowed)
    assert any(result.get().is_partial for result in allowed)


def _boxes(query: RangeQuery) -> tuple[Any, Any]:
    region = query.region
    assert isinstance(region, Rectangle)
    return (
        np.array([[region.west, region.south, region.east, region.north]]),
        np.array([0, 1], np.int64),
    )


def test_a_slow_search_holds_back_no_other_on_the_wire(filled: Searchable) -> None:
    """The results keep the order of the queries, but the others are answered meanwhile."""
    gate = threading.Event()
    slow = max(filled.slots, key=lambda number: filled.slots[number].store.objects_total)
    filled.slots[slow].gate = gate
    done = filled.metrics.searches.labels(kind="range", outcome="ok")
    queries = [everywhere(), *(box(seed) for seed in range(30))]
    results = filled.client.search_many(queries, timeout_s=20)
    first: list[Any] = []
    taking = threading.Thread(target=lambda: first.extend(results))
    taking.start()
    assert eventually(lambda: done._value.get() > 0)
    assert not first
    gate.set()
    taking.join(120.0)
    assert len(first) == 31
    assert all(result.error is None for result in first)


def test_one_that_is_too_slow_fails_alone(filled: Searchable) -> None:
    gate = threading.Event()
    for number in filled.slots:
        filled.slots[number].gate = gate
    late = list(filled.client.search_many([everywhere()], timeout_s=0.3))
    assert isinstance(late[0].error, DeadlineExceeded | PartialResult)
    gate.set()
    assert [each.error for each in filled.client.search_many([everywhere()])] == [None]


def test_a_merger_that_ends_is_left_for_another_one(filled: Searchable) -> None:
    with Searchable(1) as other:
        client = filled.new_client(
            mergers=[filled.address, other.address], retry=Retry(initial_ms=1.0)
        )
        with client:
            results = client.search_many((box(seed) for seed in range(200)), in_flight=4)
            taken = [next(results) for _ in range(5)]
            for front in (filled, other):
                if front.front._streams.taken:
                    front._server.call(front.front.drain())
            taken += list(results)
    assert len(taken) == 200
    assert all(result.error is None for result in taken)


def test_a_client_that_goes_leaves_nothing_behind(filled: Searchable) -> None:
    gate = threading.Event()
    for slot in filled.slots.values():
        slot.gate = gate
    results = filled.client.search_many([box(seed) for seed in range(20)])

    def take() -> None:
        with pytest.raises(FailedPrecondition, match="closed"):
            next(results)

    taking = threading.Thread(target=take)
    taking.start()
    assert eventually(lambda: filled.front._places.taken == 20)
    filled.client.close()
    taking.join(120.0)
    assert eventually(lambda: filled.front._places.taken == 0)
    assert eventually(lambda: filled.front._under_way == 0)
    assert eventually(lambda: filled.front._streams.taken == 0)
    gate.set()


class Raw:
    """A stream whose messages the test makes."""

    def __init__(self, cluster: Searchable) -> None:
        self.channel = grpc.insecure_channel(cluster.address)
        self.stub = SearchServiceStub(self.channel)

    def answers(self, *requests: pb.SearchManyRequest) -> list[pb.NumberedResponse]:
        call = self.stub.SearchMany(iter(requests), timeout=120.0)
        return [each for message in call for each in message.responses]


def numbered(number: int, query: RangeQuery) -> pb.NumberedSearch:
    return pb.NumberedSearch(number=number, search=pb.SearchRequest(query=write_query(query)))


def test_a_number_under_way_is_refused_and_the_other_answered(filled: Searchable) -> None:
    raw = Raw(filled)
    one = numbered(7, everywhere())
    answers = raw.answers(pb.SearchManyRequest(searches=[one, one]))
    assert sorted(each.error.code for each in answers if not each.response.objects.count) == [
        "INVALID_ARGUMENT"
    ]
    assert sum(each.response.objects.count for each in answers) == 300


def test_large_queries_wait_until_earlier_ones_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stream's searches under way hold no more than one message beyond the bound."""
    most = 0
    ended = search_stream.SearchStream.ended

    def watch(stream: Any, opened: Any) -> None:
        nonlocal most
        most = max(most, stream._held_bytes)
        ended(stream, opened)

    monkeypatch.setattr(search_stream.SearchStream, "ended", watch)
    text = " OR ".join(f"word{i}" for i in range(30))
    requests = [
        pb.SearchManyRequest(searches=[numbered(i, everywhere(text=f"a OR {text}"))])
        for i in range(40)
    ]
    size = requests[0].searches[0].search.ByteSize()
    with Searchable(3, limits=SearchLimits(stream_bytes_max=1_000)) as cluster:
        fill(cluster)
        answers = Raw(cluster).answers(*requests)
    assert sum(each.response.objects.count for each in answers) == 40 * 300
    assert size < most <= 1_000 + size


def test_who_reads_no_refusals_is_not_read_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for a client that reads nothing is bounded by a message more than the limit."""
    most = 0
    put = search_stream.SearchStream._put

    def watch(stream: Any, outgoing: Any) -> None:
        nonlocal most
        put(stream, outgoing)
        most = max(most, len(stream._outgoing))

    monkeypatch.setattr(search_stream.SearchStream, "_put", watch)
    wrong = pb.NumberedSearch(number=1, search=pb.SearchRequest())
    taken = 0

    def requests() -> Iterator[pb.SearchManyRequest]:
        nonlocal taken
        for _ in range(300):
            taken += 1
            yield pb.SearchManyRequest(searches=[wrong] * 1_000)

    with Searchable(1, limits=SearchLimits(stream_responses_max=50)) as cluster:
        raw = Raw(cluster)
        call = raw.stub.SearchMany(requests(), timeout=120.0)
        seen = -1
        while seen != taken:
            seen = taken
            threading.Event().wait(1.0)
        # More than one message waits nowhere but in gRPC's own buffers, which are bounded.
        assert 50 < most <= 1_050
        call.cancel()
        raw.channel.close()
