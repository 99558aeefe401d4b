"""Timeouts hold if no server answers, and errors name the problem of the address."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import grpc
import pytest
from sirocco_client import (
    AlreadyExists,
    ConnectionChange,
    CursorExpired,
    InvalidArgument,
    PublishFailed,
    RangeQuery,
    Retry,
    SiroccoError,
    Unavailable,
    WindowTooLong,
    __version__,
)
from sirocco_client.connection.endpoints import parse_addresses
from sirocco_client.connection.retry import ATTEMPTS_MAX, LAST_TRY_S, Backoff

from tests.support.fake_cluster import FakeCluster
from tests.support.waiting import eventually

LIMIT_S = 1.0
# Without a limit of time, a test with it would last for ever.
FOR_EVER = Retry(attempts=ATTEMPTS_MAX)

QUERY = RangeQuery(id="q", subscriber="s", text="fire")

CALLS: dict[str, Callable[[Any], object]] = {
    "describe": lambda client: client.describe(),
    "balance": lambda client: client.balance(),
    "register": lambda client: client.register(QUERY),
    "register_many": lambda client: list(client.register_many([QUERY])),
    "list": lambda client: list(client.list()),
    "search": lambda client: client.search(RangeQuery(id="q", text="fire", mode="snapshot")),
    "publish": lambda client: _publish(client),  # noqa: PLW0108 - is defined below
    "open": lambda client: client.subscribe("s").open(),
    "next_batch": lambda client: client.subscribe("s").next_batch(),
}


def _publish(client: Any) -> None:
    publisher = client.publisher()
    publisher.publish({"id": 1, "lon": 0, "lat": 0})
    publisher.flush()


@pytest.fixture
def closed_port() -> Iterator[int]:
    """Returns a port without a listener, reserved meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.fixture
def http_port() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.fixture
def mergers_port() -> Iterator[int]:
    """Returns the port of a gRPC server without a router's services."""
    server = grpc.server(ThreadPoolExecutor(2))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield port
    server.stop(0).wait()


def _error(client: Any, call: str) -> SiroccoError:
    with pytest.raises(SiroccoError) as caught:
        CALLS[call](client)
    error = caught.value
    return error.cause if isinstance(error, PublishFailed) else error


