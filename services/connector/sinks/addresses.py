"""Connections to public addresses alone, so that a webhook cannot reach what only this host can.

The address that is checked is the one that is connected to: a name that resolves to another address
at the second look gains nothing.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any

import httpcore

# NAT64 (RFC 6052) and 6to4 hold IPv4 addresses, which count.
_NAT64 = 0x0064_FF9B << 96
_LOW_32 = (1 << 32) - 1

# For sites (RFC 3879, deprecated), and for NAT64 within a network (RFC 8215).
_LOCAL = (IPv6Network("fec0::/10"), IPv6Network("64:ff9b:1::/48"))


class PrivateAddressError(httpcore.ConnectError):
    """The receiver's name leads to an address that is not public."""


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address is one of the public Internet."""
    if isinstance(address, IPv6Address):
        inner = _ipv4_in(address)
        if inner is not None:
            return is_public(inner)
        if any(address in network for network in _LOCAL):
            return False
    return address.is_global and not address.is_multicast and not address.is_unspecified


def _ipv4_in(address: IPv6Address) -> IPv4Address | None:
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if int(address) & ~_LOW_32 == _NAT64:
        return IPv4Address(int(address) & _LOW_32)
    return None


class CheckedNetwork(httpcore.AsyncNetworkBackend):
    """Connects to the addresses of a name, if they may be connected to.

    Args:
        allow_private: whether any address may be.
        inner: makes the connections.
    """

    def __init__(
        self, allow_private: bool, inner: httpcore.AsyncNetworkBackend | None = None
    ) -> None:
        self._allow_private = allow_private
        self._inner = inner or httpcore.AnyIOBackend()
        # Of its own: names that do not resolve take threads for long, which others would miss.
        self._resolver = ThreadPoolExecutor(1, "resolver")

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connects to the first address that answers.

        Raises:
            PrivateAddressError: One of the addresses is not public.
            httpcore.ConnectError: None answers.
        """
        async with asyncio.timeout(timeout):
            addresses = await self._addresses(host, port)
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in addresses:
            try:
                return await self._inner.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    async def _addresses(self, host: str, port: int) -> list[str]:
        resolve = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._resolver, resolve)
        except OSError as error:
            raise httpcore.ConnectError(f"{host}: {error}") from error
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        if self._allow_private:
            return addresses
        for address in addresses:
            # With a zone, an address is of this link.
            if "%" in address or not is_public(ip_address(address)):
                raise PrivateAddressError(f"{host} is at {address}, which is not public")
        return addresses

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Refuses: a receiver has an address."""
        raise PrivateAddressError("a receiver is no socket of this host")

    async def sleep(self, seconds: float) -> None:
        """See `AsyncNetworkBackend`."""
        await asyncio.sleep(seconds)
