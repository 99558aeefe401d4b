"""`sirocco local`, as typed, over a real Redis and services that only listen or fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sirocco.cli.__main__ import main
from sirocco.local.cluster import STATE
from sirocco.local.redis import RedisServer
from tests.support.waiting import eventually

BROKER = "127.0.0.1:9"
MISMATCH = {
    "event": "cannot_start",
    "kind": "TopicMismatch",
    "message": "slots: 8 wanted, 16 found",
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "run"


def _services_in_output(line: object, place: Path) -> None:
    """Creates services that write a line, in the form of real ones, and end."""
    reported = json.dumps(line, separators=(",", ":"))
    for service in ("router", "evaluator", "merger", "coordinator"):
        package = place / "sirocco" / "services" / service
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "__main__.py").write_text(f"import sys; sys.exit({reported!r})")
    (place / "sirocco" / "__init__.py").touch()
    (place / "sirocco" / "services" / "__init__.py").touch()


@pytest.mark.kafka
@pytest.mark.parametrize(("line", "is_hinted"), [(MISMATCH, True), ({"event": "other"}, False)])
def test_a_failed_command_leaves_no_server_running(
    tmp_path: Path,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: object,
    is_hinted: bool,
) -> None:
    _services_in_output(line, tmp_path)
    monkeypatch.chdir(tmp_path)
    up = ["local", "--directory", str(directory), "up", "--kafka", BROKER, "--slots", "8"]
    assert main(up) == 4
    output = capsys.readouterr().err
    assert "starting Redis" in output
    assert (f"rm -r {directory}" in output) == is_hinted
    assert RedisServer(directory).process.pid is None

    # A server that ran before is left running.
    server = RedisServer(directory)
    server.start()
    assert main(up) == 4
    assert server.process.pid is not None
    server.stop()


def _state(directory: Path) -> None:
    """Writes the state that `up --slots 16 --evaluators 2` leaves, without running processes."""
    settings = {
        "cluster": "local",
        "kafka": BROKER,
        "redis": "redis://127.0.0.1:9/0",
        "archive": "a",
        "counts": {"coordinator": 1, "merger": 1, "evaluator": 2, "router": 1},
        "options": {"SIROCCO_SLOTS": "16"},
    }
    directory.mkdir()
    addresses = {"evaluator-0": None, "evaluator-1": None}
    (directory / STATE).write_text(json.dumps({"settings": settings, "addresses": addresses}))


@pytest.mark.parametrize(
    ("options", "named", "way"),
    [
        (("--evaluators", "3"), "--evaluators 3", " scale evaluator=3`"),
        (("--slots", "8", "--routers", "1"), "--slots 8", " down`"),
        (("--scheme", "swarm", "--mergers", "2"), "--mergers 2, --scheme swarm", " down`"),
        (("--store", "off"), "--store off", " down`"),
        (("--kafka", "elsewhere:1"), "--kafka elsewhere:1", " down`"),
    ],
)
def test_options_that_differ_are_not_passed_over(
    directory: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    named: str,
    way: str,
) -> None:
    _state(directory)
    assert main(["local", "--directory", str(directory), "up", *options]) == 2
    output = capsys.readouterr().err
    assert f"without {named}:" in output
    # A hint that can be typed: the tool's path, and its directory.
    assert f"sirocco local --directory {directory}{way}" in output
    assert output.count("\n") == 1, "nothing was begun"


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (("kill", "evaluator-9"), "there are evaluator-0, evaluator-1"),
        (("scale", "evaluator=0"), "at least one"),
    ],
)
def test_impossible_options_are_wrong_use(
    directory: Path, capsys: pytest.CaptureFixture[str], step: tuple[str, ...], message: str
) -> None:
    _state(directory)
    assert main(["local", "--directory", str(directory), *step]) == 2
    assert message in capsys.readouterr().err
    assert main(["local", "--directory", str(directory), "kill", "evaluator-0"]) == 4


def test_down_prints_what_it_did(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["local", "down"]) == 0
    assert capsys.readouterr().out == "nothing runs: there is no .run\n"
    server = RedisServer(Path(".run"))
    server.start()
    assert main(["local", "down"]) == 0
    output = capsys.readouterr().out.splitlines()
    assert output[0] == "stopped redis"
    assert "stay in .run" in output[1]
    # Of its own child the system says so a moment later.
    eventually(lambda: server.process.pid is None)
    assert main(["local", "down"]) == 0
    assert capsys.readouterr().out == "nothing runs in .run\n"


@pytest.mark.parametrize("name", ["with blanks", "Füße, ليل", "a'b\"c#d%20"])
def test_redis_runs_in_a_directory_of_any_name(tmp_path: Path, name: str) -> None:
    server = RedisServer(tmp_path / name)
    server.start()
    try:
        found = Path(f"/proc/{server.process.pid}/cwd").readlink()
        assert found == (tmp_path / name).resolve()
        # Another command finds it by its file.
        assert RedisServer(tmp_path / name).process.pid == server.process.pid
    finally:
        server.stop()


@pytest.mark.parametrize(
    "options",
    [
        ("--kafka", "nonsense"),
        ("--kafka", "host:0"),
        ("--redis", "nonsense"),
        ("--redis", "http://h:1"),
        ("--sample", "/none/such"),
    ],
)
def test_settings_impossible_for_servers_are_refused_before_anything_starts(
    directory: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    assert main(["local", "--directory", str(directory), "up", *options]) == 2
    assert "starting" not in capsys.readouterr().err
    assert not directory.exists()
