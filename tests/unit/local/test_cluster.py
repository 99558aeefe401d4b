"""Clusters of processes: start, stop, scale, crash and restart, with services that only listen."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from sirocco.cli.local.command import ended_servers
from sirocco.local.cluster import (
    LAST,
    STATE,
    LocalCluster,
    LocalClusterSettings,
    alone,
    last_settings,
    routers_of,
    stop_leftovers,
)
from sirocco.local.invocation import program
from sirocco.local.kafka import KafkaServer
from sirocco.local.keeper import keep
from sirocco.local.process import (
    LocalError,
    LocalProcess,
    WrongUseError,
    free_port,
    refuses,
)
from sirocco.local.redis import _CONFIGURATION, RedisServer
from tests.support.waiting import eventually

# The behaviour of every service towards its starter: it reports its address, answers /readyz and
# ends in order at SIGTERM.
SERVICE = """
import http.server, json, os, signal, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/readyz" else 404)
        self.end_headers()
    def log_message(self, *_): pass
server = http.server.HTTPServer(("127.0.0.1", int(os.environ["SIROCCO_HTTP_PORT"])), Handler)
def stop(*_):
    print("drained", file=sys.stderr, flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, stop)
port = server.server_address[1]
grpc = os.environ["SIROCCO_GRPC_PORT"]
print("called", os.environ["SIROCCO_NAME"], file=sys.stderr)
print("starting", os.environ["SIROCCO_CLUSTER"], os.environ["SIROCCO_SLOTS"], file=sys.stderr)
print(json.dumps({"event": "listening", "grpc": f"127.0.0.1:{grpc}",
                  "http": f"127.0.0.1:{port}"}), file=sys.stderr, flush=True)
server.serve_forever()
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalClusterSettings:
    for service in ("router", "evaluator", "merger", "coordinator"):
        package = tmp_path / "sirocco" / "services" / service
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "__main__.py").write_text(SERVICE)
    (tmp_path / "sirocco" / "__init__.py").touch()
    (tmp_path / "sirocco" / "services" / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    counts = {"coordinator": 1, "merger": 1, "evaluator": 2, "router": 1}
    return LocalClusterSettings(
        cluster="c1",
        kafka="k:1",
        redis="redis://r",
        archive="a",
        counts=counts,
        options={"SIROCCO_SLOTS": "32"},
    )


@pytest.fixture
def cluster(tmp_path: Path, settings: LocalClusterSettings) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path / "run", settings) as one:
        yield one


def _pid(cluster: LocalCluster, name: str) -> int | None:
    return next(one.process.pid for one in cluster.processes if one.name == name)


def test_all_start_ready_with_their_files(cluster: LocalCluster) -> None:
    names = [one.name for one in cluster.processes]
    assert names == ["coordinator-0", "merger-0", "evaluator-0", "evaluator-1", "router-0"]
    assert all(one.ready() for one in cluster.processes)
    for name in names:
        pid = int((cluster.directory / f"{name}.pid").read_text())
        os.kill(pid, 0)
        assert "starting c1 32" in (cluster.directory / f"{name}.log").read_text()
    assert len(cluster.router_addresses) == 1
    assert all(one.usage().peak_memory_bytes > 0 for one in cluster.processes)


def test_stop_drains_and_leaves_nothing(tmp_path: Path, settings: LocalClusterSettings) -> None:
    with LocalCluster(tmp_path / "run", settings) as cluster:
        pids = [one.process.pid for one in cluster.processes]
    assert not list((tmp_path / "run").glob("*.pid"))
    assert not (tmp_path / "run" / STATE).exists()
    for log in (tmp_path / "run").glob("*.log"):
        assert log.read_text().endswith("drained\n")
    assert all(pid is not None and not Path(f"/proc/{pid}").exists() for pid in pids)


def test_another_command_finds_scales_and_kills(cluster: LocalCluster) -> None:
    other = LocalCluster.open(cluster.directory)
    assert [one.process.pid for one in other.processes] == [
        one.process.pid for one in cluster.processes
    ]
    other.scale("evaluator", 3)
    assert (cluster.directory / "evaluator-2.pid").exists()
    other.scale("evaluator", 1)
    assert not (cluster.directory / "evaluator-1.pid").exists()
    assert not (cluster.directory / "evaluator-2.pid").exists()
    state = json.loads((cluster.directory / STATE).read_text())
    assert state["settings"]["counts"]["evaluator"] == 1
    with pytest.raises(WrongUseError, match="at least one"):
        other.scale("router", 0)
    with pytest.raises(WrongUseError, match="no service"):
        other.scale("baker", 1)
    with pytest.raises(WrongUseError, match="no process 'evaluator-1'"):
        other.kill("evaluator-1")


def test_what_crashes_comes_back_on_the_same_port(cluster: LocalCluster) -> None:
    cluster.guard()
    before, address = _pid(cluster, "router-0"), cluster.processes[-1].addresses
    cluster.kill("router-0")
    eventually(lambda: _pid(cluster, "router-0") not in (None, before))
    eventually(cluster.processes[-1].ready)
    assert cluster.processes[-1].addresses == address


