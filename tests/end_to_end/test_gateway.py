"""The HTTP gateway before a whole cluster in this process: what the contract says of each call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO

import httpx
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster
from sirocco.services.gateway.server import Gateway
from sirocco.services.gateway.settings import LIMITS, GatewaySettings
from tests.support.http_streams import EventSource
from tests.support.waiting import eventually

SETTINGS = ClusterSettings(
    cluster="web", slots=8, leaves=16, intake_partitions=2, registry_partitions=2
)
NDJSON = {"content-type": "application/x-ndjson"}
BIG = 2**64 - 1


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(cluster: EmbeddedCluster) -> Iterator[Gateway]:
    one = Gateway(GatewaySettings(routers=cluster.router_address))
    one.start()
    yield one
    one.stop()


@pytest.fixture
def http(gateway: Gateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{gateway.address}", timeout=120.0) as client:
        yield client


def published(http: httpx.Client, *lines: object) -> str:
    body = "".join(f"{json.dumps(line)}\n" for line in lines)
    answer = http.post("/v1/objects", content=body, headers=NDJSON)
    assert answer.status_code == 200, answer.text
    assert answer.json()["errors"] == []
    return str(answer.json()["position"])


def test_lines_are_published_and_bad_ones_named(http: httpx.Client) -> None:
    body = (
        f'{{"id": {BIG}, "lon": 1, "lat": 2, "text": "linesword", "size": 3}}\n\n'
        'nonsense\n{"id": 2, "lat": 3}\n'
        '{"id": "x", "lon": 1, "lat": 2, "text": "linesword"}\n{"id": 3, "lon": 500, "lat": 1}\n'
    )
    answer = http.post("/v1/objects", content=body, headers=NDJSON)
    assert answer.status_code == 200
    found = answer.json()
    assert found.keys() == {"acknowledged", "position", "errors"}
    assert found["acknowledged"] == 2
    assert [(one["line"], one["field"]) for one in found["errors"]] == [
        (3, "object"),
        (4, "lon"),
        (6, "lon"),
    ]
    asked = {"kind": "range", "text": "linesword"}
    position = {"position": found["position"]}
    answer = http.post("/v1/search", json=asked, params=position)
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json()["objects"]) == {str(BIG), "x"}


def test_all_formats_say_the_same(http: httpx.Client) -> None:
    feature = {
        "type": "Feature",
        "id": 3,
        "geometry": {"type": "Point", "coordinates": [3, 4]},
        "properties": {"text": "formatsword", "ts": 1_000},
    }
    table = BytesIO()
    row = {"id": [0], "lon": [3.0], "lat": [4.0], "text": ["formatsword"]}
    pq.write_table(pa.table(row), table)
    row = {"id": [4], "lon": [3.0], "lat": [4.0], "text": ["formatsword"]}
    batches = BytesIO()
    with pa.ipc.new_stream(batches, pa.table(row).schema) as writer:
        writer.write_table(pa.table(row))
    bodies: dict[str, str | bytes] = {
        "application/vnd.apache.arrow.stream": batches.getvalue(),
        "application/vnd.apache.parquet": table.getvalue(),
        "application/json": json.dumps([{"id": 1, "lon": 3, "lat": 4, "text": "formatsword"}]),
        "application/geo+json": json.dumps({"type": "FeatureCollection", "features": [feature]}),
        "text/csv": "id,lon,lat,text\n2,3,4,formatsword\n",
    }
    position = ""
    for media_type, body in bodies.items():
        answer = http.post("/v1/objects", content=body, headers={"content-type": media_type})
        assert (answer.status_code, answer.json()["acknowledged"]) == (200, 1), media_type
        position = answer.json()["position"]
    asked = {"kind": "range", "text": "formatsword"}
    full = http.post(
        "/v1/search",
        params={"position": position},
        json=asked,
        headers={"accept": "application/json; objects=full"},
    ).json()
    assert [one["id"] for one in full["objects"]] == ["0", "1", "2", "3", "4"]
    assert {(one["lon"], one["lat"], one["text"]) for one in full["objects"]} == {
        (3.0, 4.0, "formatsword")
    }
    assert full["objects"][3]["ts"] == 1_000
    found = http.post("/v1/search", json=asked, headers={"accept": "application/geo+json"})
    assert found.headers["content-type"] == "application/geo+json"
    assert found.json()["type"] == "FeatureCollection"
    assert [one["id"] for one in found.json()["features"]] == ["0", "1", "2", "3", "4"]
    assert found.json()["features"][0]["geometry"] == {"type": "Point", "coordinates": [3.0, 4.0]}


def test_a_list_of_searches_is_answered_in_its_order(http: httpx.Client) -> None:
    here = [{"id": i, "lon": 1.0, "lat": 2.0 + i, "text": f"manyword w{i}"} for i in range(5)]
    position = {"position": published(http, *here)}
    asked: list[dict[str, object]] = [
        {"kind": "range", "text": f"w{i} AND manyword"} for i in range(5)
    ]
    asked[1] |= {"id": "named", "region": {"tile": "0/0/0"}}
    knn = {"kind": "knn", "point": {"lon": 1, "lat": 2}, "k": 2, "text": "manyword"}
    bad = [{"kind": "range", "text": "a AND"}, 7, {"kind": "nothing"}]
    answer = http.post("/v1/searches", json=[*asked, knn, *bad], params=position)
    assert answer.status_code == 200, answer.text
    found = answer.json()["answers"]
    names = ["0", "named", "2", "3", "4", "5", "6", "7", "8"]
    assert [one["query"] for one in found] == names
    assert [one["objects"] for one in found[:6]] == [["0"], ["1"], ["2"], ["3"], ["4"], ["0", "1"]]
    assert found[5] == http.post("/v1/search", json={"id": "5", **knn}, params=position).json()
    for one in found[6:]:
        assert (one["error"]["status"], one["error"]["code"]) == (400, "INVALID_ARGUMENT"), one
    whole = http.post(
        "/v1/searches",
        json=asked[:1],
        params=position,
        headers={"accept": "application/json; objects=full"},
    )
    assert whole.json()["answers"][0]["objects"] == [{**here[0], "id": "0"}]
    assert http.post("/v1/searches", json=[]).json() == {"answers": []}


def test_a_list_of_searches_has_bounds(cluster: EmbeddedCluster) -> None:
    limits = replace(LIMITS, searches=3, answer_objects=50)
    gateway = Gateway(GatewaySettings(routers=cluster.router_address, limits=limits))
    gateway.start()
    one = {"kind": "range", "text": "boundword"}
    with httpx.Client(base_url=f"http://{gateway.address}", timeout=120.0) as http:
        lines = [{"id": i, "lon": 1, "lat": 2, "text": "boundword"} for i in range(20)]
        position = {"position": published(http, *lines)}
        answers = [
            http.post("/v1/searches", json=json, params=position)
            for json in ([one] * 2, [one] * 3, [one] * 4, {"queries": [one]})
        ]
    gateway.stop()
    assert [answer.status_code for answer in answers] == [200, 409, 400, 400]
    assert [len(each["objects"]) for each in answers[0].json()["answers"]] == [20, 20]
    assert "more than 50 objects" in answers[1].json()["detail"]
    assert [answer.json()["field"] for answer in answers[2:]] == ["queries", "queries"]


def test_queries_are_registered_replaced_listed_and_removed(http: httpx.Client) -> None:
    at, whose = "/v1/queries/life", {"subscriber": "ben"}
    first = {"kind": "range", "text": "a", "id": "life", "mode": "continuous"}
    answer = http.put(at, params=whose, json=first)
    assert (answer.status_code, answer.json()) == (201, {"id": "life", "warnings": []})
    assert http.put(at, params=whose, json={"kind": "range", "text": "b"}).status_code == 200
    found = http.get(at, params=whose).json()
    assert (found["id"], found["subscriber"], found["query"]["text"]) == ("life", "ben", "b")
    for i in range(5):
        http.put(f"/v1/queries/page{i}", params=whose, json={"kind": "range", "text": "b"})
    ids, token = [], ""
    while True:
        page = http.get("/v1/queries", params={**whose, "page_size": 2, "page_token": token}).json()
        assert len(page["queries"]) <= 2
        ids += [one["id"] for one in page["queries"]]
        token = page["next_page_token"]
        if not token:
            break
    assert sorted(ids) == ["life", *(f"page{i}" for i in range(5))]
    assert http.get(at, params={"subscriber": "eve"}).status_code == 404
    assert http.delete(at, params={"subscriber": "eve"}).status_code == 404
    assert http.delete(at, params=whose).status_code == 200
    assert http.delete(at, params=whose).status_code == 404


def test_errors_are_problems_with_the_field(http: httpx.Client) -> None:
    region = {"rect": {"west": "x", "south": 0, "east": 1, "north": 1}}
    whose = {"subscriber": "ben"}
    answers = {
        "region.rect.west": http.put(
            "/v1/queries/bad", params=whose, json={"kind": "range", "region": region}
        ),
        "subscriber": http.put("/v1/queries/bad", json={"kind": "range"}),
        "id": http.put("/v1/queries/bad", params=whose, json={"kind": "range", "id": "other"}),
        "k": http.post("/v1/search", json={"kind": "knn", "point": {"lon": 1, "lat": 2}}),
        "page_size": http.get("/v1/queries", params={"page_size": 0}),
        "query": http.post("/v1/search", content=b"[1"),
        "position": http.post(
            "/v1/search", params={"position": "x"}, json={"kind": "range", "text": "a"}
        ),
        "now": http.post("/v1/search", params={"now": 10**16}, json={"kind": "range"}),
    }
    for field, answer in answers.items():
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.status_code == answer.json()["status"] == 400, answer.text
        assert answer.json()["field"] == field, answer.text
    unknown = http.post("/v1/objects", content=b"x", headers={"content-type": "text/plain"})
    assert (unknown.status_code, unknown.json()["field"]) == (415, "Content-Type")
    nowhere = http.get("/v1/nothing")
    assert (nowhere.status_code, nowhere.json()["code"]) == (404, "NOT_FOUND")


def test_a_stream_resumes_at_each_of_its_events(http: httpx.Client, gateway: Gateway) -> None:
    base = f"http://{gateway.address}"
    http.put(
        "/v1/queries/resumed", params={"subscriber": "rita"}, json={"kind": "range", "text": "res"}
    )
    first = EventSource(base, "rita")
    with first.reading(30):
        # One message holds many of them.
        published(http, *({"id": i, "lon": 1, "lat": 1, "text": "res"} for i in range(30)))
    ids = [one["object"]["id"] for one in first.received]
    assert sorted(ids, key=int) == [str(i) for i in range(30)]
    assert {one["query"] for one in first.received} == {"resumed"}
    # Wherever a browser was cut off, it gets all others once, in the same order.
    source = EventSource(base, "rita", last_id="")
    begin = EventSource(base, "rita")
    places = places_of(base, "rita", first)
    assert len(places) == 30
    for count, place in enumerate(places[:-1], 1):
        source = EventSource(base, "rita", last_id=place)
        source.read(30 - count)
        assert [one["object"]["id"] for one in source.received] == ids[count:], place
    assert begin.received == []


def places_of(base: str, subscriber: str, read: EventSource) -> list[str]:
    """Returns the id of each event, read one at a time from the beginning."""
    found: list[str] = []
    url = f"{base}/v1/subscribers/{subscriber}/notifications?from_earliest=true"
    with httpx.stream("GET", url, timeout=120.0) as answer:
        place = ""
        for line in answer.iter_lines():
            if line.startswith("id: "):
                place = line[4:]
            elif line.startswith("data: "):
                found.append(place)
                if len(found) == len(read.received):
                    return found
    return found


def test_lists_and_ends_are_events_too(http: httpx.Client, gateway: Gateway) -> None:
    whose = {"subscriber": "knut"}
    near = {
        "kind": "knn",
        "point": {"lon": 100, "lat": 10},
        "k": 2,
        "text": "near",
        "events": ["ended"],
    }
    assert http.put("/v1/queries/near", params=whose, json=near).status_code == 201
    source = EventSource(f"http://{gateway.address}", "knut")
    with source.reading(2):
        published(http, {"id": 7, "lon": 100, "lat": 10, "text": "near", "size": [1, {}]})
        eventually(lambda: source.received)
        http.delete("/v1/queries/near", params=whose)
    change, end = source.received
    assert change == {
        "query": "near",
        "added": ["7"],
        "removed": [],
        "objects": ["7"],
        "distance_m": [0.0],
    }
    assert end == {"query": "near", "event": "ended", "reason": "removed"}


def test_a_query_is_explained_as_by_the_command(http: httpx.Client) -> None:
    query = {"kind": "range", "text": "coffee"}
    one = {"id": 1, "lon": 1, "lat": 1, "text": "tea"}
    plain = http.post("/v1/explain", json=query)
    assert plain.status_code == 200
    assert plain.json()["text"]["conjunctions"][0]["required"] == ["coffee"]
    with_object = http.post("/v1/explain", json={"query": query, "object": one})
    assert with_object.json().keys() > plain.json().keys() or with_object.json() != plain.json()
    assert http.post("/v1/explain", json={"query": "nobody's"}).status_code == 404
    assert http.post("/v1/explain", json={"object": one}).json()["field"] == "query"


def test_what_is_described_and_shown_needs_nothing_from_elsewhere(http: httpx.Client) -> None:
    description = http.get("/openapi.json").json()
    paths = {
        "/v1/objects",
        "/v1/queries",
        "/v1/queries/{id}",
        "/v1/search",
        "/v1/searches",
        "/v1/explain",
        "/v1/live",
        "/v1/subscribers/{name}/notifications",
    }
    assert paths == set(description["paths"])
    for path, calls in description["paths"].items():
        for method, call in calls.items():
            assert "example" in json.dumps(call["responses"]["200"]), (path, method)
            if method in {"post", "put"}:
                assert all("example" in one for one in call["requestBody"]["content"].values())
    for path in ("/", "/docs", "/pages/docs.js", "/pages/style.css"):
        page = http.get(path)
        assert page.status_code == 200
        assert "http://" not in page.text
        assert "https://" not in page.text
    assert http.get("/healthz").status_code == http.get("/readyz").status_code == 200


def test_events_hold_whole_objects(http: httpx.Client, gateway: Gateway) -> None:
    query = {"kind": "range", "text": "wholeword", "track": "bus", "events": ["enter", "inside"]}
    http.put("/v1/queries/tracked", params={"subscriber": "olga"}, json=query)
    plain = {"kind": "range", "text": "wholeword"}
    http.put("/v1/queries/plain", params={"subscriber": "olga"}, json=plain)
    one = {"id": "ü", "lon": 1.5, "lat": -2.0, "text": 'wholeword "quoted"\n', "ts": 5}
    one |= {"bus": 17, "nested": {"a": [None, True, "}"]}}
    bare = {"id": BIG, "lon": 0.0, "lat": 0.0, "text": "wholeword"}
    source = EventSource(f"http://{gateway.address}", "olga")
    with source.reading(3):
        published(http, one, bare)
    found = {(each["query"], each["object"]["id"]): each for each in source.received}
    assert found["plain", "ü"] == {"query": "plain", "object": one}
    assert found["tracked", "ü"] == {
        "query": "tracked",
        "object": one,
        "event": "enter",
        "track": 17,
    }
    assert found["plain", str(BIG)] == {"query": "plain", "object": bare | {"id": str(BIG)}}


def test_a_line_feed_is_part_of_a_name(http: httpx.Client) -> None:
    whose = {"subscriber": "feeds"}
    for path in ("feed", "feed%0a", "a%0afeed"):
        answer = http.put(f"/v1/queries/{path}", params=whose, json={"kind": "range"})
        assert answer.status_code == 201, path
    listed = http.get("/v1/queries", params=whose).json()["queries"]
    assert {one["id"] for one in listed} == {"feed", "feed\n", "a\nfeed"}
    assert http.delete("/v1/queries/feed%0a").json() == {"id": "feed\n"}
    assert http.get("/v1/queries/feed").status_code == 200
