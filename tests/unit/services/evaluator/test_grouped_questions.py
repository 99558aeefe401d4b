"""Questions between two processes in groups, and with a process that does not know of them."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sirocco_client import RangeQuery, Rectangle

from sirocco.internal_api.v1 import slot_search_service_pb2 as pb
from sirocco.services.evaluator import outgoing_responses
from sirocco.services.evaluator import search as evaluator_search
from sirocco.services.merger import evaluators
from tests.support.search_cluster import Searchable

OBJECTS = 400


def filled(cluster: Searchable) -> list[tuple[float, float]]:
    rng = random.Random(11)
    places = [(rng.uniform(-180, 180), rng.uniform(-90, 90)) for _ in range(OBJECTS)]
    cluster.publish(
        [{"id": i, "lon": lon, "lat": lat, "text": "a"} for i, (lon, lat) in enumerate(places)],
        [1_000 + i for i in range(OBJECTS)],
    )
    return places


def ask_all(cluster: Searchable, places: list[tuple[float, float]]) -> None:
    """Asks from many threads at once, and compares with what was published."""

    def ask(number: int) -> None:
        rng = random.Random(number)
        west, south = rng.uniform(-180, 100), rng.uniform(-90, 50)
        box = Rectangle(west, south, west + 80, south + 40)
        query = RangeQuery(id="r", subscriber="", mode="snapshot", region=box, text="a")
        assert cluster.client.search(query).ids == [
            i
            for i, (lon, lat) in enumerate(places)
            if box.west <= lon <= box.east and box.south <= lat <= box.north
        ]

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(ask, range(300)))


def test_questions_and_answers_share_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    answered: list[int] = []
    with Searchable(2) as cluster:
        places = filled(cluster)
        next_message = evaluators._Link._next_message
        next_response = outgoing_responses.OutgoingResponses._next

        def count_asked(link: Any) -> pb.SearchSlotsRequest:
            message = next_message(link)
            asked.append(len(message.others))
            return message

        def count_answered(outgoing: Any) -> Any:
            found = next_response(outgoing)
            answered.append(len(found[0].others))
            return found

        monkeypatch.setattr(evaluators._Link, "_next_message", count_asked)
        monkeypatch.setattr(outgoing_responses.OutgoingResponses, "_next", count_answered)
        ask_all(cluster, places)
    assert sum(asked) > 0
    assert sum(answered) > 0


@pytest.mark.parametrize("older", ["evaluator", "merger"])
def test_an_older_process_gets_one_message_each(
    older: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows neither `takes_groups` nor `others`, and would lose what is in them."""

    class Forgetful(outgoing_responses.OutgoingResponses):
        def _next(self) -> Any:
            message, written = super()._next()
            message.takes_groups = False
            return message, written

    if older == "evaluator":
        monkeypatch.setattr(evaluator_search, "OutgoingResponses", Forgetful)
    next_message = evaluators._Link._next_message

    def forget(link: Any) -> pb.SearchSlotsRequest:
        message = next_message(link)
        message.takes_groups = message.takes_groups and older != "merger"
        assert older == "merger" or not len(message.others)
        return message

    took = evaluators._Link._took

    def take(link: Any, response: pb.SearchSlotsResponse) -> None:
        assert older == "evaluator" or not len(response.others)
        took(link, response)

    monkeypatch.setattr(evaluators._Link, "_next_message", forget)
    monkeypatch.setattr(evaluators._Link, "_took", take)
    with Searchable(2) as cluster:
        ask_all(cluster, filled(cluster))
