"""A file of the operator that is read again when it changes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from sirocco.model.errors import InvalidArgument
from sirocco.telemetry.logging import event

T = TypeVar("T")

logger = logging.getLogger(__name__)

# Interval between looks at a file. Kubernetes updates a changed secret within about a minute; a
# revoked token should not be valid much longer than that.
LOOK_S = 1.0

# Files of operators are small: a wrong path must not fill the memory.
BYTES_MAX = 64 << 20


class WatchedFile(Generic[T]):
    """What a file says, looked at when it is asked for.

    Args:
        path: of the file.
        read: returns what its bytes say; raises InvalidArgument.
        name: of what it holds, in names of log events, such as `tokens`.
        setting: the variable that names it.
        look_s: between two looks.
        bytes_max: that it may have.

    Raises:
        InvalidArgument: At the start it is unreadable or invalid. Later what was read last stays
            in force until the file is valid again.
    """

    def __init__(
        self,
        path: str | Path,
        read: Callable[[bytes], T],
        name: str,
        setting: str,
        look_s: float = LOOK_S,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self._look_s = look_s
        self._bytes_max = bytes_max
        self._path = Path(path)
        self._read = read
        self._name = name
        self._looked_s = time.monotonic()
        self._seen = self._look()
        try:
            self._contents = self._load()
        except OSError as error:
            raise InvalidArgument(f"{path}: cannot be read", field=setting) from error
        except InvalidArgument as error:
            raise error.within(setting) from None

    @property
    def contents(self) -> T:
        """What the file says; the same object until it changes."""
        now_s = time.monotonic()
        if now_s - self._looked_s >= self._look_s:
            self._looked_s = now_s
            self._refresh()
        return self._contents

    def _refresh(self) -> None:
        seen = self._look()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._contents = self._load()
        except (OSError, InvalidArgument) as error:
            reason = str(error) if isinstance(error, InvalidArgument) else type(error).__name__
            logger.error(
                "the file cannot be read; its contents of before stay in force",
                extra=event(f"{self._name}_unreadable", reason=reason),
            )
            return
        logger.info("the file was read", extra=event(f"{self._name}_read"))

    def _load(self) -> T:
        with self._path.open("rb") as file:
            data = file.read(self._bytes_max + 1)
        if len(data) > self._bytes_max:
            raise InvalidArgument(f"holds more than {self._bytes_max} bytes")
        return self._read(data)

    def _look(self) -> tuple[int, int, int]:
        try:
            stat = self._path.stat()
        except OSError:
            return (0, 0, 0)
        return stat.st_mtime_ns, stat.st_ino, stat.st_size
