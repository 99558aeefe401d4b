"""Searches from client to stores and back, with evaluators that move, wait, fail and die."""

from __future__ import annotations

import asyncio
import operator
import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import grpc
import numpy as np
import pytest
from prometheus_client import Counter
from sirocco_api.v1.query_pb2 import QUERY_MODE_CONTINUOUS, QUERY_MODE_SNAPSHOT, Query
from sirocco_api.v1.search_service_pb2 import SearchRequest
from sirocco_api.v1.search_service_pb2_grpc import SearchServiceStub
from sirocco_client import (
    Circle,
    DeadlineExceeded,
    InvalidArgument,
    KnnQuery,
    PartialResult,
    RangeQuery,
    Rectangle,
    ResourceExhausted,
    SiroccoError,
    Unavailable,
    WindowTooLong,
    query_from_json,
)
from sirocco_client.calls.searching import Searching

from sirocco.codec.queries import write_query
from sirocco.codec.search import MESSAGE_BYTES_MAX, put_question
from sirocco.internal_api.v1 import slot_search_service_pb2 as slot_pb
from sirocco.model.query import RangeQuery as ReadRangeQuery
from sirocco.protocol.search.limits import LIMITS, SearchLimits
from sirocco.protocol.search.messages import EVER_MS, Question
from sirocco.services.evaluator import search as evaluator_search
from sirocco.services.merger import search as merger_search
from sirocco.services.merger.mark_requests import MarkRequests
from tests.end_to_end.random_queries import random_queries_of_all_kinds
from tests.oracle import agrees, arrivals_ms
from tests.support.plain_client import DEADLINE_S, refused
from tests.support.search_cluster import SLOT_COUNT, Searchable, Slot
from tests.support.search_ways import WAYS, take
from tests.support.seeds import drawn_seed
from tests.support.waiting import eventually, until

NOW_MS = 1_700_000_000_000


def posts(count: int, seed: int) -> list[dict[str, Any]]:
    """Returns objects in some crowded places and all over the world."""
    rng = np.random.default_rng(seed)
    words = np.array([f"w{i}" for i in range(40)] + ["東京", "Straße", "fire"])
    shares = 1 / np.arange(1, len(words) + 1)
    found: list[dict[str, Any]] = []
    for i in range(count):
        lon, lat = rng.uniform(-180, 180), rng.uniform(-90, 90)
        if i % 3:
            lon, lat = rng.choice([(2.35, 48.85), (-73.98, 40.75), (179.99, 0.0)]) + rng.normal(
                0, 0.05, 2
            )
            lon = (lon + 180) % 360 - 180
        text = " ".join(rng.choice(words, int(rng.integers(0, 12)), p=shares / shares.sum()))
        members: dict[str, Any] = {
            "id": int(rng.integers(1, count)),
            "lon": float(lon),
            "lat": float(lat),
        }
        members |= {"ts": NOW_MS + 1_000 * i, "text": text}
        if i % 5 == 0:
            members |= {"id": f"named {i}", "size": int(rng.integers(0, 5)), "open": bool(i % 2)}
        found.append(members)
    return found


