"""Which answers of searches are written in the loop that serves all requests."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from sirocco_api.v1.search_service_pb2 import SearchResponse
from sirocco_client import query_from_json
from sirocco_client.objects.encode import ObjectEncoder

from sirocco.services.gateway.searches import _Growing, _Growth
from sirocco.services.gateway.settings import GatewayLimits


class AnyRoom:
    """Room for any answer."""

    def take(self, size: int) -> None:
        pass

    def give_back(self, size: int) -> None:
        pass


@pytest.mark.parametrize(
    ("count", "text", "is_small"),
    [(500, "", True), (501, "", False), (3, "x" * 60_000, True), (5, "x" * 60_000, False)],
)
def test_answers_of_many_or_large_objects_are_written_beside_the_loop(
    count: int, text: str, is_small: bool
) -> None:
    encoder, response = ObjectEncoder(), SearchResponse()
    objects = [{"id": number, "lon": 1, "lat": 2, "text": text} for number in range(count)]
    encoder.add_many(objects, 0)
    encoder.take(response.objects)
    numbers = array("Q", range(count)).tobytes()
    response.events.sessions = response.events.numbers = response.events.arrivals_ms = numbers
    room: Any = AnyRoom()
    query = query_from_json({"id": "q", "kind": "range", "mode": "snapshot"}, "")
    search = _Growing(query, None, None, False, _Growth(GatewayLimits(), room))
    search.received(response)
    assert search.is_small is is_small
    # What is repeated counts once.
    search.restart()
    search.received(response)
    assert search.is_small is is_small
