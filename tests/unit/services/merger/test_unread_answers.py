"""Clients that ask and do not read lose their answers, and exclude no others."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import grpc
import pytest
from sirocco_api.v1 import search_service_pb2 as pb
from sirocco_api.v1.search_service_pb2_grpc import SearchServiceStub
from sirocco_client import DeadlineExceeded, PartialResult, RangeQuery

from sirocco.codec.queries import write_query
from sirocco.model.query import RangeQuery as ReadRangeQuery
from sirocco.runtime.settings import MergerFrontLimits
from tests.support.search_cluster import SETTINGS, Searchable
from tests.support.waiting import eventually

WAIT_S = 120.0
YEAR_MS = 365 * 86_400_000
# More bytes than the windows of a connection and its buffers ever hold.
LONG = "word " * 2_000
OBJECTS = 3_000

EVERYWHERE = RangeQuery(id="all", subscriber="", mode="snapshot")


def filled(limits: MergerFrontLimits, objects: int = OBJECTS, text: str = LONG) -> Searchable:
    running = Searchable(settings=replace(SETTINGS, merger=limits))
    rng = random.Random(5)
    running.publish(
        [
            {"id": i, "lon": rng.uniform(-180, 180), "lat": rng.uniform(-90, 90), "text": text}
            for i in range(objects)
        ],
        [1_000 + i for i in range(objects)],
    )
    return running


class Hostile:
    """A client that asks for everything, with a year's time, and reads nothing of it."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(
            address, options=[("grpc.use_local_subchannel_pool", 1)]
        )
        self._stub = SearchServiceStub(self._channel)
        self.calls: list[Any] = []

    def ask(self, count: int) -> None:
        query = write_query(ReadRangeQuery(id="all", mode="snapshot"), "")
        for _ in range(count):
            request = pb.SearchRequest(query=query, timeout_ms=YEAR_MS)
            self.calls.append(self._stub.Search(request, timeout=YEAR_MS / 1_000))

    def status(self, call: Any) -> grpc.StatusCode:
        try:
            for _ in call:
                pass
        except grpc.RpcError:
            pass
        return call.code()

    def close(self) -> None:
        for call in self.calls:
            call.cancel()
        self._channel.close()


@pytest.fixture
def hostile() -> Iterator[Callable[[str], Hostile]]:
    made: list[Hostile] = []

    def make(address: str) -> Hostile:
        made.append(Hostile(address))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_unread_searches_leave_places_to_others(hostile: Callable[[str], Hostile]) -> None:
    with filled(MergerFrontLimits(searches_max=8)) as running:
        attacker = hostile(running.address)
        attacker.ask(40)
        refusals = running.metrics.search_refusals.labels(limit="share")
        eventually(lambda: refusals._value.get() == 36)
        assert running.front._places.taken == 4
        # Others, on connections of their own, are answered.
        with running.new_client() as other:
            found = other.search(EVERYWHERE)
        assert len(found) == OBJECTS


def test_an_unread_answer_ends_and_frees_what_it_holds(
    hostile: Callable[[str], Hostile],
) -> None:
    with filled(MergerFrontLimits(searches_max=8, unread_ms=300)) as running:
        attacker = hostile(running.address)
        attacker.ask(4)
        eventually(lambda: running.metrics.unread_answers._value.get() == 4)
        eventually(lambda: running.front._places.taken == 0)
        eventually(lambda: all(e.front._under_way == 0 for e in running.evaluators.values()))
        # Its stream finally ends with the reason.
        assert attacker.status(attacker.calls[0]) is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_search_ends_at_the_greatest_time_whatever_its_client_asks_for() -> None:
    with filled(MergerFrontLimits(search_timeout_max_ms=200), 60, "a") as running:
        for slot in running.slots.values():
            slot.gate = threading.Event()
        with pytest.raises((PartialResult, DeadlineExceeded)):
            running.client.search(EVERYWHERE, timeout_s=YEAR_MS / 1_000)
        assert running.front._places.taken == 0
