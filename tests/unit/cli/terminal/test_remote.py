"""The cluster that a command connects to, and its messages while the cluster is unreachable."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sirocco_client import Client, RangeQuery

from sirocco.cli.__main__ import main
from sirocco.local.cluster import STATE
from tests.support.fake_cluster import FakeCluster
from tests.support.waiting import eventually


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    found = FakeCluster()
    yield found
    found.stop()


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SIROCCO_ROUTER", raising=False)


def _run_directory(router: str) -> None:
    Path(".run").mkdir()
    addresses = {"evaluator-0": {"grpc": "h:1", "http": "h:2"}, "router-0": {
        "grpc": router, "http": "h:3"}, "router-1": None}  # fmt: skip
    counts = dict.fromkeys(("router", "evaluator", "merger", "coordinator"), 1)
    settings = {"cluster": "c", "kafka": "k", "redis": "r", "archive": "a", "counts": counts}
    (Path(".run") / STATE).write_text(json.dumps({"settings": settings, "addresses": addresses}))


def test_the_environment_and_a_cluster_beside_name_the_router(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _run_directory(cluster.router)
    assert main(["cluster", "--json"]) == 0
    monkeypatch.setenv("SIROCCO_ROUTER", "nonsense")
    assert main(["cluster", "--json"]) == 2
    assert "'nonsense' is not host:port" in capsys.readouterr().err
    monkeypatch.setenv("SIROCCO_ROUTER", cluster.router)
    (Path(".run") / STATE).unlink()
    assert main(["cluster", "--json"]) == 0
    assert main(["cluster", "--router", "other"]) == 2


@pytest.mark.parametrize("state", [None, "{", "[]", "{}"])
def test_without_a_cluster_a_command_prints_how_to_name_one(
    state: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    if state is not None:
        Path(".run").mkdir()
        (Path(".run") / STATE).write_text(state)
    assert main(["cluster"]) == 2
    output = capsys.readouterr().err
    assert "--router HOST:PORT" in output
    assert "SIROCCO_ROUTER" in output
    assert "local up" in output
    assert output.count("\n") == 1


def test_a_silent_port_is_named_while_it_is_tried(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
        assert main(["cluster", "--router", address, "--timeout", "2.5"]) == 4
    output = capsys.readouterr().err.splitlines()
    assert output[0] == f"cannot reach {address}, retrying"
    assert output[1].startswith(f"sirocco: cannot reach the router at {address}: ")
    assert len(output) == 2


def test_a_subscriber_sees_its_name_and_address(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with Client(cluster.router) as client:
        for number in range(2):
            client.register(RangeQuery(id=f"q{number}", subscriber="ops", text="fire"))
    cluster.deliver(("q0", 1))
    options = ("--router", cluster.router, "--from-earliest", "--count", "1")
    assert main(["subscribe", "ops", *options]) == 0
    assert capsys.readouterr().err.splitlines()[0] == "listening as ops, 2 queries"
    assert main(["subscribe", "other", *options]) == 0
    assert "listening as other: no query of this subscriber" in capsys.readouterr().err


def test_a_subscriber_outlasts_the_end_of_the_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    import threading  # noqa: PLC0415

    first = FakeCluster()
    first.deliver(("q", 1))
    port = int(first.router.rpartition(":")[2])
    status: list[int] = []
    options = ("--router", first.router, "--from-earliest", "--count", "2", "--json")
    # A daemon: where the test fails, it would wait for its cluster for ever.
    thread = threading.Thread(
        target=lambda: status.append(main(["subscribe", "s", *options])), daemon=True
    )
    thread.start()
    reported = ""

    def seen(text: str) -> Callable[[], bool]:
        def look() -> bool:
            nonlocal reported
            reported += capsys.readouterr().err
            return text in reported

        return look

    eventually(seen("listening as s"))
    first.stop()
    eventually(seen(f"lost the connection to {first.router}, retrying"))
    again = FakeCluster(port=port)
    again.deliver(("q", 1), ("q", 2))
    thread.join(120.0)
    again.stop()
    assert status == [0]
    seen("")()
    assert f"connected to {first.router} again" in reported


@pytest.mark.parametrize("content", [b"\xff\xfet\0", b"\x8f\x01", b"x" * (1 << 17), b"", b"a\nb"])
def test_a_token_file_that_is_none_is_refused(
    content: bytes, cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("token").write_bytes(content)
    assert main(["queries", "list", "--router", cluster.router, "--token-file", "token"]) == 2
    assert "token" in capsys.readouterr().err


def test_a_token_file_may_begin_with_a_byte_order_mark(cluster: FakeCluster) -> None:
    Path("token").write_bytes(b"\xef\xbb\xbfsecret\r\n")
    assert main(["queries", "list", "--router", cluster.router, "--token-file", "token"]) == 0


@pytest.mark.parametrize("content", [b"\xff\xfe1\0", b"\x8f\x01"])
def test_a_cursor_file_that_is_none_is_refused(
    content: bytes, cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("cursor").write_bytes(content)
    command = ["subscribe", "s", "--router", cluster.router, "--cursor-file", "cursor"]
    assert main(command) == 2
    assert "cursor: is no text in UTF-8" in capsys.readouterr().err
    assert Path("cursor").read_bytes() == content


@pytest.mark.parametrize("content", [b"", b"nothing", b"\xff\xfe"])
def test_roots_that_are_none_are_refused(
    content: bytes, cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """It could not reach the router for the whole time limit, and said so alone."""
    Path("ca").write_bytes(content)
    assert main(["queries", "list", "--router", cluster.router, "--ca", "ca"]) == 2
    assert "certificate" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["get"], ["remove"], ["list", "--subscriber"]])
def test_arguments_that_are_no_text_are_refused(
    arguments: list[str], cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bytes of an argument that are no UTF-8 arrive as lone surrogates."""
    assert main(["queries", *arguments, "\udcff", "--router", cluster.router]) in (2, 3)
    assert "UnicodeEncodeError" not in capsys.readouterr().err
