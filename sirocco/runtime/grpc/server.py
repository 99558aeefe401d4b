"""The gRPC server of a process: one asyncio loop in one thread, health included.

Streams are many and mostly idle, so they are coroutines; computations run in NumPy and release the
interpreter's lock.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import grpc

from sirocco.runtime.grpc.edge import EDGE, MESSAGE_BYTES_MAX, Edge, EdgeLimits
from sirocco.runtime.grpc.tls import Tls
from sirocco.runtime.process.clock import monotonic_ms
from sirocco.runtime.process.process_tuning import files_max

T = TypeVar("T")

# Larger messages than `MESSAGE_BYTES_MAX`, up to this, are read and refused with a typed error.
# Beyond its limit gRPC itself ends a call with a bare RESOURCE_EXHAUSTED, and a client would retry.
RECEIVED_BYTES_MAX = 16 << 20

# For the SDK's keepalive (10 s), whose timers are not exact: a server that finds pings too frequent
# closes the connection.
KEEPALIVE_MIN_MS = 5_000

# For the answer to a ping: the connection of a client that is stuck for so long is closed. gRPC has
# a limit of a minute besides that of its keepalive (`sirocco_client.channels`).
KEEPALIVE_TIMEOUT_MS = 15_000

# How long open calls may continue after SIGTERM; subscribers reconnect elsewhere at once.
GRACE_S = 2.0

OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MIN_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.so_reuseport", 0),
)


# Calls of one connection; further ones wait at the client. gRPC drops calls by chance when 1,000
# wait to be taken (`grpc.server.max_pending_requests`): without a bound one connection that began
# and reset calls without end, without a token, shut out everybody. With 2,048 others waited for
# seconds.
CONNECTION_CALLS_MAX = 1_024

# Calls of all connections that wait to be taken, each for half a millisecond of those before it;
# from 1,000 on gRPC drops some of them by chance, and clients call again. By itself it has 3,000
# wait: six connections that open all their calls at once then hold up others by 1.5 s.
WAITING_CALLS_MAX = 1_200

# gRPC bounds a compressed message by its unpacked size, before it has unpacked more.
SERVER_OPTIONS = tuple(
    (
        dict(OPTIONS)
        | {
            "grpc.max_receive_message_length": RECEIVED_BYTES_MAX,
            "grpc.max_concurrent_streams": CONNECTION_CALLS_MAX,
            "grpc.server.max_pending_requests_hard_limit": WAITING_CALLS_MAX,
        }
    ).items()
)

# A process has at most two servers; half of its files are left for everything else.
CONNECTIONS_PART = 4

# Threads for blocking work in calls, mainly reads of the log for streams that are far behind.
BLOCKING_THREADS = 32


# Interval between beats of a loop, which show that its process is healthy.
BEAT_S = 1.0


def connections_max(most: int = EDGE.connections) -> int:
    """Returns how many connections a server of this process accepts at a time, `most` at most."""
    return min(most, max(1, files_max() // CONNECTIONS_PART))


class _Names:
    """Takes services as a server does, and keeps their names."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def add_generic_rpc_handlers(self, _: object) -> None:
        """See gRPC."""

    def add_registered_method_handlers(self, service: str, _: object) -> None:
        """See gRPC."""
        self.found.append(service)


def service_names(register: Sequence[Callable[[Any], None]]) -> tuple[str, ...]:
    """Returns the full names of services, of their generated add_…_to_server calls."""
    names = _Names()
    for add in register:
        add(names)
    return tuple(names.found)


class LoopThread:
    """An event loop in a thread of its own, for one server or for all of a process.

    gRPC has one queue of events a process, and each loop wakes up for each event: with a loop for
    each server of a process a call takes twice as long.

    Attributes:
        loop: the event loop.
        beat_ms: when it last ran, by the monotonic clock; it beats once a second.
    """

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(ThreadPoolExecutor(BLOCKING_THREADS, "blocking"))
        self.beat_ms = monotonic_ms()
        self._thread = threading.Thread(target=self._run, name="grpc", daemon=True)

    def start(self) -> None:
        """Begins to run the loop."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the loop; nothing may be awaited in it any more."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(5)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(self._beat)
        self.loop.run_forever()

    def _beat(self) -> None:
        self.beat_ms = monotonic_ms()
        self.loop.call_later(BEAT_S, self._beat)


class GrpcServer:
    """Serves servicers on one port.

    Args:
        host, port: where it listens; port 0 for a free one.
        shared: a loop that runs already and outlives the server; None for one of its own.
        tls: None for plain text.
        interceptors: check every call first.
        peers_only: with TLS, callers have to show a certificate.
        limits, count_refused: of its edge.

    Attributes:
        address: host:port that it listens on, once started.
        loop: where the servicers run.
        running: the same with its thread.
        edge: takes the messages of calls, once started.
    """

    def __init__(
        self,
        host: str,
        port: int,
        shared: LoopThread | None = None,
        tls: Tls | None = None,
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
        *,
        peers_only: bool = False,
        limits: EdgeLimits = EDGE,
        count_refused: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.address = ""
        self._host = host
        self._port = port
        self.running = shared or LoopThread()
        self._own = self.running if shared is None else None
        self.loop = self.running.loop
        self._interceptors = interceptors
        self._limits, self._count_refused = limits, count_refused
        # gRPC asks it for each connection and does not keep a reference.
        self._credentials = None if tls is None else tls.server_credentials(peers_only=peers_only)
        self._server: grpc.aio.Server | None = None
        self.edge: Edge | None = None

    def start(self, register: Sequence[Callable[[Any], None]]) -> None:
        """Listens; `register` are the generated add_…_to_server calls, bound to servicers."""
        if self._own is not None:
            self._own.start()
        self.call(self._serve(register))

    def call(self, coroutine: Coroutine[Any, Any, T], timeout_s: float = 30.0) -> T:
        """Runs a coroutine in the server's loop and waits for it, from another thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(timeout_s)

    def stop(self) -> None:
        """Takes no new calls, ends the open ones after a grace."""
        if self._server is not None:
            self.call(self._server.stop(GRACE_S), GRACE_S + 5)
        if self._own is not None:
            self._own.stop()

    async def _serve(self, register: Sequence[Callable[[Any], None]]) -> None:
        connections = connections_max(self._limits.connections)
        self._server = grpc.aio.server(
            interceptors=tuple(self._interceptors),
            options=(
                *SERVER_OPTIONS,
                ("grpc.max_allowed_incoming_connections", connections),
                ("grpc.server_handshake_timeout_ms", self._limits.handshake_ms),
            ),
        )
        self.edge = Edge(self._server, self._limits, self._count_refused)
        for add in register:
            add(self.edge)
        place = f"{self._host}:{self._port}"
        if self._credentials is None:
            port = self._server.add_insecure_port(place)
        else:
            port = self._server.add_secure_port(place, self._credentials)
        if port == 0:
            raise OSError(f"cannot listen on {self._host}:{self._port}")
        self.address = f"{self._host}:{port}"
        await self._server.start()
