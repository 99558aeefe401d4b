"""`/healthz`, `/readyz` and `/metrics` of a process."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

# How long it may take until `stop` is noticed.
STOP_S = 0.1


# How long a request may take from its connection to its answer, however slowly it arrives. Probes
# wait for 1 to 5 s, scrapes for 10 s.
REQUEST_S = 10.0

# Open connections, each a thread: a scraper, some probes, a person or two, and as many again.
CONNECTIONS_MAX = 32

# The last part in so many is for hosts that have none: a process whose probes find no place is
# ended. When all are taken, the address with most of them gives one up.
_OTHERS_PART = 8


class _BoundedServer(ThreadingHTTPServer):
    """Takes a bounded number of connections, and each for a bounded time."""

    daemon_threads = True
    # Connections beyond the limit are closed, instead of waiting in the system's queue.
    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        handler: type[BaseHTTPRequestHandler],
        connections_max: int,
        request_s: float,
    ) -> None:
        self._request_s = request_s
        self._lock = threading.Lock()
        self._connections_max = connections_max
        # Connection → when it is ended, and its host; the oldest first.
        self._open: dict[Any, tuple[float, str]] = {}
        # Those that have given their place up, until their threads have noticed.
        self._displaced: set[Any] = set()
        super().__init__(address, handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether there is room for one more connection; otherwise it is closed."""
        host = str(client_address[0])
        with self._lock:
            counts = Counter(other for _, other in self._open.values())
            left = self._connections_max - len(self._open)
            is_full = left <= (self._connections_max // _OTHERS_PART if counts[host] else 0)
            if is_full and not self._makes_room(counts, counts[host]):
                return False
            self._open[request] = time.monotonic() + self._request_s, host
            return True

    def _makes_room(self, counts: Counter[str], own: int) -> bool:
        """Ends the oldest connection of the host that has most, for one that has fewer.

        Who comes from many hosts would otherwise take all places again as soon as they are free.
        """
        most = max(counts.values())
        if (own and own + 1 >= most) or len(self._displaced) >= self._connections_max:
            return False
        oldest = next(each for each, (_, host) in self._open.items() if counts[host] == most)
        del self._open[oldest]
        self._displaced.add(oldest)
        _end(oldest)
        return True

    def shutdown_request(self, request: Any) -> None:
        """Forgets a connection that ends."""
        with self._lock:
            self._open.pop(request, None)
            self._displaced.discard(request)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Ends connections whose time is up; called several times a second."""
        now_s = time.monotonic()
        with self._lock:
            late = [request for request, (end_s, _) in self._open.items() if end_s < now_s]
        for request in late:
            _end(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores connections that break."""


def _end(request: Any) -> None:
    """Ends a connection: its thread, which reads or writes, gets an end of file."""
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


# Metrics are not made again before so many times what making them took: who reaches the port gets
# a fifth of a core at most.
_REST = 4


class Scrapes:
    """The metrics as text, made for those who ask, but not for each of them.

    Args:
        registry: of the metrics.
        refresh: updates them.
        clock_s: of a clock that only goes forward.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        refresh: Callable[[], None],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self._refresh = refresh
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._text = b""
        self._due_s = float("-inf")

    def text(self) -> bytes:
        """Returns the metrics; in any thread."""
        with self._lock:
            begin_s = self._clock_s()
            if begin_s >= self._due_s:
                self._refresh()
                self._text = generate_latest(self._registry)
                end_s = self._clock_s()
                self._due_s = end_s + _REST * (end_s - begin_s)
            return self._text


class HealthServer:
    """A small HTTP server in a thread of its own.

    Attributes:
        address: host:port that it listens on.
    """

    def __init__(
        self,
        host: str,
        port: int,
        registry: CollectorRegistry,
        *,
        is_healthy: Callable[[], bool],
        is_ready: Callable[[], bool],
        refresh: Callable[[], None],
        connections_max: int = CONNECTIONS_MAX,
        request_s: float = REQUEST_S,
    ) -> None:
        scrapes = Scrapes(registry, refresh)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                """Answers a probe or a scrape."""
                if self.path == "/healthz":
                    self._respond(200 if is_healthy() else 503, b"", "text/plain")
                elif self.path == "/readyz":
                    self._respond(200 if is_ready() else 503, b"", "text/plain")
                elif self.path == "/metrics":
                    self._respond(200, scrapes.text(), CONTENT_TYPE_LATEST)
                else:
                    self._respond(404, b"", "text/plain")

            def log_message(self, format: str, *args: object) -> None:
                """Does not log requests."""

            def _respond(self, status: int, body: bytes, content_type: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                try:
                    self.end_headers()
                    self.wfile.write(body)
                except ConnectionError:
                    # The scraper or probe no longer waits for the answer: not logged either.
                    self.close_connection = True

        self._server = _BoundedServer((host, port), Handler, connections_max, request_s)
        self.address = f"{host}:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(STOP_S,), name="http", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stops listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
