"""Connections of clients: how many, how much of a request's head, and how long it may take.

The server's own protocols have no bound for any of these. They live on the server's loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from sirocco.model.errors import ResourceExhausted
from sirocco.runtime.grpc.shares import Shares
from sirocco.services.gateway.settings import GatewayLimits

# Where a request finds its connection's transport: to end it without waiting for the client.
TRANSPORT = "transport"

# For the rest of a body whose request is answered: clients that write first and read then get the
# answer.
LINGER_S = 2.0

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


class Connections:
    """The open connections of a gateway.

    Args:
        limits: how many, and how long a head may take.
        count_refused: called with the reason whenever one is refused or ended.
    """

    def __init__(self, limits: GatewayLimits, count_refused: Callable[[str], None]) -> None:
        self.limits = limits
        self.count_refused = count_refused
        # Each connection counts by its host: the machine that opens one after another leaves some.
        self.places = Shares("connections", limits.connections, limits.connections, 1_000)

    def protocols(self) -> tuple[type[asyncio.Protocol], type[asyncio.Protocol]]:
        """Returns the classes of HTTP and WebSocket connections, for the server's settings."""
        connections = self

        class Http(_BoundedHttp):
            shared = connections

        return Http, _WebSocket


class _BoundedHttp(HttpToolsProtocol):
    shared: Connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Takes a place, or ends the connection."""
        self._peer = ""
        self._head_bytes = 0
        self._is_in_head = True
        self._is_draining = False
        self._timer: asyncio.TimerHandle | None = None
        self.app_state = {**self.app_state, TRANSPORT: transport}
        super().connection_made(transport)
        peer = peer_of(self.client)
        try:
            self.shared.places.take("", peer=peer)
        except ResourceExhausted:
            self.shared.count_refused("connections")
            transport.abort()
            return
        self._peer = peer
        self._await(self.shared.limits.headers_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Gives the place back."""
        self._release()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Counts what arrives of a head, and hands all on."""
        if self._is_in_head:
            if not self._head_bytes:
                # The first byte of the next request on an idle connection.
                self._await(self.shared.limits.headers_s)
            self._head_bytes += len(data)
            is_late = self.parser is None or self.transport.is_closing()
            if is_late:
                return
        super().data_received(data)
        if self._is_in_head and self._head_bytes > self.shared.limits.header_bytes:
            self._refuse("headers", _TOO_LARGE)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Refuses a head that is too large, also one that arrives with its body at once."""
        super().on_header(name, value)
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self.shared.limits.header_bytes:
            self._refuse("headers", _TOO_LARGE)
            raise ValueError("the head of the request is too large")

    def on_headers_complete(self) -> None:
        """Ends the time for a head."""
        self._is_in_head = False
        self._end_timer()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Waits for the next request of the connection, or for the rest of a refused body."""
        rest = self.cycle.more_body
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if rest:
            # Its client reads the answer once it has written enough; a close now would lose it.
            self._is_draining = True
            self._await(LINGER_S)
        else:
            self._await_next()

    def on_message_complete(self) -> None:
        """Ends the wait for the rest of a refused body."""
        super().on_message_complete()
        if self._is_draining:
            self._await_next()

    def _await_next(self) -> None:
        self._is_draining, self._is_in_head, self._head_bytes = False, True, 0
        self._await(self.shared.limits.idle_s)

    def handle_websocket_upgrade(self) -> None:
        """Leaves the connection to its stream, which has a place of its own."""
        self._end_timer()
        self._release()
        super().handle_websocket_upgrade()

    def _await(self, seconds: float) -> None:
        self._end_timer()
        self._timer = self.loop.call_later(seconds, self._late)

    def _late(self) -> None:
        if (self._is_in_head or self._is_draining) and not self.transport.is_closing():
            if self._head_bytes or self._is_draining:
                self.shared.count_refused("late")
            self.transport.abort()

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, reason: str, answer: bytes) -> None:
        if not self.transport.is_closing():
            self.shared.count_refused(reason)
            self.transport.write(answer)
            self.transport.close()

    def _release(self) -> None:
        self._end_timer()
        if self._peer:
            self.shared.places.give_back("", peer=self._peer)
            self._peer = ""


class _WebSocket(WebSocketsSansIOProtocol):
    def connection_made(self, transport: Any) -> None:
        """Lets requests find the transport."""
        self.app_state = {**self.app_state, TRANSPORT: transport}
        super().connection_made(transport)


def peer_of(client: tuple[str, int] | None) -> str:
    """Returns a connection's name in the form that `Shares` reads hosts from."""
    if client is None:
        return "unix"
    host, port = client
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"
