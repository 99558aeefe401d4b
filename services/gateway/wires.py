"""How the events of a stream reach a client: as server-sent events, or over a WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson
from fastapi import WebSocket
from starlette.types import Message, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from sirocco.services.gateway.connections import TRANSPORT
from sirocco.services.gateway.front import Front

# How much is written at once: what waits in the connection's buffer is beyond this one piece.
_PIECE_BYTES = 1 << 16

# A browser tries again after this time, milliseconds.
_RETRY_MS = 1_000


@dataclass(frozen=True, slots=True)
class Event:
    """One notification, or only a place without one.

    Attributes:
        id: Where to resume after it.
        data: JSON; empty for a place alone.
    """

    id: str
    data: bytes


class GoneError(Exception):
    """The client has gone, or did not read."""


class Wire:
    """How the events of a stream are written.

    Args:
        front: of the gateway.
        transport: of the connection, which is cut where its client does not read.
    """

    def __init__(self, front: Front, transport: Any) -> None:
        self._front = front
        self._transport = transport
        self._is_cut = False

    async def place(self, cursor: str) -> None:
        """Writes where the stream begins."""

    async def event(self, event: Event) -> None:
        """Writes one notification, or keeps it until `flush`."""

    async def flush(self) -> None:
        """Writes what was kept."""

    async def keep_alive(self, cursor: str) -> None:
        """Shows that the stream is alive; with a cursor also its place."""

    async def problem(self, members: dict[str, Any]) -> None:
        """Writes why the stream ends."""

    async def end(self) -> None:
        """Ends the stream."""

    async def gone(self) -> None:
        """Returns when the client has gone."""

    async def _in_time(self, sending: Awaitable[object]) -> None:
        """Waits for the client to read; cuts the connection if it does not.

        Raises:
            GoneError: It did not.
        """
        if self._transport is not None and not self._transport.get_write_buffer_size():
            # Nothing waits, so this does not either; a timer for each event would cost more.
            await sending
            return
        try:
            async with asyncio.timeout(self._front.limits.unread_s):
                await sending
        except TimeoutError:
            # A sign of life may wait beside an event, and both be late: that is one stream.
            if not self._is_cut:
                self._front.count_refused("unread")
            self.cut()
            raise GoneError from None

    def cut(self) -> None:
        """Cuts the connection."""
        self._is_cut = True
        if self._transport is not None:
            self._transport.abort()


class EventWire(Wire):
    """Server-sent events."""

    def __init__(self, front: Front, scope: Scope, receive: Receive, send: Send) -> None:
        super().__init__(front, scope.get("state", {}).get(TRANSPORT))
        self._receive = receive
        self._send = send
        self._kept: list[bytes] = []
        self._kept_bytes = 0
        self._has_ended = False

    async def start(self) -> None:
        """Begins the answer."""
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            # Proxies shall pass events on at once, and keep none.
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._write(b"retry: %d\n\n" % _RETRY_MS)

    async def place(self, cursor: str) -> None:
        """Writes where the stream begins: an id without data, which browsers keep."""
        await self._write(b"id: %s\n\n" % cursor.encode())

    async def event(self, event: Event) -> None:
        """Keeps an event; writes when enough are kept."""
        self._kept.append(b"id: %s\ndata: %s\n\n" % (event.id.encode(), event.data))
        self._kept_bytes += len(event.data)
        if self._kept_bytes >= _PIECE_BYTES:
            await self.flush()

    async def flush(self) -> None:
        """Writes the kept events."""
        kept, self._kept, self._kept_bytes = self._kept, [], 0
        if kept:
            await self._write(b"".join(kept))

    async def named(self, name: str, data: bytes) -> None:
        """Writes an event of a type, without a place."""
        await self._write(b"event: %s\ndata: %s\n\n" % (name.encode(), data))

    async def keep_alive(self, cursor: str) -> None:
        """Writes a comment."""
        place = b"id: %s\n" % cursor.encode() if cursor else b""
        await self._write(b": keep-alive\n%s\n" % place)

    async def problem(self, members: dict[str, Any]) -> None:
        """Writes an event of the type `problem`."""
        await self._write(b"event: problem\ndata: %s\n\n" % orjson.dumps(members))

    async def end(self) -> None:
        """Ends the answer."""
        self._has_ended = True
        await self._in_time(self._send({"type": "http.response.body", "body": b""}))

    async def gone(self) -> None:
        """Returns when the client has gone."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _write(self, data: bytes) -> None:
        if self._has_ended:
            raise GoneError
        message: Message = {"type": "http.response.body", "body": data, "more_body": True}
        await self._in_time(self._send(message))


class SocketWire(Wire):
    """Messages of a WebSocket; pings of the server show that it is alive."""

    def __init__(self, front: Front, websocket: WebSocket) -> None:
        super().__init__(front, websocket.scope.get("state", {}).get(TRANSPORT))
        self._websocket = websocket

    async def place(self, cursor: str) -> None:
        """Writes where the stream begins."""
        await self._write(b'{"id":%s}' % orjson.dumps(cursor))

    async def event(self, event: Event) -> None:
        """Writes one notification."""
        await self._write(b'{"id":%s,"data":%s}' % (orjson.dumps(event.id), event.data))

    async def keep_alive(self, cursor: str) -> None:
        """Writes the place of a silent stream."""
        if cursor:
            await self.place(cursor)

    async def problem(self, members: dict[str, Any]) -> None:
        """Writes why the stream ends."""
        await self._write(b'{"problem":%s}' % orjson.dumps(members))

    async def end(self) -> None:
        """Closes the socket: 1012, the client shall come back."""
        with suppress(RuntimeError, WebSocketDisconnect):
            await self._in_time(self._websocket.close(1012))

    async def gone(self) -> None:
        """Returns when the client has gone; what it says meanwhile is dropped."""
        while (await self._websocket.receive())["type"] != "websocket.disconnect":
            pass

    async def _write(self, data: bytes) -> None:
        try:
            await self._in_time(self._websocket.send_text(data.decode()))
        except (WebSocketDisconnect, RuntimeError):
            raise GoneError from None
