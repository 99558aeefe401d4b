"""What a client knows of its cluster, and the channels to its servers."""

from __future__ import annotations

import asyncio
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypedDict, TypeVar, Unpack

import grpc
import grpc.aio

from sirocco_client.base.numbers import read_seconds
from sirocco_client.connection.channels import ChannelSettings, Metadata, Tls
from sirocco_client.connection.contact import ConnectionChange, Contact
from sirocco_client.connection.endpoints import Endpoints, parse_addresses
from sirocco_client.connection.kept_calls import KEPT_CALLS
from sirocco_client.connection.retry import Retry
from sirocco_client.connection.tokens import Token
from sirocco_client.errors import FailedPrecondition

# Channels that a client keeps open. The addresses of servers change with each of their restarts.
CHANNELS_MAX = 64

_Channel = TypeVar("_Channel")


class ConnectionArguments(TypedDict):
    """The arguments of `Client`, where they are described."""

    router: str
    mergers: Sequence[str] | None
    tls: Tls | None
    token: Token
    retry: Retry | None
    timeout_s: float
    message_bytes_max: int
    window_bytes: int | None
    on_connection: Callable[[ConnectionChange], None] | None


class ConnectionBase(ABC):
    """The arguments of a client, checked, and what it knows of its servers.

    Attributes:
        routers: The routers, and which of them is called.
        mergers: host:port of mergers; None: the cluster is asked.
        settings: Of all channels.
        retry: How failed calls and broken streams are retried.
        contact: Which servers are reached.
        timeout_s: Time limit of a call with all its retries, seconds.
        kept: Counts the calls that stay open.
    """

    def __init__(self, **arguments: Unpack[ConnectionArguments]) -> None:
        """Checks the arguments; connects to nothing."""
        routers = parse_addresses(arguments["router"], "router")
        self.routers = Endpoints(routers)
        mergers = arguments["mergers"]
        self.mergers = None if mergers is None else tuple(mergers)
        self.settings = ChannelSettings(
            arguments["tls"],
            arguments["token"],
            arguments["message_bytes_max"],
            arguments["window_bytes"],
            named=(*routers, *(self.mergers or ())),
        )
        self.retry = arguments["retry"] or Retry()
        self.contact = Contact(
            arguments["on_connection"], renews_token=callable(arguments["token"])
        )
        self.timeout_s = read_seconds(arguments["timeout_s"], "timeout_s")
        self.kept = KEPT_CALLS
        # Of one thread twice: a call may be collected while its thread counts another one.
        self._lock = threading.RLock()
        # Address → its calls that end by themselves, on the first connection.
        self._users: dict[str, int] = {}

    @property
    def metadata(self) -> Metadata:
        """Sent with every call."""
        return self.settings.metadata

    @property
    @abstractmethod
    def is_closed(self) -> bool:
        """Whether the client is closed."""

    @abstractmethod
    def channel(self, address: str, number: int = 0) -> Any:
        """Returns the channel to a server; it connects at its first call.

        It may be closed while others are used, unless a call on it is counted.

        Args:
            address: of the server.
            number: of the connection.
        """

    @contextmanager
    def using(self, address: str) -> Iterator[Any]:
        """The channel to a server, for a call that ends within."""
        self._enter(address)
        try:
            yield self.channel(address)
        finally:
            self._leave(address)

    def stream(self, address: str, begin: Callable[[Any], Any]) -> Any:
        """Begins a stream that ends by itself.

        Args:
            address: of the server.
            begin: begins the stream on a channel.
        """
        self._enter(address)
        return _watched(lambda: begin(self.channel(address)), self._leave, address)

    def _enter(self, address: str) -> None:
        with self._lock:
            self._users[address] = self._users.get(address, 0) + 1

    def _leave(self, address: str) -> None:
        with self._lock:
            left = self._users[address] - 1
            if left:
                self._users[address] = left
            else:
                del self._users[address]

    def kept_call(self, address: str, begin: Callable[[Any], Any]) -> Any:
        """Begins a call that stays open, on a connection that has room for it.

        Args:
            address: of the server.
            begin: begins the call on a channel.
        """
        number = self.kept.take(address)
        return _watched(
            lambda: begin(self.channel(address, number)), self.kept.give_back, address, number
        )

    def unused(self, channels: dict[tuple[str, int], _Channel]) -> list[_Channel]:
        """Takes out channels beyond `CHANNELS_MAX` that no call keeps.

        Args:
            channels: By address and number, the one used last at the end.
        """
        excess = len(channels) - CHANNELS_MAX
        if excess <= 0:
            return []
        last = next(reversed(channels))
        idle = [key for key in channels if key != last and not self._is_open(*key)]
        return [channels.pop(key) for key in idle[:excess]]

    def _is_open(self, address: str, number: int) -> bool:
        is_used = not number and address in self._users
        return is_used or self.kept.has_open(address, number)

    def seconds(self, timeout_s: float | None) -> float:
        """Returns the time limit of a call, seconds; None: the client's."""
        return self.timeout_s if timeout_s is None else read_seconds(timeout_s, "timeout_s")

    def check_open(self) -> None:
        """Raises `FailedPrecondition` if the client is closed."""
        if self.is_closed:
            raise FailedPrecondition("the client is closed")

    def __str__(self) -> str:
        """Names the routers, never the token."""
        state = ", closed" if self.is_closed else ""
        return f"{', '.join(self.routers.all)}, timeout {self.timeout_s:g} s{state}"


