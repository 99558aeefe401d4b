"""Channels to other services, kept by address and renewed with the certificate."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import grpc

from sirocco.runtime.grpc.server import OPTIONS
from sirocco.runtime.grpc.tls import Options, Tls

# Calls under way when a certificate is renewed may end over the channel of the old one: longer than
# any of the calls between services.
OLD_CHANNEL_S = 60.0


class Dialer:
    """Opens channels to other services: with certificates on both sides, or in plain text.

    Args:
        tls: None for plain text.
    """

    def __init__(self, tls: Tls | None = None) -> None:
        self._tls = tls

    @property
    def generation(self) -> int:
        """Number of the present certificate; channels of an older one should be replaced."""
        return 0 if self._tls is None else self._tls.generation

    def open(self, address: str, options: Options = OPTIONS) -> grpc.Channel:
        """Returns a channel for threads."""
        if self._tls is None:
            return grpc.insecure_channel(address, options=options)
        return self._tls.channel(address, options)

    def open_aio(self, address: str, options: Options = OPTIONS) -> grpc.aio.Channel:
        """Returns a channel for a loop."""
        if self._tls is None:
            return grpc.aio.insecure_channel(address, options=options)
        return self._tls.aio_channel(address, options)


# For a cluster in plain text.
PLAIN = Dialer()


class AioChannels:
    """The channels of one loop, one an address."""

    def __init__(self, dialer: Dialer) -> None:
        self._dialer = dialer
        self._generation = dialer.generation
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def keep(self, addresses: Iterable[str]) -> None:
        """Closes those to other addresses, and all of an old certificate, once calls have ended."""
        kept = set(addresses) if self._generation == self._dialer.generation else set()
        self._generation = self._dialer.generation
        for address in set(self._channels) - kept:
            channel = self._channels.pop(address)
            task = asyncio.get_running_loop().create_task(channel.close(OLD_CHANNEL_S))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def to(self, address: str) -> grpc.aio.Channel:
        """Returns the channel to an address."""
        if self._generation != self._dialer.generation:
            self.keep(())
        if address not in self._channels:
            self._channels[address] = self._dialer.open_aio(address)
        return self._channels[address]

    async def close(self) -> None:
        """Closes all."""
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()


class Channels:
    """The channels of one thread, one an address."""

    def __init__(self, dialer: Dialer) -> None:
        self._dialer = dialer
        self._generation = dialer.generation
        self._channels: dict[str, grpc.Channel] = {}

    def keep(self, addresses: Iterable[str]) -> None:
        """Closes those to other addresses, and all of an old certificate; no call is under way."""
        kept = set(addresses) if self._generation == self._dialer.generation else set()
        self._generation = self._dialer.generation
        for address in set(self._channels) - kept:
            self._channels.pop(address).close()

    def to(self, address: str) -> grpc.Channel:
        """Returns the channel to an address."""
        if address not in self._channels:
            self._channels[address] = self._dialer.open(address)
        return self._channels[address]

    def close(self) -> None:
        """Closes all."""
        self.keep(())
