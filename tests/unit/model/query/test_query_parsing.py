"""Queries: the contract's examples, every refusal, and the canonical form."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from sirocco.model.errors import InvalidArgument
from sirocco.model.geometry import Circle, Rectangle
from sirocco.model.query import (
    KnnQuery,
    RangeQuery,
    RankedQuery,
    TermsQuery,
    Weights,
    canonical,
    kind_of,
    parse_query,
    query_handle,
)

RECT = {"rect": {"west": -74.1, "south": 40.6, "east": -73.7, "north": 40.9}}
POINT = {"lon": -0.12, "lat": 51.5}
RANGE: dict[str, Any] = {"id": "q", "kind": "range", "mode": "continuous", "region": RECT}
KNN: dict[str, Any] = {"id": "q", "kind": "knn", "mode": "snapshot", "point": POINT, "k": 10}
TERMS: dict[str, Any] = {
    "id": "q", "kind": "terms", "mode": "continuous", "k": 10, "window": "1h", "step": "10m"
}  # fmt: skip
RANKED: dict[str, Any] = {
    "id": "q", "kind": "ranked", "mode": "snapshot", "point": POINT, "radius_m": 1e5, "k": 10,
    "keywords": ["Light", "triangle"],
}  # fmt: skip


def test_range() -> None:
    query = parse_query(RANGE | {"text": "(coffee AND free) OR pizza", "ttl": "72h"})
    assert isinstance(query, RangeQuery)
    assert query.region == Rectangle(-74.1, 40.6, -73.7, 40.9)
    assert query.ttl_ms == 259_200_000
    assert query.window_ms is None
    assert query.expression is not None
    assert query.expression.matches({"pizza"})
    assert (query.track, query.events, query.where) == (None, (), None)


def test_range_without_restrictions() -> None:
    query = parse_query({"id": "q", "kind": "range", "mode": "snapshot", "where": {}})
    assert query == RangeQuery(id="q", mode="snapshot")


def test_track() -> None:
    query = parse_query(RANGE | {"track": "vehicle"})
    assert isinstance(query, RangeQuery)
    assert query.events == ("enter", "exit")
    query = parse_query(RANGE | {"track": "vehicle", "events": ["inside", "enter", "enter"]})
    assert isinstance(query, RangeQuery)
    assert query.events == ("enter", "inside")


def test_waits() -> None:
    query = parse_query(RANGE | {"track": "vehicle", "dwell": "5m", "leave_after": "30s"})
    assert isinstance(query, RangeQuery)
    assert (query.dwell_ms, query.leave_after_ms) == (300_000, 30_000)
    assert parse_query(canonical(query)) == query


def test_knn() -> None:
    query = parse_query(KNN | {"text": "light", "window": "365d"})
    assert isinstance(query, KnnQuery)
    assert (query.lon, query.lat, query.k, query.window_ms) == (-0.12, 51.5, 10, 365 * 86_400_000)


def test_terms() -> None:
    query = parse_query(TERMS | {"region": {"circle": {"lon": 1, "lat": 2, "radius_m": 3}}})
    assert isinstance(query, TermsQuery)
    assert (query.window_ms, query.step_ms) == (3_600_000, 600_000)
    assert query.region == Circle(1, 2, 3)


def test_ranked_defaults() -> None:
    query = parse_query(RANKED)
    assert isinstance(query, RankedQuery)
    assert query.keywords == ("light", "triangle")
    assert query.weights == Weights(1 / 3, 1 / 3, 1 / 3)
    assert (query.half_life_ms, query.step_ms) == (86_400_000, None)
    continuous = parse_query(RANKED | {"mode": "continuous"})
    assert isinstance(continuous, RankedQuery)
    assert continuous.step_ms == 10_000
    # The default step may be longer than the window.
    short = parse_query(RANKED | {"mode": "continuous", "window": "9s"})
    assert isinstance(short, RankedQuery)
    assert (short.window_ms, short.step_ms) == (9_000, 10_000)
    assert parse_query(canonical(short)) == short


def test_keywords_are_distinct_terms() -> None:
    query = parse_query(RANKED | {"keywords": ["New-York", "new", "STRASSE", "Straße"]})
    assert isinstance(query, RankedQuery)
    assert query.keywords == ("new", "strasse", "york")


def without(members: dict[str, Any], name: str) -> dict[str, Any]:
    return {k: v for k, v in members.items() if k != name}


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ([], "query"),
        ({}, "kind"),
        (RANGE | {"kind": "area"}, "kind"),
        (RANGE | {"kind": ["range"]}, "kind"),
        (without(RANGE, "id"), "id"),
        (RANGE | {"id": ""}, "id"),
        (RANGE | {"id": 7}, "id"),
        (RANGE | {"id": "x" * 257}, "id"),
        (RANGE | {"id": "\ud800"}, "id"),
        (without(RANGE, "mode"), "mode"),
        (RANGE | {"mode": "Continuous"}, "mode"),
        (RANGE | {"k": 3}, "k"),
        (RANGE | {"colour": 3}, "colour"),
        (RANGE | {"region": None}, "region"),
        (RANGE | {"region": {"rect": RECT["rect"] | {"west": 200}}}, "region.rect.west"),
        (RANGE | {"text": ""}, "text"),
        (RANGE | {"text": None}, "text"),
        (RANGE | {"text": "a OR"}, "text"),
        (RANGE | {"ttl": "-5m"}, "ttl"),
        (RANGE | {"ttl": "0s"}, "ttl"),
        (RANGE | {"ttl": 5}, "ttl"),
        (RANGE | {"mode": "snapshot", "ttl": "5m"}, "ttl"),
        (RANGE | {"where": {"a": None}}, "where.a"),
        (RANGE | {"events": ["enter"]}, "events"),
        (RANGE | {"dwell": "5m"}, "dwell"),
        (RANGE | {"leave_after": "5m"}, "leave_after"),
        (RANGE | {"track": "v", "dwell": "0s"}, "dwell"),
        (RANGE | {"track": "v", "leave_after": 30}, "leave_after"),
        (RANGE | {"track": "v", "leave_after": "365251d"}, "leave_after"),
        (KNN | {"dwell": "5m"}, "dwell"),
        (RANGE | {"track": ""}, "track"),
        *((RANGE | {"track": name}, "track") for name in ("id", "ts", "lon", "lat", "text")),
        (RANGE | {"track": 5}, "track"),
        (RANGE | {"track": "v", "events": []}, "events"),
        (RANGE | {"track": "v", "events": ["leave"]}, "events[0]"),
        (RANGE | {"track": "v", "events": [["enter"]]}, "events[0]"),
        (RANGE | {"track": "v", "mode": "snapshot"}, "track"),
        (without(KNN, "k"), "k"),
        (KNN | {"k": 0}, "k"),
        (KNN | {"k": 10_001}, "k"),
        (KNN | {"k": 3.0}, "k"),
        (KNN | {"k": True}, "k"),
        (without(KNN, "point"), "point"),
        (KNN | {"point": [1, 2]}, "point"),
        (KNN | {"point": {"lon": 1}}, "point.lat"),
        (KNN | {"point": POINT | {"alt": 3}}, "point.alt"),
        (KNN | {"region": RECT}, "region"),
        (KNN | {"mode": "continuous", "window": "1h"}, "window"),
        (without(TERMS, "step"), "step"),
        (TERMS | {"step": "2h"}, "step"),
        (TERMS | {"step": "0s"}, "step"),
        (TERMS | {"mode": "snapshot"}, "step"),
        (without(RANKED, "keywords"), "keywords"),
        (RANKED | {"keywords": []}, "keywords"),
        (RANKED | {"keywords": "light"}, "keywords"),
        (RANKED | {"keywords": ["light", "--"]}, "keywords[1]"),
        (RANKED | {"keywords": ["light", 3]}, "keywords[1]"),
        (RANKED | {"keywords": [f"w{i}" for i in range(65)]}, "keywords"),
        (without(RANKED, "radius_m"), "radius_m"),
        (RANKED | {"radius_m": -1}, "radius_m"),
        (RANKED | {"weights": {"text": 1, "space": 0}}, "weights.time"),
        (RANKED | {"weights": {"text": 0.5, "space": 0.5, "time": 0.5}}, "weights"),
        (RANKED | {"weights": {"text": 2, "space": -1, "time": 0}}, "weights.text"),
        (RANKED | {"half_life": "0s"}, "half_life"),
        (RANKED | {"step": "1s"}, "step"),
        (RANKED | {"radius_m": 0}, "radius_m"),
        (RANKED | {"mode": "continuous", "step": "2m", "window": "1m"}, "step"),
    ],
)
def test_refusals_name_the_member(members: object, field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_query(members)
    assert caught.value.field == field


DURATIONS = st.sampled_from(["1ms", "90s", "72h", "3d", "1000ms"])
REGIONS = st.sampled_from(
    [
        RECT,
        {"circle": {"lon": 2.35, "lat": 48.85, "radius_m": 5000}},
        {"polygon": [[[2.2, 48.8], [2.5, 48.8], [2.4, 49.0], [2.2, 48.8]]]},
    ]
)
TEXTS = st.sampled_from(["a", "ANY(a b) NOT c", "(a OR b) AND c", "Straße"])
WHERES = st.sampled_from([{}, {"a": True}, {"a": 1, "b": {"gte": 3, "lt": 10, "in": [4, "x"]}}])
MODES = st.sampled_from(["continuous", "snapshot"])
WEIGHTS = st.sampled_from([{"text": 0.4, "space": 0.3, "time": 0.3}])


@st.composite
def queries(draw: st.DrawFn) -> dict[str, Any]:
    mode = draw(MODES)
    base = draw(st.sampled_from([RANGE, KNN, TERMS, RANKED]))
    kind = base["kind"]
    members = base | {"mode": mode, "id": draw(st.text("abé🎉", min_size=1, max_size=5))}
    is_continuous = mode == "continuous"
    if not is_continuous:
        members.pop("step", None)
    optional: dict[str, st.SearchStrategy[Any]] = {"where": WHERES}
    if kind in ("range", "terms"):
        optional["region"] = REGIONS
    if kind != "ranked":
        optional["text"] = TEXTS
    if is_continuous:
        optional["ttl"] = DURATIONS
    if kind == "range" or (kind in ("knn", "ranked") and not is_continuous):
        optional["window"] = DURATIONS
    if kind == "ranked" and is_continuous:
        # At least as long as each of the steps.
        optional["window"] = st.sampled_from(["3d", "100d"])
    if kind == "range" and is_continuous:
        optional["track"] = st.just("vehicle")
    if kind == "ranked":
        optional |= {"weights": WEIGHTS, "half_life": DURATIONS}
        if is_continuous:
            optional["step"] = DURATIONS
    for name, strategy in optional.items():
        if draw(st.booleans()):
            members[name] = draw(strategy)
    return members


@given(queries())
def test_canonical_form_is_read_back(members: dict[str, Any]) -> None:
    query = parse_query(members)
    form = canonical(query)
    assert parse_query(form) == query
    assert parse_query(orjson.loads(orjson.dumps(form))) == query
    assert parse_query(json.loads(json.dumps(form))) == query
    assert canonical(parse_query(form)) == form
    assert kind_of(query) == members["kind"]
    assert hash(query) == hash(parse_query(members))


def test_equal_queries_are_equal_however_written() -> None:
    one = parse_query(RANGE | {"text": "a AND b", "ttl": "60m", "where": {"x": 1, "y": 2}})
    other = parse_query(RANGE | {"text": " b a ", "ttl": "1h", "where": {"y": 2.0, "x": 1}})
    assert one == other
    assert one != parse_query(RANGE | {"text": "a OR b", "ttl": "1h", "where": {"x": 1, "y": 2}})


def test_handle_is_the_hash_of_the_id() -> None:
    assert query_handle("q1") == xxhash.xxh3_64_intdigest(b"q1")
