"""A stopped server is noticed by missing answers to pings: its kernel still answers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue

import grpc
import pytest
from sirocco_client.connection import channels

from sirocco.runtime.grpc import server

# Accepts pings at any rate. Begins to send with the first request, and continues every 20 ms if
# that says "much"; gRPC measures the speed of such a stream by pings of its own.
_SERVER = """
import time
from concurrent.futures import ThreadPoolExecutor
import grpc

def stream(requests, context):
    request = next(requests)
    yield b"first"
    while context.is_active():
        time.sleep(0.02)
        if request == b"much":
            yield bytes(1_000)

server = grpc.server(
    ThreadPoolExecutor(2),
    options=[
        ("grpc.http2.min_ping_interval_without_data_ms", 10),
        ("grpc.http2.max_ping_strikes", 0),
    ],
)
handler = grpc.stream_stream_rpc_method_handler(stream)
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a.B", {"C": handler})])
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
server.wait_for_termination()
"""

# gRPC's own limit for an answer is 60 s, and only a limit ends the wait here.
NOTICED_S_MAX = 30.0

SHORT_MS = 1_000


@contextmanager
def running() -> Iterator[tuple[int, str]]:
    """Starts the process; returns it and the address of its server."""
    command = [sys.executable, "-c", _SERVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.pid, f"127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def shortened(options: Iterable[tuple[str, object]]) -> list[tuple[str, object]]:
    """Returns the options with shorter ping times, and none added."""
    times = ("grpc.keepalive_time_ms", "grpc.keepalive_timeout_ms", "grpc.http2.ping_timeout_ms")
    return [(name, SHORT_MS if name in times else value) for name, value in options]


@pytest.mark.parametrize("much", [True, False])
@pytest.mark.parametrize("whose", ["clients", "peers"])
def test_a_server_that_stands_still_is_hung_up_on(whose: str, much: bool) -> None:
    with running() as (pid, address):
        own = {"clients": channels.ChannelSettings().options(address), "peers": server.OPTIONS}
        with grpc.insecure_channel(address, shortened(own[whose])) as channel:
            requests: SimpleQueue[bytes] = SimpleQueue()
            requests.put(b"much" if much else b"little")
            call = channel.stream_stream("/a.B/C")(iter(requests.get, None), timeout=NOTICED_S_MAX)
            assert next(call) == b"first"
            # A second's worth, in which gRPC begins to measure.
            for _ in range(50 if much else 0):
                next(call)
            os.kill(pid, signal.SIGSTOP)
            with pytest.raises(grpc.RpcError) as caught:
                deque(call, maxlen=0)
            # After the call's own time limit it were DEADLINE_EXCEEDED.
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
