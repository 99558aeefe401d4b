"""Connections of unknown clients: bounded in number, and closed without a handshake."""

from __future__ import annotations

import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import grpc
import pytest

from sirocco.runtime.grpc.edge import EdgeLimits
from sirocco.runtime.grpc.server import (
    CONNECTION_CALLS_MAX,
    WAITING_CALLS_MAX,
    GrpcServer,
    connections_max,
)
from sirocco.runtime.process import process_tuning

DEADLINE_S = 120.0


def await_end(connection: socket.socket) -> None:
    """Returns once the server has closed a connection."""
    with suppress(ConnectionError):
        # Its settings arrive first.
        while connection.recv(4_096):
            pass


def is_open(connection: socket.socket) -> bool:
    """Returns whether the server has not closed a connection so far."""
    connection.setblocking(False)
    try:
        while connection.recv(4_096):
            pass
    except BlockingIOError:
        return True
    except ConnectionError:
        return False
    return False


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def serving(opened: ExitStack, limits: EdgeLimits) -> str:
    running = GrpcServer("127.0.0.1", 0, limits=limits)
    running.start([])
    opened.callback(running.stop)
    return running.address


def connection(address: str, opened: ExitStack) -> socket.socket:
    host, _, port = address.rpartition(":")
    return opened.enter_context(socket.create_connection((host, int(port)), timeout=DEADLINE_S))


def test_no_more_connections_are_accepted_than_the_bound(opened: ExitStack) -> None:
    # None is closed for the time of its handshake.
    address = serving(opened, EdgeLimits(connections=4, handshake_ms=600_000))
    held = [connection(address, opened) for _ in range(4)]
    await_end(connection(address, opened))
    assert all(is_open(each) for each in held)
    for each in held:
        each.close()
    with grpc.insecure_channel(address) as channel:
        grpc.channel_ready_future(channel).result(DEADLINE_S)


def test_calls_of_one_connection_are_bounded(opened: ExitStack) -> None:
    """Calls that were begun and reset without end, without a token, shut out everybody else."""
    client = connection(serving(opened, EdgeLimits()), opened)
    client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
    received = b""
    # Its settings come first (RFC 9113, 6.5): frames with a head of nine bytes, pairs of six.
    while len(received) < 9 or len(received) < 9 + int.from_bytes(received[:3]):
        received += client.recv(4_096)
    pairs = received[9 : 9 + int.from_bytes(received[:3])]
    settings = {
        int.from_bytes(pairs[at : at + 2]): int.from_bytes(pairs[at + 2 : at + 6])
        for at in range(0, len(pairs), 6)
    }
    max_concurrent_streams = 3
    assert settings[max_concurrent_streams] == CONNECTION_CALLS_MAX


def test_calls_that_wait_to_be_taken_are_bounded(opened: ExitStack) -> None:
    """Each delays those behind it, also of others: more than 2,000 waited."""
    running = GrpcServer("127.0.0.1", 0)
    running.start([])
    opened.callback(running.stop)
    go_on = threading.Event()
    opened.callback(go_on.set)
    running.loop.call_soon_threadsafe(go_on.wait)
    dropped = threading.Semaphore(0)
    for _ in range(3):
        own = (("grpc.use_local_subchannel_pool", 1),)
        channel = opened.enter_context(grpc.insecure_channel(running.address, options=own))
        call = channel.unary_unary("/x/y")
        for _ in range(CONNECTION_CALLS_MAX):
            call.future(b"", timeout=DEADLINE_S).add_done_callback(lambda _: dropped.release())
    # One is taken.
    for _ in range(3 * CONNECTION_CALLS_MAX - WAITING_CALLS_MAX - 1):
        assert dropped.acquire(timeout=DEADLINE_S / 2)


def test_a_connection_that_does_not_shake_hands_is_closed(opened: ExitStack) -> None:
    address = serving(opened, EdgeLimits(handshake_ms=500))
    await_end(connection(address, opened))


def test_half_of_the_files_of_a_process_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    for files, connections in ((1_024, 256), (20_000, 5_000), (1 << 20, 8_192)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, 1 << 20))
        assert connections_max() == connections
    infinite = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda _: infinite)
    assert connections_max() == 8_192


@pytest.mark.parametrize(
    ("soft", "hard", "most"),
    [
        (1_024, 4_096, 4_096),
        (1_024, 1 << 20, process_tuning.FILES_MAX),
        (1_024, resource.RLIM_INFINITY, process_tuning.FILES_MAX),
        (1 << 20, 1 << 20, None),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None),
    ],
)
def test_the_limit_of_open_files_is_raised(
    soft: int, hard: int, most: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    put: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: put.append(limits))
    process_tuning.allow_files()
    assert put == ([] if most is None else [(most, hard)])


def test_a_limit_that_cannot_be_raised_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_kind: int, _limits: tuple[int, int]) -> None:
        raise ValueError("not allowed")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 1 << 20))
    monkeypatch.setattr(resource, "setrlimit", refused)
    process_tuning.allow_files()
