"""`grpc.health.v1.Health`: whether a process is ready, as load balancers and probes ask it.

It says what `/healthz` and `/readyz` say together, for the process (the empty name) and for each of
its services by name: a process is ready as a whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable

import grpc
from grpc_health.v1 import health_pb2 as pb
from grpc_health.v1.health_pb2_grpc import HealthServicer

from sirocco.model.errors import NotFound
from sirocco.runtime.grpc.grpc_errors import streaming, unary

# Between looks while anybody watches. Kubernetes probes every 5 to 10 s.
LOOK_S = 0.5


class HealthFront(HealthServicer):  # type: ignore[misc]
    """Answers for the services of one port.

    The edge bounds calls and streams, so that none of them needs a token.

    Args:
        services: full names of services, such as `sirocco.v1.QueryService`.
        is_serving: whether the process may be relied on; cheap, of any thread.
        look_s: interval of looks at it while anybody watches.
    """

    def __init__(
        self, services: Iterable[str], is_serving: Callable[[], bool], look_s: float = LOOK_S
    ) -> None:
        self._services = frozenset(("", *services))
        self._is_serving = is_serving
        self._look_s = look_s
        self._watching = 0
        self._is_closed = False
        self._seen = False
        # Set, and replaced, when what is seen changes.
        self._change = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Says that nothing is served any more and ends all watching; of the server's loop."""
        self._is_closed = True
        self._change.set()

    @unary
    async def Check(  # noqa: N802 -- the contract's name
        self, request: pb.HealthCheckRequest, context: grpc.aio.ServicerContext
    ) -> pb.HealthCheckResponse:
        """See `grpc/health/v1/health.proto`."""
        if request.service not in self._services:
            raise NotFound("this port has no such service", field="service")
        return pb.HealthCheckResponse(status=self._status(request.service, self._is_serving()))

    @unary
    async def List(  # noqa: N802
        self, request: pb.HealthListRequest, context: grpc.aio.ServicerContext
    ) -> pb.HealthListResponse:
        """See `grpc/health/v1/health.proto`."""
        is_serving = self._is_serving()
        found = {
            name: pb.HealthCheckResponse(status=self._status(name, is_serving))
            for name in self._services
        }
        return pb.HealthListResponse(statuses=found)

    @streaming
    async def Watch(  # noqa: N802
        self, request: pb.HealthCheckRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.HealthCheckResponse]:
        """See `grpc/health/v1/health.proto`."""
        self._watching += 1
        if self._watching == 1:
            self._look()
        try:
            sent: int | None = None
            while True:
                # What was seen, not what is true now: a change that is over before the next look
                # would be sent, and its end not.
                change, status = self._change, self._status(request.service, self._seen)
                if status != sent:
                    yield pb.HealthCheckResponse(status=status)
                    sent = status
                if self._is_closed:
                    return
                await change.wait()
        finally:
            self._watching -= 1
            if not self._watching and self._timer is not None:
                self._timer.cancel()

    def _status(self, service: str, is_serving: bool) -> int:
        if service not in self._services:
            return int(pb.HealthCheckResponse.SERVICE_UNKNOWN)
        if self._is_closed or not is_serving:
            return int(pb.HealthCheckResponse.NOT_SERVING)
        return int(pb.HealthCheckResponse.SERVING)

    def _look(self) -> None:
        """Wakes all watchers if what they were sent has changed: one look for all of them."""
        if (is_serving := self._is_serving()) != self._seen:
            self._seen = is_serving
            self._change.set()
            self._change = asyncio.Event()
        self._timer = asyncio.get_running_loop().call_later(self._look_s, self._look)
