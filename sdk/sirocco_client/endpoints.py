"""Which of several equal servers to speak to."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from sirocco_client.errors import InvalidArgument, Unavailable


def parse_addresses(text: str, field: str) -> tuple[str, ...]:
    """Returns the `host:port` parts of a comma-separated list.

    Raises:
        InvalidArgument: There is none.
    """
    addresses = tuple(part.strip() for part in text.split(",") if part.strip())
    if not addresses:
        raise InvalidArgument("names no host:port", field=field)
    return addresses


def preferred_order(addresses: Iterable[str], key: str) -> tuple[str, ...]:
    """Orders servers for a key by rendezvous hashing.

    Every client prefers the same server for a key, keys spread evenly, and a server that comes or
    goes moves only the keys that prefer it.
    """

    def weight(address: str) -> bytes:
        return blake2b(f"{address}\0{key}".encode(), digest_size=8).digest()

    return tuple(sorted(set(addresses), key=weight))


class Endpoints:
    """The servers of one kind in order of preference, and which is used now."""

    def __init__(self, addresses: Iterable[str]) -> None:
        self._addresses = tuple(addresses)
        self._index = 0

    @property
    def current(self) -> str:
        """The server to speak to.

        Raises:
            Unavailable: None was listed, as while mergers start anew.
        """
        if not self._addresses:
            raise Unavailable("the cluster has no merger now")
        return self._addresses[self._index]

    def failed(self, address: str) -> bool:
        """Turns from a server that failed to the next; True when all have had their turn.

        Another thread may have turned from it already; then nothing changes.
        """
        if not self._addresses:
            return True
        if address != self.current:
            return False
        self._index = (self._index + 1) % len(self._addresses)
        return self._index == 0
