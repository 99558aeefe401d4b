"""Who makes a request, and the client that makes its calls to the cluster.

The gateway checks no token: it hands it on, and the cluster refuses it. A token is tried once
before anything large is read for it. To the cluster a gateway is one connection, and anybody
can make tokens up: so the hosts of its clients share the number of trials.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import blake2b

from sirocco_client import AsyncClient, Tls, Unauthenticated
from sirocco_client.connection.tokens import TOKEN_LENGTH_MAX
from starlette.requests import HTTPConnection

from sirocco.model.errors import ResourceExhausted
from sirocco.model.quotas.quota import SharedRate
from sirocco.runtime.grpc.shares import host_of
from sirocco.services.gateway.connections import peer_of
from sirocco.services.gateway.publishing import SharedPublisher

# A browser that cannot send headers with a WebSocket names its token among the subprotocols.
BEARER_PROTOCOL = "bearer."

# Tokens that are tried at once: each costs the cluster a call.
TRIALS_MAX = 32

# Tokens that are tried a second. A process of the cluster checks 100 new JWTs a second of one
# connection (`JwtBudget`): the rest is for those that were accepted, at their other calls.
TRIALS_PER_S = 60.0

# Whose trials are remembered.
_HOSTS_MAX = 8_192

# A client unused for so long is closed.
UNUSED_S = 600.0

# Of what arrives for a stream whose client does not read; there may be thousands of them.
_WINDOW_BYTES = 1 << 16

_FULL_RETRY_MS = 1_000


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request.

    Attributes:
        token: Bearer token; None without.
        key: Digest of the token; empty without.
        peer: The connection.
    """

    token: str | None = field(repr=False)
    key: str
    peer: str


def caller_of(connection: HTTPConnection) -> Caller:
    """Returns the caller of a request.

    Raises:
        Unauthenticated: The header is no bearer token.
    """
    token = _token_of(connection)
    key = "" if token is None else blake2b(token.encode(), digest_size=16).hexdigest()
    client = connection.client
    return Caller(token, key, peer_of(None if client is None else (client.host, client.port)))


def _token_of(connection: HTTPConnection) -> str | None:
    header = connection.headers.get("authorization")
    if header is None:
        for name in connection.headers.get("sec-websocket-protocol", "").split(","):
            if name.strip().startswith(BEARER_PROTOCOL):
                return _checked(name.strip().removeprefix(BEARER_PROTOCOL))
        return None
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthenticated("only `Authorization: Bearer TOKEN` is understood")
    return _checked(token.strip())


def _checked(token: str) -> str:
    is_plain = token.isascii() and token.isprintable() and " " not in token
    if not (is_plain and 0 < len(token) <= TOKEN_LENGTH_MAX):
        raise Unauthenticated("the token is empty, too long or no line of ASCII characters")
    return token


@dataclass(slots=True, eq=False)
class Connected:
    """A client of one token, and its publisher.

    Attributes:
        client: makes the calls.
        publisher: publishes for all requests with this token.
        users: requests that use it now.
        used_s: when it was last used, monotonic seconds.
        is_accepted: whether the cluster accepts the token; where there is none, true.
        share: whose share its requests take from: a tenant's, or that of the operator's token;
            empty where there are no tokens.
    """

    client: AsyncClient
    publisher: SharedPublisher
    users: int = 0
    used_s: float = 0.0
    is_accepted: bool = True
    share: str = ""


