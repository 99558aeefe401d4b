"""Searches on whole clusters in this process: by client, by tool, while evaluators leave."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sirocco_client import AsyncClient, Client, KnnQuery, RangeQuery

from sirocco.cli.__main__ import main
from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster
from tests.oracle import key_of
from tests.support.seeds import drawn_seed

SETTINGS = ClusterSettings(
    cluster="searches", slots=8, leaves=16, intake_partitions=2, registry_partitions=2
)
EVERYTHING = RangeQuery(id="all", subscriber="", mode="snapshot")


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(SETTINGS, routers=2, evaluators=2, mergers=2) as running:
        yield running


@pytest.fixture
def client(cluster: EmbeddedCluster) -> Iterator[Client]:
    with Client(cluster.router_address) as opened:
        yield opened


def test_what_was_acknowledged_is_found_by_its_token(client: Client) -> None:
    seed = drawn_seed()
    rng = random.Random(seed)
    with client.publisher() as publisher:
        for i in range(40):
            lon, lat = rng.uniform(-180, 180), rng.uniform(-90, 90)
            publisher.publish({"id": f"mine {i}", "lon": lon, "lat": lat, "text": f"mine{i}"})
            token = publisher.flush().position_token
            mine = RangeQuery(id="q", subscriber="", mode="snapshot", text=f"mine{i}")
            assert client.search(mine, position_token=token).ids == [f"mine {i}"], f"seed {seed}"
            near = KnnQuery(id="k", subscriber="", mode="snapshot", lon=lon, lat=lat, k=1)
            (found,) = client.search(near, position_token=token)
            assert (found.object.id, found.distance_m) == (f"mine {i}", 0.0), f"seed {seed}"


def test_asyncio_asks_the_same(cluster: EmbeddedCluster, client: Client) -> None:
    with client.publisher() as publisher:
        publisher.publish_many(
            [{"id": i, "lon": i % 360 - 180, "lat": i % 90, "text": "both"} for i in range(500)]
        )
        token = publisher.flush().position_token
    both = RangeQuery(id="b", subscriber="", mode="snapshot", text="both")

    async def ask() -> tuple[Any, int]:
        async with AsyncClient(cluster.router_address) as other:
            answers = await asyncio.gather(
                *(other.search(both, position_token=token) for _ in range(20))
            )
            assert len({tuple(answer.ids) for answer in answers}) == 1
            return answers[0], sum([len(part) async for part in other.search_parts(both)])

    answer, in_parts = asyncio.run(ask())
    assert answer.ids == client.search(both).ids == sorted(range(500))
    assert in_parts == 500


def test_answers_stay_whole_while_evaluators_leave() -> None:
    settings = ClusterSettings(
        cluster="leaving", slots=6, leaves=12, intake_partitions=2, registry_partitions=2
    )
    with (
        EmbeddedCluster(settings, evaluators=3) as cluster,
        Client(cluster.router_address, timeout_s=300.0) as client,
    ):
        rng = random.Random(5)
        with client.publisher() as publisher:
            publisher.publish_many(
                [
                    {"id": i, "lon": rng.uniform(-180, 180), "lat": rng.uniform(-90, 90)}
                    for i in range(2_000)
                ]
            )
            token = publisher.flush().position_token
        assert client.search(EVERYTHING, position_token=token).ids == list(range(2_000))
        left = threading.Event()
        counts = []

        def ask() -> None:
            while not left.is_set():
                counts.append(len(client.search(EVERYTHING)))

        asking = threading.Thread(target=ask)
        asking.start()
        leaving = [service for service in cluster.services if service.name == "evaluator"][:2]
        for service in leaving:
            assert service.stop()
            cluster.services.remove(service)
        # All slots are at the last one by the end of this.
        assert len(client.search(EVERYTHING, position_token=token)) == 2_000
        left.set()
        asking.join(120.0)
        assert set(counts) == {2_000}


# --- the tool

PLACES = [
    {"id": 1, "lon": 2.35, "lat": 48.85, "text": "fire near the louvre", "size": 3},
    {"id": "two", "lon": 2.36, "lat": 48.86, "text": "a louvre of light"},
    {"id": 3, "lon": 2.30, "lat": 48.90, "text": "light rain", "size": 1},
]


@pytest.fixture(scope="module")
def token(cluster: EmbeddedCluster) -> str:
    with Client(cluster.router_address) as client, client.publisher() as publisher:
        publisher.publish_many(PLACES)
        return publisher.flush().position_token


class Tool:
    """Runs the tool and keeps its output."""

    def __init__(self, capsys: pytest.CaptureFixture[str], router: str, token: str) -> None:
        self._capsys = capsys
        self._common = ["--router", router, "--after", token]
        self.err = ""

    def __call__(self, *arguments: object) -> tuple[int, list[dict[str, Any]]]:
        status = main(["search", *map(str, arguments), *self._common])
        output = self._capsys.readouterr()
        self.err = output.err
        return status, [json.loads(line) for line in output.out.splitlines()]


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str], cluster: EmbeddedCluster, token: str) -> Tool:
    return Tool(capsys, cluster.router_address, token)


PARIS = ("--rect", 2.2, 48.8, 2.5, 49.0)


def test_the_command_answers_as_its_options_require(tool: Tool) -> None:
    assert tool("range", *PARIS, "--text", "louvre OR rain", "--window", "1d") == (
        0,
        [{"query": "search", "objects": by_id([1, "two", 3])}],
    )
    status, (nearest,) = tool("knn", "--point", 2.35, 48.85, "-k", 2, "--id", "near")
    assert (status, nearest["query"], nearest["objects"]) == (0, "near", [1, "two"])
    assert nearest["distance_m"][0] == 0.0
    where = ("--where", '{"size": {"gte": 1}}')
    status, (found,) = tool("range", *PARIS, *where, "--objects")
    assert found["objects"] == [PLACES[0], PLACES[2]]
    status, (terms,) = tool("terms", "--circle", 2.35, 48.85, 9_000, "-k", 2)
    assert terms["terms"] == [["light", 2], ["louvre", 2]]
    words = ("--keyword", "light", "--keyword", "louvre", "--weights", 1, 0, 0)
    point = ("--point", 2.35, 48.85, "--radius", 20_000)
    status, (ranked,) = tool("ranked", *point, "-k", 1, *words)
    assert (ranked["objects"], ranked["score"]) == (["two"], [1.0])


def by_id(ids: list[int | str]) -> list[int | str]:
    """Sorts by the 64-bit numbers, as answers are."""
    return sorted(ids, key=key_of)


def test_the_tool_answers_the_lines_of_a_file(tool: Tool, tmp_path: Path) -> None:
    lines = [
        {"id": "a", "kind": "range", "mode": "snapshot", "text": "louvre"},
        {"id": "b", "kind": "range", "mode": "continuous"},
        {"id": "c", "kind": "knn", "mode": "snapshot", "point": {"lon": 2.3, "lat": 48.9}, "k": 0},
        {"id": "d", "kind": "knn", "mode": "snapshot", "point": {"lon": 2.3, "lat": 48.9}, "k": 1},
    ]
    file = tmp_path / "queries.jsonl"
    file.write_text("\n".join([*map(json.dumps, lines), "{"]))
    status, answers = tool("--file", file)
    assert status == 3
    assert answers == [
        {"query": "a", "objects": by_id([1, "two"])},
        {"query": "d", "objects": [3], "distance_m": [0.0]},
    ]
    output = tool.err.splitlines()
    assert [line.split(":")[1:3] for line in output] == [
        ["2", " mode"],
        ["3", " k"],
        ["5", " query"],
    ]


def test_the_command_prints_what_is_wrong(tool: Tool) -> None:
    assert tool("range", "--text", "(")[0] == 2
    assert "text: " in tool.err
    assert tool("knn", "--point", 0, 95, "-k", 3)[0] == 2
    assert "point.lat" in tool.err
    assert tool("range", "--where", "{")[0] == 2
    assert "--where" in tool.err
    assert tool()[0] == 2
    assert tool("range", "--file", "x")[0] == 2
    assert "either" in tool.err
