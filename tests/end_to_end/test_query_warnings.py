"""Warnings about queries, from a whole cluster in this process to all its clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from sirocco_client import AsyncClient, Client, Polygon, RangeQuery, Registration

from sirocco.cli.__main__ import main
from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster
from sirocco.services.gateway.server import Gateway
from sirocco.services.gateway.settings import GatewaySettings
from sirocco.services.router.changes.row_warnings import LEFT_OFF, WARNED_ROWS_MAX

SMALL = "text: 'and' at character 5 is a word to be found; the operator is AND"
WIDE = Polygon((((-170.0, 0.0), (170.0, 0.0), (170.0, 10.0), (-170.0, 0.0)),))


@pytest.fixture(scope="module")
def router() -> Iterator[str]:
    with EmbeddedCluster(ClusterSettings(cluster="warnings", slots=4, leaves=4)) as cluster:
        yield cluster.router_address


@pytest.fixture(scope="module")
def client(router: str) -> Iterator[Client]:
    with Client(router) as client:
        yield client


def query(name: str, text: str = "fire and smoke") -> RangeQuery:
    return RangeQuery(id=name, subscriber="s", text=text)


def test_registrations_and_updates_have_warnings(client: Client) -> None:
    made = client.register(query("one"))
    assert made.warnings == (SMALL,)
    # Still the number that programs use.
    assert made == made.revision == client.get("one").revision
    assert client.update(query("one", "fire “and")).warnings == (
        'text: “ at character 5 means nothing; a phrase stands between two "',
    )
    assert client.update(query("one", "fire AND smoke")).warnings == ()
    wide = RangeQuery(id="wide", subscriber="s", region=WIDE)
    (warning,) = client.register(wide).warnings
    assert warning.startswith("region.polygon: is wider than half the Earth")


def test_a_bulk_registration_names_the_rows(client: Client) -> None:
    queries = [query(f"b{i}", "fire smoke") for i in range(20)]
    # Plain ones go as columns, others one by one, and one is refused.
    queries[3] = query("b3", "fire and smoke")
    queries[7] = query("b7", "(fire) or smoke")
    queries[11] = query("b11", "fire and (")
    queries[15] = RangeQuery(id="b15", subscriber="s", text="a and b", ttl="1h")
    for results in (
        list(client.register_many(queries, batch=10)),
        list(client.update_many(queries)),
    ):
        warned = {i: each.warnings for i, each in enumerate(results) if each.warnings}
        assert sorted(warned) == [3, 7, 15]
        assert warned[3] == (SMALL,)
        assert [i for i, each in enumerate(results) if each.error is not None] == [11]


def test_one_answer_names_a_bounded_number_of_rows(client: Client) -> None:
    queries = [query(f"many{i}") for i in range(WARNED_ROWS_MAX + 500)]
    results = list(client.register_many(queries))
    warned = [i for i, each in enumerate(results) if each.warnings]
    assert warned == list(range(WARNED_ROWS_MAX))
    assert results[0].warnings == (SMALL,)
    assert results[WARNED_ROWS_MAX - 1].warnings == (SMALL, LEFT_OFF)
    assert all(each.error is None for each in results)


def test_searches_have_warnings(client: Client) -> None:
    assert client.search(RangeQuery(text="fire and smoke")).warnings == (SMALL,)
    assert client.search(RangeQuery(text="fire smoke")).warnings == ()


def test_the_asynchronous_client_has_them_too(router: str) -> None:
    async def run() -> None:
        async with AsyncClient(router) as client:
            made: Registration = await client.register(query("async"))
            assert made.warnings == (SMALL,)
            assert (await client.update(query("async"))).warnings == (SMALL,)
            results = [each async for each in client.register_many([query("async2")])]
            assert results[0].warnings == (SMALL,)
            assert (await client.search(RangeQuery(text="fire and smoke"))).warnings == (SMALL,)

    asyncio.run(run())


def test_the_tool_shows_them_on_standard_error(
    router: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "queries.jsonl"
    members = {"kind": "range", "mode": "continuous"}
    lines = [members | {"id": "c0", "text": "fire"}]
    lines += [members | {"id": "c1", "text": "fire and smoke"}]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    registered = ["queries", "register", str(file), "--subscriber", "s", "--router", router]
    assert main(registered) == 0
    output = capsys.readouterr()
    assert f"{file}:2: warning: {SMALL}\n" in output.err
    assert output.out == "2 queries registered\n"
    assert main([*registered, "--json"]) == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each.get("warnings") for each in shown] == [None, [SMALL]]

    assert main(["search", "range", "--text", "fire “\x1bx", "--router", router]) == 0
    assert "warning: text: “ at character 5 means nothing" in capsys.readouterr().err
    file.write_text('{"id": "f", "kind": "range", "mode": "snapshot", "text": "fire and b"}\n')
    assert main(["search", "--file", str(file), "--router", router]) == 0
    assert f"{file}:1: warning: {SMALL}\n" in capsys.readouterr().err
    assert main(["explain", "c1", "--no-search", "--router", router]) == 0
    assert SMALL in capsys.readouterr().out


def test_a_replay_shows_them_on_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {name: tmp_path / name for name in ("objects", "queries", "results")}
    ring = [list(position) for position in WIDE.rings[0]]
    lines = [
        {"id": "c", "kind": "range", "mode": "continuous", "region": {"polygon": [ring]}},
        {"id": "s", "kind": "range", "mode": "snapshot", "text": "fire and smoke"},
        {"id": "n", "kind": "range", "mode": "continuous", "text": "fire"},
    ]
    files["objects"].write_text('{"id": 1, "lon": 0, "lat": 5, "text": "fire"}\n')
    files["queries"].write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    options = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    assert main(["replay", *options]) == 0
    shown = capsys.readouterr().err
    assert f"{files['queries']}:1: warning: region.polygon: is wider" in shown
    assert f"{files['queries']}:2: warning: {SMALL}\n" in shown
    assert shown.count("warning") == 2


def test_the_gateway_answers_with_them(router: str) -> None:
    gateway = Gateway(GatewaySettings(routers=router))
    gateway.start()
    try:
        with httpx.Client(base_url=f"http://{gateway.address}", timeout=120.0) as http:
            asked = {"kind": "range", "text": "fire and smoke"}
            for status in (201, 200):
                answer = http.put("/v1/queries/http", params={"subscriber": "s"}, json=asked)
                assert answer.status_code == status
                assert answer.json() == {"id": "http", "warnings": [SMALL]}
            assert http.post("/v1/search", json=asked).json()["warnings"] == [SMALL]
            assert "warnings" not in http.post("/v1/search", json=asked | {"text": "b"}).json()
            assert http.post("/v1/explain", json=asked).json()["warnings"] == [SMALL]
    finally:
        gateway.stop()