@pytest.mark.parametrize("call", CALLS)
def test_a_closed_port_is_tried_again_until_the_timeout(
    connect: Callable[..., Any], closed_port: int, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses_s: list[float] = []
    pause_s = Backoff.pause_s

    def noted(backoff: Backoff, error: SiroccoError) -> float:
        pauses_s.append(pause_s(backoff, error))
        return pauses_s[-1]

    monkeypatch.setattr(Backoff, "pause_s", noted)
    client = connect(f"127.0.0.1:{closed_port}", retry=FOR_EVER, timeout_s=LIMIT_S)
    error = _error(client, call)
    assert isinstance(error, Unavailable)
    assert f"the router at 127.0.0.1:{closed_port}" in error.message
    assert "merger" not in error.message
    assert pauses_s


@pytest.mark.parametrize("call", CALLS)
def test_another_ones_port_is_no_router(
    connect: Callable[..., Any], http_port: int, mergers_port: int, call: str
) -> None:
    for port in (mergers_port, http_port):
        error = _error(connect(f"127.0.0.1:{port}", timeout_s=20.0), call)
        assert isinstance(error, InvalidArgument)
        assert f"127.0.0.1:{port} is not a router" in error.message
        assert error.field == "router"


@pytest.mark.parametrize(
    "text", ["localhost", ":1", "host:", "host:0", "host:65536", "host:x", "::1", "h:1,other", ""]
)
def test_an_address_without_a_port_is_refused(connect: Callable[..., Any], text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        connect(text)
    assert caught.value.field == "router"


def test_addresses_of_grpc_are_taken() -> None:
    for text in ("h:1", "[::1]:50051", "dns:///h:1", "dns:h:1", "unix:/tmp/x", "ipv6:[::1]:7"):
        assert parse_addresses(text, "router") == (text,)


def test_lost_connections_are_reported_once_and_so_is_their_return(
    connect: Callable[..., Any],
) -> None:
    # init
    changes: list[ConnectionChange] = []
    first = FakeCluster()
    often = Retry(attempts=1_000, initial_ms=10.0, longest_ms=50.0)
    client = connect(first.router, retry=often, on_connection=changes.append)
    with client.publisher() as publisher:
        publisher.publish({"id": 1, "lon": 0, "lat": 0})
        publisher.flush()
        assert not changes

        # test: the server ends, and returns on its port.
        first.stop()
        publisher.publish({"id": 2, "lon": 0, "lat": 0})
        eventually(lambda: bool(changes))
        again = FakeCluster(port=int(first.router.rpartition(":")[2]))
        publisher.flush()
    again.stop()

    # check
    down, up = changes
    assert (down.address, down.is_up, down.was_up) == (first.router, False, True)
    assert isinstance(down.error, Unavailable)
    assert (up.address, up.is_up, up.error) == (first.router, True, None)


def test_the_limit_of_the_first_answer_leaves_time_for_a_last_try() -> None:
    now_s = 0.0
    backoff = Backoff(Retry(), lambda: 0.0, reach_s=3.0, clock_s=lambda: now_s)
    backoff.begin()
    with contextlib.suppress(Unavailable):
        while True:
            now_s += backoff.pause_s(Unavailable("closed"))
    assert now_s == pytest.approx(3.0 - LAST_TRY_S)
    # After an answer, only `Retry` counts.
    backoff = Backoff(Retry(attempts=9), lambda: 0.0, reach_s=3.0, clock_s=lambda: now_s)
    backoff.begin()
    backoff.progressed()
    now_s += 100.0
    assert backoff.pause_s(Unavailable("closed")) == 0.1
    # A pause requested by a server is not shortened.
    backoff = Backoff(Retry(), lambda: 0.0, reach_s=3.0, clock_s=lambda: now_s)
    with pytest.raises(Unavailable, match="busy"):
        backoff.pause_s(Unavailable("busy", retry_after_ms=5_000))


def test_errors_show_what_they_know() -> None:
    assert repr(InvalidArgument("is missing", field="lon")) == (
        "InvalidArgument('is missing', field='lon')"
    )
    assert repr(AlreadyExists("unequal")) == "AlreadyExists('unequal')"
    assert repr(Unavailable("busy", retry_after_ms=7)) == "Unavailable('busy', retry_after_ms=7)"
    assert "earliest='0.7'" in repr(CursorExpired("gone", earliest="0.7"))
    assert "earliest_ms=5" in repr(WindowTooLong("gone", earliest_ms=5))
    failed = repr(PublishFailed(InvalidArgument("no", field="router"), 3, 4))
    assert "unacknowledged=4" in failed
    assert "field='router'" in failed


def test_objects_show_their_state_and_no_secret(cluster: FakeCluster) -> None:
    from sirocco_client import Client  # noqa: PLC0415

    client = Client(cluster.router, token="secret-7", timeout_s=3.0)
    assert repr(client) == f"<Client of {cluster.router}, timeout 3 s>"
    publisher = client.publisher()
    publisher.publish({"id": 1, "lon": 0, "lat": 0})
    publisher.flush()
    assert repr(publisher) == "<Publisher: 1 objects acknowledged, 0 of them refused, 0 under way>"
    publisher.close()
    assert repr(publisher).endswith(", closed>")
    with client.subscribe("s") as subscription:
        assert f"of 's' at '0', connected to {cluster.router}" in repr(subscription)
    assert repr(subscription).endswith(", closed>")
    client.close()
    assert repr(client).endswith(", closed>")
    assert "secret-7" not in repr(client) + repr(client._connection.settings)


def test_the_version_is_that_of_the_package() -> None:
    import tomllib  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    import sirocco_client  # noqa: PLC0415

    written = Path(sirocco_client.__file__).parents[1] / "pyproject.toml"
    assert tomllib.loads(written.read_text())["project"]["version"] == __version__
