"""Writes large answers as their client reads them, and counts their memory until then."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from fastapi import Response
from starlette.types import Receive, Scope, Send

from sirocco.services.gateway.bodies import Room
from sirocco.services.gateway.connections import TRANSPORT
from sirocco.services.gateway.front import Front

# How much is written at once: what waits in the connection's buffer is beyond this one piece.
_PIECE_BYTES = 1 << 16


class LargeAnswer(Response):
    """An answer in JSON.

    Args:
        front: of the gateway.
        room: what was held for the answer while it was made; of its content it holds what it takes.
        members: the content.
        media_type: of the answer.
    """

    def __init__(
        self, front: Front, room: Room, members: Any, media_type: str = "application/json"
    ) -> None:
        super().__init__(
            members if isinstance(members, bytes) else orjson.dumps(members), media_type=media_type
        )
        self._front = front
        self._room = room
        room.give_back(len(self.body))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI. A client that does not read is cut off."""
        try:
            await self._in_time(
                send,
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                },
            )
            size = len(self.body)
            for begin in range(0, size, _PIECE_BYTES):
                end = begin + _PIECE_BYTES
                piece = bytes(self.body[begin:end])
                await self._in_time(
                    send, {"type": "http.response.body", "body": piece, "more_body": end < size}
                )
        except TimeoutError:
            self._front.count_refused("unread")
            transport = scope.get("state", {}).get(TRANSPORT)
            if transport is not None:
                transport.abort()
                # The server learns of it in the next turn, and would report an unfinished answer.
                await asyncio.sleep(0)
        finally:
            self._room.give_back()

    async def _in_time(self, send: Send, message: dict[str, Any]) -> None:
        async with asyncio.timeout(self._front.limits.unread_s):
            await send(message)
