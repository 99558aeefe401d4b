"""`sirocco explain` against running clusters: its output agrees with their behaviour."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sirocco_client import Client, query_from_json

from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster
from tests.end_to_end.test_commands import Tool

PARIS = {"circle": {"lon": 2.35, "lat": 48.85, "radius_m": 20_000}}
QUERIES: list[dict[str, Any]] = [
    {"id": "fire", "kind": "range", "region": PARIS, "text": "fire AND NOT drill"},
    {"id": "big", "kind": "range", "text": "(free AND fire) OR canal", "where": {"floor": 3}},
    {"id": "sea", "kind": "range"}
    | {"region": {"rect": {"west": 170, "south": -10, "east": -170, "north": 10}}},
    {"id": "near", "kind": "knn", "point": {"lon": 2.3, "lat": 48.8}, "k": 2, "text": "fire"},
    {"id": "vans", "kind": "range", "region": PARIS, "track": "van"},
]
OBJECTS: list[dict[str, Any]] = [
    {"id": 1, "lon": 2.36, "lat": 48.86, "text": "Big fire near the canal", "floor": 3},
    {"id": 2, "lon": 2.36, "lat": 48.86, "text": "fire drill", "van": "a"},
    {"id": "three", "lon": -180, "lat": 0, "text": "free fire", "floor": "3"},
]


@pytest.fixture(scope="module")
def router() -> Iterator[str]:
    settings = ClusterSettings(cluster="explaining", slots=4, leaves=16)
    with EmbeddedCluster(settings) as cluster, Client(cluster.router_address) as client:
        for query in QUERIES:
            # The number of reported changes of a list depends on how its objects are batched.
            subscriber = "bob" if query["kind"] == "knn" else "ann"
            client.register(query_from_json(query | {"mode": "continuous"}, subscriber))
        with client.publisher() as publisher:
            for one in OBJECTS:
                publisher.publish(one)
            publisher.flush()
            client.await_processed(publisher.position_token)
        yield cluster.router_address


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str], router: str) -> Tool:
    return Tool(capsys, router)


def _explained(tool: Tool, *arguments: object) -> dict[str, Any]:
    assert tool("explain", *arguments, "--json") == 0, tool.err
    (found,) = tool.lines()
    return found


def test_each_pair_is_explained_as_it_was_notified(tool: Tool) -> None:
    assert tool("subscribe", "ann", "--from-earliest", "--count", 4, "--json") == 0
    received = {(line["query"], line["object"]["id"]) for line in tool.lines()}
    arrived = set()
    for query in QUERIES:
        for one in OBJECTS:
            found = _explained(tool, query["id"], "--object", json.dumps(one), "--no-search")
            assert found["object"]["id"] == one["id"]
            if found["object"]["outcome"] in ("match", "inside"):
                assert found["object"]["goes_to"]["query_is_there"] is True
                arrived.add((query["id"], one["id"]))
    assert arrived == received == {("fire", 1), ("big", 1), ("sea", "three"), ("vans", 2)}


def test_the_query_its_places_and_what_it_met(tool: Tool) -> None:
    found = _explained(tool, "fire")
    assert (found["query"]["id"], found["subscriber"]) == ("fire", "ann")
    assert found["text"]["conjunctions"] == [
        {"required": ["fire"], "forbidden": ["drill"], "keyword": "fire"}
    ]
    places = found["places"]
    assert (places["map_version"], places["scheme"]) == (1, "qt-tree")
    assert (places["leaf_count"], places["slot_count"]) == (16, 4)
    assert tool("cluster", "--json", "--leaves") == 0
    (cluster,) = tool.lines()
    slot_of = {leaf["id"]: leaf["slot"] for leaf in cluster["leaves"]}
    slots = {one["slot"] for one in places["slots"]}
    assert {slot_of[leaf] for leaf in places["leaves"]} == slots
    owners = {one["partition"]: one["member"] for one in cluster["ownerships"]}
    assert all(one["owner"].startswith("evaluator") for one in places["slots"]), owners
    assert found["load"]["router_objects"] == 3
    assert found["load"]["leaves_share"] == pytest.approx(2 / 3)
    assert found["cost"]["has_store"] is True
    assert found["cost"]["keywords_forwarded"] == ["fire"]
    assert found["matched"] == {"window_ms": 3_600_000, "count": 1, "is_more": False}

    sea = _explained(tool, "sea", "--window", "2h")
    assert sea["region"]["crosses_antimeridian"] is True
    assert [(box["west"], box["east"]) for box in sea["region"]["boxes"]] == [
        (170, 180),
        (-180, -170),
    ]
    assert sea["matched"] == {"window_ms": 7_200_000, "count": 1, "is_more": False}
    near = _explained(tool, "near", "--object", json.dumps(OBJECTS[1]))
    assert len(near["places"]["leaves"]) == 16
    assert near["object"]["outcome"] == "candidate"
    assert near["matched"]["count"] == 3


def _by_name(part: str) -> dict[str, str]:
    """Returns the first line of each name."""
    lines = part.splitlines()
    return {line[:14].strip(): line[14:] for line in lines if line[:14].strip()}


def test_lines_of_the_report(tool: Tool) -> None:
    assert tool("explain", "big", "--object", json.dumps(OBJECTS[2])) == 0
    query, one = map(_by_name, tool.out.split("\n\n"))
    assert query["query"].startswith("big: range, continuous, for ann, revision ")
    assert query["text"] == "canal   [indexed under canal]"
    assert query["region"] == "the whole world"
    assert query["where"] == '{"floor": 3}'
    assert query["matched"] == "1 object of the last 1h, by its conditions"
    assert one["text"] == "yes  holds fire AND free"
    assert one["where"] == 'NO   floor is "3", required = 3'
    assert one["outcome"] == "no match, because of where"
    assert tool("explain", "--help") == 0
    assert "--object-file" in tool.out


def test_a_query_of_a_file_is_not_registered(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, one = tmp_path / "query.json", tmp_path / "object.json"
    asked = QUERIES[0] | {"id": "new", "mode": "continuous", "ttl": "1h"}
    query.write_text(json.dumps(asked, indent=2))
    one.write_text(json.dumps(OBJECTS[0]))
    found = _explained(tool, "--file", query, "--object-file", one)
    assert (found["revision"], found["start_ms"], found["subscriber"]) == (None, None, None)
    assert found["object"]["outcome"] == "match"
    assert tool("queries", "get", "new") == 2
    assert tool("explain", "--file", query, "--no-search") == 0
    assert "not registered" in tool.out
    assert "not known: --no-search is given" in tool.out

    asked |= {"mode": "snapshot", "window": "1h"}
    del asked["ttl"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(asked).encode())))
    old = _explained(tool, "--file", "-", "--object-file", one, "--arrival", 5)
    assert old["object"]["outcome"] == "no match"
    assert [each["name"] for each in old["object"]["conditions"] if not each["holds"]] == ["window"]
    assert old["cost"]["slots_asked"] == len(old["places"]["slots"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "id: no query is registered under this id"),
        ([], "give either the id of a query or --file"),
        (["fire", "--object", '{"id": 1, "lat": 91, "lon": 0}'], "--object: lat: 91.0 is outside"),
        (["fire", "--object", '{"id": 1, "lat": 9}'], "--object: lon: is missing"),
        (["fire", "--object", "{"], "--object: object: is no JSON"),
        (["fire", "--window", "soon"], "--window: window: 'soon' is no duration"),
        (["fire", "--arrival", 5], "--arrival needs an object"),
        (["--file", "/nonexistent"], "No such file"),
        (["--file", "-", "--object-file", "-"], "cannot both"),
    ],
)
def test_errors_are_one_line_that_names_the_member(
    tool: Tool, arguments: list[object], message: str
) -> None:
    assert tool("explain", *arguments) == 2
    assert tool.err.startswith("sirocco: ")
    assert message in tool.err
    assert tool.err.count("\n") == 1


def test_a_bad_query_names_the_member(tool: Tool, tmp_path: Path) -> None:
    query = tmp_path / "query.json"
    query.write_text(json.dumps(QUERIES[0] | {"mode": "continuous", "text": "fire AND ("}))
    assert tool("explain", "--file", query) == 2
    assert f"{query}: text: " in tool.err


def test_without_a_store_it_explains_what_routers_send(
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = ClusterSettings(cluster="storeless", slots=4, leaves=16, store=False)
    with EmbeddedCluster(settings) as cluster, Client(cluster.router_address) as client:
        tool = Tool(capsys, cluster.router_address)
        client.register(query_from_json(QUERIES[1] | {"mode": "continuous"}, "ann"))
        found = _explained(tool, "big")
        assert found["cost"]["has_store"] is False
        assert "canal" in found["cost"]["keywords_forwarded"]
        assert len(found["cost"]["keywords_forwarded"]) == 2
        assert found["matched"]["count"] is None
        assert found["matched"]["unknown"]
        assert tool("explain", "big") == 0
        assert "routers send objects of its slots with canal, " in tool.out
