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
from sirocco.runtime.process.process_tuning import files_max
from sirocco.services.gateway.settings import GatewayLimits

# Where a request finds its connection's transport: to end it without waiting for the client.
TRANSPORT = "transport"

# Of one message of a WebSocket; empty ones would cost nothing of its bytes.
_FRAMES_MAX = 64

# Requests of a connection that wait behind the one that is answered. Each takes 2 kB, of 18 bytes:
# what is read at once held 14,000 of them, for as long as a stream before them lasted.
_WAITING_MAX = 16

# Connections take one part in so many of the files that the process may open.
_FILES_PART = 2

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)

_NO_HANDSHAKE = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


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
        count = min(limits.connections, max(1, files_max() // _FILES_PART))
        self.places = Shares("connections", count, count, 1_000)

    def protocols(self) -> tuple[type[asyncio.Protocol], type[asyncio.Protocol]]:
        """Returns the classes of HTTP and WebSocket connections, for the server's settings."""
        connections = self

        class Http(_BoundedHttp):
            shared = connections

        class WebSocket(_BoundedWebSocket):
            shared = connections

        return Http, WebSocket

    def take(self, transport: asyncio.Transport, client: tuple[str, int] | None) -> str:
        """Takes a place for a connection, or ends it; returns whose place it is."""
        peer = peer_of(client)
        try:
            self.places.take("", peer=peer)
        except ResourceExhausted:
            self.count_refused("connections")
            transport.abort()
            return ""
        return peer


class _BoundedHttp(HttpToolsProtocol):
    shared: Connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Takes a place, or ends the connection."""
        self._peer = ""
        self._head_bytes = 0
        self._headers_bytes = 0
        self._unused_bytes = 0
        self._is_used = False
        self._is_in_head = True
        self._is_draining = False
        self._timer: asyncio.TimerHandle | None = None
        self._end: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        # The request that is answered; the server itself knows only the last one that has come.
        self._answered: Any = None
        self.app_state = {**self.app_state, TRANSPORT: transport}
        super().connection_made(transport)
        self._peer = self.shared.take(transport, self.client)
        if self._peer:
            self._await(self.shared.limits.headers_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Gives the place back, and notifies the request that is answered.

        The server notifies the last one alone: a stream with a request behind it would never end.
        """
        self._release()
        if self._end is not None:
            self._end.cancel()
        if self._answered is not None and not self._answered.response_complete:
            self._answered.disconnected = True
            self._answered.message_event.set()
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def pause_writing(self) -> None:
        """Begins the time for a client to read, whichever answer it leaves unread."""
        super().pause_writing()
        # Later than the answers that end themselves, and count it.
        limits = self.shared.limits
        self._unread = self.loop.call_later(limits.unread_s + limits.linger_s, self._end_unread)

    def resume_writing(self) -> None:
        """Ends the time for a client to read."""
        super().resume_writing()
        self._end_unread_timer()

    def _end_unread(self) -> None:
        if not self.transport.is_closing():
            self.shared.count_refused("unread")
        self.transport.abort()

    def _end_unread_timer(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

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
        self._is_used = False
        super().data_received(data)
        # What follows the last chunk of a body, or the head of a request that comes too soon: the
        # parser keeps it until it ends.
        self._unused_bytes = 0 if self._is_used else self._unused_bytes + len(data)
        if max(self._head_bytes, self._unused_bytes) > self.shared.limits.header_bytes:
            if self._is_in_head:
                self._refuse("headers", _TOO_LARGE)
            elif not self.transport.is_closing():
                self.shared.count_refused("headers")
                self.transport.abort()

    def on_message_begin(self) -> None:
        """Begins to count a head."""
        self._headers_bytes = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Refuses a head that is too large, also one that arrives with its body at once."""
        super().on_header(name, value)
        self._headers_bytes += len(name) + len(value) + 4
        if len(self.url) + self._headers_bytes > self.shared.limits.header_bytes:
            self._refuse("headers", _TOO_LARGE)
            raise ValueError("the head of the request is too large")

    def on_body(self, body: bytes) -> None:
        """Notes that what arrives is used."""
        self._is_used = True
        super().on_body(body)

    def on_headers_complete(self) -> None:
        """Ends the time for a head, or the connection of a client that asks too far ahead."""
        if len(self.pipeline) >= _WAITING_MAX:
            self.shared.count_refused("calls")
            self.transport.abort()
            raise ValueError("too many requests wait behind one that is answered")
        self._is_in_head = False
        self._is_used = True
        self._head_bytes = 0
        self._end_timer()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Waits for the next request of the connection, or for the rest of a refused body."""
        rest = self.cycle.more_body
        follows = bool(self.pipeline)
        super().on_response_complete()
        if self.transport.is_closing():
            # Its client may not read the answer.
            self._end_in(self.shared.limits.idle_s)
            return
        if follows:
            # The next request has arrived already.
            return
        if rest:
            # Its client reads the answer once it has written enough; a close now would lose it.
            self._is_draining = True
            self._await(self.shared.limits.linger_s)
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
        """Leaves the connection to its stream, which has a place of its own.

        What is still answered would not learn of the end of the connection, and a socket not that
        its client leaves answers before it unread.
        """
        is_answered = self._answered is not None and not self._answered.response_complete
        if is_answered or self.pipeline or self.flow.write_paused:
            self.shared.count_refused("calls")
            self.transport.abort()
            return
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
            self._end_in(self.shared.limits.linger_s)

    def send_400_response(self, msg: str) -> None:
        """Also ends the connection of a client that does not read it."""
        if self.transport.is_closing():
            # It was refused for another reason.
            return
        super().send_400_response(msg)
        self._end_in(self.shared.limits.linger_s)

    def timeout_keep_alive_handler(self) -> None:
        """Leaves it to the timer here, which also ends a connection that is not read."""

    def _end_in(self, seconds: float) -> None:
        """Ends a closing connection: one whose client does not read would stay for ever."""
        if self._end is None:
            self._end = self.loop.call_later(seconds, self.transport.abort)

    def _release(self) -> None:
        self._end_timer()
        self._end_unread_timer()
        if self._peer:
            self.shared.places.give_back("", peer=self._peer)
            self._peer = ""


class _BoundedWebSocket(WebSocketsSansIOProtocol):
    shared: Connections

    def connection_made(self, transport: Any) -> None:
        """Lets requests find the transport, and takes the place of the HTTP connection."""
        self.app_state = {**self.app_state, TRANSPORT: transport}
        super().connection_made(transport)
        self._peer = self.shared.take(transport, self.client)
        self._end: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Gives the place back."""
        if self._peer:
            self.shared.places.give_back("", peer=self._peer)
            self._peer = ""
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Ends the connection of a client that does not wait for the answer to its handshake.

        What it sends would be kept until the cluster has answered whose token it is. The first that
        arrives is the whole head: if that is no handshake, the server would neither answer nor end.
        """
        if self.handshake_initiated and not self.handshake_complete:
            self.shared.count_refused("frames")
            self.transport.abort()
            return
        super().data_received(data)
        if not self.handshake_initiated:
            self.shared.count_refused("headers")
            self.transport.write(b"".join(self.conn.data_to_send()) or _NO_HANDSHAKE)
            self.transport.close()

    def handle_ping(self) -> None:
        """Answers, unless the client leaves former answers unread: they would pile up."""
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()

    def handle_cont(self, event: Any) -> None:
        """Ends the connection of a client that sends one message in very many pieces."""
        if len(self.frames) >= _FRAMES_MAX:
            self.shared.count_refused("frames")
            self.transport.abort()
            return
        super().handle_cont(event)

    async def send(self, message: Any) -> None:
        """Also notes that a refusal ends the handshake: the server would report a defect."""
        await super().send(message)
        if self.close_sent:
            self.handshake_complete = True

    async def run_asgi(self) -> None:
        """Also ends the connection of a client that does not read the last message."""
        await super().run_asgi()
        self._end = self.loop.call_later(
            self.close_timeout + self.shared.limits.linger_s, self.transport.abort
        )


def peer_of(client: tuple[str, int] | None) -> str:
    """Returns a connection's name in the form that `Shares` reads hosts from."""
    if client is None:
        return "unix"
    host, port = client
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"
