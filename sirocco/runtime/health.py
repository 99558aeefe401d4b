"""`/healthz`, `/readyz` and `/metrics` of a process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

# How long `stop` may take to be noticed.
STOP_S = 0.1


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
    ) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                """Answers a probe or a scrape."""
                if self.path == "/healthz":
                    self._say(200 if is_healthy() else 503, b"", "text/plain")
                elif self.path == "/readyz":
                    self._say(200 if is_ready() else 503, b"", "text/plain")
                elif self.path == "/metrics":
                    refresh()
                    self._say(200, generate_latest(registry), CONTENT_TYPE_LATEST)
                else:
                    self._say(404, b"", "text/plain")

            def log_message(self, format: str, *args: object) -> None:
                """Probes are no events."""

            def _say(self, status: int, body: bytes, content_type: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                try:
                    self.end_headers()
                    self.wfile.write(body)
                except ConnectionError:
                    # A scrape or probe that is not waited for any longer: no event either.
                    self.close_connection = True

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
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
