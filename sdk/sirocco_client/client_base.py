"""What both clients are made of: their servers, and how these are called."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from sirocco_client.base.numbers import read_seconds
from sirocco_client.connection.channels import ChannelSettings, Tls
from sirocco_client.connection.contact import ConnectionChange, Contact
from sirocco_client.connection.endpoints import Endpoints, parse_addresses
from sirocco_client.connection.retry import Retry

# Matches that a subscription lets the server send ahead.
CREDIT = 10_000


class ClientBase(ABC):
    """The arguments of a client, checked, and what it knows of its servers. Calls nothing."""

    def __init__(
        self,
        router: str,
        *,
        mergers: Sequence[str] | None,
        tls: Tls | None,
        token: str | None,
        retry: Retry | None,
        timeout_s: float,
        message_bytes_max: int,
        window_bytes: int | None,
        on_connection: Callable[[ConnectionChange], None] | None,
    ) -> None:
        """Checks the arguments, which are those of `Client`."""
        routers = parse_addresses(router, "router")
        self._routers = Endpoints(routers)
        self._mergers = None if mergers is None else tuple(mergers)
        named = (*routers, *(self._mergers or ()))
        self._settings = ChannelSettings(tls, token, message_bytes_max, window_bytes, named)
        self._retry = retry or Retry()
        self._contact = Contact(on_connection)
        self._timeout_s = read_seconds(timeout_s, "timeout_s")
        # Each client has its own order of mergers, so that searches spread over them.
        self._key = secrets.token_hex(8)
        self._search_mergers: Endpoints | None = None

    def __repr__(self) -> str:
        """Shows the addresses, never the token."""
        state = ", closed" if self._has_ended() else ""
        routers = ", ".join(self._routers.all)
        return f"<{type(self).__name__} of {routers}, timeout {self._timeout_s:g} s{state}>"

    @abstractmethod
    def _has_ended(self) -> bool:
        """Whether the client is closed."""

    def _seconds(self, timeout_s: float | None) -> float:
        """Time limit of a call, seconds."""
        return self._timeout_s if timeout_s is None else read_seconds(timeout_s, "timeout_s")


def new_session() -> int:
    """Returns a random name for a session, never 0."""
    return secrets.randbits(64) or 1