@pytest.fixture(params=WAYS, autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches in calls of their own, and on streams that are kept open."""
    take(request.param, monkeypatch)


def everywhere(**members: Any) -> RangeQuery:
    return RangeQuery(id="all", subscriber="", mode="snapshot", **members)


@pytest.fixture
def small() -> Iterator[Searchable]:
    """Two evaluators with a few objects in each slot."""
    with Searchable() as running:
        rng = random.Random(3)
        running.publish(
            [
                {"id": i, "lon": rng.uniform(-180, 180), "lat": rng.uniform(-90, 90), "text": "a"}
                for i in range(120)
            ],
            [1_000 + i for i in range(120)],
        )
        yield running


@pytest.mark.parametrize("evaluators", [1, 3])
@pytest.mark.parametrize("kind", ["range", "knn", "terms", "ranked"])
def test_answers_are_those_of_brute_force(evaluators: int, kind: str) -> None:
    seed = drawn_seed()
    objects = posts(2_000, seed)
    queries = [
        query
        for query in random_queries_of_all_kinds(objects, 800, seed)
        if query["mode"] == "snapshot" and query["kind"] == kind
    ]
    arrivals = arrivals_ms(objects)
    with Searchable(evaluators) as cluster:
        cluster.publish(objects, arrivals)
        lines = [
            cluster.client.search(query_from_json(query, ""), now_ms=arrivals[-1]).members()
            for query in queries
        ]
    received = agrees(lines, objects, queries)
    assert not received, f"seed {seed}: " + "\n".join(received[:5])
    assert len(queries) == 100


def test_objects_come_back_whole(small: Searchable) -> None:
    members = {"id": "née", "lon": 1.5, "lat": 2.5, "ts": 77, "text": "Grüße", "size": 3}
    small.publish([members], [5_000])
    (found,) = small.client.search(everywhere(text="grüsse OR grüße"))
    assert found.object.members() == members
    assert (found.event, found.arrival_ms) == ((7, 121), 5_000)


def test_parts_of_a_large_answer_come_early_and_in_pieces() -> None:
    gate = threading.Event()
    with Searchable() as cluster:
        text = "word " * 2_000
        lons = [-179.0, 0.0, 90.0]
        cluster.publish(
            [{"id": i, "lon": lons[i % 3], "lat": 1.0, "text": text} for i in range(600)],
            [1_000] * 600,
        )
        late = max(number for number, slot in cluster.slots.items() if slot.store.objects_total)
        cluster.slots[late].gate = gate
        parts = cluster.client.search_parts(everywhere())
        early = next(parts)
        assert 0 < len(early) < 200
        gate.set()
        rest = list(parts)
    numbers = [number for part in [early, *rest] for number in part.numbers]
    assert sorted(numbers) == list(range(1, 601))
    assert max(len("".join(part.texts)) for part in rest) <= 1 << 20


def test_parts_of_a_large_answer_grow() -> None:
    with Searchable(1) as cluster:
        text = "word " * 400
        cluster.publish(
            [{"id": i, "lon": 1.0, "lat": 1.0, "text": text} for i in range(3_000)], [1_000] * 3_000
        )
        parts = list(cluster.client.search_parts(everywhere()))
    sizes = [len("".join(part.texts)) for part in parts]
    assert sum(sizes) == 3_000 * len(text)
    first, second, third, *others, _ = sizes
    assert LIMITS.part_bytes * 0.8 < first < second < third < LIMITS.part_bytes_max * 1.4
    # None is split again on its way to the client.
    assert all(LIMITS.part_bytes_max * 0.8 < size <= MESSAGE_BYTES_MAX for size in others)
    assert len(others) > 1


def test_few_objects_of_enormous_texts_come_in_messages_that_are_taken() -> None:
    with Searchable(1) as cluster:
        text = "word " * 12_000
        cluster.publish(
            [{"id": i, "lon": 1.0, "lat": 1.0, "text": text} for i in range(300)], [1_000] * 300
        )
        parts = list(cluster.client.search_parts(everywhere()))
    assert sorted(number for part in parts for number in part.numbers) == list(range(1, 301))
    assert max(len("".join(part.texts)) for part in parts) <= MESSAGE_BYTES_MAX + len(text)


def test_a_slow_reader_holds_back_its_own_search_alone() -> None:
    with Searchable(1) as cluster:
        text = "word " * 6_000
        cluster.publish(
            [{"id": i, "lon": 1.0, "lat": 1.0, "text": text} for i in range(1_000)], [1_000] * 1_000
        )
        parts = cluster.client.search_parts(everywhere())
        next(parts)
        # 30 MB are waiting to be sent, and other searches are answered.
        for _ in range(20):
            near = KnnQuery(id="k", subscriber="", mode="snapshot", lon=1.0, lat=1.0, k=1)
            assert cluster.client.search(near).ids == [0]
        assert sum(len(part) for part in parts) + 1 > 900


def test_large_answers_are_put_together_beside_the_loop() -> None:
    objects = posts(300, 5)
    queries = [
        query_from_json(query, "")
        for query in random_queries_of_all_kinds(objects, 80, 5)
        if query["mode"] == "snapshot"
    ]
    arrivals = arrivals_ms(objects)
    found = []
    for loop_rows_max in (LIMITS.loop_rows_max, -1):
        with Searchable(3, limits=SearchLimits(loop_rows_max=loop_rows_max)) as cluster:
            cluster.publish(objects, arrivals)
            found.append([cluster.client.search(query, now_ms=arrivals[-1]) for query in queries])
    answers, again = found
    assert len(queries) == 40
    assert [one.members() for one in again] == [one.members() for one in answers]


def _await_count(asked: Counter, count: int) -> None:
    """An evaluator counts a request after the last part of its answer."""
    eventually(lambda: asked._value.get() == count)


def _answered(cluster: Searchable) -> list[float]:
    """Returns how many requests each evaluator has answered."""
    return [
        sum(sample.value for family in one.metrics.searches.collect() for sample in family.samples)
        for one in cluster.evaluators.values()
    ]


def test_an_evaluator_looks_for_a_word_in_all_its_slots_at_once() -> None:
    near = KnnQuery(id="k", subscriber="", mode="snapshot", lon=-170.0, lat=1.0, k=2, text="rare")
    with Searchable(1) as cluster:
        lons = [-170.0, -100.0, -10.0, 80.0, 170.0]
        cluster.publish(
            [
                {"id": i, "lon": lon, "lat": 1.0, "text": "other" if i == 1 else "rare"}
                for i, lon in enumerate(lons)
            ],
            [1_000] * 5,
        )
        asked = cluster.evaluators["evaluator-0"].metrics.searches.labels(kind="knn", outcome="ok")
        assert cluster.client.search(near).ids == [0, 4]
        _await_count(asked, 1)

        # A more expensive part is requested separately, with the bound known then.
        cluster.reach(0, 0)
        assert cluster.client.search(near, position_token="0.0").ids == [0, 4]
        _await_count(asked, 3)
        for slot in cluster.slots.values():
            if not slot.store.objects_total:
                slot.earliest_ms = 1_500
        kept = replace(near, window="500ms")
        assert cluster.client.search(kept, now_ms=1_400).ids == [0, 4]
        _await_count(asked, 4)


# --- slots that move, evaluators that die


def test_a_slot_that_moved_unnoticed_is_found(small: Searchable) -> None:
    small.give(2, "evaluator-1", is_announced=False)
    small.give(3, "evaluator-0", is_announced=False)
    answers: list[Any] = []
    before = _answered(small)
    thread = threading.Thread(target=lambda: answers.append(small.client.search(everywhere())))
    thread.start()
    # Both were asked for a slot that they do not have.
    eventually(lambda: all(map(operator.gt, _answered(small), before)))
    assert not answers
    small.give(2, "evaluator-1")
    small.give(3, "evaluator-0")
    thread.join(120.0)
    assert len(answers[0]) == 120


def test_an_evaluator_that_dies_is_waited_for_until_another_has_its_slots(
    small: Searchable,
) -> None:
    assert len(small.client.search(everywhere())) == 120
    dead = small.evaluators["evaluator-1"]
    dead.kill()
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(small.client.search(everywhere())))
    thread.start()
    successor = small.add_evaluator()
    for number in list(dead.slots):
        small.give(number, successor.member)
    thread.join(120.0)
    assert len(answers[0]) == 120


def test_unreachable_slots_are_named_and_the_rest_delivered(small: Searchable) -> None:
    dead = small.evaluators["evaluator-1"]
    missing = tuple(sorted(dead.slots))
    elsewhere = sum(
        slot.store.objects_total for number, slot in small.slots.items() if number not in missing
    )
    dead.kill()
    with pytest.raises(PartialResult) as caught:
        small.client.search(everywhere(), timeout_s=0.5)
    assert caught.value.missing_slots == missing
    assert caught.value.answer is not None
    assert len(caught.value.answer) == elsewhere
    allowed = small.client.search(everywhere(), timeout_s=0.5, allow_partial=True)
    assert (allowed.missing_slots, len(allowed), allowed.is_partial) == (missing, elsewhere, True)
    assert allowed.members()["missing_slots"] == list(missing)
    # Slots of the surviving evaluator are complete.
    here = next(iter(small.evaluators["evaluator-0"].slots))
    near = KnnQuery(id="k", subscriber="", mode="snapshot", lon=0.0, lat=0.0, k=1)
    assert small.slots[here].store.objects_total
    found = small.client.search(near, timeout_s=0.5, allow_partial=True)
    assert len(found) == 1


def test_a_broken_stream_is_opened_again(small: Searchable) -> None:
    for _ in range(3):
        assert len(small.client.search(everywhere())) == 120
        for evaluator in small.evaluators.values():
            evaluator._server.call(evaluator.front.hang_up())
    assert len(small.client.search(everywhere())) == 120


class BrittleCall:
    """A call as in gRPC: a write that is cancelled, or begun during another, breaks it."""

    def __init__(self) -> None:
        self.questions: list[int] = []
        self.may_write = asyncio.Event()
        self.is_writing = False
        self.is_broken = False

    async def write(self, response: Any) -> None:
        if self.is_broken or self.is_writing:
            self.is_broken = True
            raise grpc.aio.UsageError("broken")
        self.is_writing = True
        try:
            await self.may_write.wait()
        except asyncio.CancelledError:
            self.is_broken = True
            raise
        finally:
            self.is_writing = False
        self.questions.append(response.question)


def test_a_question_that_is_stopped_during_a_write_breaks_no_other(small: Searchable) -> None:
    async def run() -> BrittleCall:
        call = BrittleCall()
        stream = evaluator_search._Stream(small.evaluators["evaluator-0"].front, call)
        ask, query = slot_pb.SlotQuestion(), ReadRangeQuery(id="all", mode="snapshot")
        question = Question(
            query=query,
            slots=(0,),
            now_ms=2_000,
            from_ms=EVER_MS,
            upto_ms=2_000,
            position_token="",
            timeout_ms=10_000,
            radius_m=None,
            answers=1,
            parts=1,
        )
        put_question(ask, question, write_query(query, ""))
        stream._take(slot_pb.SearchSlotsRequest(question=1, ask=ask))
        await until(lambda: call.is_writing)
        stream._take(slot_pb.SearchSlotsRequest(question=1, stop=slot_pb.StopQuestion()))
        stream._take(slot_pb.SearchSlotsRequest(question=2, ask=ask))
        for _ in range(3):
            await asyncio.sleep(0)
        call.may_write.set()
        await until(lambda: 2 in call.questions)
        return call

    call = asyncio.run(run())
    assert (call.questions, call.is_broken) == ([1, 2], False)


# --- deadlines, cancellation, load


def test_too_short_a_deadline_names_what_was_missing(small: Searchable) -> None:
    for slot in small.slots.values():
        slot.gate = threading.Event()
    with pytest.raises(DeadlineExceeded) as caught:
        small.client.search(everywhere(), timeout_s=0.2)
    assert "slots 0, 1, 2, 3, 4, 5 gave no answer within" in str(caught.value)
    for slot in small.slots.values():
        assert slot.gate is not None
        slot.gate.set()


def test_an_abandoned_search_is_not_worked_on(small: Searchable) -> None:
    for slot in small.slots.values():
        slot.gate = threading.Event()
    with small.new_client() as removed:
        parts = removed.search_parts(everywhere(), timeout_s=60)
        thread = threading.Thread(target=take_in_vain, args=(parts,))
        thread.start()
        eventually(lambda: small.front._under_way == 1)
        eventually(lambda: all(e.front._under_way == 1 for e in small.evaluators.values()))
    thread.join(120.0)
    eventually(lambda: small.front._under_way == 0)
    eventually(lambda: all(e.front._under_way == 0 for e in small.evaluators.values()))
    stopped = [
        one.metrics.searches.labels(kind="range", outcome="stopped")._value.get()
        for one in small.evaluators.values()
    ]
    assert stopped == [1, 1]
    # Its threads are free for others, and only one slot of each was searched.
    for slot in small.slots.values():
        slot.gate = None
    assert len(small.client.search(everywhere())) == 120


def test_searches_beyond_the_bound_are_refused_with_a_hint(small: Searchable) -> None:
    small.front._places._places = 1
    for slot in small.slots.values():
        slot.gate = threading.Event()
    held: list[Any] = []
    thread = threading.Thread(target=lambda: held.append(small.client.search(everywhere())))
    thread.start()
    eventually(lambda: small.front._under_way == 1)
    with small.new_client() as other, pytest.raises(ResourceExhausted) as caught:
        other.search(everywhere())
    assert caught.value.retry_after_ms == merger_search.RETRY_AFTER_MS
    for slot in small.slots.values():
        assert slot.gate is not None
        slot.gate.set()
    thread.join(120.0)
    assert len(held[0]) == 120


def test_a_full_evaluator_is_retried(small: Searchable, monkeypatch: pytest.MonkeyPatch) -> None:
    def allow(questions: int) -> None:
        for each in small.evaluators.values():
            monkeypatch.setattr(each.front, "limits", SearchLimits(questions_max=questions))

    allow(0)
    with pytest.raises(PartialResult) as caught:
        small.client.search(everywhere(), timeout_s=0.3)
    assert "questions are under way" in str(caught.value)
    allow(1)
    assert len(small.client.search(everywhere())) == 120


# --- read your writes


def test_owners_receive_one_flush_request_however_often_a_token_names_them(
    small: Searchable, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def request(_: MarkRequests, part: str) -> None:
        asked.append(part)

    monkeypatch.setattr(MarkRequests, "_request", request)
    token = ",".join(["1.7", "0.3", "1.5"] * 1_000)
    with pytest.raises((DeadlineExceeded, PartialResult)):
        small.client.search(everywhere(), position_token=token, timeout_s=1.0)
    assert sorted(asked) == ["0.3", "1.7"]


def test_a_position_token_waits_until_all_slots_are_there(small: Searchable) -> None:
    answers: list[Any] = []
    thread = threading.Thread(
        target=lambda: answers.append(small.client.search(everywhere(), position_token="1.7"))
    )
    thread.start()
    eventually(lambda: all(e.watch._waiting for e in small.evaluators.values()))
    assert not any(slot.searched for slot in small.slots.values())
    small.publish([{"id": 999, "lon": 0.0, "lat": 0.0, "text": "a"}], [9_000])
    small.reach(1, 6)
    assert not answers
    small.reach(1, 7)
    thread.join(120.0)
    assert 999 in answers[0].ids
    # From now on it is known to have been reached.
    assert len(small.client.search(everywhere(), position_token="1.7", timeout_s=0.5)) == 121


def test_a_position_that_is_not_reached_is_reported(small: Searchable) -> None:
    small.reach(1, 7)
    # The evaluators' word or, if they are late, the merger's.
    with pytest.raises((DeadlineExceeded, PartialResult)) as caught:
        small.client.search(everywhere(), position_token="0.3,1.7", timeout_s=0.3)
    assert "position token" in str(caught.value)


def test_a_slot_that_comes_late_has_to_reach_the_position_as_well(small: Searchable) -> None:
    # init: when its evaluator checks the progress of its slots, one is still missing.
    late, owner = small.slots[5], small.owner(5)
    del owner.slots[5]
    gate = threading.Event()
    for _ in range(evaluator_search.THREADS):
        owner.front._pool.submit(gate.wait)
    answers: list[Any] = []
    thread = threading.Thread(
        target=lambda: answers.append(small.client.search(everywhere(), position_token="1.7"))
    )
    thread.start()
    eventually(lambda: all(e.watch._waiting for e in small.evaluators.values()))
    small.reach(1, 7)
    eventually(lambda: not owner.watch._waiting)

    # test: it arrives in an old state, before it is searched.
    owner.slots[5] = Slot()
    gate.set()
    eventually(lambda: bool(owner.watch._waiting))
    owner.slots[5] = late
    owner.stepped()
    thread.join(120.0)

    # check
    assert len(answers[0]) == 120


# --- the time of a search


def test_a_window_holds_both_of_its_ends(small: Searchable) -> None:
    window = everywhere(window="10ms")
    found = small.client.search(window, now_ms=1_050)
    assert sorted(one.arrival_ms for one in found) == list(range(1_040, 1_051))
    assert found.now_ms == 1_050
    # Without a time from the client all present objects count.
    assert len(small.client.search(everywhere())) == 120
    assert len(small.client.search(everywhere(), now_ms=1_009)) == 10


def test_a_window_beyond_retention_reports_the_earliest_time(small: Searchable) -> None:
    small.slots[1].earliest_ms = 1_020
    small.slots[4].earliest_ms = 1_030
    with pytest.raises(WindowTooLong) as caught:
        small.client.search(everywhere(window="100ms"), now_ms=1_119)
    assert caught.value.field == "window"
    assert caught.value.earliest_ms in (1_020, 1_030)
    assert len(small.client.search(everywhere(window="89ms"), now_ms=1_119)) == 90
    # Without a window the search covers all stored objects.
    assert len(small.client.search(everywhere())) == 120


# --- bad input

NEAR = {"kind": "knn", "point": {"lon": 0, "lat": 0}, "k": 3}
RANKED = {
    "kind": "ranked",
    "point": {"lon": 0, "lat": 0},
    "radius_m": 10.0,
    "k": 3,
    "keywords": ["a"],
}
BAD: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no k": (NEAR | {"k": 0}, {}, "k"),
    "huge k": (NEAR | {"k": 1_000_000}, {}, "k"),
    "negative k": ({"kind": "terms", "k": -2}, {}, "k"),
    "point outside": (NEAR | {"point": {"lon": 0, "lat": 91}}, {}, "point.lat"),
    "negative radius": (RANKED | {"radius_m": -1.0}, {}, "radius_m"),
    "weights": (
        RANKED | {"weights": {"text": 0.5, "space": 0.5, "time": 0.5}},
        {},
        "weights",
    ),
    "region outside": (
        {"region": {"rect": {"west": 0, "south": 0, "east": 181, "north": 1}}},
        {},
        "region.rect.east",
    ),
    "circle": (
        {"region": {"circle": {"lon": 0, "lat": 0, "radius_m": -5}}},
        {},
        "region.circle.radius_m",
    ),
    "expression": ({"text": "(a"}, {}, "text"),
    "lifetime": ({"ttl": "1h"}, {}, "ttl"),
    "track": ({"track": "car"}, {}, "track"),
    "token": ({}, {"position_token": "x"}, "position_token"),
    "foreign token": ({}, {"position_token": "9.1"}, "position_token"),
    "moment": ({}, {"now_ms": 1 << 62}, "now_ms"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_with_its_field(name: str, small: Searchable) -> None:
    members, options, field = BAD[name]
    query: dict[str, Any] = {"id": "bad", "kind": "range", "mode": "snapshot"} | members
    with pytest.raises(InvalidArgument) as caught:
        small.client.search(query_from_json(query, ""), **options)
    assert caught.value.field == field
    assert all(slot.searched == 0 for slot in small.slots.values())


@pytest.mark.parametrize("now_ms", [1 << 62, -(1 << 62)])
def test_a_moment_that_no_client_of_ours_sends_is_refused(now_ms: int, small: Searchable) -> None:
    query = Query(id="q", mode=QUERY_MODE_SNAPSHOT)
    query.range.SetInParent()
    request = SearchRequest(query=query, now_ms=now_ms)
    with grpc.insecure_channel(small.address) as channel:
        stub = SearchServiceStub(channel)
        status, details = refused(lambda: stub.Search(request, timeout=DEADLINE_S))
    assert (status, details.field) == ("INVALID_ARGUMENT", "now_ms")
    assert all(slot.searched == 0 for slot in small.slots.values())


def test_a_standing_query_is_searched_as_a_snapshot(small: Searchable) -> None:
    query: dict[str, Any] = {"id": "q", "kind": "range", "mode": "continuous"}
    standing = query_from_json(query, "me")
    assert small.client.search(standing).ids == small.client.search(everywhere()).ids
    state = Searching(standing, None, None, False)
    state.request(1).query.mode = QUERY_MODE_CONTINUOUS
    with pytest.raises(InvalidArgument) as caught:
        list(small.client._searches.parts(state, None, repeats=False))
    assert caught.value.field == "mode"


def test_a_merger_that_ends_sends_clients_elsewhere(small: Searchable) -> None:
    small._server.call(small.front.drain())
    with pytest.raises(Unavailable):
        small.client.search(everywhere())


def test_regions_reach_only_the_slots_that_can_hold_answers(small: Searchable) -> None:
    region = Circle(lon=100.0, lat=-40.0, radius_m=1_000.0)
    answer = small.client.search(everywhere(region=region))
    assert answer.slots == sum(slot.searched > 0 for slot in small.slots.values()) == 1
    world = Rectangle(west=-180.0, south=-90.0, east=180.0, north=90.0)
    assert small.client.search(everywhere(region=world)).slots == SLOT_COUNT


def take_in_vain(parts: Iterator[Any]) -> None:
    with pytest.raises(SiroccoError):
        list(parts)
