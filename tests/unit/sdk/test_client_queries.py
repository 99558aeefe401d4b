"""Queries in their three forms, which the engine reads alike."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sirocco_client import Circle, InvalidArgument, Polygon, RangeQuery, Rectangle, query_from_json
from sirocco_client.queries import read_query, write_query

from sirocco.codec import queries as engine
from sirocco.model.query import parse_query

RECT = {"west": -74.1, "south": 40.6, "east": -73.7, "north": 40.9}
RING = [[2.2, 48.8], [2.5, 48.8], [2.4, 49], [2.2, 48.8]]
BASE = {"id": "q1", "kind": "range", "mode": "continuous"}

CONTRACT: list[dict[str, Any]] = [
    BASE,
    BASE | {"region": {"rect": RECT}, "text": "(coffee AND free) OR pizza", "ttl": "72h"},
    BASE
    | {"mode": "snapshot", "text": "ANY(louvre museum)", "window": "30d"}
    | {"region": {"circle": {"lon": 2.35, "lat": 48.85, "radius_m": 5000}}},
    BASE | {"region": {"polygon": [RING]}, "text": "fire AND NOT drill"},
    BASE | {"where": {"status": "open", "size": {"gte": 3, "lt": 10}, "x": {"in": ["a", True]}}},
    BASE | {"track": "vehicle", "events": ["enter", "inside"]},
    BASE | {"where": {}},
]


@pytest.mark.parametrize("members", CONTRACT, ids=str)
def test_the_engine_reads_what_the_client_writes(members: dict[str, Any]) -> None:
    query = query_from_json(members, "ops")
    message = write_query(query)
    assert engine.read_query(message) == (parse_query(members), "ops")
    assert write_query(read_query(message)) == message


def test_typed_queries_come_back() -> None:
    query = RangeQuery(
        id="q",
        subscriber="s",
        region=Polygon((((0.0, 0.0), (1.0, 0.0), (1.0, 1.0)), ((0.1, 0.1), (0.2, 0.1)))),
        text="a",
        where={"size": {"lt": 3}},
        ttl=timedelta(hours=3),
    )
    assert read_query(write_query(query)) == query
    for region in (Rectangle(170, -1, -170, 1), Circle(1, 2, 3), None):
        found = RangeQuery(id="q", subscriber="s", region=region)
        assert read_query(write_query(found)) == found


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"kind": "knn"}, "kind"),
        ({"kind": None}, "kind"),
        ({"mode": "sometimes"}, "mode"),
        ({"id": 5}, "id"),
        ({"text": ["a"]}, "text"),
        ({"text": ""}, "text"),
        ({"ttl": 5}, "ttl"),
        ({"window": "1y"}, "window"),
        ({"where": []}, "where"),
        ({"track": 1}, "track"),
        ({"events": "enter"}, "events"),
        ({"events": []}, "events"),
        ({"colour": "red"}, "colour"),
        ({"region": {}}, "region"),
        ({"region": []}, "region"),
        ({"region": {"rect": RECT, "circle": {}}}, "region"),
        ({"region": {"square": {}}}, "region.square"),
        ({"region": {"rect": RECT | {"west": "x"}}}, "region.rect.west"),
        ({"region": {"rect": RECT | {"up": 1}}}, "region.rect.up"),
        ({"region": {"circle": {"lon": 1, "lat": 2}}}, "region.circle.radius_m"),
        ({"region": {"polygon": {}}}, "region.polygon"),
        ({"region": {"polygon": [5]}}, "region.polygon[0]"),
        ({"region": {"polygon": [RING, [[1]]]}}, "region.polygon[1][0]"),
    ],
    ids=str,
)
def test_bad_json_is_refused_with_its_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        query_from_json(BASE | change, "s")
    assert caught.value.field == field


@pytest.mark.parametrize("name", ["id", "kind", "mode"])
def test_missing_members_are_named(name: str) -> None:
    members = {key: value for key, value in BASE.items() if key != name}
    with pytest.raises(InvalidArgument) as caught:
        query_from_json(members, "s")
    assert (caught.value.field, caught.value.message) == (name, "is missing")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"mode": "never"}, "mode"),
        ({"id": None}, "id"),
        ({"subscriber": 5}, "subscriber"),
        ({"text": "\ud800"}, "text"),
        ({"text": ""}, "text"),
        ({"track": ""}, "track"),
        ({"ttl": "x"}, "ttl"),
        ({"where": {"a": {1}}}, "where"),
        ({"region": "here"}, "region"),
        ({"region": Circle("x", 2, 3)}, "region.circle.lon"),  # type: ignore[arg-type]
        ({"region": Polygon((((1.0,),),))}, "region.polygon[0][0]"),  # type: ignore[arg-type]
    ],
    ids=str,
)
def test_bad_values_are_refused_with_their_field(change: dict[str, Any], field: str) -> None:
    members: dict[str, Any] = {"id": "q", "subscriber": "s"} | change
    with pytest.raises(InvalidArgument) as caught:
        write_query(RangeQuery(**members))
    assert caught.value.field == field


def test_what_is_no_query_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        write_query({"id": "q"})  # type: ignore[arg-type]
