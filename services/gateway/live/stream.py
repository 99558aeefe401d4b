"""`GET /v1/live`: the cluster as it is, as server-sent events, for any number of consoles."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from fastapi import Request, Response
from sirocco_client.errors import SiroccoError as ClientError
from starlette.types import Receive, Scope, Send

from sirocco.model.errors import ResourceExhausted
from sirocco.model.errors import SiroccoError as EngineError
from sirocco.runtime.grpc.shares import Shares
from sirocco.services.gateway.callers import Caller, caller_of
from sirocco.services.gateway.front import Front
from sirocco.services.gateway.live.sampler import Sampler
from sirocco.services.gateway.problems import problem_of, problem_response
from sirocco.services.gateway.wires import EventWire, GoneError

# Tokens for which the cluster is looked at, in all and of one tenant: each costs calls a second.
# Consoles with one token share its looks.
SAMPLERS_MAX = 256
TENANT_SAMPLERS_MAX = 4

# Beyond so many, each looks less often: the cluster has no more calls of them.
_AT_SPEED = 16

_FULL_RETRY_MS = 5_000


class LiveViews:
    """The samplers of a gateway, one for each token with open consoles."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._samplers: dict[str, Sampler] = {}
        self.places = Shares(
            "consoles' tokens", SAMPLERS_MAX, TENANT_SAMPLERS_MAX, _FULL_RETRY_MS, connection_max=1
        )

    def slowness(self) -> float:
        """Returns how many times its usual pause a sampler rests between two looks."""
        return max(1.0, len(self._samplers) / _AT_SPEED)

    async def stream(self, request: Request) -> Response:
        """Sends what the cluster does, about once a second: for the console, and for people.

        Events: `map` (leaves and owners, when they change), `state` (members, rates, loads of
        leaves), `balance` (decisions), `objects` (a sample of those that have just arrived). A
        client that reads slowly misses some. Forms may change from version to version.
        """
        return _LiveStream(self._front, self)

    @contextmanager
    def watched(self, caller: Caller) -> Iterator[Sampler]:
        """Yields the sampler of a caller's token, which looks at the cluster meanwhile.

        Raises:
            ResourceExhausted: Too many tokens of its tenant, or in all, have consoles.
        """
        caller = self._front.clients.known(caller)
        sampler = self._samplers.get(caller.key)
        if sampler is None:
            share = self._front.clients.share_of(caller)
            try:
                self.places.take(share, peer=caller.peer)
            except ResourceExhausted:
                self._front.count_refused("streams")
                raise
            give_back = partial(self.places.give_back, share, peer=caller.peer)
            sampler = Sampler(self._front, caller, self.slowness, give_back)
            self._samplers[caller.key] = sampler
        sampler.begin()
        try:
            yield sampler
        finally:
            sampler.end()
            if not sampler.watchers and self._samplers.get(caller.key) is sampler:
                del self._samplers[caller.key]


class _LiveStream(Response):
    """The answer that is a stream of events."""

    def __init__(self, front: Front, views: LiveViews) -> None:
        self._front = front
        self._views = views
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        wire = EventWire(self._front, scope, receive, send)
        request = Request(scope)
        try:
            async with self._front.stream(request):
                with self._views.watched(caller_of(request)) as sampler:
                    await wire.start()
                    await self._write_on(wire, sampler)
        except (ClientError, EngineError) as error:
            await problem_response(problem_of(error))(scope, receive, send)

    async def _write_on(self, wire: EventWire, sampler: Sampler) -> None:
        """Writes events until one of both sides ends."""
        enders: list[asyncio.Task[Any]] = [
            asyncio.create_task(wire.gone()),
            asyncio.create_task(self._front.stopping.wait()),
        ]
        self._front.metrics.streams.inc()
        try:
            # A client comes back to a sampler that has failed, which begins anew for it.
            looks = [] if sampler.task is None else [sampler.task]
            await self._write_until(wire, sampler, [*enders, *looks])
            await wire.end()
        except GoneError:
            pass
        finally:
            self._front.metrics.streams.dec()
            for task in enders:
                task.cancel()

    async def _write_until(
        self, wire: EventWire, sampler: Sampler, enders: list[asyncio.Task[Any]]
    ) -> None:
        sent: dict[str, int] = {}
        while not any(task.done() for task in enders):
            news = sampler.news
            is_quiet = True
            # Only the last event of a type: a client that reads slowly misses the others.
            for name, event in list(sampler.latest.items()):
                if sent.get(name) != event.number:
                    sent[name] = event.number
                    is_quiet = False
                    await wire.named(name, event.data)
            waiting = asyncio.create_task(news.wait())
            try:
                await asyncio.wait(
                    [waiting, *enders],
                    timeout=self._front.limits.keep_alive_s,
                    return_when=asyncio.FIRST_COMPLETED,
                )
            finally:
                waiting.cancel()
            if is_quiet and not news.is_set():
                await wire.keep_alive("")
