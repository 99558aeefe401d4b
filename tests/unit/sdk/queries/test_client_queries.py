"""Queries in their three forms, which the engine reads alike."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sirocco_client import (
    Circle,
    InvalidArgument,
    KnnQuery,
    Polygon,
    RangeQuery,
    RankedQuery,
    Rectangle,
    TermsQuery,
    Weights,
    query_from_json,
)
from sirocco_client.queries.query import read_query, write_query

from sirocco.codec import queries as engine
from sirocco.model.query import parse_query

RECT = {"west": -74.1, "south": 40.6, "east": -73.7, "north": 40.9}
RING = [[2.2, 48.8], [2.5, 48.8], [2.4, 49], [2.2, 48.8]]
BASE = {"id": "q1", "kind": "range", "mode": "continuous"}

KNN = {"id": "q4", "kind": "knn", "mode": "continuous", "k": 10} | {
    "point": {"lon": -0.12, "lat": 51.5}
}
TERMS = {"id": "q5", "kind": "terms", "mode": "continuous", "k": 10, "step": "10m"}
RANKED = {
    "id": "q6",
    "kind": "ranked",
    "mode": "continuous",
    "point": {"lon": -0.12, "lat": 51.5},
    "radius_m": 100_000,
    "k": 10,
    "keywords": ["light", "triangle"],
}

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
    KNN,
    KNN | {"mode": "snapshot", "text": "light", "window": "365d", "where": {"a": 1}},
    KNN | {"point": {"lon": 0, "lat": 0}, "ttl": "1h"},
    TERMS,
    TERMS | {"region": {"rect": RECT}, "text": "fire", "window": "1h", "ttl": "2d"},
    {key: value for key, value in TERMS.items() if key != "step"} | {"mode": "snapshot"},
    RANKED,
    RANKED
    | {"weights": {"text": 0.4, "space": 0.3, "time": 0.3}, "half_life": "30d"}
    | {"window": "365d", "step": "1m", "where": {"size": {"gte": 3}}},
    RANKED | {"mode": "snapshot", "weights": {"text": 1, "space": 0, "time": 0}},
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


HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    "query",
    [
        KnnQuery(id="q", subscriber="s", lon=1.5, lat=-2.0, k=3),
        KnnQuery(id="q", subscriber="s", lon=0.0, lat=0.0, k=3, text="a", mode="snapshot"),
        TermsQuery(id="q", subscriber="s", k=3, step=HOUR),
        TermsQuery(id="q", subscriber="s", k=3, region=Circle(1, 2, 3), window=HOUR, step=HOUR),
        RankedQuery(id="q", subscriber="s", lon=1.5, lat=2.0, radius_m=5.0, k=3, keywords=("a",)),
        RankedQuery(
            id="q",
            subscriber="s",
            lon=1.5,
            lat=2.0,
            radius_m=5.0,
            k=3,
            keywords=("b", "a"),
            weights=Weights(0.5, 0.25, 0.25),
            half_life=HOUR,
            window=HOUR,
            step=HOUR,
            where={"a": 1},
        ),
    ],
    ids=lambda query: type(query).__name__,
)
def test_every_kind_comes_back(query: KnnQuery | TermsQuery | RankedQuery) -> None:
    assert read_query(write_query(query)) == query


def test_what_is_left_out_is_the_same_as_the_defaults_of_the_contract() -> None:
    plain = RankedQuery(id="q", subscriber="s", lon=1, lat=2, radius_m=5, k=3, keywords=("a",))
    received = replace(plain, weights=Weights(), half_life="1d", step="10s")
    assert engine.read_query(write_query(plain)) == engine.read_query(write_query(received))


def test_a_kind_that_is_not_known_is_an_error() -> None:
    message = write_query(RangeQuery(id="q", subscriber="s"))
    message.ClearField("range")
    with pytest.raises(InvalidArgument) as caught:
        read_query(message)
    assert caught.value.field == "kind"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"kind": "knn"}, "k"),
        ({"kind": "nearest"}, "kind"),
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


@pytest.mark.parametrize(
    ("base", "change", "field"),
    [
        (KNN, {"region": {"rect": RECT}}, "region"),
        (KNN, {"step": "1s"}, "step"),
        (KNN, {"k": "3"}, "k"),
        (KNN, {"k": 3.0}, "k"),
        (KNN, {"k": True}, "k"),
        (KNN, {"k": 1 << 63}, "k"),
        (KNN, {"point": [1, 2]}, "point"),
        (KNN, {"point": {"lon": 1}}, "point.lat"),
        (KNN, {"point": {"lon": 1, "lat": 2, "alt": 3}}, "point.alt"),
        (KNN, {"text": ""}, "text"),
        (TERMS, {"step": 5}, "step"),
        (TERMS, {"point": {"lon": 1, "lat": 2}}, "point"),
        (TERMS, {"track": "vehicle"}, "track"),
        (TERMS, {"region": {"square": {}}}, "region.square"),
        (RANKED, {"text": "a"}, "text"),
        (RANKED, {"radius_m": "5"}, "radius_m"),
        (RANKED, {"keywords": "light"}, "keywords"),
        (RANKED, {"keywords": ["a", 5]}, "keywords[1]"),
        (RANKED, {"weights": [1, 0, 0]}, "weights"),
        (RANKED, {"weights": {"text": 1, "space": 0}}, "weights.time"),
        (RANKED, {"weights": {"text": 1, "space": 0, "age": 0}}, "weights.age"),
        (RANKED, {"half_life": "forever"}, "half_life"),
    ],
    ids=str,
)
def test_bad_members_of_the_other_kinds_are_refused_with_their_field(
    base: dict[str, Any], change: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        query_from_json(base | change, "s")
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("base", "name"),
    [(KNN, "k"), (KNN, "point"), (TERMS, "k"), (RANKED, "radius_m"), (RANKED, "keywords")],
)
def test_missing_members_of_the_other_kinds_are_named(base: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        query_from_json({key: value for key, value in base.items() if key != name}, "s")
    assert (caught.value.field, caught.value.message) == (name, "is missing")


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


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"k": None}, "k"),
        ({"k": 2.5}, "k"),
        ({"lon": "x"}, "point.lon"),
        ({"lat": None}, "point.lat"),
        ({"radius_m": "far"}, "radius_m"),
        ({"keywords": "light"}, "keywords"),
        ({"keywords": None}, "keywords"),
        ({"keywords": (1,)}, "keywords"),
        ({"weights": (1, 0, 0)}, "weights.text"),
        ({"weights": Weights("a", 0, 0)}, "weights.text"),  # type: ignore[arg-type]
        ({"half_life": 5}, "half_life"),
        ({"step": -5}, "step"),
    ],
    ids=str,
)
def test_bad_values_of_the_other_kinds_are_refused_with_their_field(
    change: dict[str, Any], field: str
) -> None:
    members: dict[str, Any] = {"lon": 1, "lat": 2, "radius_m": 3, "k": 4, "keywords": ("a",)}
    with pytest.raises(InvalidArgument) as caught:
        write_query(RankedQuery(id="q", subscriber="s", **(members | change)))
    assert caught.value.field == field


def test_what_is_no_query_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        write_query({"id": "q"})  # type: ignore[arg-type]
