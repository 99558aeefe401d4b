"""Explanations of an object and a query agree with the brute force of the contract."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sirocco.model.explanation import Verdict, explain
from sirocco.model.geometry import Circle, Polygon, Rectangle, Region, distance_m, parse_region
from sirocco.model.objects import parse_object
from sirocco.model.query import parse_query
from sirocco.model.region_distance import metres_outside
from tests.oracle import answers, matches
from tests.oracle.knn import Nearest
from tests.oracle.ranges import Changes, Found
from tests.oracle.ranked import Best

START_MS = 1_405_123_200_000
# Far from everything, without words: it only starts the time of the brute force.
FIRST: dict[str, Any] = {"id": 1, "ts": START_MS, "lon": 90, "lat": -89, "text": ""}

# Few values each, so that borders are hit and conditions often hold.
LONGITUDES = st.sampled_from([-180, -179.5, -1, 0, 0.5, 1, 179.5, 180])
LATITUDES = st.sampled_from([-90, -1, 0, 0.5, 1, 90])
_WORDS = ["fire", "Drill", "free", "coffee"]
WORDS = st.lists(st.sampled_from(_WORDS), max_size=3)
VALUES = st.sampled_from([None, True, 1, 1.0, 3, "open", "1", [1]])


@st.composite
def objects(draw: st.DrawFn) -> dict[str, Any]:
    found = {
        "id": 2,
        "lon": draw(LONGITUDES),
        "lat": draw(LATITUDES),
        "text": " ".join(draw(WORDS)),
    }
    found["ts"] = START_MS + draw(st.sampled_from([0, 1, 999, 1_000, 1_001, 60_000]))
    for name in draw(st.sets(st.sampled_from(["size", "van"]))):
        found[name] = draw(VALUES)
    return found


@st.composite
def regions(draw: st.DrawFn) -> dict[str, Any]:
    lon, lat = draw(LONGITUDES), draw(LATITUDES)
    match draw(st.sampled_from(["rect", "circle", "polygon"])):
        case "rect":
            sides = {"west": lon, "south": min(lat, 0), "east": draw(LONGITUDES), "north": 1}
            return {"rect": sides}
        case "circle":
            radius_m = draw(st.sampled_from([0, 55_597.540, 55_597.541, 200_000, 3e7]))
            return {"circle": {"lon": lon, "lat": lat, "radius_m": radius_m}}
        case _:
            return {"polygon": [[[-1, -1], [1, -1], [1, 1]], [[0, -0.5], [0.5, 0], [0.5, -0.5]]]}


_TEXTS = [
    "fire",
    "fire AND NOT drill",
    "(free AND coffee) OR drill",
    "ANY(free fire) AND NOT coffee",
]
TEXTS = st.sampled_from(_TEXTS)
WHERES = st.sampled_from(
    [
        {"size": 1},
        {"size": True},
        {"size": {"gte": 1, "lt": 3}},
        {"size": {"in": ["1", 3]}},
        {"size": {"gt": "0"}, "van": "open"},
    ]
)


@st.composite
def conditions(draw: st.DrawFn, *names: str) -> dict[str, Any]:
    found = {"region": regions(), "text": TEXTS, "where": WHERES}
    return {name: draw(found[name]) for name in names if draw(st.booleans())}


def checked(query: dict[str, Any], one: dict[str, Any], start_ms: int | None) -> Verdict:
    return explain(parse_query(query), parse_object(one), arrival_ms=one["ts"], start_ms=start_ms)


@given(objects(), conditions("region", "text", "where"), st.sampled_from([None, "1ms", "1s"]))
def test_a_standing_range_query_matches_objects_explained_as_matches(
    one: dict[str, Any], conditions: dict[str, Any], ttl: str | None
) -> None:
    query = {"id": "q", "kind": "range", "mode": "continuous", **conditions}
    if ttl is not None:
        query["ttl"] = ttl
    verdict = checked(query, one, START_MS)
    assert (verdict.outcome == "match") == bool(
        matches([FIRST, one], [query], event_arrivals=True)["q", 2]
    )
    assert verdict.holds == (verdict.outcome == "match")
    assert {each.name for each in verdict.reasons} == {*conditions, "lifetime"}


@pytest.mark.parametrize("text", _TEXTS)
def test_every_text_of_few_words(text: str) -> None:
    query = {"id": "q", "kind": "range", "mode": "continuous", "text": text}
    for count in range(5):
        for words in combinations(_WORDS, count):
            one = {"id": 2, "lon": 0, "lat": 0, "ts": START_MS, "text": " ".join(words)}
            found = matches([FIRST, one], [query], event_arrivals=True)["q", 2]
            assert checked(query, one, START_MS).holds == bool(found), words


@given(objects(), conditions("region", "text", "where"), st.sampled_from(["0ms", "1s", "30d"]))
def test_a_snapshot_finds_objects_explained_as_matches(
    one: dict[str, Any], conditions: dict[str, Any], window: str
) -> None:
    query = {"id": "q", "kind": "range", "mode": "snapshot", "window": window, **conditions}
    last = FIRST | {"id": 3, "ts": START_MS + 60_000}
    found = answers([one, last], [query])["q"]
    assert isinstance(found, Found)
    assert (checked(query, one, last["ts"]).outcome == "match") == (2 in found.objects)


@given(objects(), conditions("region", "text", "where"))
def test_a_value_enters_where_its_object_is_explained_as_inside(
    one: dict[str, Any], conditions: dict[str, Any]
) -> None:
    query = {"id": "q", "kind": "range", "mode": "continuous", "track": "van", **conditions}
    found = answers([FIRST, one], [query])["q"]
    assert isinstance(found, Changes)
    assert (checked(query, one, START_MS).outcome == "inside") == (
        [(each, event) for each, event, _ in found.events] == [(2, "enter")]
    )


@given(objects(), conditions("text", "where"))
def test_candidates_of_knn_queries(one: dict[str, Any], conditions: dict[str, Any]) -> None:
    query = {"id": "q", "kind": "knn", "mode": "snapshot", "k": 1, **conditions}
    query["point"] = {"lon": 0, "lat": 0}
    found = answers([one], [query])["q"]
    assert isinstance(found, Nearest)
    assert (checked(query, one, None).outcome == "candidate") == (
        found.lines()[0]["objects"] == [2]
    )


@given(objects(), conditions("where"), st.sampled_from([55_597.54, 200_000, 3e7]), LONGITUDES)
def test_candidates_of_ranked_queries(
    one: dict[str, Any], conditions: dict[str, Any], radius_m: float, lon: float
) -> None:
    query = {"id": "q", "kind": "ranked", "mode": "snapshot", "k": 1, **conditions}
    query |= {"point": {"lon": lon, "lat": 0}, "radius_m": radius_m, "keywords": ["fire", "drill"]}
    found = answers([one], [query])["q"]
    assert isinstance(found, Best)
    assert (checked(query, one, None).outcome == "candidate") == (
        found.lines()[0]["objects"] == [2]
    )


@given(objects(), conditions("region", "text", "where"))
def test_objects_that_terms_queries_count(one: dict[str, Any], conditions: dict[str, Any]) -> None:
    query = {"id": "q", "kind": "terms", "mode": "snapshot", "k": 9, **conditions}
    one["text"] += " word"
    terms = answers([one], [query])["q"].lines()[0]["terms"]
    assert (checked(query, one, None).outcome == "counted") == bool(terms)


def _why(query: dict[str, Any], one: dict[str, Any], name: str) -> str:
    query = {"id": "q", "kind": "range", "mode": "continuous", **query}
    one = {"id": 2, "lon": 0, "lat": 0, "ts": START_MS, **one}
    return next(each.why for each in checked(query, one, START_MS).reasons if each.name == name)


@pytest.mark.parametrize(
    ("query", "one", "name", "why"),
    [
        ({"text": "fire free"}, {"text": "Free tea"}, "text", "lacks fire"),
        (
            {"text": "fire NOT drill"},
            {"text": "drill"},
            "text",
            "lacks fire and has drill, which is forbidden",
        ),
        ({"text": "a OR b"}, {"text": "c"}, "text", "none of the 2 alternatives holds"),
        ({"where": {"size": 1}}, {}, "where", "size is missing, required = 1"),
        (
            {"where": {"size": {"gte": 3}, "open": True}},
            {"size": None, "open": 1},
            "where",
            "open is 1, required = true; size is null, which counts as missing, required ≥ 3",
        ),
        (
            {"region": {"circle": {"lon": 0, "lat": 1, "radius_m": 100_000}}},
            {},
            "region",
            "11,195 m outside: 111,195 m from the centre, the radius is 100,000 m",
        ),
        (
            {"ttl": "1s"},
            {"ts": START_MS + 1_000},
            "lifetime",
            "arrives at 2014-07-12T00:00:01+00:00,",
        ),
        (
            {},
            {"ts": START_MS - 1},
            "lifetime",
            "arrives at 2014-07-11T23:59:59.999+00:00, the query",
        ),
        ({"track": "van"}, {"van": [1]}, "track", "has no van to track it by"),
    ],
)
def test_reasons_in_words(query: dict[str, Any], one: dict[str, Any], name: str, why: str) -> None:
    assert _why(query, one, name).startswith(why)


def test_events_of_a_tracked_value_depend_on_the_object_before() -> None:
    query = {"id": "q", "kind": "range", "mode": "continuous", "track": "van", "text": "fire"}
    one = {"id": 2, "lon": 0, "lat": 0, "ts": START_MS, "van": 7}
    inside, outside = checked(query, one | {"text": "fire"}, None), checked(query, one, None)
    assert (inside.outcome, outside.outcome) == ("inside", "no match")
    assert "enter" in inside.depends_on
    assert "exit" in outside.depends_on
    assert "exit" not in checked(query | {"events": ["enter"]}, one, None).depends_on
    assert checked(query, one | {"van": None}, None).depends_on == "it is not reported"


# --- distances outside a region


def _nearest_m(places: np.ndarray, lon: float, lat: float) -> float:
    return float(distance_m(lon, lat, places[:, 0], places[:, 1]).min())


def _border(region: Region) -> np.ndarray:
    """Returns f8[n, 2], places along the border, close to each other."""
    if isinstance(region, Circle):
        raise AssertionError("a circle's distance is exact")
    if isinstance(region, Polygon):
        ends = region.edges
    else:
        west, east = region.west, region.east + (360 if region.west > region.east else 0)
        south, north = region.south, region.north
        corners = [(west, south), (east, south), (east, north), (west, north)]
        ends = np.array([(*a, *b) for a, b in zip(corners, corners[1:] + corners[:1], strict=True)])
    parts = np.linspace(0, 1, 20_001)[:, None, None]
    return np.asarray(ends[:, :2] + parts * (ends[:, 2:] - ends[:, :2])).reshape(-1, 2)


REGIONS = [
    Rectangle(-74.1, 40.6, -73.7, 40.9),
    Rectangle(170, -10, -170, 60),
    Rectangle(-180, 50, -100, 90),
    Polygon((((2.2, 48.8), (2.5, 48.8), (2.4, 49.0)),)),
    Polygon((((0, 0), (40, 0), (40, 60), (0, 60)), ((10, 10), (30, 10), (30, 40)))),
]


@pytest.mark.parametrize("region", REGIONS)
def test_metres_outside_are_those_to_the_nearest_place_of_the_border(region: Region) -> None:
    seed = 20261122
    dice = np.random.default_rng(seed)
    border = _border(region)
    for _ in range(60):
        lon, lat = float(dice.uniform(-180, 180)), float(dice.uniform(-90, 90))
        if region.contains(np.array([lon]), np.array([lat]))[0]:
            continue
        found, wanted = metres_outside(region, lon, lat), _nearest_m(border, lon, lat)
        # Places of the brute force are up to some hundred metres apart.
        assert found <= wanted + 0.001, (seed, lon, lat)
        assert found >= wanted - 500, (seed, lon, lat)


def test_a_circle_is_left_by_a_millimetre() -> None:
    region = parse_region({"circle": {"lon": 0, "lat": 0, "radius_m": 111_195.079}})
    assert not region.contains(np.array([1.0]), np.array([0.0]))[0]
    assert metres_outside(region, 1.0, 0.0) == 0.001


def test_the_begin_that_a_router_noted_is_not_that_of_objects() -> None:
    query = parse_query({"id": "q", "kind": "range", "mode": "continuous"})
    one = parse_object(FIRST)
    report = explain(query, one, arrival_ms=5, start_ms=6)
    noted = explain(query, one, arrival_ms=5, start_ms=6, is_start_given=False)
    assert not report.holds
    assert "all the same" not in report.reasons[-1].why
    assert "published after the registration" in noted.reasons[-1].why
    steps = parse_query({"id": "q", "kind": "terms", "mode": "continuous", "k": 1, "step": "1s"})
    counted = explain(steps, one, arrival_ms=5, start_ms=6, is_start_given=False)
    assert "all the same" not in counted.reasons[-1].why