def test_a_keeper_mends_and_follows_scaling(cluster: LocalCluster) -> None:
    stopping = threading.Event()
    thread = threading.Thread(target=keep, args=(cluster.directory, stopping))
    thread.start()
    try:
        other = LocalCluster.open(cluster.directory)
        before = _pid(other, "merger-0")
        other.kill("merger-0")
        path = cluster.directory / "merger-0.pid"
        eventually(lambda: path.exists() and int(path.read_text() or before or 0) != before)
        other.scale("evaluator", 1)
        # Two more rounds of the keeper: visible by its effect on another process.
        other.kill("merger-0")
        eventually(path.exists)
        assert not (cluster.directory / "evaluator-1.pid").exists()
    finally:
        stopping.set()
        thread.join()
    LocalCluster.open(cluster.directory).stop()


def test_a_service_that_cannot_start_is_reported_with_its_log(
    tmp_path: Path, settings: LocalClusterSettings
) -> None:
    broken = "import sys; sys.exit('SIROCCO_REDIS: no such host')"
    (tmp_path / "sirocco/services/merger/__main__.py").write_text(broken)
    with pytest.raises(LocalError, match="no such host"):
        LocalCluster(tmp_path / "run", settings).start()
    assert not list((tmp_path / "run").glob("*.pid"))


def test_there_is_nothing_to_open(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=f"sirocco local --directory {tmp_path} up"):
        LocalCluster.open(tmp_path)
    (tmp_path / STATE).write_text("{")
    with pytest.raises(LocalError, match="is damaged"):
        LocalCluster.open(tmp_path)


def _addresses(cluster: LocalCluster) -> dict[str, str]:
    return {one.name: one.addresses.http for one in cluster.processes if one.addresses is not None}


def test_addresses_stay_over_an_end_and_a_new_beginning(
    tmp_path: Path, settings: LocalClusterSettings
) -> None:
    directory = tmp_path / "run"
    cluster = LocalCluster(directory, settings)
    cluster.start()
    before = _addresses(cluster)
    assert len(before) == 5
    cluster.stop(remembers=True)
    assert not routers_of(directory)
    assert last_settings(directory)["counts"] == settings.counts
    with LocalCluster(directory, settings) as again:
        assert _addresses(again) == before
        assert routers_of(directory) == again.router_addresses


def test_a_port_that_somebody_took_is_replaced(
    tmp_path: Path, settings: LocalClusterSettings
) -> None:
    cluster = LocalCluster(tmp_path / "run", settings)
    cluster.start()
    before = _addresses(cluster)
    cluster.stop(remembers=True)
    host, _, port = before["merger-0"].rpartition(":")
    with socket.create_server((host, int(port))), LocalCluster(tmp_path / "run", settings) as again:
        after = _addresses(again)
        assert {name for name in before if after[name] != before[name]} == {"merger-0"}


def test_each_process_that_was_started_is_told_when_it_is_ready(
    tmp_path: Path, settings: LocalClusterSettings
) -> None:
    with LocalCluster(tmp_path / "run", settings) as cluster:
        cluster.kill("merger-0")
        ready: list[str] = []
        cluster.start(ready.append)
        assert ready == ["merger-0"]


def test_a_process_receives_its_name(cluster: LocalCluster) -> None:
    for one in cluster.processes:
        assert f"called {one.name}" in one.process.log_path.read_text()


@pytest.mark.parametrize("name", ["with blanks", "Füße ليل", "a,b", "a'b\"c", "a%20b#c"])
def test_servers_receive_no_path_that_their_files_could_misread(name: str, tmp_path: Path) -> None:
    directory = tmp_path / name
    directory.mkdir()
    kafka = KafkaServer(directory)
    assert "log.dirs=kafka-data\n" in kafka._properties()
    redis = RedisServer(directory)
    assert name not in _CONFIGURATION.format(host="127.0.0.1", port=1)
    assert redis.process.log_path == directory / "redis.log"


def test_a_hint_names_a_command_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "bin" / "sirocco"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(script)])
    monkeypatch.setenv("PATH", "/bin")
    assert program() == "bin/sirocco"
    monkeypatch.setenv("PATH", str(script.parent))
    assert program() == "sirocco"
    monkeypatch.setattr(sys, "argv", ["pytest"])
    monkeypatch.setattr(sys, "executable", str(tmp_path / "a b" / "python"))
    assert program() == "'a b/python' -m sirocco.cli"
    monkeypatch.setattr(sys, "executable", str(script.parent / "python"))
    assert program() == "bin/sirocco"


@pytest.mark.parametrize(
    "state",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b'{"settings": {}}',
        b"\xff",
        json.dumps({"settings": {"cluster": 1}, "addresses": {"router-0": {}}}).encode(),
        json.dumps(
            {
                "settings": {
                    "cluster": "c",
                    "kafka": "k",
                    "redis": "r",
                    "archive": "a",
                    "counts": {"router": "many"},
                    "options": {},
                },
                "addresses": {},
            }
        ).encode(),
    ],
)
def test_a_state_of_any_other_shape_is_damaged(tmp_path: Path, state: bytes) -> None:
    for name in (STATE, LAST):
        (tmp_path / name).write_bytes(state)
    with pytest.raises(LocalError, match="is damaged") as caught:
        LocalCluster.open(tmp_path)
    assert "down`" in str(caught.value)
    assert not routers_of(tmp_path)
    assert not last_settings(tmp_path)


