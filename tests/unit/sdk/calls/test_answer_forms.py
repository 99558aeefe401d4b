"""Answers as GeoJSON and as tables; times as datetimes; searches without id and mode."""

from __future__ import annotations

import importlib
import json
import struct
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from sirocco_api.v1.search_service_pb2 import SearchResponse
from sirocco_client import (
    FailedPrecondition,
    InvalidArgument,
    KnnQuery,
    Object,
    RangeQuery,
    SearchAnswer,
    TermsQuery,
)
from sirocco_client.base.numbers import read_time_ms
from sirocco_client.calls.bulk import BulkRegistration
from sirocco_client.calls.searching import Searching
from sirocco_client.objects.answer import SearchPart
from sirocco_client.objects.encode import ObjectEncoder

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_MS = 1_767_268_800_000

OBJECTS: list[dict[str, Any]] = [
    {"id": 1, "lon": 1.5, "lat": 2.5, "text": "fire", "ts": NOON_MS, "size": 3, "mixed": 1},
    {"id": 2, "lon": -1.5, "lat": 2.5, "mixed": "a", "score": 9, "deep": {"a": [1]}},
    {"id": 2**64 - 1, "lon": 0.0, "lat": 0.0, "text": "x", "ts": -(10**14) * 10},
]


def answer(query: Any, objects: list[dict[str, Any]], values: list[float]) -> SearchAnswer:
    response = SearchResponse()
    encoder = ObjectEncoder()
    encoder.add_many(objects)
    encoder.take(response.objects)
    count = len(objects)
    response.events.sessions = bytes(8 * count)
    response.events.numbers = bytes(8 * count)
    arrivals = [NOON_MS + 1_000 * number for number in range(count)]
    response.events.arrivals_ms = b"".join(each.to_bytes(8, "little") for each in arrivals)
    response.values = struct.pack(f"<{len(values)}d", *values)
    return SearchAnswer(query, NOON_MS, (SearchPart(response),))


NEAREST = answer(KnnQuery(lon=0, lat=0, k=3, mode="snapshot"), OBJECTS, [0.5, 1.5, 2.5])
WITHIN = answer(RangeQuery(mode="snapshot"), OBJECTS, [])
TERMS = SearchAnswer(TermsQuery(k=2, mode="snapshot"), NOON_MS, terms=(("fire", 7), ("x", 2)))


def test_an_answer_is_a_feature_collection() -> None:
    found = json.loads(json.dumps(NEAREST.to_geojson()))
    assert found["type"] == "FeatureCollection"
    assert found["features"][0] == {
        "type": "Feature",
        "id": 1,
        "geometry": {"type": "Point", "coordinates": [1.5, 2.5]},
        "properties": {
            "size": 3, "mixed": 1, "text": "fire", "ts": NOON_MS, "arrival_ms": NOON_MS,
            "distance_m": 0.5,
        },
    }  # fmt: skip
    assert [each["id"] for each in found["features"]] == [1, 2, 2**64 - 1]
    assert TERMS.to_geojson() == {"type": "FeatureCollection", "features": []}


def test_the_newest_comes_first_if_asked_for() -> None:
    assert [each.object.id for each in WITHIN] == [1, 2, 2**64 - 1]
    assert [each.object.id for each in WITHIN.newest_first] == [2**64 - 1, 2, 1]
    some = WITHIN.to_geojson(WITHIN.newest_first[:1])
    assert [each["id"] for each in some["features"]] == [2**64 - 1]


def test_an_answer_is_a_table_of_arrow() -> None:
    table = NEAREST.to_arrow()
    assert table.column_names == [
        *("id", "lon", "lat", "text", "ts", "arrival", "distance_m", "size", "mixed", "score_"),
        "deep",
    ]
    assert table["id"].to_pylist() == [1, 2, 2**64 - 1]
    # Before the year 1 there is no datetime.
    assert table["ts"].to_pylist() == [NOON, None, None]
    assert table["arrival"].to_pylist() == [NOON + timedelta(seconds=i) for i in range(3)]
    assert table["mixed"].to_pylist() == ["1", '"a"', None]
    assert table["score_"].to_pylist() == [None, 9, None]
    assert table["deep"].to_pylist() == [None, {"a": [1]}, None]
    assert TERMS.to_arrow().to_pydict() == {"term": ["fire", "x"], "objects": [7, 2]}
    named = answer(RangeQuery(), [{"id": "a", "lon": 0.0, "lat": 0.0}, OBJECTS[0]], [])
    assert sorted(named.to_arrow()["id"].to_pylist()) == ["1", "a"]
    assert answer(RangeQuery(), [], []).to_arrow().num_rows == 0


def test_an_answer_is_a_frame_of_pandas() -> None:
    pytest.importorskip("pandas")
    frame = NEAREST.to_pandas()
    assert frame["id"].tolist() == [1, 2, 2**64 - 1]
    assert str(frame["ts"].dtype) == str(frame["arrival"].dtype) == "datetime64[ms, UTC]"
    assert frame["arrival"][1].to_pydatetime() == NOON + timedelta(seconds=1)
    assert frame["ts"].isna().tolist() == [False, True, True]
    assert frame["distance_m"].tolist() == [0.5, 1.5, 2.5]
    assert TERMS.to_pandas()["objects"].sum() == 9
    assert len(answer(RangeQuery(), [], []).to_pandas()) == 0


