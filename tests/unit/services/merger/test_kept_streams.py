"""Streams that clients keep for single searches, at a real merger: places, ends, refusals."""

from __future__ import annotations

import random
import threading
from dataclasses import replace
from typing import Any

import pytest
from sirocco_client import PartialResult, RangeQuery, Rectangle, Unavailable

from tests.support.drivers import DRIVERS
from tests.support.search_cluster import NO_RETRY, SETTINGS, Searchable
from tests.support.search_ways import STREAMS, take
from tests.support.waiting import eventually


@pytest.fixture(autouse=True)
def streams(monkeypatch: pytest.MonkeyPatch) -> None:
    take(STREAMS, monkeypatch)


def everywhere(**members: Any) -> RangeQuery:
    return RangeQuery(id="all", subscriber="", mode="snapshot", **members)


def with_places(places: int) -> Any:
    return replace(SETTINGS, merger=replace(SETTINGS.merger, searches_max=places))


def fill(cluster: Searchable) -> None:
    rng = random.Random(5)
    members = [
        {"id": i, "lon": rng.uniform(-180, 180), "lat": rng.uniform(-90, 90)} for i in range(60)
    ]
    cluster.publish(members, [1_000] * 60)


def test_kept_streams_take_no_places_from_other_streams() -> None:
    with Searchable(1, settings=with_places(2)) as cluster:
        fill(cluster)
        assert len(cluster.client.search(everywhere())) == 60
        assert cluster.front._kept_streams.taken == 1
        assert cluster.front._streams.taken == 0
        with cluster.new_client() as other:
            (result,) = other.search_many([everywhere()])
            assert len(result.get()) == 60
            assert cluster.front._kept_streams.taken == 1


def test_a_search_without_a_place_for_a_stream_is_a_call() -> None:
    with Searchable(1) as cluster:
        fill(cluster)
        cluster.front._kept_streams._places = 0
        refused = cluster.metrics.search_refusals.labels(limit="process")
        for _ in range(3):
            assert len(cluster.client.search(everywhere())) == 60
        assert cluster.front._kept_streams.taken == 0
        assert refused._value.get() == 0


@pytest.mark.parametrize("driver", list(DRIVERS))
def test_a_merger_that_ends_is_not_held_up_by_idle_streams(driver: str) -> None:
    with Searchable(1) as cluster, Searchable(1) as other:
        fill(cluster)
        mergers = [cluster.address, other.address]
        with DRIVERS[driver]("127.0.0.1:1", mergers=mergers, retry=NO_RETRY) as client:
            client.search(everywhere())
            ending = next(one for one in (cluster, other) if one.front._kept_streams.taken)
            ending._server.call(ending.front.drain())
            assert eventually(lambda: ending.front._kept_streams.taken == 0)
            with pytest.raises(Unavailable, match="ending"):
                client.search(everywhere())
            client.search(everywhere())


def test_a_search_under_way_is_answered_by_a_merger_that_ends() -> None:
    with Searchable(1) as cluster:
        fill(cluster)
        gate = threading.Event()
        for slot in cluster.slots.values():
            slot.gate = gate
        found: list[Any] = []
        waiting = threading.Thread(target=lambda: found.append(cluster.client.search(everywhere())))
        waiting.start()
        assert eventually(lambda: cluster.front._under_way)
        ending = threading.Thread(target=lambda: cluster._server.call(cluster.front.drain()))
        ending.start()
        assert eventually(lambda: cluster.front._is_ending)
        gate.set()
        waiting.join(60)
        ending.join(60)
        assert [len(answer) for answer in found] == [60]


def test_a_partial_answer_holds_what_was_found_and_the_stream_goes_on() -> None:
    with Searchable(2) as cluster:
        fill(cluster)
        whole = set(cluster.client.search(everywhere()).ids)
        dead = cluster.evaluators["evaluator-1"]
        gone = set(dead.slots)
        dead.kill()
        with pytest.raises(PartialResult) as caught:
            cluster.client.search(everywhere(), timeout_s=0.5)
        assert set(caught.value.missing_slots) == gone
        assert caught.value.answer is not None
        assert set(caught.value.answer.ids) < whole
        assert cluster.client.search(everywhere(), timeout_s=0.5, allow_partial=True).is_partial
        west = everywhere(region=Rectangle(-180.0, -90.0, -179.0, -89.0))
        cluster.client.search(west, timeout_s=0.5, allow_partial=True)
        assert cluster.front._kept_streams.taken == 1