def _watched(begin: Callable[[], Any], ended: Callable[..., None], *place: Any) -> Any:
    """Begins a call; `ended` is called with its place once, when it is over or does not begin."""
    try:
        call = begin()
    except BaseException:
        ended(*place)
        raise
    # When it ends, or when its loop has ended before it.
    over = weakref.finalize(call, ended, *place)
    call.add_done_callback(lambda _: over())
    return call


class Connection(ConnectionBase):
    """The channels of a client for threads. Safe to share between threads."""

    def __init__(self, **arguments: Unpack[ConnectionArguments]) -> None:
        """As `ConnectionBase`."""
        super().__init__(**arguments)
        self._channels: dict[tuple[str, int], grpc.Channel] = {}
        self._closed = threading.Event()

    @property
    def is_closed(self) -> bool:
        """Whether the client is closed."""
        return self._closed.is_set()

    def channel(self, address: str, number: int = 0) -> grpc.Channel:
        """As `ConnectionBase.channel`."""
        with self._lock:
            self.check_open()
            channel = self._channels.pop((address, number), None)
            if channel is None:
                channel = self.settings.open(address, number)
            self._channels[address, number] = channel
            unused = self.unused(self._channels)
        for each in unused:
            each.close()
        return channel

    def pause(self, seconds: float) -> None:
        """Waits, or raises `FailedPrecondition` as soon as the client is closed."""
        self._closed.wait(seconds)
        self.check_open()

    def end(self) -> None:
        """Refuses new calls, and wakes those that pause."""
        self._closed.set()

    def close(self) -> None:
        """Closes all channels."""
        self.end()
        with self._lock:
            channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.close()


class AsyncConnection(ConnectionBase):
    """The channels of a client for asyncio; belongs to its event loop."""

    def __init__(self, **arguments: Unpack[ConnectionArguments]) -> None:
        """As `ConnectionBase`."""
        super().__init__(**arguments)
        self._channels: dict[tuple[str, int], grpc.aio.Channel] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether the client is closed."""
        return self._is_closed

    def channel(self, address: str, number: int = 0) -> grpc.aio.Channel:
        """As `ConnectionBase.channel`."""
        self.check_open()
        channel = self._channels.pop((address, number), None)
        if channel is None:
            channel = self.settings.open_async(address, number)
        self._channels[address, number] = channel
        for each in self.unused(self._channels):
            closing = asyncio.get_running_loop().create_task(each.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        return channel

    def end(self) -> None:
        """Refuses new calls."""
        self._is_closed = True

    async def close(self) -> None:
        """Closes all channels."""
        self.end()
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()
