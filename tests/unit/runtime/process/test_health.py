"""The health port takes a bounded number of connections, each for a bounded time."""

from __future__ import annotations

import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.error import HTTPError

import pytest
from prometheus_client import CollectorRegistry

from sirocco.runtime.grpc.server import LoopThread
from sirocco.runtime.process.health import HealthServer, Scrapes
from tests.support.slow_peers import is_cut_off
from tests.support.waiting import eventually


class Health:
    """A health server and its reported state."""

    def __init__(self, request_s: float = 0.3, connections_max: int = 4) -> None:
        self.is_healthy = True
        self.server = HealthServer(
            "127.0.0.1",
            0,
            CollectorRegistry(),
            is_healthy=lambda: self.is_healthy,
            is_ready=lambda: True,
            refresh=lambda: None,
            connections_max=connections_max,
            request_s=request_s,
        )

    def get(self, path: str) -> int:
        try:
            with urllib.request.urlopen(
                f"http://{self.server.address}{path}", timeout=120.0
            ) as answer:
                return int(answer.status)
        except HTTPError as error:
            return error.code

    def connect(self) -> socket.socket:
        host, _, port = self.server.address.rpartition(":")
        return socket.create_connection((host, int(port)), timeout=120.0)


@pytest.fixture
def health() -> Iterator[Health]:
    health = Health()
    yield health
    health.server.stop()


def test_probes_are_answered(health: Health) -> None:
    assert [health.get(path) for path in ("/healthz", "/readyz", "/metrics", "/else")] == [
        *(200, 200, 200, 404)
    ]
    health.is_healthy = False
    assert health.get("/healthz") == 503


def test_connections_beyond_the_cap_are_closed_and_give_way_in_time(health: Health) -> None:
    before = threading.active_count()
    with ExitStack() as stack:
        idle = [stack.enter_context(health.connect()) for _ in range(40)]
        assert threading.active_count() - before <= 4
        # All of them are closed: at once, or when their time is up.
        assert all(each.recv(1) == b"" for each in idle)
    # A connection gives its place back when its thread ends, which is after its end is seen here.
    eventually(lambda: not health.server._server._open)
    assert health.get("/healthz") == 200


def test_a_connection_beyond_the_cap_is_closed_at_once() -> None:
    # The others would be closed after a minute.
    health = Health(request_s=60.0)
    open_ones = health.server._server._open
    try:
        with ExitStack() as stack:
            for _ in range(4):
                stack.enter_context(health.connect())
            eventually(lambda: len(open_ones) == 4)
            with health.connect() as beyond:
                assert beyond.recv(1) == b""
        eventually(lambda: not open_ones)
        assert health.get("/healthz") == 200
    finally:
        health.server.stop()


def test_one_host_leaves_connections_to_probes() -> None:
    """With 32 idle ones it had all, and the process was ended for the probes that failed."""
    health = Health(connections_max=32)
    server = health.server._server
    connections = [socket.socket() for _ in range(41)]
    try:
        taken = [
            each
            for number, each in enumerate(connections[:40])
            if server.verify_request(each, ("10.0.0.1", number))
        ]
        assert len(taken) == 28
        assert server.verify_request(connections[40], ("10.0.0.2", 1))
        for each in taken[:2]:
            server.shutdown_request(each)
        assert [server.verify_request(each, ("10.0.0.1", 99)) for each in taken[:2]] == [
            True,
            False,
        ]
    finally:
        for each in connections:
            server.shutdown_request(each)
        health.server.stop()


def test_who_has_most_connections_gives_one_to_a_probe() -> None:
    """From five hosts on they took all, and no probe was answered."""
    health = Health(request_s=60.0, connections_max=8)
    server = health.server._server
    with ExitStack() as stack:
        stack.callback(health.server.stop)
        pairs = [[stack.enter_context(each) for each in socket.socketpair()] for _ in range(12)]
        ours, theirs = zip(*pairs, strict=True)
        hosts = ["10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2", *(f"10.0.1.{n}" for n in range(4))]
        assert all(
            server.verify_request(one, (host, 1)) for one, host in zip(ours, hosts, strict=False)
        )
        # Nobody gets more than others, however often it comes.
        assert not server.verify_request(ours[8], ("10.0.0.1", 1))
        assert server.verify_request(ours[8], ("10.0.0.9", 1))
        assert theirs[0].recv(1) == b""
        assert not server.verify_request(ours[9], ("10.0.0.9", 1))
        for each in ours:
            server.shutdown_request(each)
        assert not server._open
        assert not server._displaced


def test_connections_that_gave_way_are_few(health: Health) -> None:
    """Their threads may take a while, as those that ask a router whether it is ready."""
    server = health.server._server
    connections = [socket.socket() for _ in range(12)]
    taken = [
        server.verify_request(each, (f"10.0.0.{number}", 1))
        for number, each in enumerate(connections)
    ]
    assert taken == [True] * 8 + [False] * 4
    for each in connections:
        server.shutdown_request(each)
    assert server.verify_request(connections[0], ("10.0.0.1", 1))
    server.shutdown_request(connections[0])


def test_a_request_that_comes_byte_by_byte_is_ended(health: Health) -> None:
    """Each byte arrives before any time limit of its own."""
    with health.connect() as slow:
        eventually(lambda: is_cut_off(slow, b"G"))


def test_a_loop_that_stands_still_does_not_beat() -> None:
    running = LoopThread()
    running.start()
    stuck, go_on = threading.Event(), threading.Event()

    def stand_still() -> None:
        stuck.set()
        go_on.wait()

    running.loop.call_soon_threadsafe(stand_still)
    stuck.wait()
    beat_ms = running.beat_ms
    go_on.set()
    eventually(lambda: running.beat_ms != beat_ms)
    assert running.beat_ms > beat_ms
    running.stop()


def test_metrics_are_not_made_for_each_request() -> None:
    now_s, refreshed = 0.0, 0

    def refresh() -> None:
        nonlocal now_s, refreshed
        refreshed += 1
        # It takes as long as with very many series.
        now_s += 1.0

    scrapes = Scrapes(CollectorRegistry(), refresh, lambda: now_s)
    for _ in range(1_000):
        scrapes.text()
    assert refreshed == 1
    now_s = 4.9
    scrapes.text()
    assert refreshed == 1
    now_s = 5.0
    scrapes.text()
    assert refreshed == 2