def test_what_runs_is_stopped_also_when_its_state_is_lost(
    tmp_path: Path, settings: LocalClusterSettings
) -> None:
    directory = tmp_path / "run"
    cluster = LocalCluster(directory, settings)
    cluster.start()
    try:
        (directory / STATE).unlink()
        assert sorted(stop_leftovers(directory)) == sorted(one.name for one in cluster.processes)
        eventually(lambda: not any(one.running for one in cluster.processes))
        assert not stop_leftovers(directory)
    finally:
        cluster.stop()


def test_one_command_at_a_time_is_at_work_in_a_directory(tmp_path: Path) -> None:
    """Two that started one cluster at once left a keeper and services that `down` did not know."""
    waits, begun = threading.Event(), threading.Event()

    def second() -> None:
        with alone(tmp_path / "run", waits.set):
            begun.set()

    thread = threading.Thread(target=second)
    with alone(tmp_path / "run", lambda: pytest.fail("nobody else is at work")):
        thread.start()
        assert waits.wait(120.0)
        assert not begun.is_set()
    thread.join(120.0)
    assert begun.is_set()


def test_own_servers_that_ended_are_named(tmp_path: Path) -> None:
    assert ended_servers(tmp_path) == []
    (tmp_path / "redis.pid").write_text(f"{os.getpid()}\n")
    assert ended_servers(tmp_path) == ["redis"]
    running = KafkaServer(tmp_path, outlive=True).process
    lives_on = "import signal; signal.pause()"
    # Linux runs the parent again before others can read the new command line.
    running.start(
        [sys.executable, "-c", lives_on, str(tmp_path / "kafka.properties")],
        lambda: KafkaServer(tmp_path, outlive=True).process.pid is not None,
    )
    assert ended_servers(tmp_path) == ["redis"]
    running.kill()
    running.pid_path.write_text("1\n")
    assert ended_servers(tmp_path) == ["kafka", "redis"]


# A service that waits, at its end, for a broker that does not answer.
WAITING = """
import json, os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: print("waiting", file=sys.stderr, flush=True))
print("ready", file=sys.stderr, flush=True)
while True:
    time.sleep(60)
"""


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[list[LocalProcess]]:
    """Services of each kind that do not end when they are asked to, as they wait for the broker."""
    found = []
    for service in ("coordinator", "merger", "evaluator", "router"):
        one = LocalProcess(f"{service}-0", tmp_path / "run", f"services.{service}", outlive=False)
        command = [sys.executable, "-c", WAITING, f"services.{service}"]
        one.start(command, ready=lambda one=one: "ready" in one.log_tail())  # type: ignore[misc]
        found.append(one)
    yield found
    for one in found:
        one.kill()


def test_services_do_not_wait_for_a_broker_that_has_ended(
    tmp_path: Path, settings: LocalClusterSettings, waiting: list[LocalProcess]
) -> None:
    """`down` took 80 s."""
    closed = f"127.0.0.1:{free_port()}"
    cluster = LocalCluster(tmp_path / "run", replace(settings, kafka=closed), outlive=True)
    for service in ("coordinator", "merger", "evaluator", "router"):
        cluster._add(service, 0)
    assert len([one for one in cluster.processes if one.running]) == 4
    cluster.stop(drain_s=600.0)
    assert [one.pid for one in waiting] == [None] * 4
    # Each was asked first.
    assert all("waiting" in one.log_tail() for one in waiting)


def test_leftovers_do_not_wait_for_a_broker_that_has_ended(
    tmp_path: Path, waiting: list[LocalProcess]
) -> None:
    stop_leftovers(tmp_path / "run", f"127.0.0.1:{free_port()}", drain_s=600.0)
    assert [one.pid for one in waiting] == [None] * 4


def test_a_broker_that_ends_meanwhile_is_not_waited_for(
    tmp_path: Path, waiting: list[LocalProcess]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as broker:
        address = f"127.0.0.1:{broker.getsockname()[1]}"
        stop = partial(stop_leftovers, tmp_path / "run", address, drain_s=600.0)
        stopping = threading.Thread(target=stop)
        stopping.start()
        # The first ones are waited for.
        eventually(lambda: "waiting" in waiting[-1].log_tail())
        assert all(one.pid is not None for one in waiting)
    stopping.join()
    assert [one.pid for one in waiting] == [None] * 4


def test_only_who_refuses_has_ended() -> None:
    closed = f"127.0.0.1:{free_port()}"
    with socket.create_server(("127.0.0.1", 0)) as broker:
        listening = f"127.0.0.1:{broker.getsockname()[1]}"
        assert refuses(closed)
        assert refuses(f"{closed},{closed}")
        assert not any(refuses(each) for each in (listening, f"{closed},{listening}", "k:x", ""))
