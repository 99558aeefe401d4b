"""The gateway's HTTP servers: the API on one loop, metrics and probes in a thread beside it."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import uvicorn

from sirocco.runtime.process.health import HealthServer
from sirocco.services.gateway.app import make_app
from sirocco.services.gateway.front import Front
from sirocco.services.gateway.settings import GatewaySettings
from sirocco.telemetry.metrics.gateway import GatewayMetrics
from sirocco.telemetry.metrics.process import ProcessMetrics, new_registry
from sirocco.telemetry.rare_lines import RareLines

# Of `start` in a program: the loop and the routes take a moment.
_START_S = 30.0

_BACKLOG = 1_024

# A loop that has not turned for so long is stuck; bodies take it a tenth of a second at most.
_STUCK_S = 20.0
_BEAT_S = 1.0

# Probes wait for 3 s.
_READY_S = 2.5


class Gateway:
    """One gateway, on a loop of its own in a thread, or on that of the caller with `serve`.

    Attributes:
        address: host:port of the API.
        metrics_address: host:port of /metrics and the probes.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        self.settings = settings
        self.registry = new_registry()
        self.metrics = GatewayMetrics(self.registry)
        ProcessMetrics(self.registry, "gateway", settings.name or "gateway")
        self._socket = _listening(settings.host, settings.port)
        self.address = f"{settings.host}:{self._socket.getsockname()[1]}"
        self._health: HealthServer | None = None
        self._front: Front | None = None
        self._server: _Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_serving = threading.Event()
        self._failure: BaseException | None = None
        self._beat_s = time.monotonic()

    @property
    def metrics_address(self) -> str:
        """host:port of /metrics and the probes."""
        return "" if self._health is None else self._health.address

    async def serve(self, signals: Iterable[int] = ()) -> None:
        """Serves until `stop`, or one of the signals; these need the main thread."""
        self._loop = asyncio.get_running_loop()
        front = self._front = Front(self.settings, self.metrics)
        server = self._server = _Server(_config(front), front, self._is_serving)
        self._health = HealthServer(
            self.settings.host,
            self.settings.metrics_port,
            self.registry,
            is_healthy=self._turns,
            is_ready=self._is_ready,
            refresh=self._refresh,
        )
        for number in signals:
            self._loop.add_signal_handler(number, server.end)
        beating = asyncio.create_task(self._beat_on())
        try:
            await server.serve(sockets=[self._socket])
        finally:
            beating.cancel()
            await front.close()
            self._health.stop()

    def start(self) -> None:
        """Serves in a thread until `stop`."""
        self._thread = threading.Thread(target=self._run, name="gateway", daemon=True)
        self._thread.start()
        if not self._is_serving.wait(_START_S) or self._failure is not None:
            raise RuntimeError("the gateway did not start") from self._failure

    def stop(self) -> None:
        """Ends streams, waits for requests under way, and stops serving; from any thread."""
        if self._loop is not None and self._server is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._server.end)
        if self._thread is not None:
            self._thread.join(self.settings.limits.stop_s + 10)

    def _run(self) -> None:
        try:
            asyncio.run(self.serve())
        except BaseException as error:
            self._failure = error
            raise
        finally:
            self._is_serving.set()

    async def _beat_on(self) -> None:
        while True:
            self._beat_s = time.monotonic()
            await asyncio.sleep(_BEAT_S)

    def _turns(self) -> bool:
        """Whether the loop works: a stuck one answers nobody."""
        return time.monotonic() - self._beat_s < _STUCK_S

    def _is_ready(self) -> bool:
        """Whether clients can be served; asks a router, on the loop."""
        front, loop = self._front, self._loop
        if front is None or loop is None or front.stopping.is_set():
            return False
        asked = asyncio.run_coroutine_threadsafe(front.is_ready(), loop)
        try:
            return asked.result(_READY_S)
        except TimeoutError:
            asked.cancel()
            return False

    def _refresh(self) -> None:
        front = self._front
        if front is not None:
            self.metrics.connections.set(front.connections.places.held)
            self.metrics.memory.set(front.bodies.memory.held)


class _Server(uvicorn.Server):
    """Asks streams to end before the server waits for them."""

    def __init__(self, config: uvicorn.Config, front: Front, is_serving: threading.Event) -> None:
        super().__init__(config)
        self._front = front
        self._is_serving = is_serving

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals alone: uvicorn raises them again at the end, which is no clean exit."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Also reports that it serves."""
        await super().startup(sockets)
        self._is_serving.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends the streams first: they would last as long as the server waits."""
        self._front.stopping.set()
        await super().shutdown(sockets)

    def end(self) -> None:
        """Ends the server, on its loop."""
        self.should_exit = True


# Each request that is none is a warning of the server's.
_RARE_LINES = RareLines()


def _config(front: Front) -> uvicorn.Config:
    limits = front.limits
    logging.getLogger("uvicorn.error").addFilter(_RARE_LINES)
    http, websocket = front.connections.protocols()
    return uvicorn.Config(
        make_app(front),
        loop="asyncio",
        http=http,
        ws=websocket,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        # Whose request it is decides what it may take: addresses that clients claim do not count.
        proxy_headers=False,
        timeout_keep_alive=int(limits.idle_s),
        timeout_graceful_shutdown=int(limits.stop_s),
        ws_max_size=limits.message_bytes,
        # A compressor takes 300 kB for each socket.
        ws_per_message_deflate=False,
        backlog=_BACKLOG,
    )


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named: asyncio turns Nagle's algorithm off for connections of such a socket
    # alone, and an answer of two writes would wait 40 ms for the client's acknowledgement.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError:
        found.close()
        raise
    found.listen(_BACKLOG)
    found.setblocking(False)
    return found
