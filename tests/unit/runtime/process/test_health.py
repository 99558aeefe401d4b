"""The health port takes a bounded number of connections, each for a bounded time."""

from __future__ import annotations

import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.error import HTTPError

import pytest
from prometheus_client import CollectorRegistry

from sirocco.runtime.grpc.server import LoopThread
from sirocco.runtime.process.health import HealthServer, Scrapes
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


def drip(connection: socket.socket) -> None:
    """Sends for longer than a request may take, each byte before any time limit of its own."""
    for _ in range(2_000):
        connection.sendall(b"G")
        time.sleep(0.01)


def test_a_request_that_comes_byte_by_byte_is_ended(health: Health) -> None:
    with health.connect() as slow, pytest.raises((BrokenPipeError, ConnectionResetError)):
        drip(slow)


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
