"""Notifications that a receiver refuses for good, with the reason, in a file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import orjson

from sirocco.services.connector.sinks.errors import TargetUnavailable
from sirocco.services.connector.sinks.rows import Row


class DeadLetters(Protocol):
    """Where refused notifications are kept."""

    async def put(self, rows: Sequence[Row], reason: str, batch: str, now_ms: int) -> None:
        """Keeps them; durable when this returns.

        Raises:
            TargetUnavailable: There is no room, or it fails: nothing may be dropped for that.
        """

    async def close(self) -> None:
        """Ends its connections."""


class DeadLetterFile:
    """Lines of JSON in a file of limited length.

    Args:
        path: of the file.
        bytes_max: length at which it is full; the last letters in it may exceed that.
    """

    def __init__(self, path: Path, bytes_max: int) -> None:
        self._path = path
        self._bytes_max = bytes_max

    async def put(self, rows: Sequence[Row], reason: str, batch: str, now_ms: int) -> None:
        """See `DeadLetters`."""
        data = b"".join(letter_of(row, reason, batch, now_ms) + b"\n" for row in rows)
        await asyncio.to_thread(self._append, data)

    def _append(self, data: bytes) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                if file.tell() >= self._bytes_max:
                    raise TargetUnavailable(
                        "dead_letters", f"{self._path} has {file.tell()} bytes: move it away"
                    )
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise TargetUnavailable("files", f"{self._path}: {error.strerror}") from error

    async def close(self) -> None:
        """See `DeadLetters`."""


def letter_of(row: Row, reason: str, batch: str, now_ms: int) -> bytes:
    """Returns a dead letter as JSON: why, when, and the notification."""
    head = {"reason": reason, "at": now_ms, "batch": batch, "id": row.id}
    return b'%s,"notification":%s}' % (orjson.dumps(head)[:-1], row.value)
