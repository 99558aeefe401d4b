"""Runs sinks of a connector against a fake cluster, and receives what webhooks send."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import orjson
from sirocco_client import AsyncClient, Retry

from sirocco.local.process import free_port
from sirocco.services.connector.runner import Parts
from sirocco.services.connector.sinks.settings import read_sink_settings
from sirocco.services.connector.sinks.sink import Sink
from sirocco.telemetry.metrics.connector import ConnectorMetrics
from sirocco.telemetry.metrics.process import new_registry
from tests.support.fake_cluster import FakeCluster

# Base64 of 24 bytes.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

QUICK = Retry(attempts=5_000, initial_ms=5, longest_ms=20)


@dataclass
class Running:
    """A sink at work, and its metrics."""

    sink: Sink
    task: asyncio.Task[None]
    registry: Any

    def value(self, metric: str, **labels: str) -> float:
        return self.registry.get_sample_value(f"sirocco_connector_{metric}", labels) or 0.0


@asynccontextmanager
async def running(
    router: str, section: Mapping[str, Any], name: str = "alerts", stop_s: float = 5.0
) -> AsyncIterator[Running]:
    """Runs a sink until the block ends; an error of the sink is raised there."""
    registry = new_registry()
    async with AsyncClient(router, retry=QUICK) as client:
        parts = Parts(client, ConnectorMetrics(registry), stop_s)
        sink = read_sink_settings(name, {"subscriber": "s1", **section}).open(parts)
        task = asyncio.create_task(sink.run())
        try:
            yield Running(sink, task, registry)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@dataclass
class Request:
    """One request that a receiver got."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def ids(self) -> list[str]:
        """Ids of the notifications in it."""
        found = orjson.loads(self.body)
        rows = found if isinstance(found, list) else found["notifications"]
        return [row["id"] for row in rows]


# Writes the answer to a request.
Answer = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


def status(code: int, *headers: str, body: bytes = b"") -> Answer:
    """Returns an answer with a status, headers and a body."""

    async def write(_request: Request, writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {code} Any", f"content-length: {len(body)}", *headers]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    return write


OK = status(204)


@dataclass
class Receiver:
    """A receiver of webhooks that answers as a test plans.

    Attributes:
        plan: The answers to the first requests.
        rest: The answer to all others.
        requests: What it got.
    """

    plan: list[Answer] = field(default_factory=list)
    rest: Answer = OK
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    port: int = field(default_factory=free_port)
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    @property
    def url(self) -> str:
        """Where it listens while it is served."""
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def ids(self) -> list[str]:
        """Ids of all notifications, in their order, as often as they came."""
        return [one for request in self.requests for one in request.ids]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                pairs = (line.split(": ", 1) for line in head[1:] if line)
                headers = {name.lower(): value for name, value in pairs}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                request = Request(head[0].split()[1], headers, body)
                self.requests.append(request)
                answer = self.plan.pop(0) if self.plan else self.rest
                await answer(request, writer)
                await writer.drain()
        writer.close()
        self._tasks.discard(task)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[Receiver]:
        """Listens on this host."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        try:
            yield self
        finally:
            server.close()
            for task in list(self._tasks):
                task.cancel()
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await server.wait_closed()


def webhook(receiver: Receiver, state: object, **members: object) -> dict[str, object]:
    """Returns the section of a webhook that tries again at once."""
    return {
        "kind": "webhook",
        "url": receiver.url,
        "secret": SECRET,
        "state": str(state),
        "start": "earliest",
        "allow_private": True,
        "allow_http": True,
        "batch": {"count": 10, "wait": "0s"},
        "retry": {"first": "10ms", "longest": "50ms", "attempts": 3},
        **members,
    }


def deliver(cluster: FakeCluster, count: int, begin: int = 0, queries: int = 3) -> None:
    """Lets the cluster deliver notifications of some queries, one object each."""
    cluster.deliver(*((f"q{i % queries}", i + 1) for i in range(begin, begin + count)))
