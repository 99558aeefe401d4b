"""What the handlers of a gateway share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

from sirocco_api.v1.trace_pb2 import TraceContext
from sirocco_client import PermissionDenied, Unauthenticated
from sirocco_client.base.caller_trace import FORWARDED
from sirocco_client.errors import SiroccoError as ClientError
from starlette.requests import HTTPConnection, Request

from sirocco.model.errors import ResourceExhausted, Unavailable
from sirocco.runtime.grpc.shares import Shares
from sirocco.runtime.grpc.work_pool import WorkPool
from sirocco.services.gateway.bodies import Bodies
from sirocco.services.gateway.callers import Caller, Clients, Connected, caller_of
from sirocco.services.gateway.connections import Connections
from sirocco.services.gateway.settings import GatewaySettings
from sirocco.telemetry.metrics.gateway import GatewayMetrics
from sirocco.telemetry.trace_context import read_context

T = TypeVar("T")

# How long an answer of a router counts for /readyz, and how long it may take.
_READY_S = 2.0

# CPU time a second of one token for bodies, answers and regions: one of the two threads.
_CALLER_MS_PER_S = 1_000.0

# A large body takes some seconds of them.
_WORK_WAIT_S = 30.0


class Front:
    """Clients, limits and metrics of one gateway. Belongs to the server's loop.

    Args:
        settings: of the process.
        metrics: of the process.
    """

    def __init__(self, settings: GatewaySettings, metrics: GatewayMetrics) -> None:
        limits = settings.limits
        self.settings = settings
        self.limits = limits
        self.metrics = metrics
        self.stopping = asyncio.Event()
        self.clients = Clients(
            settings.routers, settings.tls(), limits.tokens, limits.call_s, limits.publish_s
        )
        self.connections = Connections(limits, self.count_refused)
        self.bodies = Bodies(limits, self.count_refused, self.clients.share_of)
        self.calls = Shares(
            "requests", limits.calls, limits.caller_calls, 500, connection_max=limits.caller_calls
        )
        self.streams = Shares(
            "streams",
            limits.streams,
            limits.caller_streams,
            2_000,
            connection_max=limits.caller_streams,
        )
        self.events = Shares(
            "bytes of events",
            limits.event_bytes,
            limits.caller_event_bytes,
            1_000,
            connection_max=limits.caller_event_bytes,
        )
        self._is_ready = False
        self._asked_s = float("-inf")
        self.explanations = Shares("explanations", limits.explanations, limits.explanations, 1_000)
        # One body may take seconds, so nobody has both threads.
        self._pool = WorkPool(
            "gateway-work",
            tenant_ms_per_s=_CALLER_MS_PER_S,
            wait_s=_WORK_WAIT_S,
            running_each_max=1,
        )
        self._explainers = ThreadPoolExecutor(limits.explanations, "gateway-explain")

    def count_refused(self, reason: str) -> None:
        """Counts a connection, body, request or stream that was refused."""
        self.metrics.refused.labels(reason=reason).inc()

    @asynccontextmanager
    async def call(self, request: Request) -> AsyncIterator[tuple[Caller, Connected]]:
        """Yields who makes a request, and their client; the request takes a place meanwhile."""
        caller = caller_of(request)
        with self.place(self.calls, "calls", caller), _forwarded_trace(request):
            async with self.clients.use(caller) as connected:
                yield caller, connected

    @contextmanager
    def place(self, shares: Shares, reason: str, caller: Caller) -> Iterator[None]:
        """Holds a place for a caller.

        Raises:
            ResourceExhausted: None is free for it.
        """
        key = self.clients.share_of(caller)
        try:
            shares.take(key, peer=caller.peer)
        except ResourceExhausted:
            self.count_refused(reason)
            raise
        try:
            yield
        finally:
            shares.give_back(key, peer=caller.peer)

    @asynccontextmanager
    async def stream(self, connection: HTTPConnection) -> AsyncIterator[tuple[Caller, Connected]]:
        """Yields whose stream it is, and their client; the stream takes a place meanwhile."""
        caller = caller_of(connection)
        if self.stopping.is_set():
            raise Unavailable("this gateway is being stopped")
        with self.place(self.streams, "streams", caller):
            async with self.clients.use(caller) as connected:
                yield caller, connected

    async def is_ready(self) -> bool:
        """Whether a router answers, which is asked no more often than every few seconds."""
        if self.stopping.is_set():
            return False
        now_s = time.monotonic()
        if now_s - self._asked_s >= _READY_S:
            self._asked_s = now_s
            self._is_ready = await self._reaches_cluster()
        return self._is_ready

    async def _reaches_cluster(self) -> bool:
        nobody = Caller(None, "", "")
        try:
            async with self.clients.use(nobody) as connected:
                await connected.client.describe(timeout_s=_READY_S)
        except (Unauthenticated, PermissionDenied):
            return True
        except (ClientError, ResourceExhausted):
            return False
        return True

    async def work(self, caller: Caller, job: Callable[[], T]) -> T:
        """Does what takes long beside the loop, in turns of the callers."""
        return await self._pool.run(job, sender=(self.clients.share_of(caller), caller.peer))

    async def explain(self, caller: Caller, job: Callable[[], T]) -> T:
        """Makes blocking calls beside the loop."""
        share = self.clients.share_of(caller)
        await self.explanations.wait(share, 1, self.limits.room_s, peer=caller.peer)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._explainers, job)
        finally:
            self.explanations.give_back(share, peer=caller.peer)

    async def close(self) -> None:
        """Closes the clients and ends the threads."""
        await self.clients.close()
        self._pool.close()
        self._explainers.shutdown(wait=False, cancel_futures=True)


@contextmanager
def _forwarded_trace(request: Request) -> Iterator[None]:
    """Makes what is published and searched for a request a part of its caller's trace."""
    headers = request.headers
    place = read_context(headers.get("traceparent", ""), headers.get("tracestate", ""))
    if place is None:
        yield
        return
    token = FORWARDED.set(TraceContext(traceparent=place.traceparent, tracestate=place.state))
    try:
        yield
    finally:
        FORWARDED.reset(token)