def test_an_answer_is_a_frame_of_geopandas() -> None:
    geopandas = pytest.importorskip("geopandas")
    frame = NEAREST.to_geopandas()
    assert isinstance(frame, geopandas.GeoDataFrame)
    assert frame.crs.to_epsg() == 4326
    assert [(point.x, point.y) for point in frame.geometry] == [(1.5, 2.5), (-1.5, 2.5), (0, 0)]
    # Ids, times and attributes are those of pandas.
    assert frame.drop(columns="geometry").equals(NEAREST.to_pandas())
    # It is a map's frame: what lies in a rectangle, metres of a projection, GeoJSON.
    assert frame.cx[-2:-1, 2:3]["id"].tolist() == [2]
    metres = frame.to_crs(3857).geometry
    assert metres.x.tolist() == pytest.approx([166_979.24, -166_979.24, 0], abs=0.01)
    written = json.loads(frame[["id", "geometry"]].to_json())
    assert written["features"][0]["geometry"]["coordinates"] == [1.5, 2.5]
    empty = answer(RangeQuery(), [], []).to_geopandas()
    assert (len(empty), empty.crs.to_epsg()) == (0, 4326)


def test_an_attribute_is_no_geometry_and_terms_have_none() -> None:
    pytest.importorskip("geopandas")
    shaped = {"id": 1, "lon": 1.0, "lat": 2.0, "geometry": "round"}
    frame = answer(RangeQuery(), [shaped], []).to_geopandas()
    assert frame["geometry_"].tolist() == ["round"]
    assert frame.geometry[0].wkt == "POINT (1 2)"
    with pytest.raises(FailedPrecondition, match="has no places"):
        TERMS.to_geopandas()


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: Any) -> None:
    def missing(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", missing)
    for make, extra in (
        (NEAREST.to_arrow, "arrow"),
        (NEAREST.to_pandas, "pandas"),
        (NEAREST.to_geopandas, "geopandas"),
    ):
        with pytest.raises(FailedPrecondition, match=rf"sirocco-client\[{extra}\]"):
            make()


def test_datetimes_are_taken_where_milliseconds_are() -> None:
    paris = NOON.astimezone(timezone(timedelta(hours=1)))
    for moment in (NOON, paris, NOON + timedelta(microseconds=999)):
        assert read_time_ms(moment, "now_ms") == NOON_MS
    assert Searching(RangeQuery(), paris, None, False).request(1).now_ms == NOON_MS
    registration = BulkRegistration(NOON, None)
    registration.add([RangeQuery(id="q", subscriber="s")])
    request: Any = registration.next_request()
    assert request.start_ms == NOON_MS
    with pytest.raises(InvalidArgument, match="has no zone") as caught:
        read_time_ms(NOON.replace(tzinfo=None), "now_ms")
    assert caught.value.field == "now_ms"


@pytest.mark.parametrize("ts", [NOON, "2026-01-01T12:00:00Z", "2026-01-01T13:00:00.000999+01:00"])
def test_objects_take_times_in_other_forms(ts: Any) -> None:
    whole = {"id": 1, "lon": 1.0, "lat": 2.0, "ts": ts}
    for sources in ([whole], [Object(1, 1.0, 2.0, ts_ms=ts)], [whole, whole | {"ts": 5}]):
        encoder = ObjectEncoder()
        encoder.add_many(sources)
        response = SearchResponse()
        encoder.take(response.objects)
        assert int.from_bytes(response.objects.ts_ms[:8], "little") == NOON_MS


@pytest.mark.parametrize("ts", [NOON.replace(tzinfo=None), "2026-01-01T12:00:00", "noon", ""])
def test_a_time_without_a_zone_is_refused(ts: Any) -> None:
    with pytest.raises(InvalidArgument) as caught:
        ObjectEncoder().add({"id": 1, "lon": 1.0, "lat": 2.0, "ts": ts})
    assert caught.value.field == "ts"


def test_a_search_needs_neither_id_nor_mode() -> None:
    region = {"geohash": "u09"}
    asked = Searching({"kind": "range", "region": region}, None, None, False).request(1).query
    assert (asked.id, asked.mode) == ("search", 2)
    assert asked.range.region.rect.west == 1.40625
    for query in (RangeQuery(text="fire"), RangeQuery(id="q", text="fire", mode="snapshot")):
        request = Searching(query, None, None, False).request(1)
        assert (request.query.id, request.query.mode) == (query.id or "search", 2)
    standing = {"id": "q", "kind": "range", "mode": "continuous", "text": "fire"}
    assert Searching(standing, None, None, False).answer().query == RangeQuery(
        id="q", text="fire", mode="snapshot"
    )
    with pytest.raises(InvalidArgument, match="'once' is none of"):
        Searching(standing | {"mode": "once"}, None, None, False)
    with pytest.raises(InvalidArgument, match="int is no query"):
        Searching(5, None, None, False)  # type: ignore[arg-type]
