"""The bearer token of a client: fixed, from a function, or from a file that others renew."""

from __future__ import annotations

import os
import re
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from sirocco_client.errors import InvalidArgument

Token: TypeAlias = "str | Callable[[], str] | None"

# Servers refuse metadata above 16 KB.
TOKEN_LENGTH_MAX = 8_192
_TOKEN = re.compile(f"[!-~]{{1,{TOKEN_LENGTH_MAX}}}")
# A token with the ends of lines and marks that editors leave.
_FILE_BYTES_MAX = TOKEN_LENGTH_MAX + 256


def present_token(token: Token) -> str | None:
    """Returns the token to send now.

    Raises:
        InvalidArgument: It could not be sent; gRPC would report that no server can be reached.
    """
    found = token() if callable(token) else token
    if found is not None and not (isinstance(found, str) and _TOKEN.fullmatch(found)):
        raise InvalidArgument(
            f"must be one line of at most {TOKEN_LENGTH_MAX} ASCII characters", field="token"
        )
    return found


class TokenFile:
    """Reads a token from a file, and again whenever that has changed. Safe to share.

    For tokens that end and that something else renews, such as a projected volume of Kubernetes.
    While the file cannot be read, the last token stays. A pipe is read once.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Reads the file.

        Raises:
            InvalidArgument: It cannot be read, or holds no token; `field` is `token`.
        """
        self._path = Path(path)
        self._lock = threading.Lock()
        try:
            self._seen = self._mark()
            self._token = self._read()
        except OSError as error:
            raise InvalidArgument(f"{path}: {error.strerror}", field="token") from None

    def __call__(self) -> str:
        """Returns the present token."""
        with self._lock:
            try:
                seen = self._mark()
                if seen is not None and seen != self._seen:
                    self._token, self._seen = self._read(), seen
            except (OSError, InvalidArgument):
                # It is being replaced.
                pass
            return self._token

    def _mark(self) -> tuple[int, ...] | None:
        """Returns what changes with the file; None: it can be read only once."""
        found = self._path.stat()
        if not stat.S_ISREG(found.st_mode):
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

    def _read(self) -> str:
        with self._path.open("rb") as file:
            data = file.read(_FILE_BYTES_MAX)
        try:
            token = data.decode("utf-8-sig").strip()
        except UnicodeDecodeError:
            token = ""
        if not _TOKEN.fullmatch(token):
            raise InvalidArgument(f"{self._path}: holds no token", field="token")
        return token