class Clients:
    """The clients of a gateway, one for each token in use.

    Connections to the cluster are shared by all of them: gRPC keeps one for each address.

    Args:
        routers: host:port of routers.
        tls: how they are reached.
        tokens_max: clients that are kept.
        call_s: for one call to the cluster.
        publish_s: for the acknowledgement of a body's objects.
        clock_s: the time, seconds.
    """

    def __init__(
        self,
        routers: str,
        tls: Tls | None,
        tokens_max: int,
        call_s: float,
        publish_s: float,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._routers = routers
        self._tls = tls
        self._tokens_max = tokens_max
        self._call_s = call_s
        self._publish_s = publish_s
        self._clock_s = clock_s
        # The longest unused first.
        self._connected: OrderedDict[str, Connected] = OrderedDict()
        self._trials = asyncio.Semaphore(TRIALS_MAX)
        self._trial_rate = SharedRate(TRIALS_PER_S, _HOSTS_MAX)
        self._closing: set[asyncio.Task[None]] = set()
        # Whether the cluster has reported that it has no tokens.
        self._is_open = False

    def __len__(self) -> int:
        return len(self._connected)

    @asynccontextmanager
    async def use(self, caller: Caller) -> AsyncIterator[Connected]:
        """Yields the client of a caller.

        Raises:
            SiroccoError: The cluster refuses the token, or cannot be asked.
            ResourceExhausted: Too many tokens are in use.
        """
        share = ""
        if not self.is_proven(caller):
            share = await self._try(caller)
        caller = self.known(caller)
        one = self._connected.get(caller.key)
        if one is None:
            one = self._connect(caller, share)
        self._connected.move_to_end(caller.key)
        one.users += 1
        try:
            yield one
        except Unauthenticated:
            # It has expired or was revoked; or the cluster has tokens by now.
            one.is_accepted = False
            self._is_open = False
            raise
        finally:
            one.users -= 1
            one.used_s = self._clock_s()
            if not one.is_accepted and not one.users:
                self._drop(caller.key)

    def is_proven(self, caller: Caller) -> bool:
        """Whether the cluster has accepted the caller's token; true without one.

        Until then whatever a caller takes is counted by its connection: tokens can be made up.
        """
        caller = self.known(caller)
        if caller.token is None:
            return True
        one = self._connected.get(caller.key)
        return one is not None and one.is_accepted

    def known(self, caller: Caller) -> Caller:
        """Returns the caller without a token that says nothing, as in a cluster without tokens.

        There anybody could be thousands of callers.
        """
        return Caller(None, "", caller.peer) if self._is_open and caller.key else caller

    def share_of(self, caller: Caller) -> str:
        """Returns whose share a caller takes from; empty: that of its connection.

        The tokens of a tenant share.
        """
        one = self._connected.get(self.known(caller).key)
        return "" if one is None or not one.is_accepted else one.share

    async def _try(self, caller: Caller) -> str:
        """Asks the cluster for the token, and whose it is; nothing is kept of a refused one."""
        async with self._trials:
            if self.is_proven(caller):
                return self.share_of(caller)
            self._spend(host_of(caller.peer))
            async with self._client_of(caller) as client:
                found = await client.describe()
        self._is_open = found.is_open
        return found.tenant

    def _spend(self, host: str) -> None:
        """Takes one trial from what hosts share."""
        at_ms = int(self._clock_s() * 1_000)
        if wait_ms := self._trial_rate.wait_ms(host, at_ms):
            raise ResourceExhausted("too many new tokens at a time", retry_after_ms=wait_ms)
        self._trial_rate.take(host, at_ms)

    async def close(self) -> None:
        """Closes all."""
        for key in list(self._connected):
            self._drop(key)
        if self._closing:
            await asyncio.wait(self._closing)

    def _connect(self, caller: Caller, share: str = "") -> Connected:
        self._make_room(share)
        client = self._client_of(caller)
        publisher = SharedPublisher(client.publisher, self._publish_s)
        one = Connected(client, publisher, share=share or caller.key)
        self._connected[caller.key] = one
        return one

    def _client_of(self, caller: Caller) -> AsyncClient:
        return AsyncClient(
            self._routers,
            tls=self._tls,
            token=caller.token,
            timeout_s=self._call_s,
            window_bytes=_WINDOW_BYTES,
        )

    def _make_room(self, share: str) -> None:
        """Drops unused clients; one tenant gets no more than as many as are free."""
        now_s = self._clock_s()
        for key, one in list(self._connected.items()):
            is_full = len(self._connected) >= self._tokens_max
            if one.users or not (is_full or now_s - one.used_s > UNUSED_S):
                continue
            self._drop(key)
        used = [one for one in self._connected.values() if one.users]
        own = sum(1 for one in used if share and one.share == share)
        is_crowded = own >= self._tokens_max - len(used)
        if is_crowded or len(self._connected) >= self._tokens_max:
            raise ResourceExhausted(
                f"{self._tokens_max} tokens are in use", retry_after_ms=_FULL_RETRY_MS
            )

    def _drop(self, key: str) -> None:
        one = self._connected.pop(key, None)
        if one is None:
            return
        task = asyncio.create_task(_close(one), name="sirocco-gateway-close")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def _close(one: Connected) -> None:
    await one.publisher.close()
    await one.client.close()
