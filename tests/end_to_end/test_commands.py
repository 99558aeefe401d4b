"""The commands for a running cluster, as a user types them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sirocco_client import Client, InvalidArgument, RangeQuery

from sirocco.cli.__main__ import main
from sirocco.runtime.settings import ClusterSettings
from sirocco.schemes.map.map_bytes import from_bytes, to_bytes
from sirocco.services.embedded import EmbeddedCluster
from tests.oracle import read_members

PARIS = {"rect": {"west": 2.2, "south": 48.8, "east": 2.5, "north": 49.0}}
QUERIES: list[dict[str, Any]] = [
    {"id": "fires", "kind": "range", "mode": "continuous", "region": PARIS, "text": "fire"},
    {"id": "free", "kind": "range", "mode": "continuous", "text": "free", "ttl": "72h"},
]
OBJECTS: list[dict[str, Any]] = [
    {"id": 1, "lon": 2.3, "lat": 48.9, "text": "A fire!", "floor": 3},
    {"id": "two", "lon": 2.3, "lat": 48.9, "text": "free fire wood"},
    {"id": 3, "lon": 0, "lat": 0, "text": "fire"},
]


@pytest.fixture(scope="module")
def router() -> Iterator[str]:
    with EmbeddedCluster(ClusterSettings(cluster="commands", slots=4, leaves=4)) as cluster:
        yield cluster.router_address


class Tool:
    """Runs the tool and keeps its output."""

    def __init__(self, capsys: pytest.CaptureFixture[str], router: str) -> None:
        self._capsys = capsys
        self._router = router
        self.out = self.err = ""

    def __call__(self, *arguments: object) -> int:
        try:
            status = main([*map(str, arguments), "--router", self._router])
        except SystemExit as ended:
            status = int(ended.code or 0)
        output = self._capsys.readouterr()
        self.out, self.err = output.out, output.err
        return status

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str], router: str) -> Tool:
    return Tool(capsys, router)


def _file(path: Path, lines: Sequence[object]) -> Path:
    path.write_text("\n".join(x if isinstance(x, str) else json.dumps(x) for x in lines))
    return path


def test_register_publish_subscribe_and_resume(tool: Tool, tmp_path: Path) -> None:
    queries = _file(tmp_path / "queries.jsonl", QUERIES)
    assert tool("queries", "register", queries, "--subscriber", "ann", "--json") == 0
    assert [one["id"] for one in tool.lines()] == ["fires", "free"]
    assert tool("publish", _file(tmp_path / "objects.jsonl", OBJECTS), "--json") == 0
    assert tool.lines()[0]["objects"] == 3
    assert tool.lines()[0]["position_token"]

    cursor = tmp_path / "cursor"
    options = ("--json", "--cursor-file", cursor)
    assert tool("subscribe", "ann", "--from-earliest", "--count", 3, "--json") == 0
    found = {(one["query"], one["object"]["id"]) for one in tool.lines()}
    assert found == {("fires", 1), ("fires", "two"), ("free", "two")}
    cursor.write_text(tool.lines()[-1]["cursor"])
    again = _file(tmp_path / "more.jsonl", [OBJECTS[0] | {"id": 4}])
    assert tool("publish", again) == 0
    assert "1 object acknowledged" in tool.out
    assert tool("subscribe", "ann", "--count", 1, *options) == 0
    assert tool.lines()[0]["object"] == OBJECTS[0] | {"id": 4}
    assert cursor.read_text() == tool.lines()[0]["cursor"]


def test_queries_are_shown_changed_and_removed(tool: Tool, tmp_path: Path) -> None:
    mine = [query | {"id": f"bob's {query['id']}"} for query in QUERIES]
    assert tool("queries", "register", _file(tmp_path / "q", mine), "--subscriber", "bob") == 0
    assert "2 queries registered" in tool.out
    assert tool("queries", "list", "--subscriber", "bob", "--json") == 0
    assert sorted(one["query"]["id"] for one in tool.lines()) == ["bob's fires", "bob's free"]

    changed = _file(tmp_path / "q", [mine[0] | {"text": "fire OR smoke"}])
    assert tool("queries", "update", changed, "--subscriber", "bob") == 0
    assert tool("queries", "get", "bob's fires", "--json") == 0
    assert tool.lines()[0]["query"] == mine[0] | {"text": "fire OR smoke"}
    assert tool.lines()[0]["subscriber"] == "bob"
    assert tool("queries", "get", "bob's free") == 0
    assert tool.out.split()[:4] == ["bob's", "free", "range", "bob"]

    assert tool("queries", "unregister", "bob's fires", "bob's free") == 0
    assert tool("queries", "get", "bob's fires") == 2
    assert tool.err.count("\n") == 1
    assert tool("queries", "update", changed, "--subscriber", "bob") == 3
    assert f"{changed}:1: " in tool.err


def test_queries_are_removed_by_ids_by_files_and_of_a_subscriber(
    tool: Tool, tmp_path: Path
) -> None:
    # init
    names = [f"cleo{n}" for n in range(8)]
    mine = [QUERIES[0] | {"id": name} for name in names]
    assert tool("queries", "register", _file(tmp_path / "q", mine), "--subscriber", "cleo") == 0
    others = _file(tmp_path / "o", [QUERIES[0] | {"id": "dan"}])
    assert tool("queries", "register", others, "--subscriber", "dan") == 0

    def left(subscriber: str = "cleo") -> list[str]:
        assert tool("queries", "list", "--subscriber", subscriber, "--json") == 0
        return sorted(one["query"]["id"] for one in tool.lines())

    # test: by ids, one of them unknown: the others are removed
    assert tool("queries", "remove", "cleo0", "nobody", "cleo1") == 3
    assert "2 queries removed" in tool.out
    assert "argument:2: nobody: " in tool.err
    assert left() == names[2:]

    # from a file with ids, queries and other lines
    lines = ["cleo2", mine[3], "", "{", '{"id": 5}', "{}", '{"id":' * 3_000, " cleo4 "]
    path = _file(tmp_path / "removed", lines)
    assert tool("queries", "remove", "--file", path, "--json") == 3
    assert [one["id"] for one in tool.lines()] == ["cleo2", "cleo3", "cleo4"]
    assert [line.split(":")[1] for line in tool.err.splitlines()[:4]] == ["4", "5", "6", "7"]
    assert left() == names[5:]

    # Options that select nothing, or that conflict, remove nothing.
    for options in (
        (), ("cleo5", "--file", path), ("--all",), ("--subscriber", "cleo"), ("cleo5", "--all")
    ):  # fmt: skip
        assert tool("queries", "remove", *options) == 2
    assert tool("queries", "remove", "--file", tmp_path / "missing") != 0
    assert left() == names[5:]

    # All of one subscriber, and no others.
    assert tool("queries", "remove", "--subscriber", "cleo", "--all") == 0
    assert "3 queries removed" in tool.out
    assert left() == []
    assert left("dan") == ["dan"]
    assert tool("queries", "remove", "--subscriber", "cleo", "--all") == 0
    assert "0 queries removed" in tool.out
    assert tool("queries", "unregister", "dan") == 0


def test_times_that_no_calendar_has_are_listed(tool: Tool, router: str) -> None:
    with Client(router) as client:
        for start_ms in (10**15, 10**16, -(10**14)):
            query = RangeQuery(id=f"far{start_ms}", subscriber="far", text="fire")
            # Refused by name, or registered: no other outcome.
            with contextlib.suppress(InvalidArgument):
                client.register(query, start_ms=start_ms)
        client.register(RangeQuery(id="near", subscriber="far", text="fire"))
        ids = {one.query.id for one in client.list("far")}
    assert "near" in ids
    assert tool("queries", "list", "--subscriber", "far") == 0
    assert {line.split()[0] for line in tool.out.splitlines()} == ids
    assert tool("queries", "list", "--subscriber", "far", "--json") == 0
    assert {one["query"]["id"] for one in tool.lines()} == ids
    for name in ids:
        assert tool("queries", "get", name) == 0
        assert tool("explain", name, "--no-search") == 0
        assert tool("queries", "unregister", name) == 0


def test_queries_come_from_json_of_several_lines_and_look_back(tool: Tool, tmp_path: Path) -> None:
    # init
    assert tool("publish", _file(tmp_path / "o", [OBJECTS[0] | {"id": 77}]), "--json") == 0
    whole = [QUERIES[0] | {"id": f"pretty{n}"} for n in range(2)]
    path = tmp_path / "q.json"

    # test: one document, several, an array.
    for text in (
        json.dumps(whole[0], indent=2),
        "\n".join(json.dumps(one, indent=2) for one in whole),
        json.dumps(whole, indent=2),
    ):
        path.write_text(text)
        options = ("--subscriber", "pat", "--past", "1h", "--json")
        assert tool("queries", "register", path, *options) == 0
    assert {one["id"] for one in tool.lines()} == {"pretty0", "pretty1"}

    # check: both were answered from earlier arrivals.
    assert tool("subscribe", "pat", "--from-earliest", "--count", 2, "--json") == 0
    assert {one["query"] for one in tool.lines()} <= {"pretty0", "pretty1"}
    assert tool("queries", "register", path, "--subscriber", "pat", "--past", "soon") == 2
    assert "past: 'soon' is no duration" in tool.err


def test_what_strangers_wrote_is_escaped_in_every_command(tool: Tool, tmp_path: Path) -> None:
    # init: terminal commands and line feeds in an id, a text, an attribute, a query and its name.
    hostile = "\x1b[2J\x9b31m\nzork free \u202eevil"
    query = QUERIES[1] | {"id": f"q{hostile}", "where": {"kind": hostile}, "ttl": "1h"}
    assert tool("queries", "register", _file(tmp_path / "q", [query]), "--subscriber", "mal") == 0
    one = {"id": f"o{hostile}", "lon": 1, "lat": 1, "text": hostile, "kind": hostile}
    assert tool("publish", _file(tmp_path / "o", [one])) == 0
    saved = _file(tmp_path / "one", [one])
    commands: list[tuple[object, ...]] = [
        ("subscribe", "mal", "--from-earliest", "--count", 1),
        ("subscribe", "mal", "--from-earliest", "--count", 1, "--json"),
        ("search", "range", "--text", "evil", "--objects"),
        ("search", "terms", "-k", 5),
        ("queries", "list"),
        ("queries", "get", query["id"]),
        ("queries", "get", query["id"], "--json"),
        ("explain", query["id"], "--object-file", saved),
        ("explain", query["id"], "--object-file", saved, "--json"),
        ("cluster", "--leaves"),
        # Errors, which quote the wrong value.
        ("queries", "get", f"none{hostile}"),
        ("subscribe", "mal", "--cursor", hostile),
        ("search", "range", "--text", f"({hostile}"),
    ]

    # test, check
    for command in commands:
        tool(*command)
        output = tool.out + tool.err
        assert output, command
        assert not set(output) & set("\x1b\x9b\u202e\r"), command
        assert "\nzork" not in output, command


def test_bad_lines_end_with_three(tool: Tool, tmp_path: Path) -> None:
    lines = _file(tmp_path / "o", ["{", json.dumps(OBJECTS[0]), '{"id": 1, "lon": 0, "lat": 91}'])
    assert tool("publish", lines) == 3
    assert [line.split(":")[1] for line in tool.err.splitlines()] == ["1", "3"]
    assert ": lat: " in tool.err.splitlines()[1]
    other = [QUERIES[0] | {"id": "x", "text": "("}, QUERIES[0] | {"id": "y"}]
    assert tool("queries", "register", _file(tmp_path / "q", other), "--subscriber", "eve") == 3
    assert ":1: text: " in tool.err
    conflict = [QUERIES[0] | {"id": "y", "text": "smoke"}]
    assert tool("queries", "register", _file(tmp_path / "q", conflict), "--subscriber", "eve") == 3
    assert f"{tmp_path}/q:1: id: " in tool.err


def test_the_cluster_is_described(tool: Tool) -> None:
    assert tool("cluster", "--json", "--leaves") == 0
    (found,) = tool.lines()
    assert found["cluster"] == "commands"
    assert {one["service"] for one in found["members"]} == {
        "router",
        "evaluator",
        "merger",
        "coordinator",
    }
    assert len(found["leaves"]) == found["leaf_count"] >= 4
    assert found["unowned_slots"] == []
    assert tool("cluster", "--slots") == 0
    assert "4 slots" in tool.out
    assert " owns slots 0, 1, 2, 3\n" in tool.out
    assert "log_heard_s" not in tool.out


def test_the_map_is_shown_and_another_follows_it(tool: Tool, tmp_path: Path) -> None:
    # init
    kept = tmp_path / "map"
    assert tool("map", "show", "--out", kept, "--json") == 0
    (shown,) = tool.lines()
    assert (shown["version"], shown["slots"], shown["bytes"]) == (1, 4, kept.stat().st_size)
    assert tool("map", "show") == 0
    assert "leaves" in tool.out
    assert tool("map", "status") == 0
    assert tool.out.split() == ["version", "1", "phase", "none"]

    # test: a map that cannot follow is refused in a line with the reason, and changes nothing.
    assert tool("map", "propose", kept) == 2
    assert tool.err.count("\n") == 1
    assert "version 1 is in force, so the next is 2, not 1" in tool.err
    damaged = tmp_path / "damaged"
    damaged.write_bytes(kept.read_bytes()[:-7])
    assert tool("map", "propose", damaged) == 2
    assert "the bytes are cut short" in tool.err
    assert tool("map", "propose", damaged, "--as-next") == 2
    assert f"{damaged}: " in tool.err
    assert tool.err.count("\n") == 1
    assert tool("map", "propose", tmp_path / "missing") == 2
    assert "No such file" in tool.err
    other = to_bytes(replace(from_bytes(kept.read_bytes()), slots=5, version=2))
    damaged.write_bytes(other)
    assert tool("map", "propose", damaged) == 2
    assert "5 slots, the cluster has 4" in tool.err
    assert tool("map", "status", "--json") == 0
    assert tool.lines() == [{"version": 1, "phase": "none"}]

    # test: a map that can follow is accepted, and awaited.
    assert tool("map", "propose", kept, "--as-next", "--wait", "--json") == 0
    (accepted,) = tool.lines()
    assert accepted == {"accepted": 2, "version": 2, "phase": "none"}
    assert tool("map", "show", "--json") == 0
    assert tool.lines()[0]["version"] == 2


def test_errors_are_one_line_and_a_status(
    tool: Tool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool("publish", tmp_path / "missing") == 2
    assert "No such file" in tool.err
    assert tool("subscribe", "ann", "--cursor", "rubbish") == 2
    assert "sirocco: " in tool.err
    assert tool("subscribe", "ann", "--count", 0) == 2
    assert tool("publish", tmp_path, "--rate", "fast") == 2
    assert main(["cluster", "--router", "127.0.0.1:9", "--timeout", "1"]) == 4
    assert capsys.readouterr().err.count("\n") == 1


def test_bench_match_prints_its_figures(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["bench", "match", "--queries", "500", "--objects", "2000"]) == 0
    figures = json.loads(capsys.readouterr().out)
    names = {"inserts_per_s", "objects_per_s", "matches", "bytes_per_query", "peak_rss_bytes"}
    assert set(figures) >= names
    assert main(["bench", "match", "--queries", "5", "--workload", str(tmp_path)]) == 2
    with pytest.raises(SystemExit, match="2"):
        main(["bench", "match", "--queries", "0"])
    assert "--queries: '0' is no whole number" in capsys.readouterr().err


def test_the_demo_agrees_with_its_recount(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--seconds", "2", "--rate", "1000"]) == 0
    output = capsys.readouterr().out
    assert "The recount agrees" in output
    assert "cities of ten million" in output
    assert "36,006 objects published" in output


def test_loadgen_writes_what_replay_reads(tmp_path: Path) -> None:
    from sirocco.loadgen.__main__ import main as generate  # noqa: PLC0415 - beside the tool, not of it

    objects, queries = tmp_path / "o.jsonl", tmp_path / "q.jsonl"
    options = ["--count", "2000", "--queries", "50", "--queries-out", str(queries)]
    assert generate(["clusters", "--out", str(objects), *options]) == 0
    assert len(read_members(objects)) == 2_000
    assert len(read_members(queries)) == 50
    assert generate(["posts", "--count", "100", "--out", str(objects)]) == 0
    assert len(read_members(objects)) == 100
    assert generate(["posts", "--out", str(tmp_path)]) == 1
