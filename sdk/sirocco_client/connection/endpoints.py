"""Selects one of several equal servers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b

from sirocco_client.base.members import read_text
from sirocco_client.errors import InvalidArgument, Unavailable

_PORT = re.compile("[0-9]{1,5}", re.ASCII)
_SCHEMES = ("dns:", "ipv4:", "ipv6:", "passthrough:")


def parse_addresses(text: str, field: str) -> tuple[str, ...]:
    """Returns the `host:port` parts of a comma-separated list.

    Raises:
        InvalidArgument: The list is empty, or an entry has no port.
    """
    text = read_text(text, field)
    addresses = tuple(part.strip() for part in text.split(",") if part.strip())
    if not addresses:
        raise InvalidArgument("names no host:port", field=field)
    for address in addresses:
        _check_address(address, field)
    return addresses


def _check_address(address: str, field: str) -> None:
    if address.startswith(("unix:", "unix-abstract:")):
        return
    # gRPC's own forms: `dns:host:port`, `dns://server/host:port`, `ipv4:host:port`.
    host, colon, port = address.rpartition("/")[2].rpartition(":")
    # Brackets enclose an IPv6 address; without them, its last number is not a port.
    is_named = bool(host) and (":" not in host or "]" in host or host.startswith(_SCHEMES))
    if not (colon and is_named and _PORT.fullmatch(port) and 1 <= int(port) <= 65_535):
        raise InvalidArgument(f"{address!r:.80} is not host:port: a port is needed", field=field)


def preferred_order(addresses: Iterable[str], key: str) -> tuple[str, ...]:
    """Orders servers for a key by rendezvous hashing.

    All clients prefer the same server for a key. Keys spread evenly, and adding or removing a
    server moves only the keys that prefer it.
    """

    def weight(address: str) -> bytes:
        return blake2b(f"{address}\0{key}".encode(), digest_size=8).digest()

    return tuple(sorted(set(addresses), key=weight))


class Endpoints:
    """The servers of one kind in order of preference, and the one in use."""

    def __init__(self, addresses: Iterable[str]) -> None:
        self._addresses = tuple(addresses)
        self._index = 0

    @property
    def all(self) -> tuple[str, ...]:
        """All servers."""
        return self._addresses

    @property
    def current(self) -> str:
        """The server to speak to.

        Raises:
            Unavailable: No server is listed, as while mergers restart.
        """
        if not self._addresses:
            raise Unavailable("the cluster has no merger now")
        return self._addresses[self._index]

    def failed(self, address: str) -> bool:
        """Moves from a failed server to the next; True when all were tried.

        If another thread has already moved on, nothing changes.
        """
        if not self._addresses:
            return True
        if address != self.current:
            return False
        self._index = (self._index + 1) % len(self._addresses)
        return self._index == 0
