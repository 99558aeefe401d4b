"""The state of a sink in a file of its own."""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path

from sirocco.services.connector.sinks.errors import SinkStopped, TargetUnavailable
from sirocco.services.connector.sinks.state import Saved


class StateFile:
    """A file that is replaced as a whole, and a lock that keeps other processes away.

    Args:
        folder: where it is; made if it is missing.
        name: of the sink.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._path = folder / f"{name}.state"
        self._lock: int | None = None

    async def open(self) -> Saved | None:
        """See `Store`."""
        return await asyncio.to_thread(self.read)

    async def save(self, saved: Saved) -> None:
        """See `Store`."""
        await asyncio.to_thread(self.write, saved)

    async def is_free(self) -> bool:
        """See `Store`: the lock shows at the next opening."""
        return True

    async def close(self) -> None:
        """See `Store`."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def read(self) -> Saved | None:
        """Takes the lock and reads the file; None: there is none.

        Raises:
            SinkStopped: Another process has the lock, or the file is damaged.
            TargetUnavailable: The file system fails.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            return Saved.from_bytes(self._path.read_bytes(), str(self._path))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise TargetUnavailable("files", f"{self._path}: {error.strerror}") from error

    def _take_lock(self) -> None:
        if self._lock is not None:
            return
        lock = os.open(self._path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise SinkStopped("elsewhere", f"another process writes {self._path}") from None
        self._lock = lock

    def write(self, saved: Saved) -> None:
        """Replaces the file; durable when this returns.

        Raises:
            TargetUnavailable: The file system fails.
        """
        try:
            replace_file(self._path, saved.to_bytes())
        except OSError as error:
            raise TargetUnavailable("files", f"{self._path}: {error.strerror}") from error


def replace_file(path: Path, data: bytes) -> None:
    """Writes a whole file so that a crash leaves the old or the new one."""
    temporary = path.with_name(f"{path.name}.new")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable."""
    found = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(found)
    finally:
        os.close(found)
